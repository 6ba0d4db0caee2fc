"""Simplification of models: what a split makes needlessly hard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

from splitops.errors import ModelError, shown
from splitops.models.graph.applied import Applied
from splitops.models.simplify.registry import ALLOWANCES, REWRITES, Rewriting, allowed, chosen
from splitops.models.simplify.report import Simplification

if TYPE_CHECKING:
    import onnx_ir as ir

    from splitops.models.formats.files import AnyModel, AnyPath, ModelInMemory, ModelT

__all__ = [
    "ALLOWANCES",
    "REWRITES",
    "Applied",
    "Rewriting",
    "Simplification",
    "infer_first",
    "simplify",
    "simplify_with_report",
]


@overload
def simplify(
    model: ModelT,
    rewrites: Iterable[str] | None = None,
    *,
    allow: Iterable[str] = (),
    limit: int | None = None,
    allow_links: bool = False,
) -> ModelT: ...


@overload
def simplify(
    model: AnyPath,
    rewrites: Iterable[str] | None = None,
    *,
    allow: Iterable[str] = (),
    limit: int | None = None,
    allow_links: bool = False,
) -> Any: ...


def simplify(
    model: AnyModel,
    rewrites: Iterable[str] | None = None,
    *,
    allow: Iterable[str] = (),
    limit: int | None = None,
    allow_links: bool = False,
) -> ModelInMemory:
    """Simplify the splits of a model without changing a value, an element type or a shape, if not allowed to.

    On every input that fits the declared types and shapes, the simplified model gives what the model gives,
    and fails where the model fails: a split that could fail, such as one by fixed lengths of a dynamic axis,
    is never removed. What is invalid, or known too little before the model runs, stays as it is. The rewrites
    run until none applies any more, in the main graph, in subgraphs and in model-local functions. Inputs and
    outputs keep their names, order, types and shapes. Nodes that have nothing to do with a split are left to
    general simplifiers, such as onnxslim, and to OpenVINO, which simplifies IR when it compiles it.

    A model that :func:`splitops.fix` has written says so in its metadata. The rewrites that could undo the
    fix are then not on by default.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. It is not changed.
        rewrites: names of rewrites, of :data:`REWRITES`; None is all that are on by default.
        allow: what may change: ``"numerics"``, the last bits of floats, for which ``split-weights`` needs it.
        limit: the most bytes that a constant may have which ``fold-constants`` makes; None is 65536.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.

    Returns:
        The simplified model, of the kind that was given; of a path, what :func:`splitops.load` returns.

    Raises:
        ModelError: the model is not well formed, or there is no rewrite or allowance of a name.

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
    return simplify_with_report(model, rewrites, allow=allow, limit=limit, allow_links=allow_links).model


def simplify_with_report(
    model: AnyModel,
    rewrites: Iterable[str] | None = None,
    *,
    allow: Iterable[str] = (),
    limit: int | None = None,
    allow_links: bool = False,
) -> Simplification:
    """Simplify a model as :func:`simplify` does, and report each rewrite.

    Args:
        model: as in :func:`simplify`.
        rewrites: as in :func:`simplify`.
        allow: as in :func:`simplify`.
        limit: as in :func:`simplify`.
        allow_links: as in :func:`simplify`.

    Returns:
        What was rewritten, where and why; its ``model`` is the simplified model.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["": 13]>
        ...     g (float[6] x) => (float[6] c) { a, b = Split<axis = 0>(x) c = Concat<axis = 0>(a, b) }''')
        >>> print(simplify_with_report(model))
        2 nodes -> 1:
          node 'Concat -> c': Split-13(axis=0, 2 outputs), Concat(axis=0) -> x [split-concat]: \
all parts of a split are in their order
    """
    from splitops.models.formats.model import CheckedModel
    from splitops.models.graph.provenance import runtimes_fixed_for
    from splitops.models.simplify.driver import simplify_copy

    chosen(rewrites)  # names are wrong before a model is
    if limit is not None and not isinstance(limit, int):
        raise ModelError(f"limit = {shown(limit)} is not a number of bytes")
    options: dict[str, Any] = {"allow": allowed(allow)} | ({} if limit is None else {"limit": limit})
    checked = CheckedModel.read(model, allow_links=allow_links)
    edited = checked.copy()
    kept = runtimes_fixed_for(edited) if rewrites is None else ()
    return simplify_copy(checked, edited, chosen(rewrites, keep_fixes=bool(kept)), options, kept)


def infer_first() -> ir.passes.InPlacePass:
    """Return a pass that infers the model, so that later rewrites know more than the model declares."""
    from splitops.models.simplify.driver import AnnotateInferredPass

    return AnnotateInferredPass()
