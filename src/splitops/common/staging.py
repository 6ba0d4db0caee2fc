"""Staging folders: hidden folders of one user for files that are not published yet."""

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

from splitops.common.descriptors import Descriptors
from splitops.errors import ModelError, shown, shown_path

LOCK_NAME: Final = ".journal"
"""Name of the file that a run locks, and may use as its journal."""
_DRAFTS: Final = "files"
"""Name of the subfolder for new files. Files may have any name, even that of the lock."""
_BEFORE: Final = "before"
"""Name of the subfolder for files that are being replaced."""
_MAX_NAME: Final = 200
"""Maximum bytes of a set's name in the name of its folder. Most file systems limit names to 255 bytes."""
_MAX_TRIES: Final = 100
"""Maximum attempts to lock a folder that other runs remove at the same time."""
_FOLDERS_OPEN: Final = hasattr(os, "O_DIRECTORY")
"""Whether the system can open folders. Windows cannot."""
_DESCRIPTORS: Final = "/proc/self/fd"
"""Folder with the open descriptors of this process, on Linux."""
UNFOLLOWED: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags that reject links and do not wait for pipes."""


class Retention(enum.Enum):
    """When to keep a staging folder whose files were not published."""

    NEVER = enum.auto()
    AFTER_INTERRUPT = enum.auto()
    ALWAYS = enum.auto()


def make_staging_path(folder: Path, name: str) -> Path:
    """Return the path of the staging folder of a set of files. A long name is shortened and gets a digest."""
    raw = os.fsencode(name)
    if len(raw) > _MAX_NAME:
        kept = raw[: _MAX_NAME - 17].decode(errors="ignore")
        name = f"{kept}-{hashlib.sha256(raw).hexdigest()[:16]}"
    return folder / f".splitops-{name}.part"


class OpenFolder:
    """An open folder, whose contents are reached by paths below :attr:`root`.

    On Linux with ``/proc``, these paths go through a descriptor of the folder, so they never reach a link or
    folder that replaces it later. On other systems, they contain the name of the folder. Then the parent
    folder must be protected from other users, as for any file.

    Attributes:
        root: path for access to the contents in this process.
    """

    def __init__(self, path: Path, flags: int = 0) -> None:
        """Open a folder with additional ``flags`` of ``os.open``. On Linux, it does not have to be readable.

        Systems that cannot open folders only store its path.

        Raises:
            OSError: the folder cannot be opened.
        """
        self._path = path
        self._opened = Descriptors()
        if _FOLDERS_OPEN:
            self._opened.open("folder", path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | flags)
        self.root = self._find_root()

    def read_status(self) -> os.stat_result:
        """Return the status of the open folder, or that of its path on systems that cannot open folders."""
        for descriptor in self._opened.values():
            return os.fstat(descriptor)
        return os.lstat(self._path)

    def is_at(self, path: Path) -> bool:
        """Return whether a path leads to this folder. Without a descriptor of the folder, always return True.

        Raises:
            OSError: the path does not exist or cannot be accessed.
        """
        return not self._opened or os.path.samestat(os.stat(path), self.read_status())

    def close(self) -> None:
        """Close the descriptor of the folder."""
        self._opened.close()

    def _find_root(self) -> Path:
        for descriptor in self._opened.values():
            root = Path(_DESCRIPTORS, str(descriptor))
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(root), os.fstat(descriptor)):
                    return root
        return self._path.absolute()


class StagingFolder:
    """A hidden folder that is created for this user alone (mode 700), if the file system has modes.

    Attributes:
        path: its path, for messages and for other processes.
        around: its parent folder, which stays open until the folder is closed.
        root: path for access to the contents in this process; see :class:`OpenFolder`.
        existed: whether it existed before.
        retention: when to keep it if its files were not published.
    """

    def __init__(self, path: Path, *, again: bool = False) -> None:
        """Create the folder or, with ``again``, open it if it exists.

        Raises:
            OSError: it cannot be created or opened.
            ModelError: it exists, but is not a folder that a run of this user has left.
        """
        self.path = path
        self.existed = False
        self.retention = Retention.NEVER
        self._is_closed = False
        self._folder: OpenFolder | None = None
        self._lock: BinaryIO | None = None
        self.around = OpenFolder(path.parent)
        self._place = self.around.root / path.name
        try:
            try:
                os.mkdir(self._place, 0o700)  # even if others may write to the parent folder
            except FileExistsError:
                if not again:
                    raise
                self.existed = True
            self.root = self._open()
        except BaseException:
            self.close()
            raise

    @classmethod
    def open_locked(cls, path: Path) -> Self:
        """Open and lock the staging folder at a path. Create it if it does not exist.

        Systems without ``fcntl``, such as Windows, open the lock file without locking it.

        Raises:
            OSError: it cannot be created or opened.
            ModelError: another run has locked it, or it is not a folder that a run of this user has left.
        """
        for _ in range(_MAX_TRIES):
            with contextlib.suppress(FileNotFoundError):  # another run has just removed it
                staging = cls(path, again=True)
                try:
                    if staging._take_lock():
                        return staging
                except BaseException:
                    staging.close()
                    raise
                staging.close()
            os.stat(path.parent)  # raises if the parent folder does not exist
        raise _make_locked_error(path)

    @property
    def lock(self) -> BinaryIO:
        """The lock file, open for reading and writing."""
        assert self._lock is not None  # the folder was opened by open_locked
        return self._lock

    @property
    def is_used(self) -> bool:
        """Whether the folder contains anything except an empty lock file."""
        return any(self._iter_content()) or bool(os.fstat(self.lock.fileno()).st_size)

    @property
    def drafts(self) -> Path:
        """Subfolder for new files, which have their final names there."""
        return self.root / _DRAFTS

    @property
    def before(self) -> Path:
        """Subfolder that keeps files, under their own names, while they are being replaced."""
        return self.root / _BEFORE

    def get_public_path(self, path: Path) -> Path:
        """Convert a path below :attr:`root` to one that other processes can use. Keep any other path."""
        return self.path / path.relative_to(self.root) if path.is_relative_to(self.root) else path

    def check(self) -> None:
        """Check that the folder contains no links, pipes, sockets, devices or files of other users.

        Among the files that are being replaced, links to files and files with several hard links or of other
        users are allowed: they are moved or removed, but never followed or opened.

        Raises:
            ModelError: it contains one.
        """
        owner = self._read_status().st_uid
        for folder, folders, files in os.walk(self.root):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                found = os.lstat(path)
                is_file = stat.S_ISREG(found.st_mode)
                is_link_to_file = stat.S_ISLNK(found.st_mode) and not os.path.isdir(path)
                is_replaced = _BEFORE in Path(folder).relative_to(self.root).parts[:1]
                if is_replaced and (is_file or is_link_to_file):
                    continue
                kind = "a second name of a file" if is_file and found.st_nlink > 1 else _describe(found)
                if not kind and found.st_uid != owner:
                    kind = f"of user {found.st_uid}"
                if kind:
                    raise self._make_error(f"{shown(name)} in it is {kind}")

    def clear(self) -> None:
        """Remove everything except the lock file, which becomes empty.

        Raises:
            ModelError: something cannot be removed.
        """
        for path in self._iter_content():
            _remove(path)
        for path in self._iter_content():
            raise self._make_error(f"{shown(path.name)} in it cannot be removed")
        self.lock.truncate(0)

    def remove(self) -> None:
        """Remove the folder as far as possible, and close it. On POSIX systems, a closed folder is kept.

        The lock file is removed last, so that no other run can open a half removed folder.
        """
        if self._is_closed and (_FOLDERS_OPEN or not self.path.exists()):
            return
        for path in self._iter_content():
            _remove(path)
        if not _FOLDERS_OPEN:  # Windows cannot remove open files
            self.close()
        with contextlib.suppress(OSError):
            (self.root / LOCK_NAME).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another run may have locked it
            self._place.rmdir()
        self.close()

    def close(self) -> None:
        """Close and unlock the folder without changing it."""
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
                raise self._make_error(f"it is {kind}") from None
            raise
        if self.existed:
            found = self._folder.read_status()
            kind = _describe(found, folder=True)
            if kind:
                raise self._make_error(f"it is {kind}")
            rights = _read_rights(found)
            if rights != (_get_user(), 0) and rights != self._probe_rights():
                mode = stat.S_IMODE(found.st_mode)
                open_to_all = f"its mode {mode:03o} lets others write to it"
                raise self._make_error(open_to_all if mode & 0o022 else f"user {rights[0]} owns it")
        return self._folder.root

    def _read_status(self) -> os.stat_result:
        assert self._folder is not None  # it was opened
        return self._folder.read_status()

    def _probe_rights(self) -> tuple[int, int]:
        """Return the rights of a new folder in the same place: some file systems have no owners or modes."""
        path = make_staging_path(self.around.root, secrets.token_hex(8))
        os.mkdir(path, 0o700)
        try:
            return _read_rights(os.lstat(path))
        finally:
            os.rmdir(path)

    def _take_lock(self) -> bool:
        """Lock the folder. Return False if another run has removed it in the meantime."""
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
            return same and os.path.samestat(os.lstat(self._place), self._read_status())
        except FileNotFoundError:
            return False

    def _check_lock(self, found: os.stat_result) -> None:
        kind = _describe(found) or ("a folder" if stat.S_ISDIR(found.st_mode) else "")
        kind = kind or ("a second name of a file" if found.st_nlink > 1 else "")
        if kind:
            raise self._make_error(f"{shown(LOCK_NAME)} in it is {kind}")

    def _make_error(self, problem: str) -> ModelError:
        return ModelError(
            f"{shown_path(self.path)} was not left by a run of this user: {problem}. Nothing was written. "
            "Delete it and run again"
        )

    def _iter_content(self) -> Iterator[Path]:
        """Yield everything in the folder except the lock file."""
        for name in os.listdir(self.root):
            if name != LOCK_NAME:
                yield self.root / name


def _describe(found: os.stat_result, *, folder: bool = False) -> str:
    """Return the kind of a file, such as "a link"; "" for folders and, without ``folder``, regular files."""
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    if stat.S_ISLNK(found.st_mode) or (junction and getattr(found, "st_reparse_tag", 0) == junction):
        return "a link"
    if stat.S_ISREG(found.st_mode):
        return "a file" if folder else ""
    return "" if stat.S_ISDIR(found.st_mode) else "a pipe, socket or device"


def _read_rights(found: os.stat_result) -> tuple[int, int]:
    """Return the owner, and the bits of the mode that let others write."""
    return found.st_uid, stat.S_IMODE(found.st_mode) & 0o022


def _get_user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _remove(path: Path) -> None:
    """Remove a file or folder as far as possible. Links are not followed."""
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
            raise _make_locked_error(folder) from error


def _make_locked_error(folder: Path) -> ModelError:
    return ModelError(f"another run is writing to {shown_path(folder)}: wait until it has finished")
