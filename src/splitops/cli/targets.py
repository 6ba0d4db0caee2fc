"""``splitops targets``: what a model can be checked and fixed for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from splitops.cli._console import console, json_option, one_line, print_json, table
from splitops.cli._models import RUNTIME
from splitops.errors import count_of
from splitops.ground.records import select_json_values

if TYPE_CHECKING:
    from splitops.models.check import Limit, Target


@click.command(short_help="List the runtimes that a model can be checked and fixed for.")
@click.argument("targets", metavar="[RUNTIME]...", type=RUNTIME, nargs=-1)
@json_option
def command(targets: tuple[Target, ...], as_json: bool) -> None:
    """List the runtimes that --for of check and fix can name, or the limits of each RUNTIME.

    RUNTIME is a name, a release such as onnxruntime==1.28, or a .toml file with limits of your own. A limit
    was tested on the listed releases, or it is documented by a public source and not tested.

    \b
    Examples:
      splitops targets
      splitops targets onnxruntime==1.28
      splitops targets npu.toml
    """
    from splitops.models.check.targets import load_targets, names

    found = targets or load_targets(names())
    if as_json:
        print_json([_json(one) for one in found])
    elif targets:
        for one in found:
            _print_limits(one)
    else:
        rows = table("runtime", "releases", "limits")
        for one in found:
            rows.add_row(one.name, _releases(one), str(len(one.limits)))
        console().print(rows)


def _releases(target: Target) -> str:
    if target.file or target.release:
        return target.file or target.release
    if target.releases:
        return f"tested: {', '.join(target.releases)}"
    return f"documented, not tested: {target.spoken_of}" if target.spoken_of else "documented, not tested"


def _print_limits(target: Target) -> None:
    screen = console()
    screen.print(one_line(f"{target.title}: {count_of(len(target.limits), 'limit')} ({_releases(target)})"))
    rows = table("code", "what happens", "evidence")
    for limit in target.limits:
        rows.add_row(limit.code, one_line(limit.words(), 400), _evidence(limit))
    screen.print(rows)


def _evidence(limit: Limit) -> str:
    return f"seen in {limit.seen}" if limit.seen else limit.source or "none given"


def _json(target: Target) -> dict[str, Any]:
    return {
        **select_json_values(target, "name", "title"),
        "release": target.release or None,
        "releases": list(target.releases),
        "limits": [
            {
                **select_json_values(limit, "code", "operators"),
                "when": [one.text for one in limit.when],
                **select_json_values(limit, "pattern", "outcome"),
                "message": limit.words(),
                **select_json_values(limit, "forms", "case"),
                "seen": limit.seen or None,
                "source": limit.source or None,
            }
            for limit in target.limits
        ],
    }
