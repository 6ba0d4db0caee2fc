"""A progress bar on stderr for commands that take longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from splitops.common.progress import Steps, report_progress_to

if TYPE_CHECKING:
    from rich import progress as rich_progress

DELAY: Final = 1.0
"""Minimum seconds of work before the bar appears."""
_INTERVAL: Final = 0.1


@contextmanager
def show_progress() -> Iterator[None]:
    """Show the progress of the block on stderr if that is a terminal, beginning after :data:`DELAY`."""
    if not sys.stderr.isatty():
        yield
        return
    with report_progress_to(_Bar().update):
        yield


class _Bar:
    """A bar that disappears at the end of the work."""

    def __init__(self) -> None:
        self._due = time.monotonic() + DELAY
        self._shown: tuple[rich_progress.Progress, rich_progress.TaskID] | None = None

    def update(self, progress: Steps | None) -> None:
        """Show the progress, at most ten times a second, or hide the bar if ``progress`` is None."""
        if progress is None:
            self._hide()
            return
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _INTERVAL
        if self._shown is None:
            self._shown = self._show(progress)
        from splitops.cli._console import escape

        bar, task = self._shown
        at = f" {escape(progress.at, 60)}" if progress.at else ""
        bar.update(task, completed=progress.done, total=progress.total, description=f"{progress.what}{at}")

    def _show(self, progress: Steps) -> tuple[rich_progress.Progress, rich_progress.TaskID]:
        from rich import progress as rich_progress

        from splitops.cli._console import make_console

        steps = rich_progress.MofNCompleteColumn(), rich_progress.TimeElapsedColumn()
        of_bytes = (
            rich_progress.DownloadColumn(binary_units=True),
            rich_progress.TransferSpeedColumn(),
            rich_progress.TimeRemainingColumn(),
        )
        # The stdout of the command may be a file, which rich would redirect to the terminal.
        bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(),
            *(of_bytes if progress.unit == "bytes" else steps),
            console=make_console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        bar.start()
        return bar, bar.add_task(progress.what, total=progress.total)

    def _hide(self) -> None:
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None
