"""What measurements depend on besides the kernel: the hardware as one short text."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from cubepy.autotune.space import canonical_text
from cubepy.hashing import sha256
from cubepy.record import dataclass
from cubepy.targets import Target


@dataclass(frozen=True, slots=True)
class Hardware:
    """`key`: 16 hexadecimal digits; `text`: for people; `facts`: what the key is made of."""

    key: str
    text: str
    facts: str


def hardware_of(device: Any) -> Hardware:
    """The fingerprint of a device: equal for equal machines, not for two kinds of them.

    Model, architecture, features, cores, caches, clock class, memory and, of a GPU, the driver.
    """
    return _hardware(device.name.partition(":")[0], device.target, _about(device))


@lru_cache(maxsize=32)
def _hardware(kind: str, target: Target, about: tuple[tuple[str, Any], ...]) -> Hardware:
    facts = {
        "kind": kind,
        "arch": target.arch,
        "features": sorted(target.features),
        "cores": target.cores,
        "caches": [target.near_bytes, target.cache_bytes],
        "line": target.line_bytes,
        "shared": target.shared_bytes,
        **dict(about),
    }
    text = canonical_text(facts)
    key = sha256(text.encode()).hexdigest()[:16]
    name = dict(about).get("model") or str(target)
    return Hardware(key, f"{name}, {target.cores} cores" if kind == "cpu" else str(name), text)


def _about(device: Any) -> tuple[tuple[str, Any], ...]:
    properties = device.properties
    if device.name == "cpu":
        return (("model", _cpu_model() or properties.name), ("mhz", _clock_class()))
    found: list[tuple[str, Any]] = [("model", properties.name), ("units", properties.cores)]
    found.append(("memory_gib", round(properties.memory_bytes / 2**30)))
    driver = getattr(device, "driver_version", None)
    if driver is not None:
        found.append(("driver", str(driver() if callable(driver) else driver)))
    return tuple(found)


@lru_cache(maxsize=1)
def _cpu_model() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("model name", "Hardware", "CPU part")):
                return " ".join(line.partition(":")[2].split())
    return ""


@lru_cache(maxsize=1)
def _clock_class() -> int:
    """The highest clock in steps of 100 MHz; 0 where the system does not say."""
    place = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    with suppress(OSError, ValueError):
        return round(int(place.read_text()) / 1e5) * 100
    return 0
