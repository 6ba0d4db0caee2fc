"""Checks models: every rule that can be checked with what is known, and every limit of a runtime."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import onnx_ir as ir

from splitops.errors import NOWHERE, Rule, RuleError, SplitError, Where, shown
from splitops.ground.progress import counted
from splitops.models.check import baked
from splitops.models.check.conditions import Surely, Surroundings, Vocabulary
from splitops.models.check.findings import Finding, Severity, finding_of
from splitops.models.check.fragment import check_layer
from splitops.models.check.limits import DEPENDS, Fix, Limit, Repair
from splitops.models.check.onnx_form import form_findings
from splitops.models.check.targets import Target, asked_targets, load_targets
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.openvino.document import parse
from splitops.models.formats.openvino.reader import SingleLayerError
from splitops.models.formats.walk import has_layers, label
from splitops.models.graph.editor import Editor, Role
from splitops.models.graph.editors import make_editor
from splitops.models.graph.meant import MEANT_RULES, find_meant_way, meant_site
from splitops.models.infer.walk import Found, Walk
from splitops.models.known import SequenceOf, Tensor, may_be
from splitops.models.quirks import Match, find, may_be_in
from splitops.models.sites import Site
from splitops.models.sites.ways import Kind

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel

_MOST_NAMED: Final = 8
"""More nodes of a pattern are not named."""
_SIZE_RULES: Final = frozenset(
    {Rule.PARTS_DIVISIBLE, Rule.LENGTHS_SUM, Rule.REMAINDER_NEGATIVE, Rule.AXIS_RANGE}
)
"""Rules that a branch may guard against: they depend on the shape that reaches the split node."""


class Examination(NamedTuple):
    """The findings of a check, in the order of the model, and how many splits were checked."""

    findings: list[Finding]
    splits: int = 0
    met: frozenset[str] = frozenset()
    """The runtimes of which a limit is met."""


def check(
    model: AnyModel,
    runtimes: str | os.PathLike[str] | Target | Iterable[str | os.PathLike[str] | Target] = (),
    *,
    allow_links: bool = False,
) -> list[Finding]:
    """Find invalid splits in a model, and splits that a runtime rejects or gets wrong.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model``,
            ``OpenVINOModel``, or the text or file of a lone OpenVINO ``<layer>``.
        runtimes: what the model is for, one or several: a runtime such as ``"onnxruntime"``, a release such
            as ``"onnxruntime==1.28"``, the path of a ``.toml`` file with limits of your own, or a
            :class:`~splitops.models.check.Target`. What they cannot run is an error then. Without any, the
            limits of :data:`~splitops.models.check.RUNTIMES` are warnings.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.

    Returns:
        The findings, in the order of the model. A model that cannot be read is one finding.

    Raises:
        ArrayError: a runtime or release is not known.
        ModelError: the file of a target is wrong; the message names the line.

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
        walked = walk_model(checked.nodes, checked.where)
    except SplitError as error:
        return Examination([finding_of(error)])
    count = len({(site.where.graph, site.where.node, site.outputs) for site in walked.sites})
    found = examine_nodes(checked.nodes, checked.where, walked, targets)
    return Examination(found, count, frozenset(one.runtime for one in found if one.runtime is not None))


class Walked(NamedTuple):
    """What inference knows of a model, and its splits."""

    found: Found
    sites: Sequence[Site]


def walk_model(model: ir.Model, where: Where) -> Walked:
    """Infer a model as a check sees it: all that its splits prove counts."""
    sites: list[Site] = []
    return Walked(Walk(model, where, sites.append).run().settled(), sites)


def examine_nodes(
    model: ir.Model,
    where: Where,
    walked: Walked,
    targets: Sequence[Target],
    context: Surroundings | None = None,
) -> list[Finding]:
    """Return what is wrong with a model, as it was read or rewritten, in its context if that is known."""
    surroundings, asked = context or Surroundings.of(model), asked_targets(targets)
    found: list[Finding] = []
    rules = _with_common_fixes(walked.sites, [list(_rule_findings(site)) for site in walked.sites])
    for site, broken in counted(list(zip(walked.sites, rules, strict=True)), "check"):
        found += broken
        found += _limit_findings(site, surroundings, asked, asked=bool(targets))
    found += _baked_findings(model, where, walked.sites)
    found += _quirk_findings(model, walked.found, where, targets)
    form = form_findings(model, walked.found.values, where) if not has_layers(model) else ()
    return [*form, *_without_repeats(found), *_contradictions(walked)]


def _rule_findings(site: Site) -> Iterator[Finding]:
    if site.error is None:
        yield from _undeclared_parts(site)
    for error in site.faults:
        rule = error.rule if isinstance(error, RuleError) else None
        severity = Severity.WARNING if site.conditional and rule in _SIZE_RULES else Severity.ERROR
        yield finding_of(
            error, severity=severity, fix=_describe_repair(site, rule), source=site.schema.source
        )


def _with_common_fixes(sites: Sequence[Site], found: Sequence[list[Finding]]) -> Iterator[list[Finding]]:
    """Keep the fix of a split node of a function only if it is the same in all calls."""
    calls: dict[ir.Node | None, list[set[tuple[str, str | None]]]] = {}
    for site, findings in zip(sites, found, strict=True):
        calls.setdefault(site.node, []).append({(one.code, one.fix) for one in findings})
    for site, findings in zip(sites, found, strict=True):
        common = set.intersection(*calls[site.node]) if findings else set()
        yield [one if (one.code, one.fix) in common else replace(one, fix=None) for one in findings]


def find_repair(site: Site, rule: Rule | None) -> Fix | None:
    """Return the repair of a broken rule, if what the split means is clear."""
    if rule is Rule.LENGTHS_MISSING and site.schema.count_attribute is not None:
        return Repair.NUMBER
    if rule is Rule.OPERATOR_VERSION and site.as_written is not None:
        return Repair.VERSION
    return Kind.NODE if rule in MEANT_RULES and meant_site(site) is not None else None


def _describe_repair(site: Site, rule: Rule | None) -> str | None:
    repair = find_repair(site, rule)
    if repair is Repair.NUMBER:
        return f"add {site.schema.count_attribute} = the number of declared outputs"
    if repair is Repair.VERSION:
        return f"it is written as {site.as_written}: splitops fix rewrites it as {site.schema}"
    meant = None if repair is None else meant_site(site)
    if meant is None:
        return None
    way = meant if site.schema.domain else find_meant_way(meant, site.schema.since_version)
    return way if isinstance(way, str) else f"it can only mean {way}: splitops fix writes it"


def _undeclared_parts(site: Site) -> Iterator[Finding]:
    """Find a layer of IR with fewer output ports than parts: it runs, but no writer of IR makes it."""
    schema = site.schema
    name = schema.count_attribute
    if name is None or schema.domain != "openvino":
        return
    count = site.attributes[name]
    if count > len(site.outputs):
        yield Finding(
            code=Rule.OUTPUTS_COUNT.value,
            severity=Severity.WARNING,
            operator=site.operator,
            where=site.where,
            message=f"{len(site.outputs)} output ports are declared, but {name} = {count}",
            values={"outputs": len(site.outputs), name: count},
            source=schema.source,
        )


def _baked_findings(model: ir.Model, where: Where, sites: Sequence[Site]) -> Iterator[Finding]:
    if not any(map(baked.may_be_baked, sites)):
        return
    for site, text in baked.find_baked(model, where):
        yield Finding(
            code=baked.CODE,
            severity=Severity.WARNING,
            operator=site.operator,
            where=site.where,
            message=text,
            values={"lengths": baked.baked_lengths(site)},
            fix=baked.cures(site),
            source=site.schema.source,
        )


def find_limits(site: Site, model: Surroundings, targets: Iterable[Target]) -> Iterator[tuple[Limit, Surely]]:
    """Yield the limits of some targets that a split node meets, and how surely."""
    split = Vocabulary(site, model)
    for target in targets if site.unread is None else ():
        for limit in target.of_operator(site.schema):
            if (surely := limit.met(split)) is not Surely.NO:
                yield limit, surely


def find_quirks(editor: Editor, targets: Sequence[Target]) -> Iterator[tuple[Limit, Match]]:
    """Yield what the optimisers of some targets get wrong, in a model that inference has annotated."""
    quirks = [target.by_quirk for target in targets]
    for runtime in dict.fromkeys(quirk.runtime for limits in quirks for quirk in limits):
        for match in find(editor, runtime):
            yield from ((limits[match.quirk], match) for limits in quirks if match.quirk in limits)


def describe_match(limit: Limit, match: Match) -> str:
    """Return the message of a limit with the nodes of a match, in one line."""
    names = ", ".join(shown(label(node)) for node in match.path[:_MOST_NAMED])
    more = f" and {len(match.path) - _MOST_NAMED} more" if len(match.path) > _MOST_NAMED else ""
    return f"{limit.words()}: {names}{more}{'' if match.certain or match.quirk.says_may else DEPENDS}"


def _quirk_findings(
    model: ir.Model, found: Found, where: Where, targets: Sequence[Target]
) -> Iterator[Finding]:
    if not may_be_in(model):
        return
    found.note()
    editor = make_editor(model, where)
    for limit, match in find_quirks(editor, asked_targets(targets)):
        is_split = editor.role(match.node) is Role.SPLIT
        operator = editor.site(match.node).operator if is_split else match.node.op_type
        values = {"nodes": [label(node) for node in match.path]}
        words, certain = describe_match(limit, match), bool(targets) and match.certain
        yield _of_limit(limit, operator, editor.where(match.node), words, values, certain=certain)


def _limit_findings(
    site: Site, model: Surroundings, targets: Sequence[Target], *, asked: bool
) -> Iterator[Finding]:
    for limit, surely in find_limits(site, model, targets):
        certain = asked and surely is Surely.YES and not site.conditional
        yield _of_limit(limit, site.operator, site.where, limit.words(site, surely), {}, certain=certain)


def _of_limit(
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


class Contradiction(NamedTuple):
    """A value whose declared type or shape is not what it has."""

    value: ir.Value
    code: str
    declared: Tensor | SequenceOf
    found: Tensor | SequenceOf

    @property
    def message(self) -> str:
        """What is declared and what the value is, in one line."""
        before, after = (
            f"a sequence of {self._words(one.element)}" if isinstance(one, SequenceOf) else self._words(one)
            for one in (self.declared, self.found)
        )
        return f"output {self.value.name!r} is declared as {before}, but it is {after}"

    def _words(self, tensor: Tensor) -> str:
        return str(tensor.type if self.code == "stated.type" else tensor)


def contradiction(found: Found, value: ir.Value) -> Contradiction | None:
    """Return in what the declaration of a value contradicts what is known of it; None if in nothing."""
    before, after = found.declared(value), found.values.get(value)
    if not isinstance(before, Tensor | SequenceOf) or not isinstance(after, Tensor | SequenceOf):
        return None
    if type(before) is not type(after):
        return Contradiction(value, "stated.type", before, after)
    one, other = (known.element if isinstance(known, SequenceOf) else known for known in (before, after))
    if one.type is not None and other.type is not None and one.type != other.type:
        return Contradiction(value, "stated.type", before, after)
    # An empty sequence has no shape to compare, and PyTorch declares elements without the axis of a split.
    ranks = {len(known.shape) for known in (one, other) if known.shape is not None}
    is_open = isinstance(after, SequenceOf) and (after.length == 0 or len(ranks) > 1)
    if not is_open and not may_be(one.shape, other.shape):
        return Contradiction(value, "stated.shape", before, after)
    return None


def contradicted_outputs(walked: Walked) -> Iterator[tuple[Site, Contradiction]]:
    """Yield the outputs of valid splits whose declared type or shape is wrong."""
    for node, site in {site.node: site for site in walked.sites}.items():
        for value in node.outputs if site.error is None else ():
            one = contradiction(walked.found, value)
            if one is not None:
                yield site, one


def _contradictions(walked: Walked) -> Iterator[Finding]:
    for site, one in contradicted_outputs(walked):
        severity = Severity.ERROR if one.code == "stated.type" else Severity.WARNING
        yield Finding(
            code=one.code, severity=severity, operator=site.operator, where=site.where, message=one.message
        )


def _without_repeats(found: Iterable[Finding]) -> list[Finding]:
    """Keep one finding of a split node of a function or loop, of those of all calls."""
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        key = finding.code, finding.where, finding.operator
        first = kept.setdefault(key, finding)
        if first.severity is Severity.WARNING and finding.severity is Severity.ERROR:
            kept[key] = finding
    return list(kept.values())
