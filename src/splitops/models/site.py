"""What every model tool sees of one split operator in a model, whatever the file format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitops.errors import Where
from splitops.operators import OperatorSchema

__all__ = ["SplitSite"]


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
