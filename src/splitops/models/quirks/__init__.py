"""Find nodes around splits that a runtime optimises wrongly (quirks), and rewrite them.

A limit in the file of a target refers to a quirk by name, ``quirk = "..."``. The patterns are private to this
package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from splitops.models.graph.editor import Editor
from splitops.models.quirks import openvino
from splitops.models.quirks.onnxruntime import common_subexpression_elimination as onnxruntime
from splitops.models.quirks.onnxruntime.common_subexpression_elimination import (
    SplitKey,
    find_conflicting_splits,
    split_key,
)
from splitops.models.quirks.openvino import may_be_in, may_end_a_pattern
from splitops.models.quirks.quirk import Match, Quirk

RUNTIMES: Final = ("onnxruntime", "openvino")
"""The runtimes whose optimisers have quirks."""
QUIRKS: Final[Mapping[str, Quirk]] = {
    quirk.name: quirk for quirk in (*openvino.QUIRKS, onnxruntime.CONFLICTING_SPLITS)
}
"""Every quirk, keyed by name."""


def find(editor: Editor, runtime: str, *, equal_as_count: bool = False) -> list[Match]:
    """Return the matches of the quirks of a runtime in an annotated model, in the order of the model.

    With ``equal_as_count``, splits by equal lengths are treated as splits by a number of parts.
    """
    find_in = openvino.find if runtime == "openvino" else onnxruntime.find
    return list(find_in(editor, equal_as_count=equal_as_count))


__all__ = [
    "QUIRKS",
    "RUNTIMES",
    "Match",
    "Quirk",
    "SplitKey",
    "find",
    "find_conflicting_splits",
    "may_be_in",
    "may_end_a_pattern",
    "split_key",
]
