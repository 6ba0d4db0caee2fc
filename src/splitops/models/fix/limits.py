"""Which limits of some runtimes a split meets, and in which forms it would meet none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from splitops.errors import ModelError, RuleError, shown, shown_path
from splitops.models.check import baked
from splitops.models.check.checking import find_limits, find_repair
from splitops.models.check.conditions import Surely, Surroundings
from splitops.models.check.limits import FIXES, Fix, Limit, Repair
from splitops.models.check.onnx_form import is_sequence, sequence_words
from splitops.models.check.targets import Target
from splitops.models.fix.report import Reason, Unbind
from splitops.models.sites import Site
from splitops.models.sites.ways import Kind

CHOICES: Final = (Repair.MEANING, Repair.OPEN)
"""The forms with which the user says what a split means: it may give something else then."""
_STRENGTH: Final = {fix: strength for strength, fix in enumerate(FIXES.values())}


class Obstacle(NamedTuple):
    """What prevents a split node, and the forms in which it does not, in the order to try them."""

    reason: Reason
    forms: tuple[Fix, ...]
    certain: bool = True
    """Whether it is met in every run, not only for some inputs."""

    @property
    def strength(self) -> int:
        """How much the form that is tried first changes; a larger change may avoid more limits."""
        return _STRENGTH[self.forms[0]] if self.forms else -1

    @property
    def asks(self) -> bool:
        """Whether the user has to say what the split node means."""
        return len(self.forms) == 1 and self.forms[0] in CHOICES


def obstacles(
    sites: Iterable[Site],
    model: Surroundings,
    targets: Sequence[Target],
    unbind: Unbind | None,
    *,
    repair: bool = True,
    to_open: Callable[[Site], str | None] | None = None,
) -> list[Obstacle]:
    """Return what prevents one split node, in all of its calls: first what has no form, then the greatest.

    What must be said comes before what is written for it. With ``to_open``, what it says of lengths is one.
    """
    found: dict[str, Obstacle] = {}
    for site in sites:
        for obstacle in _of_site(site, model, targets, unbind, repair):
            before = found.setdefault(obstacle.reason.code, obstacle)
            if before.forms and not obstacle.forms:  # a repair must be one in every call
                found[obstacle.reason.code] = obstacle
        told = None if to_open is None else to_open(site)
        if told is not None:
            found.setdefault(baked.CODE, Obstacle(Reason(baked.CODE, told), (Repair.OPEN,)))
    return sorted(
        found.values(), key=lambda obstacle: (bool(obstacle.forms), not obstacle.asks, -obstacle.strength)
    )


def most_outputs(targets: Iterable[Target]) -> int | None:
    """Return the most outputs that a Split may have for all targets; None where nobody limits them."""
    found = (limit.most_outputs for target in targets for limit in target.limits)
    return min((most for most in found if most is not None), default=None)


def _of_site(
    site: Site, model: Surroundings, targets: Sequence[Target], unbind: Unbind | None, repair: bool
) -> Iterator[Obstacle]:
    misread = [] if site.node is None else [value for value in site.node.inputs if is_sequence(value)]
    if misread:
        yield Obstacle(Reason("model.invalid", sequence_words(misread[0], site.schema.name)), ())
        return
    for error in site.faults:
        rule = error.rule if isinstance(error, RuleError) else None
        found = find_repair(site, rule) if repair else None
        yield Obstacle(Reason(str(rule or "model.invalid"), _words(error)), () if found is None else (found,))
    if site.error is not None:
        return
    stated = False
    for limit, surely in find_limits(site, model, targets):
        stated = stated or Repair.MEANING in limit.forms
        reason = Reason(limit.code, limit.words(site, surely) + _without_forms(limit, site, targets))
        yield Obstacle(reason, limit.forms, surely is Surely.YES)
    if unbind and not stated and site.may_be_unbind:
        text = "chunks of 1 with keepdims = 0 have two meanings"
        yield Obstacle(Reason("unbind", text), (Repair.MEANING,))


def _without_forms(limit: Limit, site: Site, targets: Iterable[Target]) -> str:
    """Say that a limit of a user's file allows no form, and how it would; empty of other limits."""
    file = next((target.file for target in targets if target.name == limit.runtime), "")
    if limit.forms or not file:
        return ""
    form = Kind.PARTS if site.schema.gives_sequence else Kind.SLICES
    return (
        f"; the limit allows no form: add those that the runtime executes correctly to it in "
        f'{shown_path(file)}, such as forms = ["{form}"]'
    )


def _words(error: Exception) -> str:
    return f"{error.got}, but {error.expected}" if isinstance(error, RuleError) else str(error)


def meaning_of(unbind: str | Unbind | None) -> Unbind | None:
    """Read how a user resolves split nodes with two meanings."""
    if unbind is None:
        return None
    try:
        return Unbind(unbind)
    except ValueError:
        words = " or ".join(map(repr, map(str, Unbind)))
        raise ModelError(f"unbind is {shown(unbind)}, not {words}") from None
