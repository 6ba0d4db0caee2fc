"""Files for others: a set of files appears whole and all together, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from splitops.errors import ModelError, shown_path
from splitops.ground.signals import uninterrupted
from splitops.ground.staging import UNFOLLOWED, OpenFolder, StagingFolder, Stays, staging_path

_SYNCED_ALONE: Final = 64 if hasattr(os, "sync") else sys.maxsize
"""So many files are brought to the disk one by one, milliseconds each; the rest in one step.

A file that takes its place before its bytes are on the disk could be empty after a power failure.
"""

_APPEARED: Final = (errno.ENOTEMPTY, errno.EEXIST)
"""Errors of moving a folder to a place where another one is."""


def write_whole(path: Path, content: bytes) -> None:
    """Write one file, whole or not at all.

    Raises:
        ModelError: as :class:`StagedFiles`.
    """
    with StagedFiles() as files, files.open(path) as file:
        file.write(content)


@dataclass(frozen=True, slots=True)
class _Staged:
    """A file of the set.

    Attributes:
        draft: where it is written.
        place: where it belongs, as this process reaches it.
        target: the same place, as people know it.
        before: where the file before it waits.
        folder: whether it is a folder.
        names: what is in a new folder, in the order in which it would be moved alone.
    """

    draft: Path
    place: Path
    target: Path
    before: Path
    folder: bool = False
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder of files: where they are written, where they belong, and where those before them wait."""

    drafts: Path
    places: Path
    before: Path

    def stage(self, path: Path, *, folder: bool, names: Sequence[str] | None = None) -> _Staged:
        """Return the file of a path in the folder."""
        name, inside = path.name, None if names is None else tuple(names)
        return _Staged(self.drafts / name, self.places / name, path, self.before / name, folder, inside)


class StagedFiles:
    """Writes files into hidden folders beside their places, and moves them there when all are whole.

    A file of the same name is replaced, a link is replaced and not followed. An error, Ctrl-C or a failing
    move puts everything back as it was. Each file takes its place in one step, in the order of opening: open
    the file that refers to the others last.

    Args:
        make_folders: whether a missing folder is made (and removed again if the set fails); it is an error
            otherwise.

    Attributes:
        kept: the hidden folders that have stayed, see :attr:`StagingFolder.stays`.

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

    def __init__(self, *, make_folders: bool = False) -> None:
        self._make_folders = make_folders
        self._files: list[_Staged] = []
        self._streamed = 0
        self._folders: list[StagingFolder] = []
        self._drafts: dict[Path, _Folder] = {}
        """By folder, where files of it are written."""
        self._appeared: list[OpenFolder] = []
        self._made: list[Path] = []
        self._unrestored: set[Path] = set()
        self._interrupted = False
        self.kept: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with uninterrupted():
            self._interrupted = kind is not None and not issubclass(kind, Exception)
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
            staged = self._drafts_in(folder.parent).stage(folder, folder=True, names=names)
            staged.draft.mkdir(exist_ok=True)
        except OSError as error:
            raise _cannot_write(folder, error) from error
        self._drafts[folder] = _Folder(staged.draft, staged.place, staged.before)  # for other files in it
        self._files.append(staged)
        return staged.draft

    def take(self, folder: Path, name: str) -> StagingFolder:
        """Take the hidden folder of a name in a folder; files of that folder are then written in it.

        Raises:
            OSError: it cannot be made.
            ModelError: see :meth:`StagingFolder.take`.
        """
        return self._add(folder, lambda: StagingFolder.take(staging_path(folder, name)))

    def drop(self, staging: StagingFolder) -> None:
        """Remove a folder that was taken, with what is in it."""
        with uninterrupted():
            staging.remove()
            self._folders.remove(staging)

    def _stage(self, path: Path, *, folder: bool = False) -> _Staged:
        _reject_other_kind(path, folder=folder)
        return self._drafts_in(path.parent).stage(path, folder=folder)

    def _drafts_in(self, folder: Path) -> _Folder:
        """Return where files of a folder are written: in a hidden folder in it, made if it is missing."""
        if folder not in self._drafts:
            staging = next((each for each in self._folders if each.path.parent == folder), None)
            if staging is None:
                # A folder and not a name of its own for each file: any name that the target may have fits.
                staging = self._add(folder, lambda: StagingFolder(staging_path(folder, secrets.token_hex(8))))
            staging.drafts.mkdir(exist_ok=True)
            self._drafts[folder] = _Folder(staging.drafts, staging.around.root, staging.before)
        return self._drafts[folder]

    def _add(self, folder: Path, make: Callable[[], StagingFolder]) -> StagingFolder:
        with uninterrupted():
            for others in (True, True, False):
                if self._make_folders:
                    self._make(folder)
                try:
                    staging = make()
                    break
                except FileNotFoundError:  # another run had made the folder, and has removed it again
                    if not (self._make_folders and others):
                        raise
            self._folders.append(staging)
            return staging

    def _make(self, folder: Path) -> None:
        for missing in reversed([folder, *folder.parents]):
            if not missing.exists():
                with contextlib.suppress(FileExistsError):  # another run has just made it
                    missing.mkdir()
                    self._made.append(missing)

    def _publish(self) -> None:
        if self._streamed > _SYNCED_ALONE:
            os.sync()
        self._reject_other_folders()
        moves = list(self._to_move())
        drafts = []
        for staged in moves:
            try:
                drafts.append(os.lstat(staged.draft))
            except OSError as error:
                raise _cannot_write(staged.target, error) from error
        for index, staged in enumerate(moves):
            try:
                there = _reject_other_kind(staged.place, folder=staged.folder)
                # If the last move fails, its target is as it was: alone, a file needs nothing kept. A folder
                # is never replaced in one step.
                last = index + 1 == len(moves) and not staged.folder
                if not last and there:
                    _keep(staged)
                os.replace(staged.draft, staged.place)
            except BaseException as error:
                undone = zip(reversed(moves[: index + 1]), reversed(drafts[: index + 1]), strict=True)
                kept = [path for path in (_put_back(*each) for each in undone) if path]
                self._unrestored = {folder for path in kept for folder in path.parents}
                if isinstance(error, OSError):
                    if staged.names is not None and error.errno in _APPEARED and not kept:
                        self._publish()
                        return
                    raise _cannot_write(staged.target, error, [*map(self._name_of, kept)]) from error
                raise
        self._files.clear()
        for staging in self._folders:
            staging.stays = Stays.NEVER

    def _to_move(self) -> Iterator[_Staged]:
        """Yield what is moved: a new folder as one, or what is in it where the folder has appeared since."""
        new: dict[Path, _Folder | None] = {}
        """New folders by their drafts, or None for those that are moved as one."""
        for staged in self._files:
            if staged.names is None:
                if staged.draft.parent not in new:
                    yield staged
                elif (around := new[staged.draft.parent]) is not None:
                    yield around.stage(staged.target, folder=staged.folder)
            elif not os.path.lexists(staged.place):
                new[staged.draft] = None
                yield staged
            else:
                try:
                    _reject_other_kind(staged.place, folder=True)
                    self._appeared.append(OpenFolder(staged.place, UNFOLLOWED))
                except OSError as error:
                    raise _cannot_write(staged.target, error) from error
                new[staged.draft] = around = _Folder(staged.draft, self._appeared[-1].root, staged.before)
                for name in staged.names:
                    yield around.stage(staged.target / name, folder=(staged.draft / name).is_dir())

    def _reject_other_folders(self) -> None:
        """Reject folders that are not, by their names, those in which the set was begun."""
        for staging in self._folders:
            folder = staging.path.parent
            try:
                same = staging.around.is_at(folder)
            except OSError as error:
                raise _cannot_write(folder, error) from error
            if not same:
                raise ModelError(f"cannot write into {shown_path(folder)}: it was replaced by another folder")

    def _name_of(self, path: Path) -> Path:
        for staging in self._folders:
            path = staging.name_of(path)
        return path

    def clean(self) -> None:
        """Remove the hidden folders; again, where one stayed because a file in it was open."""
        for staging in list(self._folders):
            if staging.root in self._unrestored:
                staging.close()
            elif staging.stays is Stays.ALWAYS or (
                staging.stays is Stays.AFTER_INTERRUPT and self._interrupted
            ):
                staging.close()
                self.kept.append(staging.path)
            else:
                staging.remove()
                if staging.path.exists():
                    continue
            self._folders.remove(staging)
        while self._appeared:
            self._appeared.pop().close()
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _keep(staged: _Staged) -> None:
    """Keep the file that is replaced; a second link leaves it in its place until the replacement."""
    staged.before.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(staged.place, staged.before, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system or platform without such links
        os.replace(staged.place, staged.before)


def _put_back(staged: _Staged, draft: os.stat_result) -> Path | None:
    """Undo the move of a file; return where the file before it still waits, if it cannot be put back."""
    try:
        # Its place is cleared only if the draft is there, and never if the draft was not moved.
        moved = os.path.lexists(staged.place) and os.path.samestat(os.lstat(staged.place), draft)
        if moved and staged.folder:
            os.replace(staged.place, staged.draft)
        if os.path.lexists(staged.before):
            os.replace(staged.before, staged.place)
            # Of two links to one file, a replacement leaves both.
            staged.before.unlink(missing_ok=True)
        elif moved and not staged.folder:
            staged.place.unlink()
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
