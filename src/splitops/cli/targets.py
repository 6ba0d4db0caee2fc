"""``splitops targets``: list the runtimes that models can be checked and fixed for, and their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from splitops.cli._console import escape, json_option, make_console, make_table, print_json
from splitops.cli._models import RUNTIME
from splitops.common.json_values import select_json_values
from splitops.errors import count_of

if TYPE_CHECKING:
    from splitops.models.check import Limit, Target


@click.command(short_help="List the runtimes that a model can be checked and fixed for.")
@click.argument("targets", metavar="[RUNTIME]...", type=RUNTIME, nargs=-1)
@json_option
def command(targets: tuple[Target, ...], as_json: bool) -> None:
    """List the runtimes that check, fix and simplify accept for --for, or the limits of each RUNTIME.

    RUNTIME is a name, a release such as onnxruntime==1.28, or a .toml file with your own limits. Each limit
    was either tested on the listed releases, or is documented in a public source but untested.

    \b
    Examples:
      splitops targets
      splitops targets onnxruntime==1.28
      splitops targets npu.toml
    """
    from splitops.models.check.targets import list_target_names, load_targets

    found = targets or load_targets(list_target_names())
    if as_json:
        print_json([_to_json(target) for target in found])
    elif targets:
        for target in found:
            _print_limits(target)
    else:
        rows = make_table("runtime", "releases", "limits")
        for target in found:
            rows.add_row(target.name, _describe_releases(target), str(len(target.limits)))
        make_console().print(rows)


def _describe_releases(target: Target) -> str:
    if target.file or target.release:
        return target.file or target.release
    if target.releases:
        return f"tested: {', '.join(target.releases)}"
    return (
        f"documented, not tested: {target.documented_in}"
        if target.documented_in
        else "documented, not tested"
    )


def _print_limits(target: Target) -> None:
    screen = make_console()
    limits = count_of(len(target.limits), "limit")
    screen.print(escape(f"{target.title}: {limits} ({_describe_releases(target)})"))
    rows = make_table("code", "what happens", "evidence")
    for limit in target.limits:
        rows.add_row(limit.code, escape(limit.format_message(), 400), _describe_evidence(limit))
    screen.print(rows)


def _describe_evidence(limit: Limit) -> str:
    return f"seen in {limit.seen}" if limit.seen else limit.source or "none given"


def _to_json(target: Target) -> dict[str, Any]:
    return {
        **select_json_values(target, "name", "title"),
        "release": target.release or None,
        "releases": list(target.releases),
        "limits": [
            {
                **select_json_values(limit, "code", "operators"),
                "when": [one.text for one in limit.when],
                "quirk": limit.quirk.name if limit.quirk else None,
                **select_json_values(limit, "outcome"),
                "message": limit.format_message(),
                **select_json_values(limit, "rewrites", "evidence"),
                "seen": limit.seen or None,
                "source": limit.source or None,
            }
            for limit in target.limits
        ],
    }
