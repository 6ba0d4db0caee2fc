"""Converters of recurrent layers: LSTM, GRU and RNN.

In OpenVINO, the first axis is the batch, and the gates of an LSTM are in another order than in ONNX.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from splitops.models.convert.layer_op_builder import LayerOpBuilder
from splitops.models.convert.layers.converter import LayerConverter
from splitops.models.ops.writing import FLOATS, INT32, Values, require

_STEPS_FIRST: Final = {"perm": [1, 0, 2]}
_ACTIVATIONS: Final = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


@dataclass(frozen=True)
class _Cell:
    """Converter of a sequence of one kind of cell, or of a single cell as a sequence of one step."""

    operator: str
    gates: tuple[int, ...]
    """For each gate in the order of ONNX, its position in OpenVINO."""
    states: int
    """Number of states of a cell."""
    activations: str
    """Default activation functions of one direction, separated by commas."""
    single: bool = False

    def __call__(self, builder: LayerOpBuilder, *sources: ir.Value) -> Values:
        data, *states = sources[: 1 + self.states]
        lengths = None if self.single else sources[1 + self.states]
        weights: Sequence[ir.Value] = sources[(1 if self.single else 2) + self.states :]
        count = self.states + (4 if self.single else 5)
        require(builder, len(weights) == 3, f"has {len(sources)} inputs, not {count}")
        (hidden,) = builder.layer.read_integers("hidden_size")
        resets = self.operator == "GRU" and builder.layer.read_boolean("linear_before_reset", default=False)
        attributes = self._read_attributes(builder) | {"hidden_size": hidden}
        if self.single:
            data, *states = (
                builder.add("Unsqueeze", [value, builder.add_ints([0])]) for value in (data, *states)
            )
            weights = [_add_direction_axis(builder, value) for value in weights]
        else:
            data, *states = (builder.add("Transpose", [value], _STEPS_FIRST) for value in (data, *states))
        directions = 2 if attributes["direction"] == "bidirectional" else 1
        order = [gate * hidden + at for gate in self.gates for at in range(hidden)]
        inputs = [
            data,
            *(_reorder_rows(builder, value, order) for value in weights[:2]),
            self._make_biases(builder, weights[2], order, hidden, directions, resets=resets),
            lengths
            if lengths is None or builder.find_type(lengths) is INT32
            else builder.cast(lengths, INT32),
            *states,
        ]
        if resets:
            attributes["linear_before_reset"] = 1
        steps, *last = builder.add_node(self.operator, inputs, attributes, outputs=1 + self.states)
        if self.single:
            return [builder.add("Squeeze", [state, builder.add_ints([0])]) for state in last]
        return [
            builder.add("Transpose", [steps], {"perm": [2, 1, 0, 3]}),
            *(builder.add("Transpose", [state], _STEPS_FIRST) for state in last),
        ]

    def _make_biases(
        self,
        builder: LayerOpBuilder,
        value: ir.Value,
        order: list[int],
        hidden: int,
        directions: int,
        *,
        resets: bool,
    ) -> ir.Value:
        """Return the biases of data and state, which ONNX separates. OpenVINO stores only their sums.

        With ``resets`` (``linear_before_reset``), it also stores the state's bias of a GRU's last gate.
        """
        kind = builder.find_type(value)
        assert kind is not None
        zeros = np.zeros((directions, len(order) - hidden * resets), kind.numpy)
        kept = [3 * hidden + at for at in range(hidden)] if resets else []
        array = builder.read_weights(value)
        if array is not None:
            columns = [array[:, order], zeros, array[:, kept]]
            return builder.add_weights(np.concatenate(columns, axis=1), value)
        parts = [_reorder_rows(builder, value, order), builder.add_constant(zeros)]
        if resets:
            parts.append(_reorder_rows(builder, value, kept))
        return builder.add("Concat", parts, {"axis": 1})

    def _read_attributes(self, builder: LayerOpBuilder) -> dict[str, Any]:
        layer = builder.layer
        directions = ("forward", "reverse", "bidirectional")
        direction = "forward" if self.single else layer.read_enum("direction", directions)
        attributes: dict[str, Any] = {"direction": direction}
        for name in ("activations_alpha", "activations_beta"):
            text = layer.get_attribute(name)
            require(builder, not text, f"has {name} = {text!r}, which cannot be converted")
        activations = [name.strip() for name in layer.read_string("activations", self.activations).split(",")]
        each = len(self.activations.split(","))
        if direction == "bidirectional" and len(activations) == 2 * each:
            same = activations[:each] == activations[each:]
            require(builder, same, f"has activations = {activations}, which differ by direction")
            activations = activations[:each]
        named = set(activations) <= _ACTIVATIONS.keys() and len(activations) == each
        require(builder, named, f"has activations = {activations}, which cannot be converted")
        attributes["activations"] = [_ACTIVATIONS[name] for name in activations] * (
            2 if direction == "bidirectional" else 1
        )
        if clip := layer.read_number("clip", 0.0):
            attributes["clip"] = clip
        return attributes


def _add_direction_axis(builder: LayerOpBuilder, value: ir.Value) -> ir.Value:
    """Add an axis of size 1 for the direction to the weights of a cell."""
    array = builder.read_weights(value)
    if array is not None:
        return builder.add_weights(array[np.newaxis], value)
    return builder.add("Unsqueeze", [value, builder.add_ints([0])])


def _reorder_rows(builder: LayerOpBuilder, value: ir.Value, order: list[int]) -> ir.Value:
    """Select rows of weights in the given order. Rows are on axis 1, after the directions."""
    array = builder.read_weights(value)
    if array is not None:
        return builder.add_weights(array[:, order], value)
    return builder.add("Gather", [value, builder.add_ints(order)], {"axis": 1})


_entry = partial(LayerConverter, versions=(5,), types=FLOATS)
_LSTM, _GRU, _RNN = (
    partial(_Cell, "LSTM", (1, 3, 0, 2), 2, "sigmoid,tanh,tanh"),
    partial(_Cell, "GRU", (0, 1, 2), 1, "sigmoid,tanh"),
    partial(_Cell, "RNN", (0,), 1, "tanh"),
)

RECURRENT: Final = (
    _entry(layer="LSTMSequence", write=_LSTM()),
    _entry(layer="GRUSequence", write=_GRU()),
    _entry(layer="RNNSequence", write=_RNN()),
    _entry(layer="LSTMCell", versions=(4,), write=_LSTM(single=True)),
    _entry(layer="GRUCell", versions=(3,), write=_GRU(single=True)),
    _entry(layer="RNNCell", versions=(1,), write=_RNN(single=True)),
)
