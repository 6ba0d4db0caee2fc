"""What is known of the outputs of OpenVINO layers: the data movers around splits, and elementwise operations.

Of every other layer the ports' own forms are taken. They cannot tell a scalar from an unknown rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from splitops.models.formats.openvino.model import Layer
from splitops.models.formats.openvino.sites import stated
from splitops.models.known import Tensor, meet_shapes
from splitops.models.movers import mover_of
from splitops.models.movers.elementwise import ELEMENTWISE


def infer_layer(layer: Layer, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return what is known of a layer's outputs from its inputs, and from what the file declares."""
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


_ELEMENTWISE: Final = {row.layer: row.infer_layer for row in ELEMENTWISE}
