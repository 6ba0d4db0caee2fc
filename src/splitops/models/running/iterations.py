"""Limit the iterations of loops and the calls of functions in a run of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from splitops.errors import ModelError, Where

MAX_ITERATIONS: Final = 1 << 22
"""Maximum number of iterations and calls in one run of a model, unless the caller sets another limit."""
_MORE: Final = "set a higher limit with max_iterations= (--max-iterations)"


@dataclass(slots=True)
class IterationBudget:
    """A budget for loop iterations and function calls in one run, since a model can request any number.

    Attributes:
        limit: maximum number.
        done: number so far.
    """

    limit: int = MAX_ITERATIONS
    done: int = 0

    def count(self, where: Where | None = None) -> None:
        """Count one iteration or call.

        Raises:
            ModelError: the limit is exceeded.
        """
        self.done += 1
        if self.done > self.limit:
            raise ModelError(f"loops and functions run more than {self.limit} times: {_MORE}", where)

    def check_calls(self, calls: int, where: Where | None = None) -> None:
        """Check the number of calls of functions before a run.

        Raises:
            ModelError: ``calls`` exceeds the limit.
        """
        if calls > self.limit:
            raise ModelError(f"functions are called {calls} times, more than {self.limit}: {_MORE}", where)
