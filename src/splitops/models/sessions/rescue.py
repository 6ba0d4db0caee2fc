"""What an engine fails at, evaluated here: it may be a broken rule, or right all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from splitops.errors import RuleError, SplitError
from splitops.models.engines.engine import EngineError


class LastRun(threading.local):
    """What is remembered of the last run, for each thread.

    Attributes:
        failure: at what the engine failed, which was evaluated here then.
    """

    failure: EngineError | None = None


def rescued(run: Callable[[], dict[str, Any]], error: EngineError) -> dict[str, Any]:
    """Return what a run without the engine gives.

    Args:
        run: the run.
        error: at what the engine failed.

    Raises:
        RuleError: a split is invalid.
        EngineError: ``error``, since the run without the engine fails too.
    """
    try:
        return run()
    except RuleError:
        raise
    except SplitError:
        raise error from None
