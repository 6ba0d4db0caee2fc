"""Atomic writes: all files of a set are written completely or, after an error, none is."""

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

from splitops.common.signals import defer_signals
from splitops.common.staging import UNFOLLOWED, OpenFolder, Retention, StagingFolder, make_staging_path
from splitops.errors import ModelError, shown_path

_SYNCED_ALONE: Final = 64 if hasattr(os, "sync") else sys.maxsize
"""Maximum number of files that are flushed to disk one by one. One ``sync`` of the system flushes the others.

A file that is published before its bytes are on disk could be empty after a power failure.
"""

_EXISTS_ERRORS: Final = (errno.ENOTEMPTY, errno.EEXIST)
"""``errno`` values if a folder cannot be moved because another folder exists at the target path."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write one file, completely or not at all.

    Raises:
        ModelError: as in :class:`StagedFiles`.
    """
    with StagedFiles() as files, files.open(path) as file:
        file.write(content)


@dataclass(frozen=True, slots=True)
class _Staged:
    """A file or folder in the set of :class:`StagedFiles`.

    Attributes:
        draft: path at which it is written.
        place: final path, reached through the open parent folder.
        target: final path for messages.
        before: backup path for the file that it replaces.
        folder: whether it is a folder.
        names: names in a new folder, in the order in which they are moved if the folder cannot be moved as
            one.
    """

    draft: Path
    place: Path
    target: Path
    before: Path
    folder: bool = False
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Folder:
    """Folders for the drafts, the final files and the backups of replaced files of one final folder."""

    drafts: Path
    places: Path
    before: Path

    def stage(self, path: Path, *, folder: bool, names: Sequence[str] | None = None) -> _Staged:
        """Return the entry for ``path``. ``folder`` and ``names`` are as in :class:`_Staged`."""
        name, inside = path.name, None if names is None else tuple(names)
        return _Staged(self.drafts / name, self.places / name, path, self.before / name, folder, inside)


class StagedFiles:
    """Writes files into hidden folders next to their final paths, and moves them there when all are complete.

    Existing files are replaced; links are replaced, not followed. After an error, Ctrl-C or a failed move,
    everything is restored as far as possible: backups that cannot be moved back stay in their hidden folder.
    Each file is moved in one step, in the order of opening, so open a file that refers to others last.

    Args:
        make_folders: whether to create missing folders, and to remove them if the set fails and they are
            empty. Otherwise a missing folder is an error.

    Attributes:
        kept: hidden folders that were kept because of their :attr:`StagingFolder.retention`.

    Raises:
        ModelError: a file cannot be created, written or moved.

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
        """The paths for each final folder and, after ``place_new``, for its new subfolder."""
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
        with defer_signals():
            self._interrupted = kind is not None and not issubclass(kind, Exception)
            try:
                if kind is None:
                    self._publish()
                    self._made.clear()
            finally:
                self.clean()

    @contextlib.contextmanager
    def open(self, path: Path) -> Iterator[BinaryIO]:
        """Yield a new file of the set for writing.

        Raises:
            ModelError: the file cannot be created, or the block raised an OSError other than
                BrokenPipeError. The message names ``path``.
        """
        try:
            staged = self._stage(path)
            with staged.draft.open("xb") as file:
                self._files.append(staged)
                yield file
                file.flush()
                self._streamed += 1
                if self._streamed <= _SYNCED_ALONE:
                    os.fsync(file.fileno())
        except BrokenPipeError:  # the terminal that shows progress was closed
            raise
        except OSError as error:
            raise _make_write_error(path, error) from error

    def place(self, path: Path, *, folder: bool = False) -> Path:
        """Add a file or folder to the set and return its draft path. The caller writes and flushes it.

        Raises:
            ModelError: the hidden folder cannot be created, or a folder exists at the path of a file, or the
                reverse.
        """
        try:
            staged = self._stage(path, folder=folder)
        except OSError as error:
            raise _make_write_error(path, error) from error
        self._files.append(staged)
        return staged.draft

    def place_new(self, folder: Path, names: Sequence[str]) -> Path:
        """Add a new folder with entries of the given names to the set, and return its draft path.

        It is published by one move. If the folder exists by then, the entries are moved into it one by one.

        Raises:
            ModelError: the hidden folder cannot be created.
        """
        try:
            staged = self._find_drafts(folder.parent).stage(folder, folder=True, names=names)
            staged.draft.mkdir(exist_ok=True)
        except OSError as error:
            raise _make_write_error(folder, error) from error
        self._drafts[folder] = _Folder(
            staged.draft, staged.place, staged.before
        )  # later files in it go there, too
        self._files.append(staged)
        return staged.draft

    def open_staging(self, folder: Path, name: str) -> StagingFolder:
        """Open and lock the staging folder ``name`` in a folder. It then holds the drafts for that folder.

        Raises:
            OSError: it cannot be created or opened.
            ModelError: see :meth:`StagingFolder.open_locked`.
        """
        return self._add(folder, lambda: StagingFolder.open_locked(make_staging_path(folder, name)))

    def drop(self, staging: StagingFolder) -> None:
        """Delete a staging folder with its contents, and forget it."""
        with defer_signals():
            staging.remove()
            self._folders.remove(staging)

    def _stage(self, path: Path, *, folder: bool = False) -> _Staged:
        _reject_other_kind(path, folder=folder)
        return self._find_drafts(path.parent).stage(path, folder=folder)

    def _find_drafts(self, folder: Path) -> _Folder:
        """Return the paths for the files of a folder. Create its hidden folder if necessary."""
        if folder not in self._drafts:
            staging = next((each for each in self._folders if each.path.parent == folder), None)
            if staging is None:
                # In a hidden folder, drafts have their final names, so even the longest names fit.
                staging = self._add(
                    folder, lambda: StagingFolder(make_staging_path(folder, secrets.token_hex(8)))
                )
            staging.drafts.mkdir(exist_ok=True)
            self._drafts[folder] = _Folder(staging.drafts, staging.around.root, staging.before)
        return self._drafts[folder]

    def _add(self, folder: Path, make: Callable[[], StagingFolder]) -> StagingFolder:
        with defer_signals():
            for others in (True, True, False):
                if self._make_folders:
                    self._make(folder)
                try:
                    staging = make()
                    break
                except FileNotFoundError:  # another run has created the parent folder and removed it again
                    if not (self._make_folders and others):
                        raise
            self._folders.append(staging)
            return staging

    def _make(self, folder: Path) -> None:
        for missing in reversed([folder, *folder.parents]):
            if not missing.exists():
                with contextlib.suppress(FileExistsError):  # another run has just created it
                    missing.mkdir()
                    self._made.append(missing)

    def _publish(self) -> None:
        if self._streamed > _SYNCED_ALONE:
            os.sync()
        self._reject_other_folders()
        moves = list(self._iter_moves())
        drafts = []
        for staged in moves:
            try:
                drafts.append(os.lstat(staged.draft))
            except OSError as error:
                raise _make_write_error(staged.target, error) from error
        for index, staged in enumerate(moves):
            try:
                there = _reject_other_kind(staged.place, folder=staged.folder)
                # If the last move fails, its target is unchanged, so the last file needs no backup. A folder
                # does, because it is never replaced in one step.
                last = index + 1 == len(moves) and not staged.folder
                if not last and there:
                    _back_up(staged)
                os.replace(staged.draft, staged.place)
            except BaseException as error:
                undone = zip(reversed(moves[: index + 1]), reversed(drafts[: index + 1]), strict=True)
                kept = [path for path in (_restore(*each) for each in undone) if path]
                self._unrestored = {folder for path in kept for folder in path.parents}
                if isinstance(error, OSError):
                    if staged.names is not None and error.errno in _EXISTS_ERRORS and not kept:
                        self._publish()
                        return
                    raise _make_write_error(staged.target, error, [*map(self._name_of, kept)]) from error
                raise
        self._files.clear()
        for staging in self._folders:
            staging.retention = Retention.NEVER

    def _iter_moves(self) -> Iterator[_Staged]:
        """Yield the entries to move into place: each file or folder and, as a whole, each new folder.

        If a new folder already exists at its final path, yield the entries in it one by one instead.
        """
        new: dict[Path, _Folder | None] = {}
        """The paths for each new folder, keyed by its draft path; None if it is moved as one."""
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
                    raise _make_write_error(staged.target, error) from error
                new[staged.draft] = around = _Folder(staged.draft, self._appeared[-1].root, staged.before)
                for name in staged.names:
                    yield around.stage(staged.target / name, folder=(staged.draft / name).is_dir())

    def _reject_other_folders(self) -> None:
        """Raise ModelError if a parent folder was removed or replaced after its hidden folder was created."""
        for staging in self._folders:
            folder = staging.path.parent
            try:
                same = staging.around.is_at(folder)
            except OSError as error:
                raise _make_write_error(folder, error) from error
            if not same:
                raise ModelError(f"cannot write into {shown_path(folder)}: it was replaced by another folder")

    def _name_of(self, path: Path) -> Path:
        for staging in self._folders:
            path = staging.get_public_path(path)
        return path

    def clean(self) -> None:
        """Remove the hidden folders that are not kept and, if nothing was published, the created folders.

        It can be called again if an open file prevents the removal.
        """
        for staging in list(self._folders):
            if staging.root in self._unrestored:
                staging.close()
            elif staging.retention is Retention.ALWAYS or (
                staging.retention is Retention.AFTER_INTERRUPT and self._interrupted
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


def _back_up(staged: _Staged) -> None:
    """Back up a file or folder that will be replaced. If possible, a file stays and gets a second link."""
    staged.before.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(staged.place, staged.before, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system or platform without such links
        os.replace(staged.place, staged.before)


def _restore(staged: _Staged, draft: os.stat_result) -> Path | None:
    """Undo a move. Return the path of the backup if it could not be restored, or None."""
    try:
        # Only remove the file at the final path if it is the moved draft.
        moved = os.path.lexists(staged.place) and os.path.samestat(os.lstat(staged.place), draft)
        if moved and staged.folder:
            os.replace(staged.place, staged.draft)
        if os.path.lexists(staged.before):
            os.replace(staged.before, staged.place)
            # Renaming one of two links to the same file does nothing.
            staged.before.unlink(missing_ok=True)
        elif moved and not staged.folder:
            staged.place.unlink()
    except OSError:
        return staged.before if os.path.lexists(staged.before) else None
    return None


def _reject_other_kind(path: Path, *, folder: bool) -> bool:
    """Return whether a path exists. Raise OSError if it is a folder instead of a file, or the reverse."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if is_folder and not folder:
        raise IsADirectoryError(errno.EISDIR, "a folder with this name exists")
    if folder and not is_folder:
        raise NotADirectoryError(errno.ENOTDIR, "a file with this name exists")
    return True


def _make_write_error(path: Path, error: OSError, kept: Sequence[Path] = ()) -> ModelError:
    if isinstance(error, FileNotFoundError) and not path.parent.exists():
        reason = f"the folder {shown_path(path.parent)} does not exist"
    else:
        reason = (error.strerror or str(error)).lower()
    if kept:
        reason += f"; files that could not be restored are kept in {shown_path(kept[0].parent)}"
    return ModelError(f"cannot write {shown_path(path)}: {reason}")
