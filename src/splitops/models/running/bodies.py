"""How often the bodies of a model's loops may run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from splitops.errors import ModelError, Where

MAX_BODY_RUNS: Final = 1 << 22
"""How often the bodies of a model run at most, in one run of the model, unless the caller says otherwise."""


@dataclass(slots=True)
class BodyRuns:
    """The runs of all bodies in one run of a model: a loop can ask for any number of them.

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
            raise ModelError(
                f"bodies run more than {self.most} times; max_body_runs= allows more, "
                "as does --max-body-runs on the command line",
                where,
            )
