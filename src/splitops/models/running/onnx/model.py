"""Running ONNX models on the reference evaluator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto

from splitops.calls.node import read_only
from splitops.common.untrusted_files import make_location
from splitops.errors import Where
from splitops.models.formats.onnx.storage import as_proto, opened
from splitops.models.formats.onnx.structure import certain_calls, check_model
from splitops.models.formats.onnx.tensors import load_external
from splitops.models.running.input_specs import onnx_inputs
from splitops.models.running.inputs import Inputs
from splitops.models.running.iterations import MAX_ITERATIONS
from splitops.models.running.onnx.control_flow import limit_iterations
from splitops.models.running.onnx.evaluator import model_evaluator

if TYPE_CHECKING:
    import onnx_ir

    AnyModel = str | os.PathLike[str] | ModelProto | onnx_ir.Model


class Model:
    """An ONNX model that is ready to run any number of times, from any thread.

    ``inputs`` and ``outputs`` are those of the OpenVINO IR that the model was converted from.
    """

    def __init__(
        self,
        proto: ModelProto,
        where: Where,
        inputs: Inputs[Any] | None = None,
        outputs: Sequence[str] = (),
    ) -> None:
        self._inputs = inputs or Inputs([(spec.name, spec) for spec in onnx_inputs(proto.graph)])
        self._outputs = outputs or [value.name for value in proto.graph.output]
        self._where = where
        self._calls = certain_calls(proto) if proto.functions else 0
        self._evaluator = model_evaluator(proto, where)

    def run(self, inputs: Mapping[str, Any], *, max_iterations: int = MAX_ITERATIONS) -> dict[str, Any]:
        """Run the model; see :func:`splitops.run`."""
        feeds = self._inputs.check(inputs, self._where)
        with limit_iterations(max_iterations) as budget:
            budget.check_calls(self._calls, self._where)
            outputs = self._evaluator.run(None, feeds)
        return {name: _own_view(value) for name, value in zip(self._outputs, outputs, strict=True)}


def read_to_run(model: AnyModel, *, allow_links: bool = False) -> tuple[ModelProto, Where]:
    """Return a well-formed model and its place; its large external initializers stay in their files."""
    if isinstance(model, str | os.PathLike):
        return opened(model, weights=False, allow_links=allow_links), make_location(model)
    proto = as_proto(model)
    where = Where(model=proto.graph.name or None)
    # Before onnx looks for the data of a Constant in the working directory.
    load_external(check_model(proto, where), where, None)
    return proto, where


def _own_view(value: Any) -> Any:
    """Return a value whose read-only arrays are not objects of the model, which a caller could unlock."""
    if isinstance(value, list):
        return [_own_view(item) for item in value]
    return value if isinstance(value, np.ndarray) and value.flags.writeable else read_only(value)
