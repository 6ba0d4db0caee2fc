"""Legalisation: a model whose splits a runtime is proved to run as they are decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from splitops.errors import ModelError, shown
from splitops.models.fix.report import Fate, Legalization, Reason, SiteReport, Unbind

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel, ModelInMemory

__all__ = ["Fate", "Legalization", "Reason", "SiteReport", "Unbind", "legalize"]


@overload
def legalize(
    model: AnyModel,
    target: str,
    *,
    unbind: str | Unbind | None = None,
    on_illegal: Literal["refuse", "keep"] = "refuse",
    allow_links: bool = False,
    report: Literal[False] = False,
) -> ModelInMemory: ...


@overload
def legalize(
    model: AnyModel,
    target: str,
    *,
    unbind: str | Unbind | None = None,
    on_illegal: Literal["refuse", "keep"] = "refuse",
    allow_links: bool = False,
    report: Literal[True],
) -> Legalization: ...


@overload
def legalize(
    model: AnyModel,
    target: str,
    *,
    unbind: str | Unbind | None = None,
    on_illegal: Literal["refuse", "keep"] = "refuse",
    allow_links: bool = False,
    report: bool,
) -> ModelInMemory | Legalization: ...


def legalize(
    model: AnyModel,
    target: str,
    *,
    unbind: str | Unbind | None = None,
    on_illegal: Literal["refuse", "keep"] = "refuse",
    allow_links: bool = False,
    report: bool = False,
) -> ModelInMemory | Legalization:
    """Restate the splits of a model so that a runtime gives the decided results.

    The limits of the runtime that :func:`splitops.check` knows are the conditions: a site that meets none
    stays as it is. One that does is stated in the first form that the limit names in which the runtime gives
    the same parts: lengths in the place of a number, all outputs declared, a Slice for each part and the
    like. What was restated is inferred and checked again. A site that only perhaps meets a limit, depending
    on sizes or values of the run, is restated too.

    Where the source rejects a size, the legal model does not where the form is Slices or Gathers; where the
    source has a result, it is the same.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. It is not changed.
        target: the runtime: ``"onnxruntime"``, ``"openvino"``, ``"onnx"`` (its shape inference and version
            converter), ``"opencv"`` or ``"tensorrt"``. OpenVINO IR is for ``"openvino"``.
        unbind: what SplitToSequence with chunks of 1 and keepdims = 0 is to mean, which PyTorch exports for a
            scripted ``unbind``: ``"as-written"`` keeps the axis, as the text says, ``"as-pytorch"`` drops it,
            as PyTorch and onnxruntime do. None makes no choice: such a site is illegal.
        on_illegal: ``"refuse"`` raises where a site has no legal form; ``"keep"`` leaves it as it is, and the
            report lists it.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.
        report: return a :class:`Legalization` instead of the model.

    Returns:
        The legal model, of the kind that was given; of a path, what :func:`splitops.load` gives. With
        ``report``, what became of each site, why, and what it costs; its ``model`` is the legal model.

    Raises:
        ModelError: the model is not well formed; or a site has no legal form, the first one is named with the
            code of the limit; or ``unbind`` or ``on_illegal`` is another word; or IR is for another runtime.
        ArrayError: the target has no profile.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[5] x) => (float[n] a, float[m] b, float[k] c, float[l] d) {
        ...         a, b, c, d = Split<num_outputs = 4>(x) }''')
        >>> (site,) = legalize(model, "onnxruntime", report=True).sites
        >>> site.before, site.after, site.code
        ('Split-18(axis=0, num_outputs=4)', 'Split-18(axis=0, split=[2, 2, 1, 0])', \
'onnxruntime.ceil-negative-part')

    Source: ONNX Split-1, -2, -11, -13, -18, SplitToSequence-11, -24; OpenVINO Split-1, VariadicSplit-1.
    """
    if not isinstance(target, str):
        raise ModelError(f"a model is legalised for one runtime, not for {shown(target)}")
    if on_illegal not in ("refuse", "keep"):
        raise ModelError(f"on_illegal is {shown(on_illegal)}, not 'refuse' or 'keep'")
    found = _legalized(model, target, unbind, allow_links)
    if on_illegal == "refuse" and found.illegal:
        raise found.illegal[0].error
    return found if report else found.model


def _legalized(model: AnyModel, target: str, unbind: str | None, allow_links: bool) -> Legalization:
    from splitops.ground.reading import place_of
    from splitops.models.check.profiles import known_targets
    from splitops.models.fix.limits import meaning_of
    from splitops.models.formats.files import is_openvino

    known_targets(target)
    where, meaning = place_of(model), meaning_of(unbind)
    if is_openvino(model):
        from splitops.models.fix.openvino_models import legalize_openvino

        return legalize_openvino(model, target, where, allow_links)
    from splitops.models.fix.onnx_models import legalize_onnx

    return legalize_onnx(model, target, meaning, where, allow_links)
