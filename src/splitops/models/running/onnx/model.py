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
from splitops.models.formats.onnx.storage import as_proto, parse
from splitops.models.formats.onnx.structure import check_model, model_tensors
from splitops.models.formats.onnx.tensors import load_external
from splitops.models.formats.reading import DataFolder, place_of
from splitops.models.running.bodies import MAX_BODY_RUNS
from splitops.models.running.onnx.control_flow import limited_body_runs
from splitops.models.running.onnx.evaluator import model_evaluator
from splitops.models.running.onnx.regions import Division
from splitops.models.running.onnx.values import Inputs

if TYPE_CHECKING:
    import onnx_ir

    AnyModel = str | os.PathLike[str] | ModelProto | onnx_ir.Model

__all__ = ["Model", "load", "run"]


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

    signature: Inputs
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
        division: Division | None = None,
    ) -> Model:
        """Prepare a well-formed model.

        Args:
            proto: the model. External initializers stay in their file.
            where: its place.
            folder: the folder of its external data.
            division: what of it goes to a runtime; None where nothing does.

        Raises:
            ModelError: it has an operator of which no implementation is known, or a runtime refuses a region.
            OperatorError: ``op.version`` where Split or SplitToSequence does not exist at the imported opset.
        """
        evaluator = model_evaluator(proto, where, folder, division)
        outputs = tuple(value.name for value in proto.graph.output)
        return cls(Inputs(proto.graph, proto.ir_version), outputs, where, partial(evaluator.run, None))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that have no default, in order."""
        return tuple(name for name in self.signature.names if name not in self.signature.defaults)

    def replaces_constants(self, inputs: Mapping[str, Any]) -> bool:
        """Return whether a caller gives what a runtime has taken for constant."""
        constants = self.signature.constants
        return bool(constants) and isinstance(inputs, Mapping) and not constants.isdisjoint(inputs)

    def run(self, inputs: Mapping[str, Any], *, max_body_runs: int = MAX_BODY_RUNS) -> dict[str, Any]:
        """Run the model; see :func:`run`."""
        feeds = self.signature.check(inputs, self.where)
        if self.foreign:
            return dict(zip(self.outputs, self.evaluate(feeds), strict=True))
        with limited_body_runs(max_body_runs):
            outputs = self.evaluate(feeds)
        return {name: _own_view(value) for name, value in zip(self.outputs, outputs, strict=True)}


def read_to_run(model: AnyModel, *, allow_links: bool = False) -> tuple[ModelProto, Where, DataFolder | None]:
    """Return a well-formed model whose external initializers stay in their files, its place and their folder.

    Args:
        model: path of a ``.onnx`` file, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        allow_links: of a path, whether a link in its folder may lead out of it.

    Raises:
        ModelError: it is not well formed, or cannot be read.
    """
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        proto = parse(path, allow_links=allow_links)
        return proto, place_of(model), DataFolder(path.parent, allow_links)
    proto = as_proto(model)
    where = Where(model=proto.graph.name or None)
    check_model(proto, where)
    # Before onnx looks for the data of a Constant in the working directory.
    load_external(model_tensors(proto, initializers=False), where, None)
    return proto, where, None


def load(model: AnyModel, *, allow_links: bool = False) -> Model:
    """Prepare a model to run.

    Args:
        model: path of a ``.onnx`` file, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        allow_links: of a path, whether a link in its folder may lead out of it.

    Raises:
        ModelError: it is not well formed, or has an operator of which no implementation is known.
        OperatorError: ``op.version`` where Split or SplitToSequence does not exist at the imported opset.
    """
    return Model.of(*read_to_run(model, allow_links=allow_links))


def run(
    model: AnyModel,
    inputs: Mapping[str, Any],
    *,
    max_body_runs: int = MAX_BODY_RUNS,
    allow_links: bool = False,
) -> dict[str, Any]:
    """Run an ONNX model: the split family is ours, every other operator onnx's reference implementation.

    Args:
        model: path of a ``.onnx`` file, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        inputs: arrays by input name; lists of arrays for sequences. Their element types, and sizes where
            declared, must be the model's.
        max_body_runs: how often the bodies of Loop, Scan and SequenceMap run at most, all together.
        allow_links: of a path, whether a link in its folder may lead out of it.

    Returns:
        The outputs by name, in the model's order: arrays, lists of arrays for sequences, None for an absent
        optional. What shares memory with an input or a constant of the model is a read-only view; outputs may
        share memory with each other.

    Raises:
        RuleError: a rule of the split family is broken; ``error.where`` says at which node of which graph.
        ModelError: the model is not well formed, an input does not fit, or another operator fails, or bodies
            run too often.

    Examples:
        >>> import numpy as np, onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[N] x) => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> run(model, {"x": np.arange(5, dtype=np.float32)})
        {'a': array([0., 1., 2.], dtype=float32), 'b': array([3., 4.], dtype=float32)}
    """
    return load(model, allow_links=allow_links).run(inputs, max_body_runs=max_body_runs)


def _own_view(value: Any) -> Any:
    """Return a value whose read-only arrays are no objects of the model, which a caller could unlock."""
    if isinstance(value, list):
        return [_own_view(item) for item in value]
    return value if isinstance(value, np.ndarray) and value.flags.writeable else read_only(value)
