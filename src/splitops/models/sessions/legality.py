"""What of an ONNX model a runtime is not given: splits that it would not do as specified above all."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, cast

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto
from onnx.defs import get_schema, has

from splitops.errors import SplitError, Where
from splitops.models.check.checking import find_fusions, find_limits, fusion_words
from splitops.models.check.conditions import Surely, Surroundings
from splitops.models.check.limits import Outcome, release_numbers
from splitops.models.check.targets import Target
from splitops.models.engines.engine import Engine
from splitops.models.fix import FixStatus, SplitReport
from splitops.models.formats.onnx.structure import (
    FunctionKey,
    callees_first,
    extend,
    function_key,
    function_path,
    functions_of,
    located_graphs,
    nodes_of,
    opset_imports,
    subgraphs,
    too_many_inlined,
)
from splitops.models.formats.onnx.tensors import is_external, tensor_array
from splitops.models.graph.editor import Editor
from splitops.models.graph.fusions import REDUCTIONS, may_be_fused_in
from splitops.models.graph.model import NodeModel
from splitops.models.graph.onnx import label
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.onnx_model import as_graph
from splitops.models.graph.sites import split_sites
from splitops.models.infer.onnx_types import types_of_values
from splitops.models.infer.walk import Upstream
from splitops.models.running.bodies import MAX_BODY_RUNS
from splitops.models.sessions.cones import cone_of_sites
from splitops.models.sites import Site
from splitops.onnx.reference import node_label
from splitops.spec.sizes.rules import SizeRule

_FLOATS: Final = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
_COMPLEX: Final = frozenset({TensorProto.COMPLEX64, TensorProto.COMPLEX128})
_PROVING_SINCE: Final = {"onnxruntime": "1.29.0"}
"""The first release of each runtime that proves lengths before it splits.

An older onnxruntime ends the process (onnxruntime issue 29461). OpenVINO makes 32 bits of lengths, and gives
-1 what the others leave.
"""
_DIVIDING_SINCE: Final = {"onnxruntime": "1.29.0"}
"""The first release of each runtime that divides by num_outputs in integers; older ones round to float32."""
_ROUNDED: Final = 1 << 24
_MOST_OUTPUTS: Final = 1 << 12
"""Outputs of a split that a runtime is given: onnxruntime and OpenVINO plan them in quadratic time."""
_WITH_BODIES: Final = frozenset({"Loop", "Scan", "SequenceMap"})


Place = tuple[str | None, str | None]
"""A node by the path of its graph and its label. Nodes that share both are treated alike."""


@dataclass(slots=True)
class Borders:
    """What of a model is evaluated here.

    Attributes:
        nodes: the nodes that are: splits with the reason, those that the runtime has no implementation for or
            would fuse wrongly, and loops that may have no turn, of which it does not infer what a turn gives.
        values: the values that the runtime does not take, by the path of the graph and the name.
        operators: the operators that are, wherever they stand.
        calls: whether calls of functions are.
        guarded: the nodes, with their operators, that the runtime is given where no tensor that they read is
            empty.
    """

    nodes: dict[Place, str] = field(default_factory=dict)
    values: frozenset[tuple[str | None, str]] = frozenset()
    operators: frozenset[str] = frozenset()
    calls: bool = False
    guarded: Mapping[Place, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.values or self.operators or self.calls or self.guarded)

    def add(self, places: Iterable[Place], reason: str) -> bool:
        """Add nodes with the reason; return whether any of them is new."""
        known = len(self.nodes)
        for place in places:
            self.nodes.setdefault(place, reason)
        return len(self.nodes) > known


class OwnNodes:
    """The test whether a node of a model is evaluated here: it is at a border, or one inside it is."""

    def __init__(self, borders: Borders, model: ModelProto) -> None:
        self._borders = borders
        self._functions: dict[FunctionKey, bool] = {}
        functions = functions_of(model)
        for key in callees_first(functions):
            path = function_path(functions[key])
            self._functions[key] = borders.calls or any(self(path, node) for node in functions[key].node)

    def __call__(self, path: str | None, node: NodeProto) -> bool:
        """Return whether a node, in the graph of a path, is evaluated here."""
        borders = self._borders
        key = function_key(node)
        if key in self._functions:
            return self._functions[key]
        if not key[0] and node.op_type in borders.operators:
            return True
        if borders.nodes and (path, node_label(node)) in borders.nodes:
            return True
        if borders.values and any((path, name) in borders.values for name in (*node.input, *node.output)):
            return True
        return any(self(extend(path, step), inner) for step, graph in subgraphs(node) for inner in graph.node)


@dataclass(frozen=True, slots=True)
class Analysis:
    """What of a model's splits is known, and what a runtime would not do with them as specified.

    Attributes:
        sites: the splits, with what is known of them.
        reasons: why some are not given to the runtime.
        settled: those that are valid in every run.
        computed: those whose lengths only a run knows.
        fused: the nodes that the runtime would fuse wrongly, with what. Evaluated elsewhere, none is fused.
    """

    sites: tuple[Site, ...] = ()
    reasons: Mapping[Place, str] = field(default_factory=dict)
    settled: frozenset[Place] = frozenset()
    computed: frozenset[Place] = frozenset()
    fused: Mapping[Place, str] = field(default_factory=dict)


def analyse(
    model: ModelProto, where: Where, engine: Engine | None = None, *, sizes: bool = False
) -> Analysis:
    """Look at the splits of a model, each once; without an engine, at the split nodes alone.

    ``sizes`` asks for those of all splits, which takes inference of all before them.
    """
    targets = () if engine is None else (Target.load(engine.name),)
    fuses = any(target.by_pattern for target in targets)
    whole = fuses and any(map(_may_end_a_pattern, nodes_of(model)))
    # onnxruntime proves sizes itself, and all it does with some splits depends on no other ones.
    sizes = sizes or (engine is not None and (engine.name != "onnxruntime" or _divides_in_floats(engine)))
    part = model if whole else cone_of_sites(model, sizes=sizes)
    if part is None:
        return Analysis()
    graph = as_graph(part, where)
    sites = tuple(replace(site, node=None) for site in split_sites(graph, where))
    if engine is None:
        return Analysis(sites)
    visited: list[Site] = []
    # What a split proves of its own input is not known before it has run.
    found = Upstream(graph, where, visited.append).run()
    editor = None
    if whole:
        found.note()
        editor = OnnxEditor(graph, where) if may_be_fused_in(graph) else None
    return replace(looked_at(visited, Surroundings.of(graph), editor, engine), sites=sites)


def looked_at(
    sites: Sequence[Site],
    surroundings: Surroundings,
    editor: Editor | None,
    engine: Engine,
    written: Collection[Place] = (),
) -> Analysis:
    """Return what splits are to a runtime.

    There is a site for every call of a function around a split. The editor is None where nothing is fused
    wrongly. Lengths of ``written`` splits, if the graph computes them, need no other proof.
    """
    reasons: dict[Place, str] = {}
    for site in sites:
        reason = _reason(site, surroundings, engine.name)
        if reason is None and _is_computed(site) and place_of(site) not in written:
            reason = _unproved(site, engine)
        if reason is None and _is_rounded(site, engine):
            reason = "num_outputs on an axis that may have more than 2^24 positions"
        if reason is not None:
            reasons[place_of(site)] = reason
    settled = frozenset(map(place_of, sites)) - {place_of(site) for site in sites if not _is_settled(site)}
    computed = frozenset(place_of(site) for site in sites if _is_computed(site))
    fused: dict[Place, str] = {}
    if editor is not None:
        for limit, one in find_fusions(editor, (Target.load(engine.name),)):
            place = editor.where(one.join).graph, label(one.join)
            fused.setdefault(place, f"{fusion_words(limit, one)} [{limit.code}]")
    return Analysis(tuple(sites), reasons, settled, computed, fused)


def _may_end_a_pattern(node: NodeProto) -> bool:
    """Return whether OpenVINO may fuse a node with a split or a Transpose before it, or with Slices."""
    drops_axes = any(attribute.name == "keepdims" and not attribute.i for attribute in node.attribute)
    return node.op_type in ("Concat", "Slice") or (node.op_type in REDUCTIONS and drops_axes)


def place_of(site: Site | SplitReport) -> Place:
    """Return where a split is."""
    return site.where.graph, site.where.node


def legal_model(
    model: ModelProto, found: Analysis, where: Where, engine: Engine
) -> tuple[ModelProto, tuple[SplitReport, ...], Analysis]:
    """Return a model with the same results whose splits a runtime does as specified, and what was rewritten.

    A split that breaks a rule stays as it is. A form that no longer proves its sizes (Slices) is none where
    a run may bring others: the broken rule would go unseen. The model is returned as it is then, and where it
    cannot be rewritten. The last result is what the splits of that model are to the runtime.
    """
    from splitops.models.fix.models import fix_nodes

    opened = NodeModel(model, model, where)
    try:
        edited, reports, last = fix_nodes(opened, (Target.load(engine.name),), None, repair=False)
    except SplitError:
        return model, (), found
    rewritten = tuple(report for report in reports if report.status is FixStatus.REWRITTEN)
    if not rewritten:
        return model, (), found
    sites = [site for calls in last.calls.values() for site in calls]
    ours = set(map(place_of, rewritten)) - found.computed
    again = looked_at(sites, last.surroundings, last.forms.editor, engine, ours)
    # By what they make, since splits may share a name.
    kept = {(site.where.graph, name) for site in sites for name in site.outputs if name}
    lost = {
        place_of(site)
        for site in found.sites
        if kept.isdisjoint((site.where.graph, name) for name in site.outputs)
    }
    if lost and not lost <= analyse(_without_claims(model), where, engine, sizes=True).settled:
        return model, (), found
    return cast(ModelProto, opened.result(edited, changed=True)), rewritten, again


def _without_claims(model: ModelProto) -> ModelProto:
    """Return a model that says of no value but its inputs which shape it has: it may be wrong."""
    made = ModelProto()
    made.CopyFrom(model)
    for path, graph in located_graphs(made):
        del graph.value_info[:]
        for value in (*graph.output, *(graph.input if path is not None else ())):
            value.ClearField("type")
    for function in made.functions:
        del function.value_info[:]
    return made


def find_borders(model: ModelProto, found: Analysis, *, count_bodies: bool = False) -> Borders:
    """Return what of a model a runtime is not given; ``count_bodies`` keeps loops and calls here."""
    borders = Borders({**found.fused, **found.reasons})
    if count_bodies:
        borders.operators = _WITH_BODIES
    if model.functions or any(node.op_type == "Loop" for node in nodes_of(model)):
        trips = _constant_numbers(model)
        borders.add(_perhaps_without_turn(model, trips), "a loop that may have no turn")
        borders.calls = count_bodies or too_many_inlined(model) is not None
        if _turns(model, trips) > MAX_BODY_RUNS:
            borders.operators |= {"Loop"}
    return borders


def complex_values(model: ModelProto, where: Where) -> frozenset[tuple[str | None, str]]:
    """Return the complex values of a model, by the path of the graph and the name."""
    kinds = types_of_values(model, where)
    return frozenset(key for key, kind in kinds.items() if kind.tensor_type.elem_type in _COMPLEX)


def located_nodes(model: ModelProto) -> Iterator[tuple[Place, NodeProto, int]]:
    """Yield every node of a model with its place and the opset that it is of."""
    graphs = [(path, graph.node, model) for path, graph in located_graphs(model)]
    functions = [(function_path(one), one.node, one) for one in model.functions]
    for path, nodes, owner in (*graphs, *functions):
        opset = opset_imports(owner).get("", 1)
        yield from (((path, node_label(node)), node, opset) for node in nodes)


def nodes_made_of(model: ModelProto, where: Where, operator: str) -> list[set[Place]]:
    """Return the nodes that a runtime may have made an operator of, as onnx defines them by it.

    Each group is of one operator and element type: those of floats, which runtimes seldom lack, come last.
    """
    types = types_of_values(model, where)
    groups: dict[tuple[bool, str, int], set[Place]] = {}
    for place, node, opset in located_nodes(model):
        if not function_key(node)[0] and _is_made_of(node.op_type, opset, operator):
            known = types.get((place[0], next(iter(node.input), "")), TypeProto())
            kind = known.tensor_type.elem_type
            groups.setdefault((kind in _FLOATS, node.op_type, kind), set()).add(place)
    return [groups[key] for key in sorted(groups)]


@cache
def _is_made_of(name: str, opset: int, operator: str) -> bool:
    """Return whether onnx defines an operator by another one, or by one that is; perhaps is yes."""
    if name == operator or not has(name, opset, ""):
        return False
    found: Any = get_schema(name, opset, "")
    inner = [node.op_type for node in found.function_body.node] if found.has_function else []
    if operator in inner or found.has_context_dependent_function:
        return True
    return any(_is_made_of(one, opset, operator) for one in inner)


def _reason(site: Site, model: Surroundings, runtime: str) -> str | None:
    """Return why a split is not given to a runtime; None where it is."""
    if site.error is not None:
        return "it breaks a rule"
    if len(site.outputs) > _MOST_OUTPUTS:
        return f"more than {_MOST_OUTPUTS} outputs"
    for limit, surely in find_limits(site, model, (Target.load(runtime),)):
        # What only may be rejected shows when it runs, and is done here then, if the node is named.
        rejected = limit.outcome is Outcome.ERROR and surely is Surely.MAYBE
        if not (rejected and runtime == "onnxruntime"):
            return limit.code
    return None


def _unproved(site: Site, engine: Engine) -> str | None:
    """Return why lengths that only a run knows are not given to a runtime; None where it proves them."""
    since = _PROVING_SINCE.get(engine.name)
    if since is None or release_numbers(engine.version) < release_numbers(since):
        return "lengths that a run decides"
    # onnxruntime takes lengths without entries for no lengths, and of those of a sequence any rank.
    shape = None if site.lengths is None else site.lengths.shape
    counted = shape is not None and len(shape) < 2 and all(isinstance(size, int) and size for size in shape)
    return None if counted else "lengths whose number a run decides"


def _divides_in_floats(engine: Engine) -> bool:
    """Return whether a runtime rounds an axis of more than 2^24 positions before it divides it."""
    since = _DIVIDING_SINCE.get(engine.name)
    return since is not None and release_numbers(engine.version) < release_numbers(since)


def _is_rounded(site: Site, engine: Engine) -> bool:
    """Return whether a runtime may round the size of an axis."""
    binding = site.binding
    division = None if binding is None else binding.division
    if division is None or division.rule is not SizeRule.CEIL or not _divides_in_floats(engine):
        return False
    assert binding is not None
    shape = binding.data.shape
    size = None if shape is None or binding.axis is None else shape[binding.axis]
    most = size if size is None or isinstance(size, int) else size.hi
    return most is None or most > _ROUNDED


def known_sizes(site: Site) -> list[tuple[int, int]] | None:
    """Return axis and size of each part; None where a run decides them.

    Lengths that the model gives are known on an axis of any size: the split fails where they do not fit.
    """
    binding, inference = site.binding, site.inference
    if binding is None or inference is None or binding.axis is None or inference.parts is None:
        return None
    known = [None if part is None else part[binding.axis] for part in inference.parts]
    sizes = [(binding.axis, size) for size in known if isinstance(size, int)]
    whole = None if inference.data is None else inference.data[binding.axis]
    return sizes if isinstance(whole, int) and len(sizes) == len(known) else None


def _is_settled(site: Site) -> bool:
    """Return whether every run of a split is valid: what it does not prove need not be proved."""
    binding = site.binding
    if binding is None or binding.axis is None or binding.data.shape is None:
        return False
    return isinstance(binding.data.shape[binding.axis], int) and known_sizes(site) is not None


def _is_computed(site: Site) -> bool:
    """Return whether only a run knows the lengths of a split."""
    return site.binding is not None and site.binding.division is None


_Range = tuple[float, float]


def _perhaps_without_turn(model: ModelProto, numbers: Mapping[str, _Range]) -> Iterator[Place]:
    """Yield the loops that may have no turn, if their body leaves a size of what it gives open."""
    for place, node, _ in located_nodes(model):
        if node.op_type != "Loop" or function_key(node)[0]:
            continue
        trips, condition = (*node.input, "", "")[:2]
        turns = not trips or numbers.get(trips, (0, 0))[0] > 0
        if turns and (not condition or numbers.get(condition, (0, 0))[0] > 0):
            continue
        for _, body in subgraphs(node):
            scans = list(body.output)[1 + max(0, len(node.input) - 2) :]
            if not all(_is_sized(scan.type) for scan in scans):
                yield place


def _is_sized(declared: TypeProto) -> bool:
    tensor = declared.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


def _turns(model: ModelProto, trips: Mapping[str, _Range]) -> float:
    """Return how often the loops of a model turn, those of functions once for each call."""
    functions = functions_of(model)
    known: dict[FunctionKey, float] = {}

    def turns(nodes: Iterable[NodeProto]) -> float:
        found = 0.0
        for node in nodes:
            inside = known.get(function_key(node), 0.0) + sum(
                turns(graph.node) for _, graph in subgraphs(node)
            )
            own = 0.0
            if node.op_type == "Loop":
                own = trips.get(node.input[0], _ANY)[1] if node.input else math.inf
                inside = inside * own if inside else 0.0
            found += own + inside
        return found

    for key in callees_first(functions):
        known[key] = turns(functions[key].node)
    return turns(model.graph.node)


_ANY: Final[_Range] = (0.0, math.inf)


def _constant_numbers(model: ModelProto) -> Mapping[str, _Range]:
    """Return the constants that are one integer or truth value, by names that nothing else in the model has.

    Several constants of one name are the least and the greatest of them.
    """
    graphs = list(located_graphs(model))
    hidden = {value.name for _, graph in graphs for value in graph.input}
    hidden |= {name for function in model.functions for name in function.input}
    tensors = [(tensor.name, tensor) for _, graph in graphs for tensor in graph.initializer]
    tensors += [
        (node.output[0], attribute.t)
        for node in nodes_of(model)
        if node.op_type == "Constant" and node.output
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    found: dict[str, _Range] = {}
    for name, tensor in tensors:
        single = int(np.prod(tensor.dims)) == 1 and tensor.data_type in (TensorProto.INT64, TensorProto.BOOL)
        if single and not is_external(tensor) and name not in hidden:
            number = float(tensor_array(tensor, Where()).item())
            least, most = found.get(name, (number, number))
            found[name] = min(least, number), max(most, number)
    return found
