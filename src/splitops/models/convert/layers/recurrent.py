"""Layers that read a sequence step by step: LSTM, GRU, RNN.

OpenVINO has the batch first, and the gates of an LSTM in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from splitops.errors import ModelError
from splitops.models.convert.tape import Tape
from splitops.models.formats.openvino import Layer
from splitops.models.movers.form import (
    FLOATS,
    INT32,
    LayerForm,
    Values,
    boolean,
    integers,
    number,
    opsets,
    prove,
    text,
)

_STEPS_FIRST: Final = {"perm": [1, 0, 2]}
_ACTIVATIONS: Final = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


@dataclass(frozen=True)
class _Cell:
    """Writes a sequence of one kind of cell.

    Attributes:
        operator: the operator of ONNX.
        gates: where OpenVINO has each of ONNX's gates.
        declares: the number of declares that a step hands on.
        activations: those of a layer that sets none.
    """

    operator: str
    gates: tuple[int, ...]
    states: int
    activations: str

    def __call__(self, tape: Tape, layer: Layer, sources: Sequence[ir.Value]) -> Values:
        data, *states = sources[: 1 + self.states]
        lengths, *weights = sources[1 + self.states :]
        prove(len(weights) == 3, f"{layer} has {len(sources)} inputs")
        (hidden,) = integers(layer, "hidden_size")
        resets = self.operator == "GRU" and boolean(layer, "linear_before_reset", default=False)
        names = ("weights", "recurrent weights", "biases")
        arrays = [_stored(tape, layer, value, name) for value, name in zip(weights, names, strict=True)]
        inputs = [
            tape.op("Transpose", [data], _STEPS_FIRST),
            *(
                tape.initializer(self._in_order(array, hidden), value)
                for array, value in zip(arrays[:2], weights[:2], strict=True)
            ),
            tape.initializer(self._biases(arrays[2], hidden, resets=resets), weights[2]),
            lengths if tape.type_of(lengths) is INT32 else tape.cast(lengths, INT32),
            *(tape.op("Transpose", [state], _STEPS_FIRST) for state in states),
        ]
        attributes = self._attributes(layer) | {"hidden_size": hidden}
        if resets:
            attributes["linear_before_reset"] = 1
        steps, *last = tape.multi(self.operator, inputs, attributes, outputs=1 + self.states)
        return [
            tape.op("Transpose", [steps], {"perm": [2, 1, 0, 3]}),
            *(tape.op("Transpose", [state], _STEPS_FIRST) for state in last),
        ]

    def _in_order(self, array: npt.NDArray[Any], hidden: int) -> npt.NDArray[Any]:
        """Return numbers of all gates, on axis 1, in the order of ONNX."""
        parts = [array[:, gate * hidden : (gate + 1) * hidden] for gate in self.gates]
        return np.concatenate(parts, axis=1)

    def _biases(self, array: npt.NDArray[Any], hidden: int, *, resets: bool) -> npt.NDArray[Any]:
        """Return the biases of data and of state: OpenVINO has their sum, but of a GRU's last gate both."""
        data = self._in_order(array, hidden)
        state = np.zeros_like(data)
        if resets:
            state[:, -hidden:] = array[:, 3 * hidden :]
        return np.concatenate([data, state], axis=1)

    def _attributes(self, layer: Layer) -> dict[str, Any]:
        direction = text(layer, "direction")
        prove(direction in ("forward", "reverse", "bidirectional"), f"{layer} has direction = {direction!r}")
        found: dict[str, Any] = {"direction": direction}
        for name in ("activations_alpha", "activations_beta"):
            prove(not layer.attribute(name), f"{layer} has {name} = {layer.attribute(name)!r}")
        activations = [word.strip() for word in text(layer, "activations", self.activations).split(",")]
        prove(set(activations) <= _ACTIVATIONS.keys(), f"{layer} has activations = {activations}")
        each = [_ACTIVATIONS[word] for word in activations]
        found["activations"] = each * (2 if direction == "bidirectional" else 1)
        if clip := number(layer, "clip", 0.0):
            found["clip"] = clip
        return found


def _stored(tape: Tape, layer: Layer, value: ir.Value, name: str) -> npt.NDArray[Any]:
    found = tape.stored(value)
    if found is None:
        raise ModelError(f"the {name} of {layer} are computed when the model runs")
    return found


_form = partial(LayerForm, versions=opsets(5), types=FLOATS)

RECURRENT: Final = (
    _form(layer="LSTMSequence", write=_Cell("LSTM", (1, 3, 0, 2), 2, "sigmoid,tanh,tanh")),
    _form(layer="GRUSequence", write=_Cell("GRU", (0, 1, 2), 1, "sigmoid,tanh")),
    _form(layer="RNNSequence", write=_Cell("RNN", (0,), 1, "tanh")),
)
