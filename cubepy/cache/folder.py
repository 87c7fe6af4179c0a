"""A folder that only its user can write: opened once, checked, and used by its descriptor.

POSIX only. Whoever may write here may run code as the user, so the owner and the mode decide.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from cubepy.record import dataclass

IS_SUPPORTED = sys.platform != "win32"
"""Whether the system has owners, modes and descriptors of folders as POSIX has."""
MAX_BYTES = 1 << 30
"""Longer files are not read."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_READ = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _READ


class Refused(Exception):
    """The folder, or a file in it, might hold what somebody else wrote."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the folder: its name, size in bytes and time of last use in seconds."""

    name: str
    nbytes: int
    used: float


_all: WeakSet[Folder] = WeakSet()


def descriptors() -> set[int]:
    """Those of all folders that are open."""
    return {folder.fd for folder in list(_all)}


class Folder:
    """An open folder; files are named relative to it, so that its path cannot be swapped."""

    def __init__(self, path: str) -> None:
        """Open the folder, made now if there is none. `Refused` where others could write to it,
        `OSError` where the system says no."""
        if not os.path.isabs(path):
            raise Refused(f"{path} is no absolute path")
        self.path = path
        _make(Path(path))
        for parent in Path(os.path.realpath(os.path.dirname(path))).parents:
            _check_parent(parent)
        _check_parent(Path(os.path.realpath(os.path.dirname(path))))
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _READ)
        try:
            _check_own(path, os.fstat(self.fd))
        except Refused:
            os.close(self.fd)
            raise
        _all.add(self)

    def __del__(self) -> None:
        fd = getattr(self, "fd", None)
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def read(self, name: str) -> bytes | None:
        """All of a file; None where there is none. `Refused` for what this user did not write as a
        plain file with one name."""
        try:
            fd = os.open(name, os.O_RDONLY | _READ, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > MAX_BYTES:
                raise Refused(f"{name} is no plain file of its own")
            _check_own(name, found)
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes) -> None:
        """Publish a file: written aside, then renamed, so that readers see all of it or nothing."""
        aside = f"{os.getpid()}.{os.urandom(8).hex()}.tmp"
        fd = os.open(aside, _WRITE, 0o600, dir_fd=self.fd)
        try:
            with open(fd, "wb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
            os.rename(aside, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            self.remove(aside)
            raise

    def remove(self, name: str) -> None:
        """Remove a file, or the folder that stands in its place, if it can be removed."""
        with suppress(OSError):
            try:
                os.unlink(name, dir_fd=self.fd)
            except (IsADirectoryError, PermissionError):  # on a Mac a folder gives the second
                self._remove_folder(name)

    def _remove_folder(self, name: str) -> None:
        from shutil import rmtree

        rmtree(name, dir_fd=self.fd)

    def touch(self, name: str) -> None:
        """Note that a file was used now."""
        with suppress(OSError):
            os.utime(name, dir_fd=self.fd, follow_symlinks=False)

    def age_of(self, name: str, now: float) -> float:
        """Seconds since a file was last noted as used."""
        return now - os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mtime

    def files(self) -> Iterator[Found]:
        """All files, in no order."""
        with os.scandir(self.fd) as entries:
            for entry in entries:
                with suppress(OSError):  # another process removed it
                    found = entry.stat(follow_symlinks=False)
                    yield Found(entry.name, found.st_size, found.st_mtime)

    def open_lock(self, name: str) -> int:
        """A descriptor of a lock file, which is made if there is none; what stands in its place
        is removed."""
        try:
            return self._open_to_lock(name)
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.ELOOP):
                raise
        self.remove(name)
        return self._open_to_lock(name)

    def _open_to_lock(self, name: str) -> int:
        return os.open(name, os.O_RDWR | os.O_CREAT | _READ, 0o600, dir_fd=self.fd)


def _make(path: Path) -> None:
    """Make a folder and those above it that are missing, for the user alone."""
    if path.is_dir():
        return
    if path.parent != path:
        _make(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)


def _check_own(name: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise Refused(f"{name} belongs to another user")
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise Refused(f"{name} can be written by others")


def _check_parent(path: Path) -> None:
    """`Refused` if others could put another folder in the place of one below `path`."""
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise Refused(f"{path} belongs to another user")
    is_sticky = bool(found.st_mode & stat.S_ISVTX)
    if found.st_mode & stat.S_IWOTH and not is_sticky:
        raise Refused(f"{path} can be written by others")
    is_private_group = found.st_gid == os.getegid() == os.geteuid()
    if found.st_mode & stat.S_IWGRP and not is_sticky and not is_private_group:
        raise Refused(f"{path} can be written by its group")
