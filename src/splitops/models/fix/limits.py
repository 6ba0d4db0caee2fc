"""Find the rules that a split breaks, the limits that apply to it, and the rewrites that help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from splitops.errors import ModelError, RuleError, shown, shown_path
from splitops.models.check import baked
from splitops.models.check.checking import find_limits, find_repair
from splitops.models.check.limits import FIXES, Fix, Limit, Repair
from splitops.models.check.onnx_form import describe_sequence, is_sequence
from splitops.models.check.predicates import Certainty, ModelContext
from splitops.models.check.targets import Target
from splitops.models.fix.report import Reason, Unbind
from splitops.models.split_nodes import SplitNode
from splitops.models.split_nodes.ways import Kind

CHOICES: Final = (Repair.UNBIND, Repair.OPEN)
"""The rewrites that the user has to choose: the rewritten split may return other values."""
_STRENGTH: Final = {fix: strength for strength, fix in enumerate(FIXES.values())}


class Issue(NamedTuple):
    """A rule that a split breaks or a limit that applies to it, and the rewrites in order of preference."""

    reason: Reason
    rewrites: tuple[Fix, ...]
    certain: bool = True
    """Whether every run has the issue, not only runs with some inputs."""

    @property
    def rewrite_order(self) -> int:
        """Rank of the first rewrite, or -1. Larger rewrites have larger ranks and may avoid more limits."""
        return _STRENGTH[self.rewrites[0]] if self.rewrites else -1

    @property
    def needs_user_choice(self) -> bool:
        """Whether the user has to choose how the split is rewritten."""
        return len(self.rewrites) == 1 and self.rewrites[0] in CHOICES


def find_issues(
    split_nodes: Iterable[SplitNode],
    model: ModelContext,
    targets: Sequence[Target],
    unbind: Unbind | None,
    *,
    repair: bool = True,
    to_open: Callable[[SplitNode], str | None] | None = None,
) -> list[Issue]:
    """Return the issues of a split node over all of its calls, in the order in which to fix them.

    Issues without a rewrite come first, then those that need a choice of the user, then the others, the
    largest rewrite first. Broken rules have rewrites only with ``repair``. ``to_open`` returns a message for
    a split whose constant lengths are to be replaced, and None for others.
    """
    issues: dict[str, Issue] = {}
    for split_node in split_nodes:
        for issue in _iter_issues(split_node, model, targets, unbind, repair):
            before = issues.setdefault(issue.reason.code, issue)
            if before.rewrites and not issue.rewrites:  # a repair must apply to every call
                issues[issue.reason.code] = issue
        told = None if to_open is None else to_open(split_node)
        if told is not None:
            issues.setdefault(baked.CODE, Issue(Reason(baked.CODE, told), (Repair.OPEN,)))
    return sorted(
        issues.values(),
        key=lambda issue: (bool(issue.rewrites), not issue.needs_user_choice, -issue.rewrite_order),
    )


def find_max_outputs(targets: Iterable[Target]) -> int | None:
    """Return the maximum number of outputs of a Split that all targets support, or None if unlimited."""
    found = (limit.max_outputs for target in targets for limit in target.limits)
    return min((most for most in found if most is not None), default=None)


def _iter_issues(
    split_node: SplitNode, model: ModelContext, targets: Sequence[Target], unbind: Unbind | None, repair: bool
) -> Iterator[Issue]:
    misread = (
        [] if split_node.node is None else [value for value in split_node.node.inputs if is_sequence(value)]
    )
    if misread:
        yield Issue(Reason("model.invalid", describe_sequence(misread[0], split_node.schema.name)), ())
        return
    for error in split_node.faults:
        rule = error.rule if isinstance(error, RuleError) else None
        found = find_repair(split_node, rule) if repair else None
        yield Issue(
            Reason(str(rule or "model.invalid"), _format_error(error)), () if found is None else (found,)
        )
    if split_node.error is not None:
        return
    stated = False
    for limit, certainty in find_limits(split_node, model, targets):
        stated = stated or Repair.UNBIND in limit.rewrites
        reason = Reason(
            limit.code, limit.format_message(split_node, certainty) + _format_hint(limit, split_node, targets)
        )
        yield Issue(reason, limit.rewrites, certainty is Certainty.YES)
    if unbind and not stated and split_node.may_be_unbind:
        text = "chunks of 1 with keepdims = 0 are ambiguous"
        yield Issue(Reason("unbind", text), (Repair.UNBIND,))


def _format_hint(limit: Limit, split_node: SplitNode, targets: Iterable[Target]) -> str:
    """Return a hint if a limit in a user's file has no rewrites, otherwise an empty string."""
    file = next((target.file for target in targets if target.name == limit.runtime), "")
    if limit.rewrites or not file:
        return ""
    rewrite = Kind.PARTS if split_node.schema.gives_sequence else Kind.SLICES
    return (
        f"; the limit has no rewrites: in {shown_path(file)}, add those that the runtime executes correctly, "
        f'such as rewrites = ["{rewrite}"]'
    )


def _format_error(error: Exception) -> str:
    return f"{error.got}, but {error.expected}" if isinstance(error, RuleError) else str(error)


def parse_unbind(unbind: str | Unbind | None) -> Unbind | None:
    """Parse the argument ``unbind`` of a fix. Raise ModelError for an unknown value."""
    if unbind is None:
        return None
    try:
        return Unbind(unbind)
    except ValueError:
        words = " or ".join(map(repr, map(str, Unbind)))
        raise ModelError(f"unbind = {shown(unbind)}: use {words}") from None
