"""Conversion of models between every version of the split operators, and between ONNX and OpenVINO."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from splitops.errors import ModelError, Rule, rule_error, shown
from splitops.models.convert.forms import Form, Target
from splitops.models.convert.report import Change, Conversion, Status

if TYPE_CHECKING:
    import onnx

    from splitops.models import AnyModel
    from splitops.models.formats.openvino import OpenVINOModel

__all__ = ["Change", "Conversion", "Form", "Status", "Target", "conversion", "convert", "parse_target"]

_ONNX: Final = re.compile(r"(?:onnx|ai\.onnx)(?::([0-9]{1,4}))?")
_OPENVINO: Final = re.compile(r"openvino(?::opset([0-9]{1,4}))?")


def parse_target(text: str | int) -> Target:
    """Read a target: ``"onnx:18"`` or ``18``, ``"openvino:opset8"``, or without an opset for the newest.

    Raises:
        ModelError: it is neither.
        OperatorError: ``op.version``, the opset is newer than the installed onnx, or below 1.

    Examples:
        >>> parse_target("onnx:18"), parse_target("openvino:opset8")
        (Target(domain='', opset=18), Target(domain='openvino', opset=8))
    """
    if isinstance(text, int) and not isinstance(text, bool):
        text = f"onnx:{text}"
    openvino = _OPENVINO.fullmatch(text) if isinstance(text, str) else None
    if openvino is not None:
        opset = None if openvino[1] is None else int(openvino[1])
        if opset == 0:
            got, expected = "opset 0 is asked for", "OpenVINO's operation sets begin with 1"
            raise rule_error("OpenVINO", Rule.OPERATOR_VERSION, got, expected, opset=opset)
        return Target("openvino", opset)
    match = _ONNX.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ModelError(
            f"target {shown(text)} is neither 'onnx' or 'openvino' nor one of their opsets, "
            "such as 'onnx:18' or 'openvino:opset1'"
        )
    from onnx.defs import onnx_opset_version

    newest = onnx_opset_version()
    opset = newest if match[1] is None else int(match[1])
    if not 1 <= opset <= newest:
        got, expected = f"opset {opset} is asked for", f"the installed onnx has opsets 1 to {newest}"
        raise rule_error("ONNX", Rule.OPERATOR_VERSION, got, expected, opset=opset)
    return Target("", opset)


def convert(
    model: AnyModel,
    to: str | int | None = None,
    *,
    only_split: bool = False,
    form: str | Form | None = None,
) -> onnx.ModelProto | OpenVINOModel:
    """Convert a model to another opset of ONNX or to OpenVINO, without changing a value or a shape.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. It is not changed.
        to: ``"onnx:11"`` or ``11`` or another opset, ``"onnx"`` for the newest one that the installed onnx
            knows, or ``"openvino"``, perhaps with an operation set (``"openvino:opset1"``); None with
            ``only_split`` alone.
        only_split: keep the opset and everything else, and only state the splits in ``form``.
        form: as in :func:`conversion`.

    Returns:
        The converted model: an ``onnx.ModelProto`` or, for ``"openvino"``, an :class:`OpenVINOModel`. How
        each split was converted is in the report of :func:`conversion`.

    Raises:
        RuleError: the target cannot say a split, and no exact rewrite of it is known.
        ModelError: the model is not well formed, the target is unknown, or another operator has no exact form
            at the target.
        OperatorError: ``op.version``, there is no such opset.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["": 18]>
        ...     g (float[5] x) => (float[3] a, float[2] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> convert(model, to="onnx:11").graph.node[0].attribute[1].ints
        [3, 2]

    Source: ONNX Split-1, -2, -11, -13, -18, SplitToSequence-11, -24; OpenVINO Split-1, VariadicSplit-1.
    """
    converted: onnx.ModelProto | OpenVINOModel = conversion(model, to, only_split=only_split, form=form).model
    return converted


def conversion(
    model: AnyModel,
    to: str | int | None = None,
    *,
    only_split: bool = False,
    form: str | Form | None = None,
) -> Conversion:
    """Convert a model and report on every split of it; :func:`convert` gives the converted model alone.

    Each split is reduced to its meaning and stated again as the target states it; where the target cannot, it
    is rewritten (Slices, lengths computed in the graph, casts that lose nothing); where that is not exact
    either, it is refused. The other operators of an ONNX model move with it: those that mean the same stay,
    others go through onnx's version converter one by one, and what it cannot convert is refused by name.
    Names, metadata, subgraphs and model-local functions survive.

    Where a split can only become Slices, these take sizes that the source rejects: where the source has a
    result, it is the same.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. It is not changed.
        to: ``"onnx:11"`` or ``11`` or another opset, ``"onnx"`` for the newest one that the installed onnx
            knows, or ``"openvino"``, perhaps with an operation set (``"openvino:opset1"``); None with
            ``only_split`` alone.
        only_split: keep the opset and everything else, and only state the splits in ``form``.
        form: ``"same"`` states each split as it is stated now where the target can; ``"lengths"`` prefers the
            length of each part, ``"count"`` a number of parts where it gives the same lengths. None is
            ``"same"``, and ``"lengths"`` with ``only_split``.

    Returns:
        The report of every split and of every other node that changed; its ``model`` is the converted model:
        an ``onnx.ModelProto`` or, for ``"openvino"``, an :class:`OpenVINOModel`. A refused node does not
        raise here, so that one call reports all of them: ``model`` raises the first one.

    Raises:
        ModelError: the model is not well formed, or the target is unknown.
        OperatorError: ``op.version``, there is no such opset.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["": 18]>
        ...     g (float[5] x) => (float[2] a, float[2] b, float[1] c, float[0] d) {
        ...         a, b, c, d = Split<num_outputs = 4>(x) }''')
        >>> report = conversion(model, to="onnx:11")
        >>> change = report.changes[0]
        >>> change.before, change.after, str(change.status)
        ('Split-18(axis=0, num_outputs=4)', 'Split-11(axis=0, split=[2, 2, 1, 0])', 'converted')
        >>> report.model.graph.node[0].attribute[1].ints
        [2, 2, 1, 0]

    Source: ONNX Split-1, -2, -11, -13, -18, SplitToSequence-11, -24; OpenVINO Split-1, VariadicSplit-1.
    """
    preferred = _form(form, only_split)
    if only_split and to is not None:
        raise ModelError("only_split keeps the opset of the model: it takes no target")
    if to is None and not only_split:
        raise ModelError("a conversion needs a target, such as 'onnx:18' or 'openvino'")
    target = None if to is None else parse_target(to)
    from splitops.models import is_openvino
    from splitops.models.formats.reading import place_of

    where = place_of(model)
    if is_openvino(model):
        from splitops.models.convert.from_openvino import convert as convert_openvino

        return convert_openvino(model, target, preferred, where)
    from splitops.models.convert.from_onnx import convert as convert_onnx

    return convert_onnx(model, target, preferred, where)


def _form(form: str | Form | None, only_split: bool) -> Form:
    if form is None:
        return Form.LENGTHS if only_split else Form.SAME
    try:
        return Form(form)
    except ValueError as error:
        raise ModelError(f"form {shown(form)} is none of {', '.join(map(str, Form))}") from error
