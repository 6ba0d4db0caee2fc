"""Run ONNX models on the reference evaluator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto

from splitops.calls.node import read_only
from splitops.common.untrusted_files import make_location
from splitops.errors import Where
from splitops.models.formats.onnx.storage import open_model, to_proto
from splitops.models.formats.onnx.structure import check_model, count_certain_calls
from splitops.models.formats.onnx.tensors import load_external
from splitops.models.running.input_specs import read_onnx_inputs
from splitops.models.running.inputs import Inputs
from splitops.models.running.iterations import MAX_ITERATIONS
from splitops.models.running.onnx.control_flow import limit_iterations
from splitops.models.running.onnx.evaluator import make_model_evaluator

if TYPE_CHECKING:
    import onnx_ir

    AnyModel = str | os.PathLike[str] | ModelProto | onnx_ir.Model


class Model:
    """An ONNX model that is ready to run on the reference evaluator. Threads may share it.

    ``inputs`` and ``outputs`` are those of the IR if the model was converted from OpenVINO IR.
    """

    def __init__(
        self,
        proto: ModelProto,
        where: Where,
        inputs: Inputs[Any] | None = None,
        outputs: Sequence[str] = (),
    ) -> None:
        self._inputs = inputs or Inputs([(spec.name, spec) for spec in read_onnx_inputs(proto.graph)])
        self._outputs = outputs or [value.name for value in proto.graph.output]
        self._where = where
        self._calls = count_certain_calls(proto) if proto.functions else 0
        self._evaluator = make_model_evaluator(proto, where)

    def run(self, inputs: Mapping[str, Any], *, max_iterations: int = MAX_ITERATIONS) -> dict[str, Any]:
        """Run the model; see :func:`splitops.run`."""
        feeds = self._inputs.check(inputs, self._where)
        with limit_iterations(max_iterations) as budget:
            budget.check_calls(self._calls, self._where)
            outputs = self._evaluator.run(None, feeds)
        return {name: _make_view(value) for name, value in zip(self._outputs, outputs, strict=True)}


def read_to_run(model: AnyModel, *, allow_links: bool = False) -> tuple[ModelProto, Where]:
    """Read and check a model, and return it with its location.

    External initializers are not read yet, except small ones of a model at a path.
    """
    if isinstance(model, str | os.PathLike):
        return open_model(model, weights=False, allow_links=allow_links), make_location(model)
    proto = to_proto(model)
    where = Where(model=proto.graph.name or None)
    # onnx would search the working directory for the data of a Constant.
    load_external(check_model(proto, where), where, None)
    return proto, where


def _make_view(value: Any) -> Any:
    """Return a value with new views of read-only arrays. Callers could make the originals writeable."""
    if isinstance(value, list):
        return [_make_view(item) for item in value]
    return value if isinstance(value, np.ndarray) and value.flags.writeable else read_only(value)
