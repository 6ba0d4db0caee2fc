"""Layers that read a sequence step by step: LSTM, GRU, RNN.

OpenVINO has the batch first, and the gates of an LSTM in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.form import LayerForm, opsets
from splitops.models.formats.openvino import Layer
from splitops.models.ops.writing import (
    FLOATS,
    INT32,
    Values,
    require,
)

_STEPS_FIRST: Final = {"perm": [1, 0, 2]}
_ACTIVATIONS: Final = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


@dataclass(frozen=True)
class _Cell:
    """Writes a sequence of one kind of cell, or a cell as a sequence of one step."""

    operator: str
    gates: tuple[int, ...]
    """Where OpenVINO has each of ONNX's gates."""
    states: int
    """The number of states that a step hands on."""
    activations: str
    """Those of a layer that sets none."""
    single: bool = False

    def __call__(self, builder: LayerOpBuilder, layer: Layer, sources: Sequence[ir.Value]) -> Values:
        data, *states = sources[: 1 + self.states]
        lengths = None if self.single else sources[1 + self.states]
        weights = sources[(1 if self.single else 2) + self.states :]
        require(len(weights) == 3, f"{layer} has {len(sources)} inputs")
        (hidden,) = layer.read_integers("hidden_size")
        resets = self.operator == "GRU" and layer.read_boolean("linear_before_reset", default=False)
        attributes = self._attributes(layer) | {"hidden_size": hidden}
        if self.single:
            data, *states = (
                builder.op("Unsqueeze", [value, builder.integers([0])]) for value in (data, *states)
            )
            weights = [_with_axis(builder, value) for value in weights]
        else:
            data, *states = (builder.op("Transpose", [value], _STEPS_FIRST) for value in (data, *states))
        directions = 2 if attributes["direction"] == "bidirectional" else 1
        order = [gate * hidden + at for gate in self.gates for at in range(hidden)]
        inputs = [
            data,
            *(_reorder_rows(builder, value, order) for value in weights[:2]),
            self._biases(builder, weights[2], order, hidden, directions, resets=resets),
            lengths if lengths is None or builder.type_of(lengths) is INT32 else builder.cast(lengths, INT32),
            *states,
        ]
        if resets:
            attributes["linear_before_reset"] = 1
        steps, *last = builder.multi(self.operator, inputs, attributes, outputs=1 + self.states)
        if self.single:
            return [builder.op("Squeeze", [state, builder.integers([0])]) for state in last]
        return [
            builder.op("Transpose", [steps], {"perm": [2, 1, 0, 3]}),
            *(builder.op("Transpose", [state], _STEPS_FIRST) for state in last),
        ]

    def _biases(
        self,
        builder: LayerOpBuilder,
        value: ir.Value,
        order: list[int],
        hidden: int,
        directions: int,
        *,
        resets: bool,
    ) -> ir.Value:
        """Return the biases of data and of state: OpenVINO has their sum, but of a GRU's last gate both."""
        kind = builder.type_of(value)
        assert kind is not None
        none = np.zeros((directions, len(order) - hidden * resets), kind.numpy)
        kept = [3 * hidden + at for at in range(hidden)] if resets else []
        array = builder.stored(value)
        if array is not None:
            return builder.initializer(np.concatenate([array[:, order], none, array[:, kept]], axis=1), value)
        parts = [_reorder_rows(builder, value, order), builder.constant(none)]
        if resets:
            parts.append(_reorder_rows(builder, value, kept))
        return builder.op("Concat", parts, {"axis": 1})

    def _attributes(self, layer: Layer) -> dict[str, Any]:
        known = ("forward", "reverse", "bidirectional")
        direction = "forward" if self.single else layer.read_enum("direction", known)
        found: dict[str, Any] = {"direction": direction}
        for name in ("activations_alpha", "activations_beta"):
            require(not layer.get_attribute(name), f"{layer} has {name} = {layer.get_attribute(name)!r}")
        activations = [word.strip() for word in layer.read_text("activations", self.activations).split(",")]
        each = len(self.activations.split(","))
        if direction == "bidirectional" and len(activations) == 2 * each:
            same = activations[:each] == activations[each:]
            require(same, f"{layer} has activations = {activations}, others in each direction")
            activations = activations[:each]
        named = set(activations) <= _ACTIVATIONS.keys() and len(activations) == each
        require(named, f"{layer} has activations = {activations}")
        found["activations"] = [_ACTIVATIONS[word] for word in activations] * (
            2 if direction == "bidirectional" else 1
        )
        if clip := layer.read_number("clip", 0.0):
            found["clip"] = clip
        return found


def _with_axis(builder: LayerOpBuilder, value: ir.Value) -> ir.Value:
    """Return the weights of a cell as those of a sequence of one direction."""
    array = builder.stored(value)
    if array is not None:
        return builder.initializer(array[np.newaxis], value)
    return builder.op("Unsqueeze", [value, builder.integers([0])])


def _reorder_rows(builder: LayerOpBuilder, value: ir.Value, order: list[int]) -> ir.Value:
    """Return the rows of weights, on axis 1, in another order."""
    array = builder.stored(value)
    if array is not None:
        return builder.initializer(array[:, order], value)
    return builder.op("Gather", [value, builder.integers(order)], {"axis": 1})


_form = partial(LayerForm, versions=opsets(5), types=FLOATS)
_LSTM, _GRU, _RNN = (
    partial(_Cell, "LSTM", (1, 3, 0, 2), 2, "sigmoid,tanh,tanh"),
    partial(_Cell, "GRU", (0, 1, 2), 1, "sigmoid,tanh"),
    partial(_Cell, "RNN", (0,), 1, "tanh"),
)

RECURRENT: Final = (
    _form(layer="LSTMSequence", write=_LSTM()),
    _form(layer="GRUSequence", write=_GRU()),
    _form(layer="RNNSequence", write=_RNN()),
    _form(layer="LSTMCell", versions=opsets(4), write=_LSTM(single=True)),
    _form(layer="GRUCell", versions=opsets(3), write=_GRU(single=True)),
    _form(layer="RNNCell", versions=opsets(1), write=_RNN(single=True)),
)
