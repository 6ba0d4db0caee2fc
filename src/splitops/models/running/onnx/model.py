"""Running ONNX models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto

from splitops.calls.node import read_only
from splitops.errors import Where
from splitops.ground.reading import place_of
from splitops.models.formats.onnx.storage import as_proto, opened
from splitops.models.formats.onnx.structure import certain_calls, check_model
from splitops.models.formats.onnx.tensors import load_external
from splitops.models.running.bodies import MAX_BODY_RUNS
from splitops.models.running.declared import onnx_inputs
from splitops.models.running.inputs import Inputs
from splitops.models.running.onnx.control_flow import limited_body_runs
from splitops.models.running.onnx.evaluator import model_evaluator
from splitops.models.running.onnx.regions import Partition

if TYPE_CHECKING:
    import onnx_ir

    AnyModel = str | os.PathLike[str] | ModelProto | onnx_ir.Model


class Model:
    """An ONNX model that is ready to run any number of times, from any thread.

    The partition says what of it a runtime evaluates. One that evaluates all of it, into memory of its own,
    is ``foreign``: from the values of all inputs by name to those of the outputs, in order.
    """

    def __init__(
        self,
        proto: ModelProto,
        where: Where,
        partition: Partition | None = None,
        *,
        foreign: Callable[[dict[str, Any]], Sequence[Any]] | None = None,
    ) -> None:
        self._inputs = Inputs([(declared.name, declared) for declared in onnx_inputs(proto.graph)])
        self._outputs = [value.name for value in proto.graph.output]
        self._where = where
        self._is_foreign = foreign is not None
        self._calls = certain_calls(proto) if proto.functions else 0
        self._evaluate = foreign or partial(model_evaluator(proto, where, partition).run, None)

    def run(self, inputs: Mapping[str, Any], *, max_body_runs: int = MAX_BODY_RUNS) -> dict[str, Any]:
        """Run the model; see :func:`splitops.run`."""
        feeds = self._inputs.check(inputs, self._where)
        if self._is_foreign:
            return dict(zip(self._outputs, self._evaluate(feeds), strict=True))
        with limited_body_runs(max_body_runs) as runs:
            runs.foresee(self._calls, self._where)
            outputs = self._evaluate(feeds)
        return {name: _own_view(value) for name, value in zip(self._outputs, outputs, strict=True)}


def read_to_run(model: AnyModel, *, allow_links: bool = False) -> tuple[ModelProto, Where]:
    """Return a well-formed model and its place; its large external initializers stay in their files."""
    if isinstance(model, str | os.PathLike):
        return opened(model, weights=False, allow_links=allow_links), place_of(model)
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
