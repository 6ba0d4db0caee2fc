"""``splitops diff``: what changed between two versions of an operator."""

from __future__ import annotations

from typing import Any

import click

from splitops.cli._console import console, json_option, print_json, table
from splitops.cli._operators import OPERATOR, find_operator
from splitops.cli._rows import as_json_value, schema_json
from splitops.spec.operators import Difference, display_name
from splitops.spec.operators.differences import compare


@click.command(short_help="Show what changed between two versions of an operator.")
@click.argument("name", shell_complete=OPERATOR.shell_complete)
@click.argument("old", type=int)
@click.argument("new", type=int)
@json_option
def command(name: str, old: int, new: int, as_json: bool) -> None:
    """List what changed between the versions of the operator NAME that the opsets OLD and NEW select.

    \b
    Examples:
      splitops diff Split 13 18
      splitops diff SplitToSequence 11 24 --json
      splitops diff openvino:Split 1 8
    """
    difference = compare(find_operator(name, old), find_operator(name, new))
    if as_json:
        print_json(_json(difference))
    else:
        _print(difference)


def _json(difference: Difference) -> dict[str, Any]:
    return {
        "old": schema_json(difference.old),
        "new": schema_json(difference.new),
        "changes": [
            {
                "kind": change.kind,
                "name": change.name,
                "before": as_json_value(change.before),
                "after": as_json_value(change.after),
                "text": change.text,
            }
            for change in difference.changes
        ],
    }


def _print(difference: Difference) -> None:
    out = console()
    out.print(f"{display_name(difference.old)} → {display_name(difference.new)}", style="bold")
    if not difference.changes:
        out.print("Nothing changed: both opsets select the same version.")
        return
    changes = table("what", "name", "change")
    for change in difference.changes:
        changes.add_row(change.kind, change.name, change.text)
    out.print(changes)
