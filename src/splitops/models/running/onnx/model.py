"""Running ONNX models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto

from splitops.calls.node import read_only
from splitops.errors import Where
from splitops.ground.reading import place_of
from splitops.models.formats.onnx.storage import as_proto, opened
from splitops.models.formats.onnx.structure import check_model
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


@dataclass(frozen=True, slots=True)
class Model:
    """An ONNX model that is ready to run any number of times, from any thread.

    Attributes:
        signature: its inputs.
        outputs: the names of its outputs, in order.
        where: the place that errors name.
        evaluate: from the values of all inputs by name to those of the outputs, in order.
        foreign: whether a runtime evaluates all of it, into memory of its own.
    """

    signature: Inputs[str]
    outputs: tuple[str, ...]
    where: Where
    evaluate: Callable[[dict[str, Any]], Sequence[Any]]
    foreign: bool = False

    @classmethod
    def of(
        cls,
        proto: ModelProto,
        where: Where,
        partition: Partition | None = None,
    ) -> Model:
        """Prepare a well-formed model; what is foreign of it is in the partition."""
        evaluator = model_evaluator(proto, where, partition)
        return cls.by(partial(evaluator.run, None), proto, where)

    @classmethod
    def by(
        cls,
        evaluate: Callable[[dict[str, Any]], Sequence[Any]],
        proto: ModelProto,
        where: Where,
        *,
        foreign: bool = False,
    ) -> Model:
        """Join a model's declarations to what evaluates it."""
        inputs = {declared.name: declared for declared in onnx_inputs(proto.graph)}
        outputs = tuple(value.name for value in proto.graph.output)
        return cls(Inputs(tuple(inputs.items())), outputs, where, evaluate, foreign)

    def run(self, inputs: Mapping[str, Any], *, max_body_runs: int = MAX_BODY_RUNS) -> dict[str, Any]:
        """Run the model; see :func:`splitops.run`."""
        feeds = self.signature.check(inputs, self.where)
        if self.foreign:
            return dict(zip(self.outputs, self.evaluate(feeds), strict=True))
        with limited_body_runs(max_body_runs):
            outputs = self.evaluate(feeds)
        return {name: _own_view(value) for name, value in zip(self.outputs, outputs, strict=True)}


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
