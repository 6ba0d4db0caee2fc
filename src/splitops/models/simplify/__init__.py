"""Simplify models: rewrite splits and the nodes around them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

from splitops.errors import ModelError
from splitops.models.graph.applied import Applied
from splitops.models.simplify.registry import ALLOWANCES, REWRITES, Rewriting, check_allowed, select_rewrites
from splitops.models.simplify.report import Simplification
from splitops.spec.sizes.dims import require_integer

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
    """Simplify the splits of a model. Outputs stay bit-identical unless ``allow`` is set.

    On every input that matches the declared types and shapes, the simplified model returns the same outputs
    and fails if the model fails. A split that could fail, such as one by fixed lengths of a dynamic axis, is
    never removed. A node is unchanged if it is invalid, or if a rewrite needs values that are known only at
    run time. The rewrites run until none applies, or 64 times, in the main graph, in subgraphs and in
    model-local functions. Inputs and outputs keep their names, order, types and shapes. Except for Slices,
    Gathers, Concats, Reshapes and Transposes, nodes unrelated to a split are left to general simplifiers,
    such as onnxslim, and to OpenVINO, which simplifies IR when it compiles it.

    :func:`splitops.fix` records in the metadata that it has changed a model. Rewrites that could undo the fix
    are then off by default.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. It is not changed.
        rewrites: names from :data:`REWRITES`; None is all rewrites that are on by default.
        allow: permitted changes. With ``"numerics"``, ``split-weights`` may change the last bits of floats.
        limit: maximum size of a constant that ``fold-constants`` creates, in bytes. The default is 65536.
        allow_links: whether links to the files of a model at a path may leave its folder, as in
            :func:`splitops.load`.

    Returns:
        The simplified model, with the type of ``model``, or the result type of :func:`splitops.load` for a
        path.

    Raises:
        ModelError: the model is not well formed, the name of a rewrite or allowance is unknown, or ``limit``
            is not an integer of at least 0.

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
        The applied rewrites with their reasons, and the simplified model as ``model``.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["": 13]>
        ...     g (float[6] x) => (float[6] c) { a, b = Split<axis = 0>(x) c = Concat<axis = 0>(a, b) }''')
        >>> print(simplify_with_report(model))
        2 nodes -> 1:
          node 'Concat -> c': Split-13(axis=0, 2 outputs), Concat(axis=0) -> x [cancel-split-concat]: \
all parts of a split are in their order
    """
    from splitops.models.formats.model import CheckedModel
    from splitops.models.graph.provenance import read_fixed_runtimes
    from splitops.models.simplify.driver import simplify_copy

    select_rewrites(rewrites)  # wrong names are reported before faults of the model
    options: dict[str, Any] = {"allow": check_allowed(allow)}
    if limit is not None:
        options["limit"] = require_integer(limit, "limit", ModelError, 0)
    checked = CheckedModel.read(model, allow_links=allow_links)
    edited = checked.copy()
    kept = read_fixed_runtimes(edited) if rewrites is None else ()
    return simplify_copy(checked, edited, select_rewrites(rewrites, keep_fixes=bool(kept)), options, kept)


def infer_first() -> ir.passes.InPlacePass:
    """Return a pass that annotates values with inferred types and shapes, for the rewrites after it."""
    from splitops.models.simplify.driver import AnnotateInferredPass

    return AnnotateInferredPass()
