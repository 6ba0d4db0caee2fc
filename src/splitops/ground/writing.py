"""Files for others: a set of files appears whole and all together, or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from splitops.errors import ModelError, shown_path

_SYNCED_ALONE: Final = 64 if hasattr(os, "sync") else sys.maxsize
"""So many files are brought to the disk one by one, milliseconds each; the rest in one step.

A file that takes its place before its bytes are on the disk could be empty after a power failure.
"""
_LONGEST_NAME: Final = 200
"""The most bytes that the name of a set has in that of its folder, which may have 255 on most systems."""


def write_whole(path: Path, content: bytes) -> None:
    """Write one file, whole or not at all.

    Raises:
        ModelError: as :class:`StagedFiles`.
    """
    with StagedFiles() as files, files.open(path) as file:
        file.write(content)


def staging_folder(folder: Path, name: str) -> Path:
    """Return the hidden folder of a named set of files; a checksum stands for the end of a long name."""
    raw = os.fsencode(name)
    if len(raw) > _LONGEST_NAME:
        kept = raw[: _LONGEST_NAME - 17].decode(errors="ignore")
        name = f"{kept}-{hashlib.sha256(raw).hexdigest()[:16]}"
    return folder / f".splitops-{name}.part"


@dataclass(frozen=True, slots=True)
class _Staged:
    """A file of the set: where it is written, where it belongs, and where the file before it waits."""

    draft: Path
    target: Path
    folder: bool = False
    names: tuple[str, ...] | None = None
    """Of a new folder: what is in it, in the order in which it would be moved alone."""

    @property
    def before(self) -> Path:
        return self.draft.parent / "before" / self.draft.name


class StagedFiles:
    """Writes files into hidden folders beside their places, and moves them there when all are whole.

    A file of the same name is replaced, a link is replaced and not followed. An error, Ctrl-C or a failing
    move puts everything back as it was. Each file takes its place in one step, in the order of opening: open
    the file that refers to the others last.

    Args:
        make_folders: whether a missing folder is made (and removed again if the set fails); it is an error
            otherwise.
        name: in the names of the hidden folders; a folder that a killed process has left is taken over, with
            the files in it. None: no other set ever writes there.

    Raises:
        ModelError: a file cannot be made, written or put in its place.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with StagedFiles() as files, files.open(folder / "a.bin") as file:
        ...     _ = file.write(b"whole")
        >>> [path.name for path in folder.iterdir()]
        ['a.bin']
    """

    def __init__(self, *, make_folders: bool = False, name: str | None = None) -> None:
        self._make_folders = make_folders
        self._name = name
        self._files: list[_Staged] = []
        self._streamed = 0
        self._staging: dict[Path, Path] = {}
        self._made: list[Path] = []
        self._kept: set[Path] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with uninterrupted():
            try:
                if kind is None:
                    self._publish()
                    self._made.clear()
            finally:
                self.clean()

    @contextlib.contextmanager
    def open(self, path: Path) -> Iterator[BinaryIO]:
        """Open a new file of the set for writing; what fails to write is an error of this path."""
        try:
            staged = self._stage(path)
            with staged.draft.open("xb") as file:
                self._files.append(staged)
                yield file
                file.flush()
                self._streamed += 1
                if self._streamed <= _SYNCED_ALONE:
                    os.fsync(file.fileno())
        except BrokenPipeError:  # of the terminal, which may show progress: no regular file has it
            raise
        except OSError as error:
            raise _cannot_write(path, error) from error

    def place(self, path: Path, *, folder: bool = False) -> Path:
        """Add a file, or a folder as one, to the set that the caller writes and makes durable; return where.

        Raises:
            ModelError: the folder beside its place cannot be made.
        """
        try:
            staged = self._stage(path, folder=folder)
        except OSError as error:
            raise _cannot_write(path, error) from error
        self._files.append(staged)
        return staged.draft

    def place_new(self, folder: Path, names: Sequence[str]) -> Path:
        """Add a folder that is not there yet, with files of these names; return where they are written.

        It appears in one step. Where it is there in the end, the files are moved into it one by one.

        Raises:
            ModelError: the folder beside its place cannot be made.
        """
        try:
            draft = self.staging_in(folder.parent) / "files"
            draft.mkdir(exist_ok=True)
        except OSError as error:
            raise _cannot_write(folder, error) from error
        self._staging[folder] = draft  # for other files in the folder
        self._files.append(_Staged(draft, folder, folder=True, names=tuple(names)))
        return draft

    def _stage(self, path: Path, *, folder: bool = False) -> _Staged:
        _reject_other_kind(path, folder=folder)
        staging = self.staging_in(path.parent)
        return _Staged(staging / path.name, path, folder)

    def staging_in(self, folder: Path) -> Path:
        """Return the hidden folder in a folder; both are made where they are missing."""
        if folder not in self._staging:
            with uninterrupted():
                if self._make_folders:
                    self._make(folder)
                # A folder and not a name of its own for each file: any name that the target may have fits.
                staging = staging_folder(folder, self._name or secrets.token_hex(8))
                again = self._name is not None
                staging.mkdir(exist_ok=again)
                self._staging[folder] = staging
                (staging / "before").mkdir(exist_ok=again)
        return self._staging[folder]

    def _make(self, folder: Path) -> None:
        for missing in reversed([folder, *folder.parents]):
            if not missing.exists():
                missing.mkdir()
                self._made.append(missing)

    def _publish(self) -> None:
        if self._streamed > _SYNCED_ALONE:
            os.sync()
        self._files = list(self._to_move())
        for index, staged in enumerate(self._files):
            try:
                there = _reject_other_kind(staged.target, folder=staged.folder)
                # If the last move fails, its target is as it was: alone, a file needs nothing kept. A folder
                # is never replaced in one step.
                last = index + 1 == len(self._files) and not staged.folder
                if not last and there:
                    _keep(staged)
                os.replace(staged.draft, staged.target)
            except BaseException as error:
                kept = [path for path in map(_put_back, reversed(self._files[: index + 1])) if path]
                self._kept = {folder for path in kept for folder in path.parents}
                if isinstance(error, OSError):
                    raise _cannot_write(staged.target, error, kept) from error
                raise

    def _to_move(self) -> Iterator[_Staged]:
        """Yield what is moved: a new folder as one, or what is in it where the folder has appeared since."""
        whole: set[Path] = set()
        for staged in self._files:
            if staged.names is None:
                if staged.draft.parent not in whole:
                    yield staged
            elif not os.path.lexists(staged.target):
                whole.add(staged.draft)
                yield staged
            else:
                (staged.draft / "before").mkdir(exist_ok=True)
                for name in staged.names:
                    draft = staged.draft / name
                    yield _Staged(draft, staged.target / name, draft.is_dir())

    def clean(self) -> None:
        """Remove the hidden folders; again, where one stayed because a file in it was open."""
        for folder, staging in list(self._staging.items()):
            if staging not in self._kept:
                shutil.rmtree(staging, ignore_errors=True)
            if not staging.exists():
                del self._staging[folder]
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _keep(staged: _Staged) -> None:
    """Keep the file that is replaced; a second link leaves it in its place until the replacement."""
    try:
        os.link(staged.target, staged.before, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system or platform without such links
        os.replace(staged.target, staged.before)


def _put_back(staged: _Staged) -> Path | None:
    """Undo the move of a file; return where the file before it still waits, if it cannot be put back."""
    try:
        if staged.folder and not os.path.lexists(staged.draft):
            os.replace(staged.target, staged.draft)
        if os.path.lexists(staged.before):
            os.replace(staged.before, staged.target)
            # Of two links to one file, a replacement leaves both.
            staged.before.unlink(missing_ok=True)
        elif not os.path.lexists(staged.draft):
            staged.target.unlink()
    except OSError:
        return staged.before if os.path.lexists(staged.before) else None
    return None


def _reject_other_kind(path: Path, *, folder: bool) -> bool:
    """Reject a folder in the place of a file, or the reverse; return whether anything is there."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if is_folder and not folder:
        raise IsADirectoryError(errno.EISDIR, "a folder of this name is in the way")
    if folder and not is_folder:
        raise NotADirectoryError(errno.ENOTDIR, "a file of this name is in the way")
    return True


def _cannot_write(path: Path, error: OSError, kept: Sequence[Path] = ()) -> ModelError:
    if isinstance(error, FileNotFoundError) and not path.parent.exists():
        reason = f"the folder {shown_path(path.parent)} does not exist"
    else:
        reason = (error.strerror or str(error)).lower()
    if kept:
        reason += f"; what could not be put back is kept in {shown_path(kept[0].parent)}"
    return ModelError(f"cannot write {shown_path(path)}: {reason}")


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C and termination until the block is done, or has failed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    try:
        # Ctrl-C is the last to be let through: it would leave the other one held back.
        with _held_back(signal.SIGINT, pending), _held_back(signal.SIGTERM, pending):
            yield
    finally:
        if pending:
            signal.raise_signal(pending[0])


@contextlib.contextmanager
def _held_back(number: int, pending: list[int]) -> Iterator[None]:
    """Note a signal instead of handling it."""
    handler = signal.getsignal(number)
    if handler is None:  # set by a program around Python, which could not put it back
        yield
        return
    signal.signal(number, lambda found, _: pending.append(found))
    try:
        yield
    finally:
        signal.signal(number, handler)
