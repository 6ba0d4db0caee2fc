"""Infer the types and shapes of the values of models, including the parts of their splits."""

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
    """A value of a model, before and after inference.

    Attributes:
        graph: path of the subgraph or function; None is the main graph.
        name: name of the value.
        before: the declared type and shape.
        after: the inferred type, shape and elements.
    """

    graph: str | None
    name: str
    before: AbstractValue
    after: AbstractValue

    @property
    def is_new(self) -> bool:
        """Whether the inferred type or shape differs from the declared one."""
        return _drop_elements(self.before) != _drop_elements(self.after)

    def __repr__(self) -> str:
        return f"InferredValue({self.name}: {self.after})"


def _drop_elements(value: AbstractValue) -> AbstractValue:
    """Return an abstract value without elements, which a model cannot declare."""
    if isinstance(value, AbstractSequence):
        return replace(value, element=replace(value.element, elements=None))
    return replace(value, elements=None) if isinstance(value, AbstractTensor) else value


@dataclass(frozen=True, slots=True)
class InferredModel(ModelReport):
    """A model with its inferred types and shapes.

    Attributes:
        model: the model with the inferred types and shapes. It has the type of the argument; for a path, it
            is an ``onnx.ModelProto`` or ``OpenVINOModel``.
        values: every value, in the order of inference.
        splits: every split node; a split in a function appears once for each call that inference enters. With
            ``as_openvino``, only those that OpenVINO rejects.
    """

    model: Any
    values: tuple[InferredValue, ...]
    splits: tuple[SplitNode, ...]

    def __getitem__(self, name: str) -> AbstractValue:
        """Return the inferred type and shape of a value of the main graph."""
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
    """Infer the types and shapes of a model's values, including the parts of its splits.

    In ONNX, nodes are visited in order, with their subgraphs and the model-local functions that they
    call. Operators other than splits are inferred one node at a time, by onnx and by the rules of splitops.
    Outputs that neither can infer keep their declared types and shapes. Elements computed from shapes are
    tracked (by Shape, Split, Concat, Reshape and the like). In OpenVINO IR, the sizes of Parameters,
    including intervals, are propagated through splits and most other layers. The rest keep the shapes that
    the file declares.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            ``OpenVINOModel``.
        as_openvino: whether to infer splits of OpenVINO IR as OpenVINO does, which is less exact.
        allow_links: whether links to the files of a model at a path may leave its folder, as in
            :func:`splitops.load`.

    Returns:
        The values before and after inference, and the model with the inferred types and shapes.

    Raises:
        RuleError: a split node that every run of the model executes breaks a rule of its operator.
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

    checked = CheckedModel.read(model, allow_links=allow_links)
    interpreter = ShapeInterpreter(checked.nodes, checked.where, as_openvino=as_openvino)
    result = interpreter.run().substitute_sizes()
    for split_node in result.splits:
        if split_node.error is not None and not split_node.conditional:
            raise split_node.error
    values = [
        InferredValue(result.paths[value], value.name or "", result.get_declared(value), known)
        for value, known in result.values.items()
    ]
    if not checked.is_openvino:
        inferred: Any = checked.declare(result.index_by_name())
    else:
        named = {row.name for row in values if row.graph is None}
        nodes = checked.nodes
        results = zip(get_source(nodes).outputs, get_output_values(nodes).items(), strict=True)
        for layer, (name, value) in results:
            if name not in named:
                values.append(
                    InferredValue(None, name, layer.inputs[0].declared_tensor, result.values[value])
                )
        inferred = layers.declare_shapes(checked.nodes, result.values)
    return InferredModel(inferred, tuple(values), tuple(result.splits))


def find_splits(model: AnyModel, *, allow_links: bool = False) -> list[SplitNode]:
    """Find the split nodes of a model with their inferred types and shapes, including invalid ones.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            ``OpenVINOModel``.
        allow_links: as in :func:`infer`.

    Returns:
        The split nodes in the order of the model. A split in a function appears once for each call that
        inference enters, or once if the model does not call the function. The ``error`` of an invalid split
        node names the rule that it breaks.

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

    checked = CheckedModel.read(model, allow_links=allow_links)
    return ShapeInterpreter(checked.nodes, checked.where).run().splits
