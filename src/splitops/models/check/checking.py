"""Check models: the rules of the operators as far as inference allows, and the limits of runtimes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import onnx_ir as ir

from splitops.common.progress import track
from splitops.errors import NOWHERE, Rule, RuleError, SplitError, Where, format_list, shown
from splitops.models.check import baked
from splitops.models.check.findings import Finding, Severity, make_finding
from splitops.models.check.fragment import check_layer
from splitops.models.check.limits import DEPENDS, Fix, Limit, Repair
from splitops.models.check.onnx_form import find_form_errors
from splitops.models.check.predicates import Certainty, ModelContext, SplitPredicates
from splitops.models.check.targets import Target, load_targets, select_targets
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.openvino.document import parse
from splitops.models.formats.openvino.reader import SingleLayerError
from splitops.models.formats.walk import has_layers, label
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.editors import make_editor
from splitops.models.graph.intended import CLEAR_RULES, find_intended_split_node, find_intended_way
from splitops.models.infer.declarations import Contradiction, find_contradiction
from splitops.models.infer.interpreter import InferenceResult, infer_model
from splitops.models.quirks import Match, find, may_be_in
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.ways import Kind

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel

_MAX_NAMED: Final = 8
"""Maximum number of matched nodes that a message names."""
_SIZE_RULES: Final = frozenset(
    {Rule.PARTS_DIVISIBLE, Rule.LENGTHS_SUM, Rule.REMAINDER_NEGATIVE, Rule.AXIS_RANGE}
)
"""Rules that depend on the shape of the data. A branch may run only for shapes that do not break them."""


class Examination(NamedTuple):
    """The findings of a check, and the number of checked splits."""

    findings: list[Finding]
    splits: int = 0
    met: frozenset[str] = frozenset()
    """The runtimes with a finding."""


def check(
    model: AnyModel,
    runtimes: str | os.PathLike[str] | Target | Iterable[str | os.PathLike[str] | Target] = (),
    *,
    allow_links: bool = False,
) -> list[Finding]:
    """Find invalid splits in a model, and splits that a runtime rejects or gets wrong.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model``,
            ``OpenVINOModel``, or the text or file of a single OpenVINO ``<layer>``.
        runtimes: one or several targets of the model: a runtime such as ``"onnxruntime"``, a release such
            as ``"onnxruntime==1.28"``, the path of a ``.toml`` file with your own limits, or a
            :class:`~splitops.models.check.Target`. A limit that certainly applies to a split that always
            runs is an error. Without targets, the limits of :data:`~splitops.models.check.RUNTIMES` are
            warnings.
        allow_links: whether links to the files of a model at a path may leave its folder, as in
            :func:`splitops.load`.

    Returns:
        The findings, those of each kind in model order. A model that cannot be read is one finding.

    Raises:
        ArrayError: a runtime or release is unknown.
        ModelError: the file of a target cannot be read or is invalid.

    Examples:
        >>> import onnx.parser, splitops
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[6] x) => (float[n] a, float[m] b) { a, b = Split(x) }''')
        >>> for finding in splitops.check(model):
        ...     print(finding.code, "-", finding.fix)
        lengths.missing - add num_outputs = the number of declared outputs
    """
    return examine(model, runtimes, allow_links=allow_links).findings


def examine(
    model: AnyModel,
    runtimes: str | os.PathLike[str] | Target | Iterable[str | os.PathLike[str] | Target] = (),
    *,
    allow_links: bool = False,
) -> Examination:
    """Check a model as :func:`check` does, and count its splits."""
    targets = load_targets(runtimes)
    try:
        try:
            if isinstance(model, str) and model.lstrip().startswith("<"):
                raise SingleLayerError(parse(model.encode("utf-8", "surrogateescape"), NOWHERE), NOWHERE)
            checked = CheckedModel.read(model, weights=False, allow_links=allow_links)
        except SingleLayerError as error:
            return Examination(list(check_layer(error.element, error.where)), 1)
        inferred = infer_model(checked.nodes, checked.where)
    except SplitError as error:
        return Examination([make_finding(error)])
    count = len({(one.where.graph, one.where.node, one.outputs) for one in inferred.splits})
    found = examine_nodes(checked.nodes, checked.where, inferred, targets)
    return Examination(found, count, frozenset(one.runtime for one in found if one.runtime is not None))


def examine_nodes(
    model: ir.Model,
    where: Where,
    inferred: InferenceResult,
    targets: Sequence[Target],
    context: ModelContext | None = None,
) -> list[Finding]:
    """Return the findings of an inferred model. ``context`` is collected from the model if it is None."""
    around, asked = context or ModelContext.from_model(model), select_targets(targets)
    found: list[Finding] = []
    splits = inferred.splits
    rules = _keep_common_fixes(splits, [list(_find_broken_rules(split_node)) for split_node in splits])
    for split_node, broken in track(list(zip(splits, rules, strict=True)), "check"):
        found += broken
        found += _check_limits(split_node, around, asked, asked=bool(targets))
    found += _find_baked_lengths(model, where, splits)
    found += _check_quirks(model, inferred, where, asked, asked=bool(targets))
    form = find_form_errors(model, inferred.values, where) if not has_layers(model) else ()
    return [*form, *_drop_repeats(found), *_report_contradictions(inferred)]


def _find_broken_rules(split_node: SplitNode) -> Iterator[Finding]:
    if split_node.error is None:
        yield from _find_undeclared_parts(split_node)
    for error in split_node.faults:
        rule = error.rule if isinstance(error, RuleError) else None
        severity = Severity.WARNING if split_node.conditional and rule in _SIZE_RULES else Severity.ERROR
        yield make_finding(
            error, severity=severity, fix=_describe_repair(split_node, rule), source=split_node.schema.source
        )


def _keep_common_fixes(
    split_nodes: Sequence[SplitNode], found: Sequence[list[Finding]]
) -> Iterator[list[Finding]]:
    """Yield the findings of each split, without the fixes that differ between the calls of its function."""
    calls: dict[ir.Node | None, list[set[tuple[str, str | None]]]] = {}
    for split_node, findings in zip(split_nodes, found, strict=True):
        calls.setdefault(split_node.node, []).append({(one.code, one.fix) for one in findings})
    for split_node, findings in zip(split_nodes, found, strict=True):
        common = set.intersection(*calls[split_node.node]) if findings else set()
        yield [one if (one.code, one.fix) in common else replace(one, fix=None) for one in findings]


def find_repair(split_node: SplitNode, rule: Rule | None) -> Fix | None:
    """Return the fix for a rule violation, or None if the intended split is not clear."""
    if rule is Rule.LENGTHS_MISSING and split_node.schema.count_attribute is not None:
        return Repair.NUM_OUTPUTS
    if rule is Rule.OPERATOR_VERSION and split_node.as_written is not None:
        return Repair.VERSION
    return Kind.NODE if rule in CLEAR_RULES and find_intended_split_node(split_node) is not None else None


def _describe_repair(split_node: SplitNode, rule: Rule | None) -> str | None:
    if rule not in CLEAR_RULES:
        repair = find_repair(split_node, rule)
        if repair is Repair.NUM_OUTPUTS:
            return f"add {split_node.schema.count_attribute} = the number of declared outputs"
        written = f"it is written as {split_node.as_written}: splitops fix rewrites it as {split_node.schema}"
        return None if repair is None else written
    meant = find_intended_split_node(split_node)
    if meant is None:
        return None
    way = meant if split_node.schema.domain else find_intended_way(meant, split_node.schema.since_version)
    return way if isinstance(way, str) else f"it can only mean {way}: splitops fix writes it"


def _find_undeclared_parts(split_node: SplitNode) -> Iterator[Finding]:
    """Warn if a layer has fewer output ports than parts. OpenVINO runs such layers, but never writes them."""
    schema = split_node.schema
    name = schema.count_attribute
    if name is None or schema.domain != "openvino":
        return
    count = split_node.attributes[name]
    if count > len(split_node.outputs):
        yield Finding(
            code=Rule.OUTPUTS_COUNT.value,
            severity=Severity.WARNING,
            operator=split_node.operator,
            where=split_node.where,
            message=f"{len(split_node.outputs)} output ports are declared, but {name} = {count}",
            values={"outputs": len(split_node.outputs), name: count},
            source=schema.source,
        )


def _find_baked_lengths(model: ir.Model, where: Where, split_nodes: Sequence[SplitNode]) -> Iterator[Finding]:
    if not any(map(baked.may_be_baked, split_nodes)):
        return
    for split_node, text in baked.find_baked_splits(model, where):
        yield Finding(
            code=baked.CODE,
            severity=Severity.WARNING,
            operator=split_node.operator,
            where=split_node.where,
            message=text,
            values={"lengths": baked.find_baked_lengths(split_node)},
            fix=baked.describe_cures(split_node),
            source=split_node.schema.source,
        )


def find_limits(
    split_node: SplitNode, model: ModelContext, targets: Iterable[Target]
) -> Iterator[tuple[Limit, Certainty]]:
    """Yield the limits with conditions that apply or may apply to a split, each with its certainty."""
    split = SplitPredicates(split_node, model)
    for target in targets if split_node.unread is None else ():
        for limit in target.select_limits(split_node.schema):
            if (certainty := limit.evaluate(split)) is not Certainty.NO:
                yield limit, certainty


def find_quirks(editor: Editor, targets: Sequence[Target]) -> Iterator[tuple[Limit, Match]]:
    """Yield a limit and a match for each group of nodes that an optimiser of ``targets`` gets wrong.

    The model must be annotated with its inferred types and shapes.
    """
    quirks = [target.by_quirk for target in targets]
    for runtime in dict.fromkeys(quirk.runtime for limits in quirks for quirk in limits):
        for match in find(editor, runtime):
            yield from ((limits[match.quirk], match) for limits in quirks if match.quirk in limits)


def describe_match(limit: Limit, match: Match) -> str:
    """Return the message of a limit, followed by the names of the matched nodes."""
    names = format_list([shown(label(node)) for node in match.path[:_MAX_NAMED]], len(match.path), _MAX_NAMED)
    return f"{limit.format_message()}: {names}{'' if match.certain or match.quirk.says_may else DEPENDS}"


def _check_quirks(
    model: ir.Model, found: InferenceResult, where: Where, targets: Sequence[Target], *, asked: bool
) -> Iterator[Finding]:
    if not may_be_in(model):
        return
    found.annotate()
    editor = make_editor(model, where)
    for limit, match in find_quirks(editor, targets):
        is_split = editor.find_role(match.node) is Role.SPLIT
        operator = editor.read_split_node(match.node).operator if is_split else match.node.op_type
        values = {"nodes": [label(node) for node in match.path]}
        words, certain = describe_match(limit, match), asked and match.certain
        yield _make_limit_finding(limit, operator, editor.locate(match.node), words, values, certain=certain)


def _check_limits(
    split_node: SplitNode, model: ModelContext, targets: Sequence[Target], *, asked: bool
) -> Iterator[Finding]:
    for limit, certainty in find_limits(split_node, model, targets):
        certain = asked and certainty is Certainty.YES and not split_node.conditional
        yield _make_limit_finding(
            limit,
            split_node.operator,
            split_node.where,
            limit.format_message(split_node, certainty),
            {},
            certain=certain,
        )


def _make_limit_finding(
    limit: Limit, operator: str, where: Where, message: str, values: dict[str, Any], *, certain: bool
) -> Finding:
    return Finding(
        code=limit.code,
        severity=Severity.ERROR if certain else Severity.WARNING,
        operator=operator,
        where=where,
        message=message,
        values=values,
        runtime=limit.runtime,
        outcome=str(limit.outcome),
        fix=limit.fix,
        source=limit.source,
    )


def find_contradictions(found: InferenceResult) -> Iterator[tuple[SplitNode, Contradiction]]:
    """Yield each output of a valid split whose declared type or shape is wrong, together with the split."""
    for node, split_node in {split_node.node: split_node for split_node in found.splits}.items():
        for value in node.outputs if split_node.error is None else ():
            one = find_contradiction(found, value)
            if one is not None:
                yield split_node, one


def _report_contradictions(found: InferenceResult) -> Iterator[Finding]:
    for split_node, contradiction in find_contradictions(found):
        severity = Severity.ERROR if contradiction.code == "declared.type" else Severity.WARNING
        yield Finding(
            code=contradiction.code,
            severity=severity,
            operator=split_node.operator,
            where=split_node.where,
            message=contradiction.message,
        )


def _drop_repeats(found: Iterable[Finding]) -> list[Finding]:
    """Keep one finding per code and node, if possible an error: functions are checked once for each call."""
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        key = finding.code, finding.where, finding.operator
        first = kept.setdefault(key, finding)
        if first.severity is Severity.WARNING and finding.severity is Severity.ERROR:
            kept[key] = finding
    return list(kept.values())
