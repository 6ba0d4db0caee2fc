"""Conversion of models between all versions of the split operators, and between ONNX and OpenVINO."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from splitops.errors import ModelError, Rule, rule_error, shown
from splitops.models.convert.report import Change, Conversion, Status
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.spec.operators import SCHEMAS

if TYPE_CHECKING:
    import onnx

    from splitops.models.formats.files import AnyModel
    from splitops.models.formats.openvino import OpenVINOModel

__all__ = [
    "Change",
    "Conversion",
    "ConversionTarget",
    "SplitStyle",
    "Status",
    "convert",
    "convert_with_report",
    "parse_target",
]

_ONNX: Final = re.compile(r"(?:onnx|ai\.onnx)(?::([0-9]{1,4}))?")
_OPENVINO: Final = re.compile(r"openvino(?::opset([0-9]{1,4}))?")
_NEWEST_OPERATION_SET: Final = 17
"""The newest operation set of OpenVINO, as of release 2026.4."""


def parse_target(text: str | int) -> ConversionTarget:
    """Parse a target such as ``"onnx:18"``, ``18`` or ``"openvino:opset8"``. The default opset is the newest.

    Raises:
        ModelError: ``text`` is not a target.
        OperatorError: the installed onnx does not have the opset, or OpenVINO has no such operation set
            (``op.version``).

    Examples:
        >>> parse_target("onnx:18"), parse_target("openvino:opset8")
        (ConversionTarget(domain='', opset=18), ConversionTarget(domain='openvino', opset=8))
    """
    if isinstance(text, int) and not isinstance(text, bool):
        text = f"onnx:{text}"
    openvino = _OPENVINO.fullmatch(text) if isinstance(text, str) else None
    if openvino is not None:
        opset = None if openvino[1] is None else int(openvino[1])
        newest = max(
            _NEWEST_OPERATION_SET,
            *(schema.since_version for schema in SCHEMAS if schema.domain == "openvino"),
        )
        if opset is not None and not 1 <= opset <= newest:
            got = f"opset{opset} does not exist"
            expected = f"OpenVINO has operation sets opset1 to opset{newest}"
            raise rule_error("OpenVINO", Rule.OPERATOR_VERSION, got, expected, opset=opset)
        return ConversionTarget("openvino", opset)
    match = _ONNX.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ModelError(
            f"unknown target {shown(text)}: use 'onnx' or 'openvino', optionally with an opset, "
            "such as 'onnx:18' or 'openvino:opset1'"
        )
    from onnx.defs import onnx_opset_version

    newest = onnx_opset_version()
    opset = newest if match[1] is None else int(match[1])
    if not 1 <= opset <= newest:
        got, expected = f"opset {opset} is not available", f"the installed onnx has opsets 1 to {newest}"
        raise rule_error("ONNX", Rule.OPERATOR_VERSION, got, expected, opset=opset)
    return ConversionTarget("", opset)


@overload
def convert(
    model: AnyModel,
    to: Literal["openvino"],
    *,
    splits_only: bool = False,
    style: str | SplitStyle | None = None,
    allow_links: bool = False,
) -> OpenVINOModel: ...


@overload
def convert(
    model: AnyModel,
    to: int | Literal["onnx"],
    *,
    splits_only: bool = False,
    style: str | SplitStyle | None = None,
    allow_links: bool = False,
) -> onnx.ModelProto: ...


@overload
def convert(
    model: AnyModel,
    to: str | int | None = None,
    *,
    splits_only: bool = False,
    style: str | SplitStyle | None = None,
    allow_links: bool = False,
) -> Any: ...


def convert(
    model: AnyModel,
    to: str | int | None = None,
    *,
    splits_only: bool = False,
    style: str | SplitStyle | None = None,
    allow_links: bool = False,
) -> onnx.ModelProto | OpenVINOModel:
    """Convert a model to an opset of ONNX or to OpenVINO, without changing any value or shape.

    Each split becomes the split operator of the target. If that operator cannot express it, it becomes other
    nodes with the same result, such as Slices, computed lengths or lossless casts. A split for which splitops
    knows no such nodes is rejected. The other operators of an ONNX model are kept if they mean the same at
    the target. The rest are converted one by one, most of them by onnx's version converter or, for OpenVINO,
    by its frontend. If a node cannot be converted, the error names it. Conversions between opsets of ONNX
    keep names, metadata, subgraphs and model-local functions.

    Slices accept axis sizes that a split rejects. Whenever the source model runs, the results are the same.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. It is not changed.
        to: an opset such as ``"onnx:11"`` or ``11``, ``"onnx"`` for the newest opset of the installed onnx,
            or ``"openvino"``, optionally with an operation set (``"openvino:opset1"``). None is valid only
            with ``splits_only``.
        splits_only: keep the opset and everything else, and only rewrite the splits in ``style``.
        style: ``"same"`` writes each split as in the source if the target can; ``"lengths"`` prefers the
            length of each part, ``"count"`` the number of parts if it implies the same lengths. The default
            is ``"same"``, or ``"lengths"`` with ``splits_only``.
        allow_links: whether the other files of a model may be links that lead out of its folder, as in
            :func:`splitops.load`.

    Returns:
        The converted model: an ``onnx.ModelProto`` or, for ``"openvino"``, an :class:`OpenVINOModel`.

    Raises:
        RuleError: the target cannot express a split, and splitops has no exact rewrite of it.
        ModelError: the model, the target or the style is invalid, or another operator cannot be expressed
            exactly at the target.
        OperatorError: the opset does not exist (``op.version``).

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["": 18]>
        ...     g (float[5] x) => (float[2] a, float[2] b, float[1] c, float[0] d) {
        ...         a, b, c, d = Split<num_outputs = 4>(x) }''')
        >>> convert(model, to="onnx:11").graph.node[0].attribute[1].ints
        [2, 2, 1, 0]

    Source: ONNX Split-1, -2, -11, -13, -18, SplitToSequence-11, -24; OpenVINO Split-1, VariadicSplit-1.
    """
    report = convert_with_report(model, to, splits_only=splits_only, style=style, allow_links=allow_links)
    converted: onnx.ModelProto | OpenVINOModel = report.model
    return converted


def convert_with_report(
    model: AnyModel,
    to: str | int | None = None,
    *,
    splits_only: bool = False,
    style: str | SplitStyle | None = None,
    allow_links: bool = False,
) -> Conversion:
    """Convert a model as :func:`convert` does, and report the result of each split.

    Args:
        model: as in :func:`convert`.
        to: as in :func:`convert`.
        splits_only: as in :func:`convert`.
        style: as in :func:`convert`.
        allow_links: as in :func:`convert`.

    Returns:
        A report with the result of every split, of rejected nodes and, between opsets of ONNX, of other nodes
        that changed. Its ``model`` is the converted model. Rejections are raised only when ``model`` is read,
        so that one report can list several.

    Raises:
        ModelError: the model, the target or the style is invalid.
        OperatorError: the opset does not exist (``op.version``).

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["": 18]>
        ...     g (float[5] x) => (float[3] a, float[2] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> change = convert_with_report(model, to="onnx:11").changes[0]
        >>> change.before, change.after, str(change.status)
        ('Split-18(axis=0, num_outputs=2)', 'Split-11(axis=0, split=[3, 2])', 'converted')
    """
    preferred = _parse_style(style, splits_only)
    if splits_only and to is not None:
        raise ModelError("splits_only keeps the opset of the model: do not set a target")
    if to is None and not splits_only:
        raise ModelError("a conversion needs a target, such as 'onnx:18' or 'openvino'")
    target = None if to is None else parse_target(to)
    from splitops.models.formats.model import CheckedModel
    from splitops.models.formats.walk import find_unknown_opset

    checked = CheckedModel.read(model, allow_links=allow_links)
    if checked.is_openvino:
        from splitops.models.convert.openvino_to_onnx import convert_ir

        return convert_ir(checked, target, preferred)
    edited = checked.copy()
    newer = None if target is None else find_unknown_opset(edited)
    if newer is not None:
        got, expected = (
            f"the model imports opset {newer[0]}",
            f"the installed onnx has opsets 1 to {newer[1]}",
        )
        error = rule_error("ONNX", Rule.OPERATOR_VERSION, got, expected, where=checked.where, opset=newer[0])
        return Conversion(str(target), (), None, error)
    if target is not None and target.domain:
        from splitops.models.convert.onnx_to_openvino import convert_onnx

        return convert_onnx(checked, edited, target, preferred)
    from splitops.models.convert.onnx_to_onnx import convert_opset

    return convert_opset(checked, edited, target, preferred)


def _parse_style(style: str | SplitStyle | None, splits_only: bool) -> SplitStyle:
    if style is None:
        return SplitStyle.LENGTHS if splits_only else SplitStyle.SAME
    try:
        return SplitStyle(style)
    except ValueError as error:
        raise ModelError(f"unknown style {shown(style)}: use {', '.join(map(str, SplitStyle))}") from error
