"""The layers that are evaluated without OpenVINO: the split family and the movers around it.

Shapes are those of the values, never those that the file declares.
"""

from __future__ import annotations

from collections.abc import Sequence

from splitops.calls.node import evaluate
from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.model import Layer
from splitops.models.formats.openvino.splits import family_schema, split_attributes
from splitops.models.movers import mover_of
from splitops.models.movers.evaluated import Value
from splitops.models.movers.mover import EVERY_OPSET
from splitops.spec.operators import FAMILY


def is_own(layer: Layer) -> bool:
    """Return whether a layer is evaluated here, instead of by OpenVINO."""
    if layer.type in FAMILY["openvino"]:
        return layer.version in EVERY_OPSET
    if layer.type in {"Parameter", "Const", "Result"}:
        return True
    mover = mover_of(layer)
    return mover is not None and mover.evaluate is not None


def evaluated(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    """Return the values of the output ports of a layer that :func:`is_own` and has inputs.

    Raises:
        RuleError: a split is invalid.
        ModelError: the inputs do not fit the layer, or what they give does not fit into memory.
    """
    if layer.type in FAMILY["openvino"]:
        return _parts(layer, inputs, where)
    mover = mover_of(layer)
    assert mover is not None
    assert mover.evaluate is not None
    try:
        return [mover.evaluate(layer, inputs)]
    except ModelError as error:
        error.where = where
        raise


def _parts(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    parts = evaluate(
        family_schema(layer.type, layer.version, where),
        split_attributes(layer, where),
        [value.array for value in inputs],
        outputs=len(layer.outputs),
        where=where,
        types=[value.element_type for value in inputs],
    )
    return [inputs[0].like(part) for part in parts]
