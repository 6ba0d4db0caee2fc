"""Decide whether an engine runs a model as specified: no known limit may apply, and loops must end.

If a limit still applies after the rewrites of :mod:`splitops.models.fix`, the engine is rejected: with
``"auto"``, the reference runs the whole model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import ModelProto, NodeProto

from splitops.common.integers import INT32_MAX
from splitops.errors import Where, shown
from splitops.models.check.checking import describe_match, find_limits, find_quirks
from splitops.models.check.limits import Outcome
from splitops.models.check.predicates import Certainty, ModelContext
from splitops.models.check.targets import Target
from splitops.models.engines.engine import Engine, EngineError
from splitops.models.fix import SplitReport
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.formats.onnx.structure import iter_nodes
from splitops.models.formats.openvino.nodes import LayerNode
from splitops.models.formats.openvino.port_maps import read_loop
from splitops.models.formats.walk import (
    canonicalise,
    iter_all_graphs,
    iter_all_nodes,
    iter_subgraphs,
    label,
)
from splitops.models.graph.editor import Editor
from splitops.models.graph.onnx import find_elements, find_type, read_constant
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.split_nodes import iter_split_nodes
from splitops.models.infer.interpreter import ForwardInterpreter
from splitops.models.quirks import may_be_in, may_end_a_pattern
from splitops.models.running.iterations import MAX_ITERATIONS
from splitops.models.sessions.dependencies import extract_split_dependencies
from splitops.models.split_nodes import SplitNode
from splitops.spec.elements.types import ElementType
from splitops.spec.sizes.rules import SizeRule

_ROUNDED: Final = 1 << 24
_MAX_OUTPUTS: Final = 1 << 12
"""Maximum number of outputs of a split: onnxruntime and OpenVINO plan them in quadratic time."""
_ANY_SIZE: Final = 1 << 62
REPEATING: Final = frozenset({"Loop", "Scan", "SequenceMap", "TensorIterator"})

NodeKey = tuple[str | None, str | None]
"""The path of a node's graph and the label of the node. Nodes that share both are treated as one."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """How a runtime would execute the splits of a model.

    Attributes:
        split_nodes: the splits, with the :class:`Fact` of each operand as far as it is known before a run.
        reasons: the reason for each split that the engine may not run as specified or that cannot be checked.
        unchecked: other splits that may be invalid in a run without an error of the runtime.
        doubtful: splits that may be invalid in a run.
        fused: a description of each node that the runtime would fuse wrongly.
    """

    split_nodes: tuple[SplitNode, ...] = ()
    reasons: Mapping[NodeKey, str] = field(default_factory=dict)
    unchecked: frozenset[NodeKey] = frozenset()
    doubtful: frozenset[NodeKey] = frozenset()
    fused: Mapping[NodeKey, str] = field(default_factory=dict)

    @property
    def first_reason(self) -> tuple[str | None, str] | None:
        """The label of the first node that the engine would not run as specified, and the reason, or None."""
        return next(((key[1], text) for key, text in {**self.reasons, **self.fused}.items()), None)


def analyse(model: ModelProto, where: Where, engine: Engine | None = None) -> Analysis:
    """Analyse the splits of a model for an engine. Without an engine, only find them."""
    targets = () if engine is None else (Target.load(engine.name),)
    fuses = any(target.by_quirk for target in targets)
    whole = fuses and any(map(_may_end_a_pattern, iter_nodes(model)))
    # The sizes matter unless the runtime itself checks and divides them exactly.
    sizes = engine is not None and not all(
        target.checks_in(engine.version, what) for target in targets for what in ("divides", "sizes")
    )
    part = model if whole else extract_split_dependencies(model, sizes=sizes)
    if part is None:
        return Analysis()
    graph = deserialize_model(part, where)
    if sizes:
        forget_shapes(graph)
    split_nodes = tuple(replace(split_node, node=None) for split_node in iter_split_nodes(graph, where))
    if engine is None:
        return Analysis(split_nodes)
    # Forward inference: the size that a split implies for its own input may be wrong before it has run.
    found = ForwardInterpreter(graph, where).run()
    editor = None
    if whole:
        found.annotate()
        editor = OnnxEditor(graph, where) if may_be_in(graph) else None
    return replace(
        analyse_splits(found.splits, ModelContext.from_model(graph), editor, engine, traced=False),
        split_nodes=split_nodes,
    )


def analyse_splits(
    split_nodes: Sequence[SplitNode],
    context: ModelContext,
    editor: Editor | None,
    engine: Engine,
    *,
    traced: bool = True,
) -> Analysis:
    """Analyse splits for a runtime.

    Args:
        split_nodes: the splits; a split in a function appears once per call.
        context: facts about the model.
        editor: editor of the model, or None if no node can be part of a quirk, a pattern that the runtime
            fuses wrongly.
        engine: the runtime.
        traced: whether the nodes before the splits are complete, so that their data can be traced to inputs.
    """
    target = Target.load(engine.name)
    reasons: dict[NodeKey, str] = {}
    unchecked: dict[NodeKey, None] = {}
    doubtful: dict[NodeKey, None] = {}
    for split_node in split_nodes:
        key = make_key(split_node)
        reason = _find_limit(split_node, context, engine, traced=traced) or _find_uncheckable(
            split_node, target, engine
        )
        if reason is not None:
            reasons[key] = reason
        elif not is_checked(split_node, target, engine):
            unchecked[key] = None
        if not _is_always_valid(split_node):
            doubtful[key] = None
    fused: dict[NodeKey, str] = {}
    if editor is not None:
        for limit, match in find_quirks(editor, (target,)):
            place = editor.locate(match.last).graph, label(match.last)
            fused.setdefault(place, f"{describe_match(limit, match)} [{limit.code}]")
    return Analysis(tuple(split_nodes), reasons, frozenset(unchecked), frozenset(doubtful), fused)


def forget_shapes(model: ir.Model) -> dict[ir.Value, ir.Shape]:
    """Remove the declared shapes of computed values and body inputs, which may be wrong, and return them."""
    shapes: dict[ir.Value, ir.Shape] = {}
    bodies = (graph for path, graph in iter_all_graphs(model) if path is not None)
    outputs = (node.outputs for node in iter_all_nodes(model))
    for value in chain(*outputs, *(graph.inputs for graph in bodies)):
        if value.shape is not None:
            shapes[value], value.shape = value.shape, None
    return shapes


def _may_end_a_pattern(node: NodeProto) -> bool:
    """Return whether OpenVINO may fuse a node with a split or a Transpose before it, or with Slices."""
    drops_axes = any(attribute.name == "keepdims" and not attribute.i for attribute in node.attribute)
    return may_end_a_pattern(node.op_type, drops_axes=drops_axes)


def make_key(split_node: SplitNode | SplitReport) -> NodeKey:
    """Return the :data:`NodeKey` of a split node: the path of its graph and its label."""
    return split_node.where.graph, split_node.where.node


def _find_limit(split_node: SplitNode, model: ModelContext, engine: Engine, *, traced: bool) -> str | None:
    """Describe the rule that a split breaks or the first limit that may apply to it, or return None."""
    if split_node.error is not None:
        return f"it breaks a rule: {split_node.error.message}"
    if len(split_node.outputs) > _MAX_OUTPUTS:
        return f"it has more than {_MAX_OUTPUTS} outputs"
    for limit, certainty in find_limits(split_node, model, (Target.load(engine.name),)):
        # onnxruntime names the split that it rejects at run time; the reference repeats the run.
        late = limit.outcome is Outcome.ERROR and engine.name == "onnxruntime"
        if certainty is Certainty.MAYBE and (late or limit.code in _CHECKED_IN_GRAPH):
            continue
        if (
            certainty is Certainty.MAYBE
            and limit.code == _NARROWED
            and traced
            and can_fit_like_inputs(split_node)
        ):
            continue
        return f"{limit.format_message(split_node, certainty)} [{limit.code}]"
    return None


_CHECKED_IN_GRAPH: Final = ("openvino.negative-remainder",)
"""Limits that are ignored if it is uncertain whether they apply: a check in the graph excludes them."""
_NARROWED: Final = "openvino.narrowed-values"
_MOVING: Final = frozenset(
    ["Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "SplitToSequence"]
).union(["Squeeze", "StridedSlice", "Tile", "Transpose", "Unsqueeze", "VariadicSplit"])
"""Operators that return elements of their first input or, for Concat, of all inputs."""
_OF_SIZES: Final = ("Shape", "ShapeOf", "Size")


def can_fit_like_inputs(split_node: SplitNode) -> bool:
    """Return whether a split's 64-bit data fits into 32 bits if the model's inputs do.

    Each run checks the inputs. Sizes and exact casts of integers count as fitting, other computed data does
    not.
    """
    stack: list[ir.Value | None] = list(split_node.node.inputs[:1])
    seen: set[ir.Value | None] = {None}
    while stack:
        value = stack.pop()
        if value is None or value in seen:
            continue
        seen.add(value)
        array = find_elements(value, limit=_ANY_SIZE)
        if array is not None:
            if not can_fit_32_bits(array):
                return False
            continue
        node = value.producer()
        if node is None or node.op_type == "Parameter":
            if split_node.where.graph is not None:  # it may be an input of the body
                return False
        elif node.op_type in _MOVING:
            stack += node.inputs if node.op_type == "Concat" else node.inputs[:1]
        elif node.op_type in ("Cast", "Convert"):
            source = None if node.inputs[0] is None else find_type(node.inputs[0])
            if source is None or not _can_cast_in_32_bits(source, find_type(value)):
                return False
            stack += node.inputs[:1]
        elif node.op_type not in _OF_SIZES:
            return False
    return True


def _can_cast_in_32_bits(source: ElementType, target: ElementType | None) -> bool:
    """Return whether a cast keeps all integers of type ``source`` that fit in 32 bits.

    A runtime that narrows 64-bit types casts them to int32 or float32, which is exact up to 2^24.
    """
    if source.name == "bool":
        return True
    if not source.integer or target is None:
        return False
    return source.name != "uint32" if target.integer else source.bits <= 16


def can_fit_32_bits(array: npt.NDArray[Any]) -> bool:
    """Return whether an array keeps its values if 64-bit numbers are converted to int32 or float32."""
    if array.dtype.itemsize < 8 or array.dtype.kind not in "iuf" or not array.size:
        return True
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return bool(np.array_equal(array.astype(np.float32), array, equal_nan=True))
    return bool(array.min() >= -INT32_MAX - 1 and array.max() <= INT32_MAX)


def _find_uncheckable(split_node: SplitNode, target: Target, engine: Engine) -> str | None:
    """Return the reason why a split that needs a check cannot be checked, or None."""
    if _is_rounded(split_node) and not target.checks_in(engine.version, "divides"):
        return "num_outputs divides an axis that may have more than 2^24 positions"
    if is_checked(split_node, target, engine):
        return None
    lengths = split_node.lengths
    if split_node.axis is None:
        return "its axis is known only at run time"
    if split_node.division is None and (lengths is None or lengths.shape is None):
        return "the rank of its lengths is known only at run time"
    return None


def is_checked(split_node: SplitNode, target: Target, engine: Engine) -> bool:
    """Return whether a split needs no check.

    It is valid in every run, the runtime itself rejects invalid runs, or its ``error`` is already known.
    """
    if split_node.error is not None or _is_always_valid(split_node):
        return True
    if split_node.division is not None:
        return target.checks_in(engine.version, "sizes")
    # onnxruntime treats empty lengths as absent, and accepts lengths of any rank for sequences.
    shape = None if split_node.lengths is None else split_node.lengths.shape
    counted = shape is not None and len(shape) < 2 and all(isinstance(size, int) and size for size in shape)
    return counted and target.checks_in(engine.version, "lengths")


def _is_rounded(split_node: SplitNode) -> bool:
    """Return whether ``num_outputs`` divides an axis whose size may not be exact in float32."""
    division, size = split_node.division, split_node.size
    if division is None or division.rule is not SizeRule.CEIL:
        return False
    most = size if size is None or isinstance(size, int) else size.hi
    return most is None or most > _ROUNDED


def find_part_sizes(split_node: SplitNode) -> list[tuple[int, int]] | None:
    """Return the axis and size of each part, or None if the split is invalid or a size is unknown."""
    axis, inference = split_node.axis, split_node.inference
    if axis is None or inference is None or inference.parts is None:
        return None
    known = [None if part is None else part[axis] for part in inference.parts]
    sizes = [(axis, size) for size in known if isinstance(size, int)]
    return sizes if isinstance(split_node.implied_size, int) and len(sizes) == len(known) else None


def _is_always_valid(split_node: SplitNode) -> bool:
    """Return whether a split is known to be valid in every run, so that it needs no check."""
    division, size = split_node.division, split_node.size
    if size is None:
        return False
    if division is not None and division.rule in (SizeRule.CEIL, SizeRule.CHUNK):
        return True  # valid for every axis size
    if division is not None and division.rule is SizeRule.REMAINDER and not isinstance(size, int):
        return size.lo > sum(division.lengths)
    return isinstance(size, int) and find_part_sizes(split_node) is not None


def needs_check(split_node: SplitNode, analysis: Analysis) -> bool:
    """Return whether the runtime may run an invalid split, or its rewrite, without an error."""
    key = make_key(split_node)
    if key not in analysis.reasons:
        return key in analysis.unchecked
    return key in analysis.doubtful or (
        split_node.schema.gives_sequence and not isinstance(split_node.size, int)
    )


def raise_limit(analysis: Analysis, engine: Engine, where: Where) -> None:
    """Check that no limit still applies after the rewrites.

    Raises:
        EngineError: the first limit that applies.
    """
    if analysis.first_reason is not None:
        node, reason = analysis.first_reason
        problem = f"would not run {shown(node or '')} as specified: {reason}"
        raise EngineError(engine.name, problem, replace(where, node=node), node=node)


# Loops and functions


COUNTED: Final = "only the reference limits loops and functions to max_iterations"


def find_refusal(model: ir.Model) -> str | None:
    """Return the reason why no runtime may run the loops of a model, or None."""
    trips = _count_iterations(model.graph)
    if trips <= MAX_ITERATIONS:
        return None
    number = f"of {trips:.0f} iterations, more than {MAX_ITERATIONS}"
    return f"the model has loops {'that do not end' if trips == math.inf else number}"


def _count_iterations(graph: Iterable[ir.Node]) -> float:
    """Estimate the number of iterations of Loop nodes in a graph, including those of nested ones.

    An unknown trip count counts as one, and that of an endless loop as infinite.
    """
    count = 0.0
    for node in graph:
        bodies = [body for _, body in iter_subgraphs(node)]
        inside, own = sum(map(_count_iterations, bodies)), 1.0
        if node.op_type == "Loop":
            own = _count_trips(node, bodies)
            count += own
        count += own * inside if inside else 0.0
    return count


def _count_trips(loop: ir.Node, bodies: Sequence[ir.Graph]) -> float:
    limit = loop.inputs[0]
    trips = None if limit is None else _read_limit(limit)
    if limit is not None and (trips is None or trips.size != 1 or trips.dtype.kind not in "iu"):
        return 1.0
    conditions = [_find_condition(loop, body) for body in bodies]
    if trips is not None and (trips.item() >= 0 or type(loop) is not LayerNode):
        number = float(max(0, trips.item()))
        return min(number, 1.0) if False in conditions else number
    return math.inf if True in conditions else 1.0


def _read_limit(value: ir.Value) -> npt.NDArray[Any] | None:
    producer = value.producer()
    if type(producer) is not LayerNode:
        return read_constant(value)
    constant = producer.layer.constant
    return None if constant is None else constant.read_array(producer.layer.where)


def _find_condition(loop: ir.Node, body: ir.Graph) -> bool | None:
    """Return the condition that a body returns if it is constant, or None if iterations may differ.

    An input that is the same in all iterations counts as true.
    """
    if type(loop) is LayerNode:
        ports = read_loop(loop.layer, loop.layer.where)
        inner = ports.body.by_id
        assert ports.condition is not None
        (end,) = ports.body.get_sources(inner[ports.condition])
        source = inner[end.layer]
        if source.constant is not None:
            return bool(source.constant.read_array(source.where).all())
        sliced = {entry.inner for entry in ports.inputs if entry.slicing is not None}
        varies = source.id in sliced or ports.carried.get(source.id, ports.condition) != ports.condition
        return True if source.type == "Parameter" and not varies else None
    value, *carried = map(_skip_identities, body.outputs[: len(body.inputs) - 1]) if body.outputs else [None]
    constant = None if value is None else read_constant(value)
    if constant is not None:
        return bool(constant.all())
    if value in body.inputs[2:]:
        at = body.inputs.index(value) - 2
        return True if carried[at : at + 1] == [value] else None
    return True if value is None or value.producer() is None else None


def _skip_identities(value: ir.Value | None) -> ir.Value | None:
    while value is not None and (node := value.producer()) is not None and node.op_type == "Identity":
        value = node.inputs[0]
    return value


def may_not_iterate(loop: ir.Node, runtime: str) -> bool:
    """Return whether a loop may run no iterations and ``runtime`` then returns wrong values.

    onnxruntime infers the sizes of an empty result from the body only. OpenVINO returns the result of the
    previous run.
    """
    is_layer = type(loop) is LayerNode
    if loop.op_type != "Loop" or (not is_layer and canonicalise(loop.domain)):
        return False
    limits = [find_elements(value) for value in loop.inputs[:2] if value is not None]
    if all(limit is not None and (limit.all() if is_layer else (limit > 0).all()) for limit in limits):
        return False
    if is_layer:
        return True
    first = max(1, len(loop.inputs) - 1)
    stacked = [value for _, body in iter_subgraphs(loop) for value in body.outputs[first:]]
    return bool(stacked) and (runtime == "openvino" or not all(map(_is_sized, stacked)))


def _is_sized(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(size, int) for size in value.shape)
