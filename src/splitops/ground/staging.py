"""Hidden folders in which files are written before they take their places: of this user, and of one run."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Self

from splitops.errors import ModelError, shown, shown_path
from splitops.ground.descriptors import Descriptors

LOCK_NAME: Final = ".journal"
"""The file of a folder that a run locks, and in which it may note what it has done."""
_DRAFTS: Final = "files"
"""The folder in it where files are written. Their names may be any, also those of the others in it."""
_BEFORE: Final = "before"
"""The folder in it where the files that are replaced wait."""
_MAX_NAME: Final = 200
"""Maximum bytes of the set's name in a folder name. Most file systems limit names to 255 bytes."""
_MAX_TRIES: Final = 100
"""Attempts to lock a folder that other runs remove meanwhile."""
_FOLDERS_OPEN: Final = hasattr(os, "O_DIRECTORY")
"""Whether the system opens folders. Windows does not."""
_DESCRIPTORS: Final = "/proc/self/fd"
"""The folder that has the open descriptors of this process, on Linux."""
UNFOLLOWED: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags with which neither a link is followed nor a pipe waited for."""


class Stays(enum.Enum):
    """When a staging folder stays although its files were not published."""

    NEVER = enum.auto()
    AFTER_INTERRUPT = enum.auto()
    ALWAYS = enum.auto()


def staging_path(folder: Path, name: str) -> Path:
    """Return the path of the staging folder of a set of files; a checksum replaces the end of a long name."""
    raw = os.fsencode(name)
    if len(raw) > _MAX_NAME:
        kept = raw[: _MAX_NAME - 17].decode(errors="ignore")
        name = f"{kept}-{hashlib.sha256(raw).hexdigest()[:16]}"
    return folder / f".splitops-{name}.part"


class OpenFolder:
    """A folder that is open.

    What is in it is reached by paths below :attr:`root`. On Linux they lead through a descriptor of the
    folder, so that a link or folder that is put in its place meanwhile is never written to. Where the system
    has no such paths, they contain the name of the folder: then the folder around it has to be safe from
    others, as that of any file has to be.

    Attributes:
        root: the beginning of the paths by which this process opens what is in it.
    """

    def __init__(self, path: Path, flags: int = 0) -> None:
        """Open a folder that may be unreadable, with more ``flags`` of ``os.open``.

        Raises:
            OSError: it cannot be opened so.
        """
        self._path = path
        self._opened = Descriptors()
        if _FOLDERS_OPEN:
            self._opened.open("folder", path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | flags)
        self.root = self._find_root()

    def status(self) -> os.stat_result:
        """Return the status of the folder."""
        for descriptor in self._opened.values():
            return os.fstat(descriptor)
        return os.lstat(self._path)

    def is_at(self, path: Path) -> bool:
        """Return whether a path leads to the folder; without descriptors every one does."""
        return not self._opened or os.path.samestat(os.stat(path), self.status())

    def close(self) -> None:
        """Close it."""
        self._opened.close()

    def _find_root(self) -> Path:
        for descriptor in self._opened.values():
            root = Path(_DESCRIPTORS, str(descriptor))
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(root), os.fstat(descriptor)):
                    return root
        return self._path.absolute()


class StagingFolder:
    """A hidden folder that only this user may enter, in a folder that it keeps open: see :class:`OpenFolder`.

    Attributes:
        path: its name, for messages and for other processes.
        around: the folder that it is in.
        root: the beginning of the paths by which this process opens what is in it.
        existed: whether it was there before.
        stays: when it stays although its files were not published.
    """

    def __init__(self, path: Path, *, again: bool = False) -> None:
        """Make a folder, or (``again``) open one that was there before.

        Raises:
            OSError: it cannot be made or opened.
            ModelError: what is there was not left by a run of this user.
        """
        self.path = path
        self.existed = False
        self.stays = Stays.NEVER
        self._is_closed = False
        self._folder: OpenFolder | None = None
        self._lock: BinaryIO | None = None
        self.around = OpenFolder(path.parent)
        self._place = self.around.root / path.name
        try:
            try:
                os.mkdir(self._place, 0o700)  # whatever others may do in the folders around it
            except FileExistsError:
                if not again:
                    raise
                self.existed = True
            self.root = self._open()
        except BaseException:
            self.close()
            raise

    @classmethod
    def take(cls, path: Path) -> Self:
        """Make and lock the staging folder of this path, or take over the one that a run has left.

        Raises:
            OSError: it cannot be made or opened.
            ModelError: another run writes there, or what is there was not left by a run of this user.
        """
        for _ in range(_MAX_TRIES):
            with contextlib.suppress(FileNotFoundError):  # the run that had it has just removed it
                staging = cls(path, again=True)
                try:
                    if staging._take_lock():
                        return staging
                except BaseException:
                    staging.close()
                    raise
                staging.close()
            os.stat(path.parent)  # else it can never be made
        raise _is_locked(path)

    @property
    def lock(self) -> BinaryIO:
        """The locked file, open for reading and writing."""
        assert self._lock is not None  # the folder was taken
        return self._lock

    @property
    def is_used(self) -> bool:
        """Whether a run has written anything there."""
        return any(self._others()) or bool(os.fstat(self.lock.fileno()).st_size)

    @property
    def drafts(self) -> Path:
        """Where files and folders of the folder around are written, by their names."""
        return self.root / _DRAFTS

    @property
    def before(self) -> Path:
        """Where the files that they replace wait, by their names."""
        return self.root / _BEFORE

    def name_of(self, path: Path) -> Path:
        """Return a path below the root as other processes and people know it; others as they are."""
        return self.path / path.relative_to(self.root) if path.is_relative_to(self.root) else path

    def check(self) -> None:
        """Reject a folder with anything that no run writes: links, pipes, devices, files of others.

        Raises:
            ModelError: there is such a thing.
        """
        owner = self._status().st_uid
        for folder, folders, files in os.walk(self.root):
            for name in (*folders, *files):
                found = os.lstat(os.path.join(folder, name))
                # A file that waits to be put back may still have its place, too.
                own = _BEFORE not in Path(folder).relative_to(self.root).parts[:1]
                again = own and stat.S_ISREG(found.st_mode) and found.st_nlink > 1
                kind = _describe(found) or ("a second name of a file" if again else "")
                if not kind and found.st_uid != owner:
                    kind = f"of user {found.st_uid}"
                if kind:
                    raise self._foreign(f"{shown(name)} in it is {kind}")

    def clear(self) -> None:
        """Remove everything in it but the lock, which becomes empty.

        Raises:
            ModelError: something in it cannot be removed.
        """
        for path in self._others():
            _remove(path)
        for path in self._others():
            raise self._foreign(f"{shown(path.name)} in it cannot be removed")
        self.lock.truncate(0)

    def remove(self) -> None:
        """Remove it with everything in it; the lock last, so that no other run has the folder before."""
        if self._is_closed and (_FOLDERS_OPEN or not self.path.exists()):
            return
        for path in self._others():
            _remove(path)
        if not _FOLDERS_OPEN:  # nor are open files removed
            self.close()
        with contextlib.suppress(OSError):
            (self.root / LOCK_NAME).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another run may have it already
            self._place.rmdir()
        self.close()

    def close(self) -> None:
        """Close it, unlocked, as it is."""
        self._is_closed = True
        if self._lock is not None:
            self._lock.close()
        if self._folder is not None:
            self._folder.close()
        self.around.close()

    def _open(self) -> Path:
        try:
            self._folder = OpenFolder(self._place, UNFOLLOWED)
        except OSError:
            kind = _describe(os.lstat(self._place), folder=True)
            if kind:
                raise self._foreign(f"it is {kind}") from None
            raise
        if self.existed:
            found = self._folder.status()
            kind = _describe(found, folder=True)
            if kind:
                raise self._foreign(f"it is {kind}")
            rights = _rights(found)
            if rights != (_user(), 0) and rights != self._rights_here():
                mode = stat.S_IMODE(found.st_mode)
                open_to_all = f"its mode {mode:03o} lets others write to it"
                raise self._foreign(open_to_all if mode & 0o022 else f"user {rights[0]} owns it")
        return self._folder.root

    def _status(self) -> os.stat_result:
        assert self._folder is not None  # it was opened
        return self._folder.status()

    def _rights_here(self) -> tuple[int, int]:
        """Return the rights that a new folder has here: some file systems have no owners or modes."""
        path = staging_path(self.around.root, secrets.token_hex(8))
        os.mkdir(path, 0o700)
        try:
            return _rights(os.lstat(path))
        finally:
            os.rmdir(path)

    def _take_lock(self) -> bool:
        """Lock the folder. Return False if the run that had it has removed it meanwhile."""
        opened, name = Descriptors(), os.fspath(self.root / LOCK_NAME)
        with contextlib.suppress(FileNotFoundError):
            self._check_lock(os.lstat(name))
        try:
            try:
                opened.open(name, name, os.O_RDWR | os.O_CREAT | UNFOLLOWED)
            except FileNotFoundError:
                return False
            found = os.fstat(opened[name])
            self._check_lock(found)
            self._lock = open(name, "r+b", opener=opened.pop)  # noqa: SIM115 - closed with the folder
        finally:
            opened.close()
        _lock(self._lock.fileno(), self.path)
        try:
            same = os.path.samestat(os.lstat(name), found)
            return same and os.path.samestat(os.lstat(self._place), self._status())
        except FileNotFoundError:
            return False

    def _check_lock(self, found: os.stat_result) -> None:
        kind = _describe(found) or ("a folder" if stat.S_ISDIR(found.st_mode) else "")
        kind = kind or ("a second name of a file" if found.st_nlink > 1 else "")
        if kind:
            raise self._foreign(f"{shown(LOCK_NAME)} in it is {kind}")

    def _foreign(self, problem: str) -> ModelError:
        return ModelError(
            f"{shown_path(self.path)} was not left by a run of this user: {problem}. Nothing was written. "
            "Delete it and run again"
        )

    def _others(self) -> Iterator[Path]:
        """Yield what is in the folder but for the lock."""
        for name in os.listdir(self.root):
            if name != LOCK_NAME:
                yield self.root / name


def _describe(found: os.stat_result, *, folder: bool = False) -> str:
    """Say what a file is that is neither regular nor a folder, or (``folder``) is not a folder."""
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    if stat.S_ISLNK(found.st_mode) or (junction and getattr(found, "st_reparse_tag", 0) == junction):
        return "a link"
    if stat.S_ISREG(found.st_mode):
        return "a file" if folder else ""
    return "" if stat.S_ISDIR(found.st_mode) else "a pipe, socket or device"


def _rights(found: os.stat_result) -> tuple[int, int]:
    """Return the owner, and the part of the mode by which others may write."""
    return found.st_uid, stat.S_IMODE(found.st_mode) & 0o022


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _remove(path: Path) -> None:
    """Remove a file or folder, as far as the system lets it; links are not followed."""
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _lock(descriptor: int, folder: Path) -> None:
    with contextlib.suppress(ImportError):  # not a POSIX system
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _is_locked(folder) from error


def _is_locked(folder: Path) -> ModelError:
    return ModelError(f"another run writes to {shown_path(folder)}")
