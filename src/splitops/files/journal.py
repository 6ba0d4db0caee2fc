"""What a run has done so far, on the disk: a run that was killed goes on from here.

A line of JSON for each step, appended once the bytes that it speaks of are durable. What follows the first
line that no run writes, such as the half of one that a crash leaves, is ignored: it is done again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from splitops.errors import FileError, shown_path
from splitops.ground.staging import StagingFolder

_MAX_LINE: Final = 16 << 20
"""Maximum bytes of a line beyond those that a line of this run has: a planted journal may be any file."""
_DIGITS: Final = re.compile("[0-9a-f]*")


class Journal:
    """The journal of one run: the locked file of its staging folder.

    Attributes:
        done: the checksums of each finished task's extents, by the task's number.
        whole: whether all tasks are done, and nothing but moving the files to their places is left.
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
        """Begin a journal in a locked staging folder, or (``resume``) continue that of the same work.

        The identity is of the work and its sources, in JSON's types; of each task the checksums are counted.

        Raises:
            FileError: it is not a work like this one.
        """
        self.done: dict[int, list[int]] = {}
        self.whole = False
        self._counts = counts
        self._sync = sync
        self._begin = 0
        """Where the first task's line begins."""
        self._file = staging.lock
        self._file.seek(0)
        if resume:
            self._read(identity, staging.path)
        if not self._file.tell():
            self._file.truncate()
            self._add(identity)
            self._begin = self._file.tell()

    def add(self, task: int, checksums: list[int]) -> None:
        """Note that a task is done and durable."""
        self.done[task] = checksums
        self._add({"task": task, "crc32": "".join(f"{checksum:08x}" for checksum in checksums)})

    def finish(self) -> None:
        """Note that all tasks are done."""
        self.whole = True
        self._add({"whole": True})

    def forget(self) -> None:
        """Forget what was done: all of it is to be done again."""
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
            elif not self._take(line):
                break
            end += len(text)
        self._file.seek(end)
        self._file.truncate()

    def _take(self, line: dict[str, Any]) -> bool:
        """Take a line about a task; return whether it is one."""
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
            f"the sources have changed since the run that left {shown_path(folder)}: what it has done is of "
            "no use; run again without going on"
        )
    raise FileError(
        f"{shown_path(folder)} is of another request: repeat that one, or run without going on to replace it"
    )
