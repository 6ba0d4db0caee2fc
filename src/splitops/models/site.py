"""What every model tool sees of one split operator in a model, whatever the file format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from splitops.binding import Fact
from splitops.errors import Where
from splitops.operators import OperatorSchema

__all__ = ["UNBIND_REPAIRS", "SplitSite", "may_be_unbind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSite:
    """One node of the split family, where it stands.

    Attributes:
        schema: the operator's version, chosen by the opset that its graph or function imports.
        attributes: the attributes that the node states: integers, and tuples of them. (A file can state
            other numbers; binding says what is wrong with them.)
        inputs: names of the inputs in the operator's order; ``""`` is an absent one.
        outputs: names of the declared outputs; ``""`` is one that nobody reads.
        where: model, graph path and node name.
        references: attributes that a model-local function takes from its caller: the node's attribute name
            to the function's.
        node: the node in the format's own form (``onnx.NodeProto``, XML element), for tools that rewrite it.
    """

    schema: OperatorSchema
    attributes: Mapping[str, object]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    where: Where
    references: Mapping[str, str] = field(default_factory=dict)
    node: Any = field(default=None, compare=False, repr=False)


UNBIND_REPAIRS: Final = (
    "as written: leave keepdims out (--unbind as-written); "
    "as PyTorch means it: leave the input 'split' out (--unbind as-pytorch)"
)
"""The two ways to state a site that :func:`may_be_unbind` so that everybody reads it in the same way."""


def may_be_unbind(
    row: OperatorSchema, attributes: Mapping[str, object], inputs: Sequence[Fact | None]
) -> bool:
    """Return whether the text and the runtimes may disagree on what a site gives.

    PyTorch exports a scripted ``unbind`` as a SplitToSequence of chunks of 1 with keepdims = 0. The text
    ignores keepdims beside chunks; PyTorch and onnxruntime drop the axis. We run what is written, and no
    tool rewrites such a site unasked.

    Examples:
        >>> from splitops.operators import schema
        >>> row, data = schema("SplitToSequence", 13), Fact(shape=(2, 3))
        >>> may_be_unbind(row, {"keepdims": 0}, (data, Fact(shape=(), value=1)))
        True
        >>> may_be_unbind(row, {"keepdims": 0}, (data, Fact(shape=(), value=2)))
        False
        >>> may_be_unbind(row, {"keepdims": 0}, (data,))
        False
    """
    chunk = inputs[1] if len(inputs) > 1 else None
    if row.keepdims is None or attributes.get(row.keepdims.name) != 0 or chunk is None:
        return False
    return chunk.shape in (None, ()) and chunk.value in (None, 1)
