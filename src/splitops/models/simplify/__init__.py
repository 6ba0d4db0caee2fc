"""Simplification of models: what a split makes needlessly hard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from splitops.errors import ModelError, shown
from splitops.models.simplify.registry import REWRITES, Rewriting, chosen
from splitops.models.simplify.report import Applied, Simplification

if TYPE_CHECKING:
    from splitops.models import AnyModel, ModelInMemory

__all__ = ["REWRITES", "Applied", "Rewriting", "Simplification", "simplification", "simplify"]


def simplify(
    model: AnyModel, rewrites: Iterable[str] | None = None, *, limit: int | None = None
) -> ModelInMemory:
    """Simplify the splits of a model without changing a value, an element type or a shape.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. It is not changed.
        rewrites: as in :func:`simplification`.
        limit: as in :func:`simplification`.

    Returns:
        The simplified model, of the kind that was given; of a path, what :func:`splitops.load` gives. What
        was rewritten is in the report of :func:`simplification`.

    Raises:
        ModelError: the model is not well formed, or there is no rewrite of a name.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["": 13]>
        ...     g (float[4, 6] x) => (float[4, 6] y) {
        ...         a, b = Split<axis = 1>(x)
        ...         c = Concat<axis = 1>(a, b)
        ...         y = Relu(c) }''')
        >>> [node.op_type for node in simplify(model).graph.node]
        ['Relu']

    Source: ONNX Split-1, -2, -11, -13, -18, SplitToSequence-11, -24; OpenVINO Split-1, VariadicSplit-1.
    """
    return simplification(model, rewrites, limit=limit).model


def simplification(
    model: AnyModel, rewrites: Iterable[str] | None = None, *, limit: int | None = None
) -> Simplification:
    """Simplify a model and report on every rewrite; :func:`simplify` gives the simplified model alone.

    On every input that fits the declared types and shapes, the simplified model gives what the model gives,
    and fails where the model fails: a split that could fail, such as one by fixed lengths of a dynamic axis,
    is never removed. What is invalid, or known too little before the model runs, stays as it is. The rewrites
    run until none applies any more, in the main graph, in subgraphs and in model-local functions. Inputs and
    outputs keep their names, order, types and shapes.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. It is not changed.
        rewrites: names of rewrites, of :data:`REWRITES`; None is all that are on by default.
        limit: the most bytes that a constant may have which ``fold-constants`` makes; None is 65536.

    Returns:
        The report of what was rewritten, where and why; its ``model`` is the simplified model, of the kind
        that was given (of a path, what :func:`splitops.load` gives).

    Raises:
        ModelError: the model is not well formed, or there is no rewrite of a name.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["": 13]>
        ...     g (float[4, 6] x) => (float[4, 6] y) {
        ...         a, b = Split<axis = 1>(x)
        ...         c = Concat<axis = 1>(a, b)
        ...         y = Relu(c) }''')
        >>> report = simplification(model)
        >>> print(report)
        3 nodes -> 1:
          node 'Concat -> c': Split-13(axis=1, 2 outputs), Concat(axis=1) -> x [split-concat]: \
all parts of a split stand in their order
        >>> [node.op_type for node in report.model.graph.node]
        ['Relu']

    Source: ONNX Split-1, -2, -11, -13, -18, SplitToSequence-11, -24; OpenVINO Split-1, VariadicSplit-1.
    """
    from splitops.models import is_openvino
    from splitops.models.formats.reading import place_of

    where = place_of(model)
    wanted = chosen(rewrites)
    if limit is not None and not isinstance(limit, int):
        raise ModelError(f"limit = {shown(limit)} is no number of bytes")
    if is_openvino(model):
        from splitops.models.simplify.from_openvino import simplify_openvino

        return simplify_openvino(model, wanted, limit, where)
    from splitops.models.simplify.from_onnx import simplify_onnx

    return simplify_onnx(model, wanted, limit, where)
