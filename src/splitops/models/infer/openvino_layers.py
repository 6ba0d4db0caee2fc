"""What is known of the outputs of OpenVINO layers: the data movers around splits, and elementwise operations.

Of every other layer the ports' own statements are taken. They cannot tell a scalar from an unknown rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from splitops.models.formats.openvino.model import Layer
from splitops.models.formats.openvino.sites import stated
from splitops.models.known import Tensor, meet_shapes
from splitops.models.movers import mover_of
from splitops.models.movers.followed import shape_of
from splitops.models.movers.shapes import broadcast
from splitops.spec.elements.types import ELEMENT_TYPES

Rule = Callable[[Layer, Sequence[Tensor]], Tensor]


def infer_layer(layer: Layer, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return what is known of a layer's outputs from its inputs, and from what the file states."""
    ports = [stated(port) for port in layer.outputs]
    mover = mover_of(layer)
    rule = _ELEMENTWISE.get(layer.type) if mover is None else mover.infer_layer
    if rule is None or len(ports) != 1 or not layer.version.startswith("opset"):
        return ports
    try:
        found = rule(layer, inputs)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError):
        return ports  # inputs that do not fit one another: the layer fails when it runs
    return [Tensor(found.type or ports[0].type, meet_shapes(found.shape, ports[0].shape), found.value)]


def _same_shape(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    return Tensor(inputs[0].type, inputs[0].shape)


def _broadcast(layer: Layer, inputs: Sequence[Tensor]) -> Tensor:
    left, right = inputs
    if layer.attribute("auto_broadcast") not in (None, "numpy"):
        raise ValueError("not followed")
    kind = ELEMENT_TYPES["bool"] if layer.type in _COMPARISONS else left.type
    return Tensor(kind, broadcast(shape_of(left), shape_of(right)))


_COMPARISONS: Final = frozenset(["NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"])
_BINARY: Final = frozenset(
    [
        "Power",
        "Mod",
        "FloorMod",
        "SquaredDifference",
        "LogicalAnd",
        "LogicalOr",
        "LogicalXor",
    ]
)
_UNARY: Final = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Ceiling",
        "Clamp",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HSigmoid",
        "HSwish",
        "HardSigmoid",
        "Log",
        "LogicalNot",
        "LogSoftmax",
        "Mish",
        "Negative",
        "ReLU",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "SoftPlus",
        "SoftSign",
        "SoftMax",
        "Softmax",
        "Sqrt",
        "Swish",
        "Tan",
        "Tanh",
    ]
)
_ELEMENTWISE: Final[dict[str, Rule]] = {
    **dict.fromkeys(sorted(_UNARY), _same_shape),
    **dict.fromkeys(sorted(_BINARY | _COMPARISONS), _broadcast),
}
