"""How often the bodies of a model's loops and functions may run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from splitops.errors import ModelError, Where

MAX_BODY_RUNS: Final = 1 << 22
"""How often the bodies of a model run at most, in one run of the model, unless the caller says otherwise."""
_MORE: Final = "max_body_runs= allows more, as does --max-body-runs on the command line"


@dataclass(slots=True)
class BodyRuns:
    """The runs of all bodies in one run of a model: loops and calls of functions can ask for any number.

    Attributes:
        most: how many there may be.
        done: how many there were.
    """

    most: int = MAX_BODY_RUNS
    done: int = 0

    def count(self, where: Where | None = None) -> None:
        """Count one more."""
        self.done += 1
        if self.done > self.most:
            raise ModelError(f"bodies run more than {self.most} times; {_MORE}", where)

    def foresee(self, calls: int, where: Where | None = None) -> None:
        """Reject a model whose calls of functions alone are more, before any of them."""
        if calls > self.most:
            raise ModelError(f"functions are called {calls} times, more than {self.most}; {_MORE}", where)
