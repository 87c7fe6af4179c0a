"""The process of a sandbox: it runs what it is sent, and answers.

It reads messages from its standard input, a line of JSON and then the bytes that the line counts,
and writes lines of JSON to its standard output. It ends when its input does, and after a while in
which nothing came.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

IDLE_S = 60.0
"""Nobody keeps the memory of a device for longer without work."""
ALIGNMENT = 512
"""Addresses here and there are equal by this many bytes."""
_CLEARED = 1 << 20
Message = tuple[dict[str, Any], list[bytes]]


class Copy:
    """Memory of the device in place of the bytes from `low` on, which it was sent or are 0."""

    def __init__(self, device: Any, low: int, nbytes: int, content: bytes | None) -> None:
        self._device, self._low, self._content = device, low, content
        self._allocation = device.allocate(nbytes + 2 * ALIGNMENT)
        self._nbytes = nbytes
        start = self._allocation.address
        self._address = -(-start // ALIGNMENT) * ALIGNMENT + low % ALIGNMENT
        if content is None:
            self._clear()

    def restore(self) -> None:
        """Give it what it was sent."""
        if self._content:
            host = np.frombuffer(self._content, np.uint8).ctypes.data
            self._device.upload(self._address, host, len(self._content))

    def _clear(self) -> None:
        """Zeros: some are uploaded, and copied twice as far again and again."""
        done = min(self._nbytes, _CLEARED)
        zeros = ctypes.create_string_buffer(done)
        self._device.upload(self._address, ctypes.addressof(zeros), done)
        while done < self._nbytes:
            more = min(done, self._nbytes - done)
            self._device.copy(self._address + done, self._address, more)
            done += more

    def address_of(self, address: int) -> int | None:
        """Where a byte is here; None if it is not one of these."""
        inside = self._low <= address < self._low + max(1, self._nbytes)
        return self._address + address - self._low if inside else None


class Runner:
    """Runs recorded launches on copies of arrays."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._contents: dict[str, bytes] = {}
        self._copies: dict[tuple[int, int, str], Copy] = {}

    def keep(self, message: dict[str, Any], data: list[bytes]) -> None:
        """Contents of arrays, by name."""
        self._contents[message["name"]] = data[0]

    def forget(self) -> None:
        """Free all memory."""
        self._contents, self._copies = {}, {}
        release = getattr(self._device, "release_memory", None)
        if release is not None:
            release()

    def run(self, message: dict[str, Any], codes: list[bytes]) -> None:
        """Run launches one after the other, and wait for them."""
        from cubepy.cache.codec import artifact_from

        wanted = [(low, high - low, name) for low, high, name in message["spans"]]
        self._copies = {k: c for k, c in self._copies.items() if k in wanted}
        for low, nbytes, name in wanted:
            if (low, nbytes, name) not in self._copies:
                copy = Copy(self._device, low, nbytes, self._contents.get(name))
                self._copies[low, nbytes, name] = copy
        for copy in self._copies.values():
            copy.restore()
        target = self._device.target
        for row, code in zip(message["launches"], codes, strict=True):
            self._launch(artifact_from(row["artifact"], code, target), row)
        self._device.synchronize()

    def _launch(self, artifact: Any, row: dict[str, Any]) -> None:
        words = list(row["block"])
        for k, slot in enumerate(artifact.slots):
            if slot.kind.is_address:
                words[k] = self._here(words[k])
        maps = [
            (word, getattr(self._device, method)(self._here(address), *map(_tupled, layout)))
            for word, address, method, layout in row["maps"]
        ]
        for word, made in maps:
            words[word] = made.address
        block = (ctypes.c_uint64 * len(words))(*words)
        x, y, z = words[len(artifact.slots) : len(artifact.slots) + 3]
        self._device.launch(self._device.load(artifact), block, x * y * z, 1)

    def _here(self, address: int) -> int:
        found = (copy.address_of(address) for copy in self._copies.values())
        return next((a for a in found if a is not None), address)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def answer(runner: Runner, message: dict[str, Any], data: list[bytes]) -> dict[str, Any] | None:
    """What to say to a message; None if nothing."""
    from cubepy.errors import DeviceError

    if message["do"] == "keep":
        return runner.keep(message, data)
    if message["do"] == "forget":
        return runner.forget()
    try:
        runner.run(message, data)
    except DeviceError as error:
        return {"error": str(error), "code": error.code}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "code": ""}
    return {"error": ""}


def read_messages(stream: BinaryIO, put: Callable[[Message | None], None]) -> None:
    """Hand over what comes; None at the end."""
    while line := stream.readline():
        message = json.loads(line)
        put((message, [stream.read(n) for n in message.get("sizes", ())]))
    put(None)


def main(name: str) -> None:
    """Serve a device until the requests end."""
    out, read = os.fdopen(os.dup(1), "wb", 0), os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)  # what kernels print goes nowhere
    came: queue.Queue[Message | None] = queue.Queue()

    def put(message: Message | None) -> None:
        if message is None:
            os._exit(0)  # also where a kernel hangs
        came.put(message)

    threading.Thread(target=read_messages, args=(read, put), daemon=True).start()
    from cubepy.runtimes.registry import find_device

    device = find_device(name)
    device.synchronize()
    runner = Runner(device)
    says_loss = device.target.kind != "opencl"
    out.write(b'{"ready": true}\n')
    while True:
        try:
            message = came.get(timeout=IDLE_S)
        except queue.Empty:
            os._exit(0)
        assert message is not None
        said = answer(runner, *message)
        if said is not None:
            said["is_last"] = said.get("code") == "E509" or bool(said["error"] and not says_loss)
            out.write(json.dumps(said).encode() + b"\n")
            if said["is_last"]:
                os._exit(1)  # the context is lost, or may be
