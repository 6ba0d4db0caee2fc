"""The journal of a run: records finished tasks on disk, so that an interrupted run can be resumed.

The file has a line of JSON for the plan and one for each finished task, which is appended after the task is
flushed to disk, if the run flushes, and a last line when all files are complete. The first malformed line,
such as a half line after a crash, is dropped with all later ones: those tasks run again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from splitops.common.staging import StagingFolder
from splitops.errors import FileError, shown_path

_MAX_LINE: Final = 16 << 20
"""Bytes by which a line may exceed the longest one of this run. Other programs may write files, too."""
_DIGITS: Final = re.compile("[0-9a-f]*")


class Journal:
    """The journal of one run, stored in the lock file of its staging folder.

    Attributes:
        done: the checksums of each finished task, by task number.
        whole: whether all files are complete, so that they only have to be moved to their final paths.
    """

    def __init__(
        self,
        staging: StagingFolder,
        identity: dict[str, Any],
        counts: Sequence[int],
        *,
        resume: bool,
        sync: bool,
    ) -> None:
        """Begin a journal in a locked staging folder or, with ``resume``, continue the existing one.

        The JSON value ``identity`` identifies the plan and its sources. ``counts`` has the number of
        checksums of each task.

        Raises:
            FileError: the existing journal belongs to another plan, or the sources have changed.
        """
        self.done: dict[int, list[int]] = {}
        self.whole = False
        self._counts = counts
        self._sync = sync
        self._begin = 0
        """Offset of the line of the first task."""
        self._file = staging.lock
        self._file.seek(0)
        if resume:
            self._read(identity, staging.path)
        if not self._file.tell():
            self._file.truncate()
            self._add(identity)
            self._begin = self._file.tell()

    def add(self, task: int, checksums: list[int]) -> None:
        """Record a task that is done and flushed to disk."""
        self.done[task] = checksums
        self._add({"task": task, "crc32": "".join(f"{checksum:08x}" for checksum in checksums)})

    def finish(self) -> None:
        """Record that all files are complete."""
        self.whole = True
        self._add({"whole": True})

    def forget(self) -> None:
        """Remove all finished tasks from the journal, so that they run again."""
        self.done.clear()
        self._file.seek(self._begin)
        self._file.truncate()

    def _add(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        if self._sync:
            os.fsync(self._file.fileno())

    def _read(self, identity: dict[str, Any], folder: Path) -> None:
        self._file.seek(0)
        end = 0
        limit = _MAX_LINE + len(json.dumps(identity)) + 8 * max(self._counts, default=0)
        for number, text in enumerate(iter(lambda: self._file.readline(limit), b"")):
            try:
                line = json.loads(text) if text.endswith(b"\n") else None
            except (ValueError, RecursionError):
                line = None
            if not isinstance(line, dict):
                break
            if number == 0:
                _compare(line, identity, folder)
                self._begin = len(text)
            elif line == {"whole": True} and len(self.done) == len(self._counts):
                self.whole = True
            elif not self._read_task(line):
                break
            end += len(text)
        self._file.seek(end)
        self._file.truncate()

    def _read_task(self, line: dict[str, Any]) -> bool:
        """Read the line of a task. Return whether it is valid."""
        task, digits = line.get("task"), line.get("crc32")
        if line.keys() != {"task", "crc32"} or type(task) is not int or not isinstance(digits, str):
            return False
        if not 0 <= task < len(self._counts) or len(digits) != 8 * self._counts[task]:
            return False
        if not _DIGITS.fullmatch(digits):
            return False
        self.done[task] = [int(digits[i : i + 8], 16) for i in range(0, len(digits), 8)]
        return True


def _compare(found: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    if found == wanted:
        return
    if found.get("plan") == wanted["plan"] and found.get("sources") != wanted["sources"]:
        raise FileError(
            f"the sources have changed since the run that left {shown_path(folder)}: run again without "
            "--resume (in Python: resume=False)"
        )
    raise FileError(
        f"{shown_path(folder)} belongs to a run with other arguments. Repeat the run with those, or run "
        "without --resume to replace it (in Python: resume=False)"
    )
