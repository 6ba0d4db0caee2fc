"""Fix models: rewrite splits that break a rule, or that a runtime does not execute correctly."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from splitops.errors import ModelError
from splitops.models.fix.report import FixReport, FixStatus, Reason, SplitReport, Unbind

if TYPE_CHECKING:
    from splitops.models.check import Target
    from splitops.models.formats.files import AnyModel, AnyPath, ModelInMemory, ModelT

    _Named: TypeAlias = str | os.PathLike[str] | Target

__all__ = [
    "FixReport",
    "FixStatus",
    "Reason",
    "SplitReport",
    "Unbind",
    "fix",
    "fix_with_report",
    "installed_runtimes",
]


@overload
def fix(
    model: ModelT,
    runtimes: _Named | Iterable[_Named] | None = None,
    *,
    unbind: str | Unbind | None = None,
    open: str | None = None,
    partial: bool = False,
    allow_links: bool = False,
    keep_data: bool = False,
) -> ModelT: ...


@overload
def fix(
    model: AnyPath,
    runtimes: _Named | Iterable[_Named] | None = None,
    *,
    unbind: str | Unbind | None = None,
    open: str | None = None,
    partial: bool = False,
    allow_links: bool = False,
    keep_data: bool = False,
) -> Any: ...


def fix(
    model: AnyModel,
    runtimes: _Named | Iterable[_Named] | None = None,
    *,
    unbind: str | Unbind | None = None,
    open: str | None = None,
    partial: bool = False,
    allow_links: bool = False,
    keep_data: bool = False,
) -> ModelInMemory:
    """Rewrite the splits of a model so that they break no rule and its runtimes execute them correctly.

    A rule violation is repaired if the intended split is clear, for example by adding ``num_outputs``. A
    split to which a limit of a runtime applies (see :func:`splitops.check`) is rewritten in the first way
    that the runtime executes correctly: lengths instead of a number of parts, all outputs declared, a Slice
    for each part and so on. This includes limits that depend on the sizes or values of a run; if no rewrite
    avoids such a limit, the split is unchanged and the report lists it as ``possible``. A function is
    converted to the opset of the model if its own opset selects another version of a split. All other splits
    are unchanged. If a part has a wrong declared type or shape, all wrong declarations except those of model
    inputs are corrected.

    If the model returns a result, the fixed model returns the same one unless ``unbind`` changes it. Slices
    and Gathers also accept sizes that the split rejects.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. It is not changed.
        runtimes: one or several targets of the model, as in :func:`splitops.check`: a runtime, a release, a
            ``.toml`` file or a :class:`~splitops.models.check.Target`. None means onnxruntime for ONNX and
            OpenVINO for IR, if it is installed, or else an empty list, which avoids no limits.
        unbind: meaning of a SplitToSequence with chunks of 1 and keepdims = 0, which PyTorch exports for a
            scripted ``unbind``: ``"as-written"`` keeps the axis, as specified; ``"as-pytorch"`` drops it, as
            PyTorch and onnxruntime do. None makes such a split unfixable for a runtime that drops the axis.
        open: how constant lengths, which exporters write for one size, follow the size of a dynamic axis:
            ``"even"``: equal parts, if the lengths are equal; ``"rest=1"``: part 1 is the rest of the axis;
            ``"chunk"``: chunks of the size of the first part, as in ``torch.split``. For the size at export,
            the lengths stay the same. None leaves such splits unchanged.
        partial: whether to return the model even if errors are left. The report lists them.
        allow_links: whether links to the files of a model at a path may leave its folder, as in
            :func:`splitops.load`.
        keep_data: whether to keep the external data of an ONNX model at a path in its files. The fixed model
            refers to them and contains only new tensors. Write it into the same folder: with the ``save`` of
            the report, or the model alone with ``splitops.save(model, path, keep_data=True)``.

    Returns:
        The fixed model, of the same type as ``model``; for a path, as :func:`splitops.load` returns it.

    Raises:
        ModelError: the model is not well formed; a split is unfixable, or a check finds another error in the
            fixed model (the message names the first one with its code); ``unbind`` or ``open`` is invalid; a
            runtime does not read IR; the file of a target is invalid; or ``keep_data`` is set for a model
            that is not the path of an ONNX model.
        ArrayError: a runtime or release is unknown.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[5] x) => (float[n] a, float[m] b, float[k] c, float[l] d) {
        ...         a, b, c, d = Split<num_outputs = 4>(x) }''')
        >>> [constant.dims for constant in fix(model, "onnxruntime").graph.initializer]
        [[4]]

    Source: ONNX Split-1, -2, -11, -13, -18, SplitToSequence-11, -24; OpenVINO Split-1, VariadicSplit-1.
    """
    report = fix_with_report(
        model,
        runtimes,
        unbind=unbind,
        open=open,
        partial=partial,
        allow_links=allow_links,
        keep_data=keep_data,
    )
    return report.model


def fix_with_report(
    model: AnyModel,
    runtimes: _Named | Iterable[_Named] | None = None,
    *,
    unbind: str | Unbind | None = None,
    open: str | None = None,
    partial: bool = False,
    allow_links: bool = False,
    keep_data: bool = False,
) -> FixReport:
    """Fix a model as :func:`fix` does, and report each split.

    Args:
        model: as in :func:`fix`.
        runtimes: as in :func:`fix`.
        unbind: as in :func:`fix`.
        open: as in :func:`fix`.
        partial: as in :func:`fix`.
        allow_links: as in :func:`fix`.
        keep_data: as in :func:`fix`.

    Returns:
        The report with the result, the reasons and the cost for each split, and the fixed ``model``.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[5] x) => (float[n] a, float[m] b, float[k] c, float[l] d) {
        ...         a, b, c, d = Split<num_outputs = 4>(x) }''')
        >>> (split,) = fix_with_report(model, "onnxruntime").splits
        >>> split.before, split.after, split.code
        ('Split-18(axis=0, num_outputs=4)', 'Split-18(axis=0, split=[2, 2, 1, 0])', \
'onnxruntime.ceil-negative-part')
    """
    from splitops.models.check.targets import load_targets
    from splitops.models.fix.limits import parse_unbind
    from splitops.models.fix.models import fix_model
    from splitops.models.fix.opening import parse_opening
    from splitops.models.formats.files import is_openvino
    from splitops.models.formats.model import CheckedModel

    targets = load_targets(installed_runtimes(model) if runtimes is None else runtimes)
    meaning, chosen = parse_unbind(unbind), parse_opening(open)
    if keep_data and (is_openvino(model) or not isinstance(model, str | os.PathLike)):
        raise ModelError("keep_data requires the path of an ONNX model")
    checked = CheckedModel.read(model, allow_links=allow_links, keep_data=keep_data)
    found = fix_model(checked, targets, meaning, chosen, keep_data=keep_data)
    error = None if partial else found.error
    if error is not None:
        raise error
    return found


def installed_runtimes(model: AnyModel) -> tuple[str, ...]:
    """Return the default runtime for the format of a model, or an empty tuple if it is not installed."""
    from splitops.models.engines import is_installed
    from splitops.models.formats.files import is_openvino

    runtime = "openvino" if is_openvino(model) else "onnxruntime"
    return (runtime,) if is_installed(runtime) else ()
