"""Rounds of rewrites: each ends with nothing left to rewrite, and what it leaves may tell more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from splitops.models.graph.applied import Applied
from splitops.models.graph.editor import Editor
from splitops.models.simplify.passes import SplitPass
from splitops.models.simplify.registry import Rewriting

_MOST_ROUNDS: Final = 64
"""Two are the rule."""


def apply_rewrites(
    rewrites: Sequence[Rewriting], options: Mapping[str, Any], edit: Callable[[bool], Editor]
) -> tuple[Applied, ...]:
    """Apply rewrites until none applies, and return what was rewritten.

    Args:
        rewrites: the rewrites.
        options: what their passes can be told, by name.
        edit: gives an editor of the model as it is now, with what is known of it noted; it is told whether
            the model has changed since it was last asked.
    """
    stages = [[_pass(row, options) for row in rewrites if row.final is final] for final in (False, True)]
    changes: list[Applied] = []
    stage, changed = 0, False
    for _ in range(_MOST_ROUNDS):
        editor = edit(changed)
        editor.run(stages[stage])
        changes += editor.changes
        changed = bool(editor.changes)
        if changed:
            stage = 0
        elif stage == 0 and stages[1]:
            stage = 1
        else:
            break
    return tuple(changes)


def _pass(row: Rewriting, options: Mapping[str, Any]) -> SplitPass:
    return row.make_pass(**{name: options[name] for name in row.options if name in options})
