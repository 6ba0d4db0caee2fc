"""Inference of types and shapes in whole models: the split family is ours, what surrounds it is followed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from splitops.common.notebooks import format_html_table
from splitops.errors import count_of
from splitops.models.abstract_values import AbstractSequence, AbstractTensor, AbstractValue
from splitops.models.formats.files import ModelReport
from splitops.models.split_nodes import SplitNode

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel

__all__ = [
    "AbstractSequence",
    "AbstractTensor",
    "InferredModel",
    "InferredValue",
    "SplitNode",
    "find_splits",
    "infer",
]


@dataclass(frozen=True, slots=True)
class InferredValue:
    """One value of a model, before and after inference.

    Attributes:
        graph: path of the subgraph or function; None is the main graph.
        name: its name.
        before: what the model declares of it.
        after: what is known of it.
    """

    graph: str | None
    name: str
    before: AbstractValue
    after: AbstractValue

    @property
    def is_new(self) -> bool:
        """Whether inference has found a type or size that the model does not state."""
        return _type_and_shape(self.before) != _type_and_shape(self.after)

    def __repr__(self) -> str:
        return f"InferredValue({self.name}: {self.after})"


def _type_and_shape(known: AbstractValue) -> AbstractValue:
    """Return what is known without the numbers: those of a weight are not stated, and no news."""
    if isinstance(known, AbstractSequence):
        return replace(known, element=replace(known.element, elements=None))
    return replace(known, elements=None) if isinstance(known, AbstractTensor) else known


@dataclass(frozen=True, slots=True)
class InferredModel(ModelReport):
    """A model with its types and shapes.

    Attributes:
        model: the model that declares them, of the kind that was given.
        values: every value, in the order in which it is computed.
        splits: every split node; one in a function once for every call.
    """

    model: Any
    values: tuple[InferredValue, ...]
    splits: tuple[SplitNode, ...]

    def __getitem__(self, name: str) -> AbstractValue:
        """Return what is known of a value of the main graph."""
        for value in self.values:
            if value.graph is None and value.name == name:
                return value.after
        raise KeyError(name)

    def __repr__(self) -> str:
        values, splits = count_of(len(self.values), "value"), count_of(len(self.splits), "split node")
        return f"InferredModel({values}, {splits})"

    def _repr_html_(self) -> str:
        rows = [
            (value.graph or "", value.name, *("" if k is None else k for k in (value.before, value.after)))
            for value in self.values
        ]
        return format_html_table(repr(self), ("graph", "value", "declared", "inferred"), rows)


def infer(model: AnyModel, *, as_openvino: bool = False, allow_links: bool = False) -> InferredModel:
    """Infer the types and shapes of a model's values, through its split nodes.

    ONNX: nodes are visited in order, with their subgraphs and the model-local functions that they call; onnx
    infers every other operator, one node at a time, and a node that it cannot infer leaves its outputs
    unknown. Numbers computed from shapes are followed (Shape, Split, Concat, Reshape and the like).
    OpenVINO IR: the intervals of Parameters go through splits, data movers and elementwise layers; of other
    layers the file's forms are taken.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            ``OpenVINOModel``.
        as_openvino: of OpenVINO IR, say of splits what OpenVINO's own inference says, which is looser.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.

    Returns:
        The values before and after, and the model that declares them.

    Raises:
        RuleError: a rule of the split family is broken at a split node that always runs.
        ModelError: the model is not well formed.

    Examples:
        >>> import onnx.parser, splitops
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 13]>
        ...     g (float[N, 6] x) => (float a, float b) { a, b = Split<axis = 0>(x) }''')
        >>> inferred = splitops.infer(model)
        >>> str(inferred["a"])
        'float32[N/2, 6]'
    """
    from splitops.models.formats.model import CheckedModel
    from splitops.models.formats.openvino.nodes import get_output_values, get_source
    from splitops.models.infer import layers
    from splitops.models.infer.interpreter import ShapeInterpreter

    split_nodes: list[SplitNode] = []

    def on_site(split_node: SplitNode) -> None:
        if split_node.error is not None and not split_node.conditional:
            raise split_node.error
        split_nodes.append(split_node)

    checked = CheckedModel.read(model, allow_links=allow_links)
    found = (
        ShapeInterpreter(checked.nodes, checked.where, on_site, as_openvino=as_openvino)
        .run()
        .substitute_sizes()
    )
    rows = [
        InferredValue(found.paths[value], value.name or "", found.declared(value), known)
        for value, known in found.values.items()
    ]
    if not checked.is_openvino:
        made: Any = checked.declare(found.by_name())
    else:
        named = {row.name for row in rows if row.graph is None}
        nodes = checked.nodes
        results = zip(get_source(nodes).outputs, get_output_values(nodes).items(), strict=True)
        for layer, (name, value) in results:
            if name not in named:
                rows.append(InferredValue(None, name, layer.inputs[0].declared_tensor, found.values[value]))
        made = layers.with_shapes(checked.nodes, found.values)
    return InferredModel(made, tuple(rows), tuple(split_nodes))


def find_splits(model: AnyModel, *, allow_links: bool = False) -> list[SplitNode]:
    """Find the split nodes of a model with their inferred types and shapes, including invalid ones.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            ``OpenVINOModel``.
        allow_links: as in :func:`infer`.

    Returns:
        The split nodes in the order of the model; one in a function appears once for each call. ``error`` of
        an invalid split node is the rule that it breaks.

    Raises:
        ModelError: the model is not well formed.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 13]>
        ...     g (float[N, 6] x) => (float a, float b) { a, b = Split<axis = 1>(x) }''')
        >>> [split] = find_splits(model)
        >>> str(split), [", ".join(map(str, shape)) for shape in split.inference.parts]
        ('Split-13(axis=1, 2 outputs)', ['N, 3', 'N, 3'])
    """
    from splitops.models.formats.model import CheckedModel
    from splitops.models.infer.interpreter import ShapeInterpreter

    split_nodes: list[SplitNode] = []
    checked = CheckedModel.read(model, allow_links=allow_links)
    ShapeInterpreter(checked.nodes, checked.where, split_nodes.append).run()
    return split_nodes
