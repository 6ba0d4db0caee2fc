"""A set of files that appears in a folder whole and all together, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from splitops.errors import ModelError, shown

__all__ = ["StagedFolder", "safe_names"]

_MAX_NAME = 120
"""Bytes of a file name; file systems take 255, and suffixes come after it."""
_PORTS = {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
_RESERVED = frozenset({"con", "prn", "aux", "nul"} | _PORTS)
"""Names that Windows takes for devices."""


class StagedFolder:
    """Writes into a hidden folder inside the target folder, and moves the files up when all are whole.

    A file of the same name is replaced; an error, Ctrl-C or a failing move puts everything back as it was,
    and removes the target folder where it was made for this.

    Examples:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "parts"
        >>> with StagedFolder(target) as folder, folder.open("a.bin") as file:
        ...     _ = file.write(b"whole")
        >>> [path.name for path in target.iterdir()]
        ['a.bin']
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.names: list[str] = []
        self._made: list[Path] = []
        self._staging: Path | None = None

    def __enter__(self) -> Self:
        try:
            with _uninterrupted():
                for folder in reversed([self.target, *self.target.parents]):
                    if not folder.exists():
                        folder.mkdir()
                        self._made.append(folder)
                staging = self.target / f".splitops-{secrets.token_hex(8)}.part"
                staging.mkdir()
                self._staging = staging
        except OSError as error:
            self._remove()
            raise _cannot_write(self.target, error) from error
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._commit()
        except BaseException:
            self._remove()
            raise
        if kind is not None:
            self._remove()
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise _cannot_write(self.target, error) from error

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a new file of the set for writing.

        Args:
            name: a plain file name, not used before in this set.
        """
        assert self._staging is not None
        assert name == Path(name).name
        self.names.append(name)
        with (self._staging / name).open("xb") as file:
            yield file

    def _commit(self) -> None:
        assert self._staging is not None
        replaced = self._staging / "replaced"
        with _uninterrupted():
            moved: list[str] = []
            try:
                replaced.mkdir()
                for name in self.names:
                    target = self.target / name
                    if target.is_dir() and not target.is_symlink():
                        raise ModelError(f"cannot write {shown(name)}: a folder of this name is in the way")
                    if os.path.lexists(target):
                        os.replace(target, replaced / name)
                    moved.append(name)
                    os.replace(self._staging / name, target)
            except BaseException as error:
                self._put_back(moved, replaced)
                if isinstance(error, OSError):
                    raise _cannot_write(self.target, error) from error
                raise
            shutil.rmtree(self._staging, ignore_errors=True)

    def _put_back(self, moved: list[str], replaced: Path) -> None:
        for name in reversed(moved):
            with contextlib.suppress(OSError):
                if os.path.lexists(replaced / name):
                    os.replace(replaced / name, self.target / name)
                else:
                    (self.target / name).unlink()

    def _remove(self) -> None:
        with _uninterrupted():
            if self._staging is not None:
                shutil.rmtree(self._staging, ignore_errors=True)
            for folder in reversed(self._made):
                with contextlib.suppress(OSError):
                    folder.rmdir()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C and termination until the block is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda found, _: pending.append(found)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if pending:
        signal.raise_signal(pending[0])


def _cannot_write(target: Path, error: OSError) -> ModelError:
    reason = (error.strerror or str(error)).lower()
    return ModelError(f"cannot write to {shown(str(target))}: {reason}")


def safe_names(names: list[str], suffixes: list[str]) -> list[str]:
    """Return a file name without suffix for each name, so that all files differ and stay in their folder.

    Letters, digits and ``._-+`` are kept, everything else becomes ``_``. Names that differ only in case, or
    not at all after this, get ``-2``, ``-3`` and so on.

    Args:
        names: any names, such as a model's outputs.
        suffixes: the suffixes that may follow one of them; they only tell names apart.

    Examples:
        >>> safe_names(["../../x", "y:0", "Y:0"], [".npy"])
        ['_.._x', 'y_0', 'Y_0-2']
    """
    taken: set[str] = set()
    last: dict[str, int] = {}  # where counting goes on, so that many alike names stay linear
    result = []
    for name in names:
        stem = base = _safe(name)
        number = last.get(base.casefold(), 1)
        while any((stem + suffix).casefold() in taken for suffix in suffixes):
            number += 1
            stem = f"{base}-{number}"
        last[base.casefold()] = number
        taken.update((stem + suffix).casefold() for suffix in suffixes)
        result.append(stem)
    return result


def _safe(name: str) -> str:
    text = unicodedata.normalize("NFC", name[:_MAX_NAME])
    text = "".join(c if c.isalnum() or c in "._-+" else "_" for c in text)
    text = text.lstrip(".-") or "_"
    while len(text.encode(errors="replace")) > _MAX_NAME:
        text = text[:-1]
    return f"_{text}" if text.split(".")[0].casefold() in _RESERVED else text
