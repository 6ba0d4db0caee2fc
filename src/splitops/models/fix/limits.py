"""Which limits of some runtimes a split meets, and in which forms it would meet none."""

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
"""The forms with which the user says what a split means: it may give something else then."""
_STRENGTH: Final = {fix: strength for strength, fix in enumerate(FIXES.values())}


class Issue(NamedTuple):
    """What prevents a split node, and the forms in which it does not, in the order to try them."""

    reason: Reason
    forms: tuple[Fix, ...]
    certain: bool = True
    """Whether it is met in every run, not only for some inputs."""

    @property
    def rewrite_order(self) -> int:
        """How much the form that is tried first changes; a larger change may avoid more limits."""
        return _STRENGTH[self.forms[0]] if self.forms else -1

    @property
    def needs_user_choice(self) -> bool:
        """Whether the user has to say what the split node means."""
        return len(self.forms) == 1 and self.forms[0] in CHOICES


def find_issues(
    split_nodes: Iterable[SplitNode],
    model: ModelContext,
    targets: Sequence[Target],
    unbind: Unbind | None,
    *,
    repair: bool = True,
    to_open: Callable[[SplitNode], str | None] | None = None,
) -> list[Issue]:
    """Return what prevents one split node, in all of its calls: first what has no form, then the greatest.

    What must be said comes before what is written for it. With ``to_open``, what it says of lengths is one.
    """
    found: dict[str, Issue] = {}
    for split_node in split_nodes:
        for obstacle in _of_site(split_node, model, targets, unbind, repair):
            before = found.setdefault(obstacle.reason.code, obstacle)
            if before.forms and not obstacle.forms:  # a repair must be one in every call
                found[obstacle.reason.code] = obstacle
        told = None if to_open is None else to_open(split_node)
        if told is not None:
            found.setdefault(baked.CODE, Issue(Reason(baked.CODE, told), (Repair.OPEN,)))
    return sorted(
        found.values(),
        key=lambda obstacle: (bool(obstacle.forms), not obstacle.needs_user_choice, -obstacle.rewrite_order),
    )


def max_outputs(targets: Iterable[Target]) -> int | None:
    """Return the most outputs that a Split may have for all targets; None where nobody limits them."""
    found = (limit.max_outputs for target in targets for limit in target.limits)
    return min((most for most in found if most is not None), default=None)


def _of_site(
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
            limit.code,
            limit.format_message(split_node, certainty) + _without_forms(limit, split_node, targets),
        )
        yield Issue(reason, limit.rewrites, certainty is Certainty.YES)
    if unbind and not stated and split_node.may_be_unbind:
        text = "chunks of 1 with keepdims = 0 have two meanings"
        yield Issue(Reason("unbind", text), (Repair.UNBIND,))


def _without_forms(limit: Limit, split_node: SplitNode, targets: Iterable[Target]) -> str:
    """Say that a limit of a user's file allows no form, and how it would; empty of other limits."""
    file = next((target.file for target in targets if target.name == limit.runtime), "")
    if limit.rewrites or not file:
        return ""
    form = Kind.PARTS if split_node.schema.gives_sequence else Kind.SLICES
    return (
        f"; the limit allows no form: add those that the runtime executes correctly to it in "
        f'{shown_path(file)}, such as forms = ["{form}"]'
    )


def _format_error(error: Exception) -> str:
    return f"{error.got}, but {error.expected}" if isinstance(error, RuleError) else str(error)


def parse_unbind(unbind: str | Unbind | None) -> Unbind | None:
    """Read how a user resolves split nodes with two meanings."""
    if unbind is None:
        return None
    try:
        return Unbind(unbind)
    except ValueError:
        words = " or ".join(map(repr, map(str, Unbind)))
        raise ModelError(f"unbind is {shown(unbind)}, not {words}") from None
