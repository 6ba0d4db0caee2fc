"""ONNX graphs cut into regions that a runtime evaluates, and the nodes that are evaluated here.

A cut graph is a graph again, in which a region is one node: bodies, functions and loops need to know nothing
of it. Values go from region to region as NumPy arrays over the memory of their makers.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from splitops.errors import Where
from splitops.models.engines.emptiness import ended_on
from splitops.models.engines.engine import Compiled, Engine, EngineError, Program
from splitops.models.formats.onnx.structure import FunctionKey, function_key, subgraphs
from splitops.models.formats.onnx.tensors import external_extent, folder_of, is_external, tensor_array
from splitops.models.running.onnx.control_flow import Call
from splitops.models.running.stages import stages
from splitops.onnx.reference import node_label
from splitops.spec.elements.types import element_type_of, from_onnx

_INLINE: Final = 1024
"""Initializers of fewer bytes are written into the region's model."""
_ELSEWHERE: Final = "weights"
"""The file that a region's model names for what it is given in memory."""

IsOwn = Callable[[str | None, NodeProto], bool]
"""Whether a node, in the graph of a path, is evaluated here."""


def reads(node: NodeProto) -> Iterator[str]:
    """Yield the names of the values that a node reads, those around its graphs included."""
    yield from filter(None, node.input)
    for _, graph in subgraphs(node):
        made = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        for inner in graph.node:
            yield from (name for name in reads(inner) if name not in made)
            made.update(inner.output)
        yield from (value.name for value in graph.output if value.name not in made)


@dataclass(frozen=True, slots=True)
class GraphView:
    """A graph, or the body of a function, that is to be cut.

    Attributes:
        where: its place.
        nodes: its nodes.
        outputs: the names of its outputs.
        opsets: the opset of each domain.
        constants: the initializers that it sees, those of graphs around it included, and that nobody can
            replace.
    """

    where: Where
    nodes: Sequence[NodeProto]
    outputs: Sequence[str]
    opsets: Mapping[str, int]
    constants: Mapping[str, TensorProto]


@dataclass(slots=True)
class Partition:
    """What of a model goes to an engine, and the regions that were made of it.

    Attributes:
        engine: who runs the regions.
        is_own: which nodes it does not run.
        types: what is known of the types of values, by the path of the graph and the name.
        functions: the model-local functions.
        ir_version: that of the model.
        guarded: the nodes, by the path of the graph and the label, with their operators, on which the engine
            ends the process where they read a tensor without elements.
        domain: that of the nodes that stand for regions: a word that no model can know.
        regions: every region that was made, by the operator of its node.
    """

    engine: Engine
    is_own: IsOwn
    types: Mapping[tuple[str | None, str], TypeProto]
    functions: Mapping[FunctionKey, FunctionProto] = field(default_factory=dict)
    ir_version: int = 10
    guarded: Mapping[tuple[str | None, str | None], str] = field(default_factory=dict)
    domain: str = field(default_factory=lambda: f"splitops.regions.{secrets.token_hex(16)}")
    regions: dict[str, Region] = field(default_factory=dict)

    @property
    def programs(self) -> list[Compiled]:
        """What was compiled so far."""
        return [compiled for region in self.regions.values() for compiled in region.compiled.values()]

    def cut(self, graph: GraphView) -> list[NodeProto]:
        """Return the nodes of a graph that are evaluated here, and one for each region between them."""
        path = graph.where.graph
        is_own, begins = partial(self.is_own, path), partial(self.is_guarded, path)
        constants = _Constants(graph, is_own)
        others = [node for node in graph.nodes if not constants.has(node)]
        parts = list(stages(others, is_own, reads, lambda node: node.output, begins))
        readers = [{name for node in nodes for name in reads(node)} for _, nodes in parts]
        cut: list[NodeProto] = []
        for index, (own, nodes) in enumerate(parts):
            if own:
                cut += nodes
                continue
            after = set(graph.outputs).union(*readers[index + 1 :])
            cut.append(self._region(graph, constants.read_by(readers[index]), nodes, after))
        # Constants are repeated in each region; here they are needed where something here reads them.
        read = set(graph.outputs).union(
            *(found for found, (own, _) in zip(readers, parts, strict=True) if own)
        )
        return [*constants.read_by(read), *cut]

    def is_guarded(self, path: str | None, node: NodeProto) -> bool:
        """Return whether a node, in the graph of a path, is given no tensor without elements."""
        return bool(self.guarded) and (path, node_label(node)) in self.guarded

    def _region(
        self, graph: GraphView, shared: list[NodeProto], nodes: list[NodeProto], after: set[str]
    ) -> NodeProto:
        """Return the node of a region; what it shares with others, which comes first, never leaves it."""
        made = {name for node in nodes for name in node.output if name}
        inside = [*shared, *nodes]
        read = {name for node in inside for name in reads(node)}
        read -= made.union(*(node.output for node in shared))
        constants = {name: graph.constants[name] for name in sorted(read) if name in graph.constants}
        inputs = sorted(read - constants.keys())
        outputs = sorted(made & after)
        region = Region(self, graph, inside, tuple(inputs), tuple(outputs), constants)
        operator = f"Region{len(self.regions)}"
        self.regions[operator] = region
        more = f" and {len(inside) - 1} more" if len(inside) > 1 else ""
        name = f"{node_label(inside[0])}{more}"
        return NodeProto(op_type=operator, domain=self.domain, name=name, input=inputs, output=outputs)


class _Constants:
    """The Constants of a graph, and the Identities of its constants, with which PyTorch shares weights.

    A weight that came into a region from another one would be no constant there: a runtime could not arrange
    it beforehand.
    """

    def __init__(self, graph: GraphView, is_own: Callable[[NodeProto], bool]) -> None:
        self._nodes: dict[str, NodeProto] = {}
        for node in graph.nodes:
            source = node.input[0] if len(node.input) == 1 else None
            known = source in self._nodes or source in graph.constants
            if _is(node, "Constant") or (_is(node, "Identity") and known and not is_own(node)):
                self._nodes[node.output[0]] = node

    def has(self, node: NodeProto) -> bool:
        """Return whether a node is one of them."""
        return len(node.output) == 1 and self._nodes.get(node.output[0]) is node

    def read_by(self, names: AbstractSet[str]) -> list[NodeProto]:
        """Return those that make some values, and those that they read, in topological order."""
        wanted = set(names)
        for name, node in reversed(self._nodes.items()):
            if name in wanted:
                wanted.update(node.input)
        return [node for name, node in self._nodes.items() if name in wanted]


def _is(node: NodeProto, operator: str) -> bool:
    return node.op_type == operator and not function_key(node)[0] and len(node.output) == 1


class Region:
    """Nodes that a runtime evaluates together, compiled for the types of what goes in."""

    def __init__(
        self,
        partition: Partition,
        graph: GraphView,
        nodes: Sequence[NodeProto],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        constants: Mapping[str, TensorProto],
    ) -> None:
        self.inputs, self.outputs, self.nodes = inputs, outputs, nodes
        self.where = graph.where
        self.compiled: dict[tuple[bytes, ...], Compiled] = {}
        self._partition = partition
        self._opsets = graph.opsets
        self._constants = constants
        self._types = [partition.types.get((graph.where.graph, name)) for name in inputs]
        self._lock = threading.Lock()
        path = graph.where.graph
        guarded = {name for node in nodes if partition.is_guarded(path, node) for name in reads(node)}
        self._guarded = [at for at, name in enumerate(inputs) if name in guarded]
        self._fixed: Compiled | None = None
        if all(kind is not None for kind in self._types):
            self._fixed = self._compiled_for([kind for kind in self._types if kind is not None])

    def run(self, *values: Any) -> Sequence[Any]:
        """Run the region on the values of its inputs."""
        if any(not np.size(values[at]) for at in self._guarded):
            raise ended_on(sorted(set(self._partition.guarded.values())), self.where)
        compiled = self._fixed
        if compiled is None:
            kinds = map(_type_of, values) if None in self._types else ()
            compiled = self._compiled_for(
                [known or found for known, found in zip(self._types, kinds, strict=True)]
            )
        return compiled.run(dict(zip(self.inputs, values, strict=True)))

    def _compiled_for(self, types: Sequence[TypeProto]) -> Compiled:
        key = tuple(kind.SerializeToString(deterministic=True) for kind in types)
        with self._lock:
            if key not in self.compiled:
                self.compiled[key] = self._partition.engine.compile(self._program(types))
            return self.compiled[key]

    def _program(self, types: Sequence[TypeProto]) -> Program:
        model = ModelProto(ir_version=max(self._partition.ir_version, 8))
        for domain, version in self._opsets.items():
            model.opset_import.add(domain=domain, version=version)
        graph = model.graph
        graph.name = "region"
        graph.node.extend(self.nodes)
        _label(graph.node)
        graph.input.extend(
            ValueInfoProto(name=name, type=kind) for name, kind in zip(self.inputs, types, strict=True)
        )
        path = self.where.graph
        for name in self.outputs:
            graph.output.add(name=name)
            if (kind := self._partition.types.get((path, name))) is not None:
                graph.output[-1].type.CopyFrom(kind)
        model.functions.extend(self._functions())
        for function in model.functions:
            _label(function.node)
        weights, folder = self._add_constants(graph.initializer)
        return Program(model.SerializeToString(), self.outputs, self.where, weights, folder=folder)

    def _functions(self) -> Iterator[FunctionProto]:
        """Yield the functions that the nodes call, and those that these call."""
        known = self._partition.functions
        seen: set[FunctionKey] = set()
        pending = list(self.nodes)
        while pending:
            node = pending.pop()
            pending.extend(inner for _, graph in subgraphs(node) for inner in graph.node)
            key = function_key(node)
            if key in known and key not in seen:
                seen.add(key)
                pending.extend(known[key].node)
                yield known[key]

    def _add_constants(self, initializers: Any) -> tuple[dict[str, Any], str | None]:
        """Add the initializers, large ones without their data: return these, and the folder of the others."""
        weights: dict[str, Any] = {}
        folder: str | None = None
        for name, tensor in self._constants.items():
            stated: TensorProto = initializers.add()
            if is_external(tensor):
                place = self._file_of(tensor)
                if place is not None and folder in (None, place[0]):
                    folder, location = place
                    stated.CopyFrom(tensor)
                    for entry in stated.external_data:
                        if entry.key == "location":
                            entry.value = location
                    continue
            elif not _is_large(tensor):
                stated.CopyFrom(tensor)
                continue
            array = tensor_array(tensor, self.where)
            weights[name] = array
            stated.name, stated.data_type = name, tensor.data_type
            stated.dims.extend(tensor.dims)
            stated.data_location = TensorProto.EXTERNAL
            for key, value in (("location", _ELSEWHERE), ("offset", 0), ("length", array.nbytes)):
                stated.external_data.add(key=key, value=str(value))
        return weights, folder

    def _file_of(self, tensor: TensorProto) -> tuple[str, str] | None:
        """Return the folder of external data and its place there, proved; None where a link may lead out."""
        external_extent(tensor, self.where, None)
        stated = next(entry.value for entry in tensor.external_data if entry.key == "location")
        folder, location = folder_of(stated)
        return None if folder is None or folder.allow_links else (str(folder.path), location)


def _label(nodes: Iterable[NodeProto]) -> None:
    """Name nodes as our errors name them, so that those of a runtime do."""
    for node in nodes:
        node.name = node_label(node)
        for _, graph in subgraphs(node):
            _label(graph.node)


def _is_large(tensor: TensorProto) -> bool:
    kind = from_onnx(tensor.data_type)
    packed = kind is None or kind.packed or kind.bits == 0
    return not packed and tensor.HasField("raw_data") and tensor.ByteSize() >= _INLINE


def _type_of(value: Any) -> TypeProto:
    """Return the type of a value that is about to go in; of a sequence, by its first element."""
    if isinstance(value, list) and value:
        return TypeProto(sequence_type=TypeProto.Sequence(elem_type=_type_of(value[0])))
    kind = None if isinstance(value, list) or value is None else element_type_of(value.dtype)
    if kind is None or kind.onnx_number is None:
        raise EngineError("onnxruntime", "is given a value of which no type is known")
    return TypeProto(tensor_type=TypeProto.Tensor(elem_type=kind.onnx_number))


class RegionCall(Call):
    """The node that stands for a region."""

    def __init__(self, onnx_node: NodeProto, run_params: dict[str, Any], region: Region) -> None:
        self.region = region
        super().__init__(onnx_node, run_params)

    def run(self, *args: Any, **_: Any) -> tuple[Any, ...]:
        """Run the region."""
        return tuple(self.region.run(*args))
