"""Running ONNX models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto

from splitops.calls.node import read_only
from splitops.errors import Where
from splitops.ground.reading import DataFolder, place_of
from splitops.models.formats.onnx.storage import as_proto, parse
from splitops.models.formats.onnx.structure import check_model
from splitops.models.formats.onnx.tensors import load_external
from splitops.models.running.bodies import MAX_BODY_RUNS
from splitops.models.running.declared import onnx_inputs
from splitops.models.running.inputs import Inputs
from splitops.models.running.onnx.control_flow import limited_body_runs
from splitops.models.running.onnx.evaluator import Infer, model_evaluator, nothing_known
from splitops.models.running.onnx.regions import Partition

if TYPE_CHECKING:
    import onnx_ir

    AnyModel = str | os.PathLike[str] | ModelProto | onnx_ir.Model


@dataclass(frozen=True, slots=True)
class Model:
    """An ONNX model that is ready to run any number of times, from any thread.

    Attributes:
        signature: its inputs.
        constants: the inputs whose default a runtime takes for a constant: before IR version 4, every
            initializer had to be an input.
        outputs: the names of its outputs, in order.
        where: the place that errors name.
        evaluate: from the values of all inputs by name to those of the outputs, in order.
        foreign: whether a runtime evaluates all of it, into memory of its own.
    """

    signature: Inputs[str]
    constants: frozenset[str]
    outputs: tuple[str, ...]
    where: Where
    evaluate: Callable[[dict[str, Any]], Sequence[Any]]
    foreign: bool = False

    @classmethod
    def of(
        cls,
        proto: ModelProto,
        where: Where,
        folder: DataFolder | None = None,
        partition: Partition | None = None,
        infer: Infer = nothing_known,
    ) -> Model:
        """Prepare a well-formed model, whose external initializers stay in their file.

        ``infer`` tells the types of its values: a loop without turns gives what it would.
        """
        evaluator = model_evaluator(proto, where, folder, partition, infer)
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
        defaults = {tensor.name for tensor in proto.graph.initializer if proto.ir_version < 4}
        outputs = tuple(value.name for value in proto.graph.output)
        return cls(
            Inputs(tuple(inputs.items())),
            frozenset(defaults & inputs.keys()),
            outputs,
            where,
            evaluate,
            foreign,
        )

    def replaces_constants(self, inputs: Mapping[str, Any]) -> bool:
        """Return whether a caller gives what a runtime has taken for constant."""
        given = bool(self.constants) and isinstance(inputs, Mapping)
        return given and not self.constants.isdisjoint(inputs)

    def run(self, inputs: Mapping[str, Any], *, max_body_runs: int = MAX_BODY_RUNS) -> dict[str, Any]:
        """Run the model; see :func:`splitops.run`."""
        feeds = self.signature.check(inputs, self.where)
        if self.foreign:
            return dict(zip(self.outputs, self.evaluate(feeds), strict=True))
        with limited_body_runs(max_body_runs):
            outputs = self.evaluate(feeds)
        return {name: _own_view(value) for name, value in zip(self.outputs, outputs, strict=True)}


def read_to_run(model: AnyModel, *, allow_links: bool = False) -> tuple[ModelProto, Where, DataFolder | None]:
    """Return a well-formed model, its place, and the folder in which its external initializers stay."""
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        proto = parse(path, allow_links=allow_links)
        return proto, place_of(model), DataFolder(path.parent, allow_links)
    proto = as_proto(model)
    where = Where(model=proto.graph.name or None)
    # Before onnx looks for the data of a Constant in the working directory.
    load_external(check_model(proto, where), where, None)
    return proto, where, None


def _own_view(value: Any) -> Any:
    """Return a value whose read-only arrays are not objects of the model, which a caller could unlock."""
    if isinstance(value, list):
        return [_own_view(item) for item in value]
    return value if isinstance(value, np.ndarray) and value.flags.writeable else read_only(value)
