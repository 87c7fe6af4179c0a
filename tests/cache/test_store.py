"""The store: whatever is doubtful is a miss, and nothing of it raises."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from cubepy.cache import folder, store
from cubepy.cache.entry import Entry, decode, encode
from cubepy.cache.store import Store

KEY, OTHER = "ab" * 32, "cd" * 32
ENTRY = Entry(KEY, {"kind": "code", "n": 3}, bytes(range(256)))
posix = pytest.mark.skipif(not folder.IS_SUPPORTED, reason="the cache is POSIX only")
pytestmark = posix


@pytest.fixture(autouse=True)
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_warnings", [True])


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    """A store with one entry, in which nothing warns."""
    found = Store(str(tmp_path / "a" / "b"), 1 << 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.put(ENTRY)
        yield found


def path_of(kept: Store, key: str = KEY) -> Path:
    return Path(kept.path, key)


def test_an_entry_comes_back(kept: Store) -> None:
    assert kept.get(KEY) == ENTRY
    assert kept.get(OTHER) is None
    assert Store(str(Path(kept.path).parent), 1).get(KEY) == ENTRY


def test_only_the_user_can_read_and_write(kept: Store) -> None:
    assert stat.S_IMODE(os.stat(kept.path).st_mode) == 0o700
    assert stat.S_IMODE(path_of(kept).stat().st_mode) == 0o600


def test_every_flipped_byte_is_a_miss() -> None:
    data = encode(ENTRY)
    assert decode(KEY, data) == ENTRY
    for k in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            changed = bytearray(data)
            changed[k] ^= flip
            with pytest.raises(Exception, match="it|its") as caught:
                decode(KEY, bytes(changed))
            assert type(caught.value).__name__ == "Damaged"


@pytest.mark.parametrize("change", ["cut", "longer", "empty", "other key", "pickle", "huge"])
def test_a_damaged_file_is_a_miss_and_removed(kept: Store, change: str) -> None:
    data = encode(ENTRY)
    texts = {
        "cut": data[:-1],
        "longer": data + b"\0",
        "empty": b"",
        "other key": encode(Entry(OTHER, ENTRY.header, ENTRY.body)),
        "pickle": b"cos\nsystem\n(S'touch planted'\ntR.",
        "huge": data[:8] + b"\xff" * 16 + data[24:],
    }
    path_of(kept).write_bytes(texts[change])
    path_of(kept).chmod(0o600)
    assert kept.get(KEY) is None
    assert not path_of(kept).exists()
    kept.put(ENTRY)
    assert kept.get(KEY) == ENTRY


@pytest.mark.parametrize("plant", ["symlink", "hard link", "fifo", "folder", "writable"])
def test_planted_entries_are_refused(kept: Store, plant: str, tmp_path: Path) -> None:
    path, elsewhere = path_of(kept), tmp_path / "elsewhere"
    os.rename(path, elsewhere)
    if plant == "symlink":
        path.symlink_to(elsewhere)
    elif plant == "hard link":
        os.link(elsewhere, path)
    elif plant == "fifo":
        os.mkfifo(path)
    elif plant == "folder":
        (path / "in it").mkdir(parents=True)
    else:
        os.rename(elsewhere, path)
        path.chmod(0o622)
    assert kept.get(KEY) is None
    kept.put(ENTRY)
    assert kept.get(KEY) == ENTRY and path.stat().st_nlink == 1


@pytest.mark.parametrize("plant", ["symlink", "folder"])
def test_what_stands_in_the_place_of_a_lock_is_removed(kept: Store, plant: str) -> None:
    path = Path(kept.path, f"lock-{int(KEY[:8], 16) % store.LOCKS:02x}")
    if plant == "symlink":
        path.symlink_to(kept.path)
    else:
        path.mkdir()
    with kept.lock(KEY):
        assert path.is_file() and not path.is_symlink()
    assert kept.get(KEY) == ENTRY


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_a_refused_entry_leaves_no_descriptor_open(kept: Store) -> None:
    before = os.listdir("/proc/self/fd")
    path_of(kept).unlink()
    for _ in range(3):
        path_of(kept).mkdir()
        assert kept.get(KEY) is None
    assert os.listdir("/proc/self/fd") == before


def test_entries_alone_are_cleared(kept: Store) -> None:
    other = Path(kept.path, "mine")
    other.mkdir()
    assert kept.clear() == 1 and kept.get(KEY) is None and other.exists()


def test_entries_of_another_user_are_refused(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.geteuid()
    own = os.fstat

    def foreign(fd: int) -> os.stat_result:
        found = own(fd)
        if not stat.S_ISREG(found.st_mode):
            return found
        return os.stat_result((*found[:4], me + 1, *found[5:]))

    monkeypatch.setattr(folder.os, "fstat", foreign)
    assert kept.get(KEY) is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_refused(kept: Store, mode: int) -> None:
    os.chmod(kept.path, mode)
    again = Store(str(Path(kept.path).parent), 1 << 20)
    with pytest.warns(RuntimeWarning, match="can be written by others"):
        assert again.get(KEY) is None
    again.put(ENTRY)
    assert again.why_not()


def test_a_folder_in_one_that_others_can_write_is_refused(kept: Store) -> None:
    parent = Path(kept.path).parents[1]
    parent.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="can be written by others"):
        assert Store(str(Path(kept.path).parent), 1 << 20).get(KEY) is None
    parent.chmod(0o1777)  # sticky, as /tmp
    assert Store(str(Path(kept.path).parent), 1 << 20).get(KEY) == ENTRY


def test_a_linked_folder_is_refused(kept: Store, tmp_path: Path) -> None:
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / store.FOLDER).symlink_to(kept.path)
    with pytest.warns(RuntimeWarning):
        linked = Store(str(tmp_path / "link"), 1 << 20)
        linked.put(ENTRY)
    assert linked.get(KEY) is None


@pytest.mark.parametrize("path", ["relative/path", "~/nowhere", "/proc/cubepy", "/dev/null/cubepy"])
def test_a_place_that_cannot_be_is_one_warning(path: str) -> None:
    lost = Store(path, 1 << 20)
    with pytest.warns(RuntimeWarning, match="compiled code is not kept") as found:
        for _ in range(3):
            lost.put(ENTRY)
            assert lost.get(KEY) is None
            with lost.lock(KEY):
                pass
    assert len(found) == 1
    assert lost.why_not()


def test_a_folder_that_was_removed_is_made_again(kept: Store) -> None:
    import shutil

    shutil.rmtree(kept.path)
    assert kept.get(KEY) is None
    kept.put(ENTRY)
    assert kept.get(KEY) == ENTRY


def test_the_entry_used_least_lately_goes_first(tmp_path: Path) -> None:
    small = Store(str(tmp_path / "s"), 4000)
    keys = [f"{k:064x}" for k in range(40)]
    for k, key in enumerate(keys[:12]):
        small.put(Entry(key, {}, bytes(500)))
        os.utime(path_of(small, key), (1000 + k, 1000 + k))
    assert small.get(keys[0]) is not None  # used now
    small._written = 0  # as a new process, which looks at the size at its first entry
    small.put(Entry(keys[20], {}, bytes(500)))
    left = [key for key in keys if path_of(small, key).exists()]
    assert keys[0] in left and keys[20] in left and keys[1] not in left
    assert sum(path_of(small, key).stat().st_size for key in left) <= 4000


def test_what_was_used_before_the_clock_was_set_back_goes_first(tmp_path: Path) -> None:
    small = Store(str(tmp_path / "s"), 4000)
    keys, future = [f"{k:064x}" for k in range(20)], time.time() + 1e6
    for key in keys[:12]:
        small.put(Entry(key, {}, bytes(500)))
        os.utime(path_of(small, key), (future, future))
    torn = Path(small.path, "1.aa.tmp")
    torn.write_bytes(b"torn")
    os.utime(torn, (future, future))
    small._written = 0
    small.put(Entry(keys[19], {}, bytes(500)))
    assert small.get(keys[19]) is not None and not torn.exists()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_store_that_can_only_be_read_is_read(
    kept: Store, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(code, "Read-only file system")

    monkeypatch.setattr(folder.Folder, "write", refuse)
    monkeypatch.setattr(folder.Folder, "open_lock", refuse)
    again = Store(str(Path(kept.path).parent), 1 << 20)
    with pytest.warns(RuntimeWarning, match="Read-only") as found:
        for _ in range(2):
            with again.lock(OTHER):
                again.put(Entry(OTHER, {}, b""))
            assert again.get(KEY) == ENTRY and again.get(OTHER) is None
    assert len(found) == 1


def test_stale_files_are_collected(kept: Store) -> None:
    old, new = Path(kept.path, "1.aa.tmp"), Path(kept.path, "2.bb.tmp")
    for path in (old, new):
        path.write_bytes(b"torn")
    past = time.time() - store.STALE - 5
    os.utime(old, (past, past))
    kept._written = 0
    kept.put(ENTRY)
    assert not old.exists() and new.exists()


def child(text: str, *args: str) -> subprocess.CompletedProcess[str]:
    head = "import sys, warnings\nfrom cubepy.cache.store import Store\n"
    head += f"from cubepy.cache.entry import Entry\nKEY = {KEY!r}\n"
    command = [sys.executable, "-c", head + text, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_full_disk_is_one_warning_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit of the size of files gives what a full disk gives: a write that stops half-way."""
    text = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "s = Store(sys.argv[1], 1 << 20)\n"
        "for n in (10, 5000, 6000): s.put(Entry(KEY, {}, bytes(n)))\n"
        "assert len(s.get(KEY).body) == 10\n"
    )
    done = child(text, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning") == 1
    assert not list(tmp_path.rglob("*.tmp"))


def test_no_more_descriptors_is_a_miss(tmp_path: Path) -> None:
    text = (
        "import resource, os\ns = Store(sys.argv[1], 1 << 20)\ns.put(Entry(KEY, {}, b'x'))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))\nheld = []\n"
        "try:\n  while True: held.append(os.dup(0))\nexcept OSError: pass\n"
        "assert s.get(KEY) is None\ns.put(Entry(KEY, {}, b'y'))\nwith s.lock(KEY): pass\n"
        "for fd in held: os.close(fd)\nassert s.get(KEY).body == b'x'\n"
    )
    done = child(text, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning") == 1


def test_an_entry_appears_whole(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is on disk before it has its name."""
    before, seen = os.rename, []

    def rename(aside: str, name: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        size = os.stat(aside, dir_fd=src_dir_fd).st_size
        seen.append((name in os.listdir(dst_dir_fd), size))
        before(aside, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", rename)
    entry = Entry("1" * 64, {}, bytes(1 << 20))
    kept.put(entry)
    assert seen == [(False, len(encode(entry)))]
    assert kept.get(entry.key) == entry


def test_a_killed_writer_leaves_no_torn_entry(tmp_path: Path) -> None:
    """20 kills here; `python -m tests.cache.soak kills` does 1,000."""
    text = (
        "s = Store(sys.argv[1], 1 << 30)\nprint('ready', flush=True)\nn = 0\n"
        "while True:\n  n += 1\n"
        "  s.put(Entry(f'{n % 7:064x}', {'n': n}, bytes([n % 256]) * 60000))\n"
    )
    reader = Store(str(tmp_path), 1 << 30)
    head = (
        "import sys\nfrom cubepy.cache.store import Store\nfrom cubepy.cache.entry import Entry\n"
    )
    wrong = 0
    for _ in range(20):
        writer = subprocess.Popen(
            [sys.executable, "-c", head + text, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.004)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        for k in range(7):
            found = reader.get(f"{k:064x}")
            wrong += found is not None and set(found.body) != {found.header["n"] % 256}
    assert wrong == 0


def test_a_lock_is_held_by_one_process_and_dies_with_it(tmp_path: Path) -> None:
    text = "s = Store(sys.argv[1], 1)\nwith s.lock(KEY):\n  print('held', flush=True)\n  input()\n"
    head = "import sys\nfrom cubepy.cache.store import Store\n" + f"KEY = {KEY!r}\n"
    holder = subprocess.Popen(
        [sys.executable, "-c", head + text, str(tmp_path)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    own, is_killed = Store(str(tmp_path), 1), threading.Event()

    def kill_later() -> None:
        time.sleep(0.3)
        is_killed.set()
        holder.kill()

    threading.Thread(target=kill_later).start()
    with own.lock(KEY):
        assert is_killed.is_set()
    holder.communicate()


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE", 0.05)
    a, b = Store(str(tmp_path), 1), Store(str(tmp_path), 1)
    with a.lock(KEY), b.lock(KEY):
        pass


def test_a_child_of_a_fork_gives_up_its_parents_locks(tmp_path: Path) -> None:
    text = (
        "import os\ns = Store(sys.argv[1], 1)\nwith s.lock(KEY):\n  pid = os.fork()\n"
        "  if not pid:\n    import time; time.sleep(30); os._exit(0)\n"
        "with s.lock(KEY): assert os.waitpid(pid, os.WNOHANG) == (0, 0)\n"
        "os.kill(pid, 9); os.waitpid(pid, 0)\n"
    )
    done = child(text, str(tmp_path))
    assert done.returncode == 0, done.stderr
