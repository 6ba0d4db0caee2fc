"""Loop, Scan, SequenceMap and calls of model-local functions for onnx's evaluator.

onnx's own Loop does not run without a condition and concatenates instead of stacking. Its Scan supports only
one axis and direction, and its SequenceMap cannot read values of the outer graph. onnx's If is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TypeProto
from onnx.reference.op_run import OpRun

from splitops.errors import ModelError
from splitops.models.running.iterations import IterationBudget
from splitops.native.resources import read_memory_limit
from splitops.spec.elements.types import from_onnx

_MEMORY: Final = read_memory_limit()
_BUDGET: Final[ContextVar[IterationBudget | None]] = ContextVar("iterations", default=None)
"""The budget of the current run. Evaluators do not store it, because they are shared between runs."""


@contextmanager
def limit_iterations(limit: int | None = None) -> Iterator[IterationBudget]:
    """Limit iterations and calls in the block. None keeps an outer limit or sets the default."""
    known = _BUDGET.get()
    if limit is None and known is not None:
        yield known
        return
    budget = IterationBudget() if limit is None else IterationBudget(limit)
    token = _BUDGET.set(budget)
    try:
        yield budget
    finally:
        _BUDGET.reset(token)


class Body(Protocol):
    """The evaluator of a body (a subgraph or function), as the operator that runs the body uses it."""

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs of the body, in the order in which the operator passes them."""

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs of the body, in the order in which a run returns them."""

    def run(
        self, output_names: None, feeds: dict[str, Any], /, *, attributes: dict[str, Any] | None = None
    ) -> Any:
        """Return the outputs, given the inputs and the values of the outer graph."""

    def infer_output(self, output: int, feeds: Mapping[str, Any], /) -> TypeProto:
        """Infer the type of the output with index ``output`` from the types of ``feeds``."""


@dataclass(frozen=True, slots=True)
class _BodyRunner:
    """Runs the body of an operator with the values of the outer graph."""

    operator: str
    body: Body
    around: Mapping[str, Any]
    attributes: dict[str, Any] | None
    budget: IterationBudget

    def run_once(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the body once, and count it as an iteration."""
        self.budget.count()
        outputs: list[Any] = self.body.run(None, self._make_feeds(inputs), attributes=self.attributes)
        return outputs

    def infer_output(self, output: int, inputs: Sequence[Any]) -> TypeProto:
        """Infer the type of an output of the body for these inputs, without running it."""
        return self.body.infer_output(output, self._make_feeds(inputs))

    def _make_feeds(self, inputs: Sequence[Any]) -> dict[str, Any]:
        names = self.body.input_names
        if len(names) != len(inputs):
            raise ModelError(f"the body of {self.operator} has {len(names)} inputs, but gets {len(inputs)}")
        return {**self.around, **dict(zip(names, inputs, strict=True))}


class _WithBody(OpRun):
    """An operator with a body that can read values of the outer graph."""

    body: Body

    def need_context(self) -> bool:
        return True

    def run(
        self,
        *args: Any,
        linked_attributes: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        """Run the operator. OpRun.run would blame the operator for a TypeError in its body."""
        attributes = dict(linked_attributes) if linked_attributes else None
        with limit_iterations() as budget:
            return self.repeat(_BodyRunner(self.op_type, self.body, context or {}, attributes, budget), *args)

    def repeat(self, runner: _BodyRunner, *args: Any) -> tuple[Any, ...]:
        """Run all iterations of the body, and return the outputs of the operator."""
        raise NotImplementedError

    def _run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        raise NotImplementedError("run() evaluates this operator")

    def count_scans(self, count: int) -> int:
        """Return the number of scan outputs, which follow the first ``count`` outputs of the body."""
        rest = len(self.body.output_names) - count
        if rest < 0:
            raise ModelError(
                f"the body of {self.op_type} has {len(self.body.output_names)} outputs, but needs {count}"
            )
        return rest

    def append_scans(self, scans: Sequence[list[Any]], values: Sequence[Any]) -> None:
        """Append the scan outputs of an iteration, ``values``, to the lists ``scans``.

        Raises:
            ModelError: the stacked result would be larger than the memory.
        """
        for scan, value in zip(scans, values, strict=True):
            scan.append(value)
            if len(scan) * getattr(value, "nbytes", 0) > _MEMORY:
                raise ModelError(f"{self.op_type} stacks results that are larger than the memory")

    def stack(
        self, values: Sequence[Any], output: int, runner: _BodyRunner, first: Sequence[Any], axis: int = 0
    ) -> npt.NDArray[Any]:
        """Stack the values of a scan output, which is the body's output with index ``output``.

        If there are none, return an empty array. Its shape is inferred from ``first``, the inputs that a
        first iteration would get.
        """
        if values:
            return np.stack(values, axis=axis)
        known = runner.infer_output(output, first)
        element_type = from_onnx(known.tensor_type.elem_type)
        if element_type is None:
            raise ModelError(
                f"{self.op_type} has no iteration, and output {self.body.output_names[output]!r} of its body "
                "declares no element type"
            )
        shape = [dim.dim_value for dim in known.tensor_type.shape.dim]
        shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
        return np.empty(shape, element_type.numpy)


class Loop(_WithBody):
    """Loop in all of its versions."""

    def repeat(self, runner: _BodyRunner, *args: Any) -> tuple[Any, ...]:
        """Run the body until the trip count or the condition ends the loop."""
        trip_count, condition = (*args, None, None)[:2]
        state = list(args[2:])
        trips = None if trip_count is None else int(_get_single(trip_count, "M"))
        going = True if condition is None else bool(_get_single(condition, "cond"))
        scans: list[list[Any]] = [[] for _ in range(self.count_scans(1 + len(state)))]
        iteration = 0
        while going and (trips is None or iteration < trips):
            outputs = runner.run_once([np.array(iteration, np.int64), np.array(going), *state])
            going = bool(_get_single(outputs[0], "cond"))
            state = outputs[1 : 1 + len(state)]
            self.append_scans(scans, outputs[1 + len(state) :])
            iteration += 1
        first = [np.array(0, np.int64), np.array(going), *state]
        return *state, *(self.stack(scan, 1 + len(state) + i, runner, first) for i, scan in enumerate(scans))


class Scan(_WithBody):
    """Scan since version 9, along any axis and in either direction."""

    num_scan_inputs: int
    scan_input_axes: list[int] | None
    scan_input_directions: list[int] | None
    scan_output_axes: list[int] | None
    scan_output_directions: list[int] | None

    def repeat(self, runner: _BodyRunner, *args: Any) -> tuple[Any, ...]:
        """Run the body on each slice of the scanned inputs."""
        if self.run_params["opsets"][self.onnx_node.domain] < 9:
            raise ModelError("Scan-8 with its batch axis is not supported: use opset 9 or later")
        count = self.num_scan_inputs
        if not 1 <= count <= len(args):
            raise ModelError(f"Scan has num_scan_inputs = {count} and {len(args)} inputs")
        state = list(args[: len(args) - count])
        streams = [
            _apply_direction(np.moveaxis(value, axis, 0), direction)
            for value, axis, direction in zip(
                args[len(state) :],
                _expand_attribute(self.scan_input_axes, count),
                _expand_attribute(self.scan_input_directions, count),
                strict=True,
            )
        ]
        lengths = {len(stream) for stream in streams}
        if len(lengths) != 1:
            raise ModelError(f"the scanned axes have different sizes: {sorted(lengths)}")
        scans: list[list[Any]] = [[] for _ in range(self.count_scans(len(state)))]
        for items in zip(*streams, strict=True):
            outputs = runner.run_once([*state, *map(np.asarray, items)])
            state = outputs[: len(state)]
            self.append_scans(scans, outputs[len(state) :])
        axes = _expand_attribute(self.scan_output_axes, len(scans))
        directions = _expand_attribute(self.scan_output_directions, len(scans))
        first = [*state, *(np.empty(stream.shape[1:], stream.dtype) for stream in streams)]
        stacked = (
            self.stack(_apply_direction(scan, direction), len(state) + i, runner, first, axis)
            for i, (scan, axis, direction) in enumerate(zip(scans, axes, directions, strict=True))
        )
        return *state, *stacked


class SequenceMap(_WithBody):
    """SequenceMap: runs the body for each index, on the elements of all sequences at this index.

    Inputs that are tensors are passed unchanged.
    """

    def repeat(self, runner: _BodyRunner, *args: Any) -> tuple[Any, ...]:
        """Run the body on each element of the first sequence, and return the sequences of its outputs."""
        sequence, *others = args
        mapped: list[list[Any]] = [[] for _ in self.body.output_names]
        for index, element in enumerate(sequence):
            beside = [other[index] if isinstance(other, list) else other for other in others]
            for values, value in zip(mapped, runner.run_once([element, *beside]), strict=True):
                values.append(value)
        return tuple(mapped)


CONTROL_FLOW: Final[Mapping[str, type[OpRun]]] = {
    "Loop": Loop,
    "Scan": Scan,
    "SequenceMap": SequenceMap,
}
"""The implementations of these operators, keyed by name."""


class FunctionCallBase(OpRun):
    """Base class for nodes that are not ONNX operators: function calls and OpenVINO layers."""

    def __init__(self, onnx_node: NodeProto, run_params: dict[str, Any]) -> None:
        # Without a schema: a function with the name of an ONNX operator does not have its attributes.
        super().__init__(onnx_node, run_params, schema=False)

    def _load_attributes(self) -> None:
        self.has_linked_attribute = False
        self.attributes_names_ = set()

    def _run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        raise NotImplementedError("run() evaluates the call")


class FunctionCall(FunctionCallBase):
    """A call of a model-local function. ``body`` evaluates it with the attributes of the call."""

    def __init__(self, onnx_node: NodeProto, run_params: dict[str, Any], body: Body) -> None:
        self.body = body
        super().__init__(onnx_node, run_params)

    def run(self, *args: Any, **_: Any) -> tuple[Any, ...]:
        """Run the body. Trailing inputs and outputs may be absent."""
        names, outputs = self.body.input_names, self.body.output_names
        if len(args) > len(names) or len(self.output) > len(outputs):
            raise ModelError(
                f"function {self.op_type!r} has {len(names)} inputs and {len(outputs)} outputs, "
                f"but is called with {len(args)} and {len(self.output)}"
            )
        feeds = dict.fromkeys(names) | dict(zip(names, args, strict=False))
        with limit_iterations() as budget:
            budget.count()
            return tuple(self.body.run(None, feeds))


def _get_single(value: Any, name: str) -> Any:
    array = np.asarray(value)
    if array.size != 1:
        raise ModelError(f"{name} has shape {array.shape}, but must be one value")
    return array.item()


def _expand_attribute(given: Sequence[int] | None, count: int) -> list[int]:
    """Return the values of an attribute for ``count`` tensors. The default is 0 for each."""
    values = list(given) if given else [0] * count
    if len(values) != count:
        raise ModelError(f"Scan declares {len(values)} axes or directions for {count} tensors")
    return values


def _apply_direction(items: Any, direction: int) -> Any:
    return items[::-1] if direction else items
