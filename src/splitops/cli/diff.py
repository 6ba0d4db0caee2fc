"""``splitops diff``: show the changes between two versions of an operator."""

from __future__ import annotations

import click

from splitops.cli._console import json_option, make_console, make_table, print_json
from splitops.cli._operators import OPERATOR, convert_schema, find_operator
from splitops.common.json_values import to_json_values
from splitops.spec.operators import Difference, display_name
from splitops.spec.operators.differences import compare


@click.command(short_help="Show the changes between two versions of an operator.")
@click.argument("name", shell_complete=OPERATOR.shell_complete)
@click.argument("old", type=int)
@click.argument("new", type=int)
@json_option
def command(name: str, old: int, new: int, as_json: bool) -> None:
    """List the changes between the versions of the operator NAME that the opsets OLD and NEW select.

    \b
    Examples:
      splitops diff Split 13 18
      splitops diff SplitToSequence 11 24 --json
      splitops diff openvino:Split 1 8
    """
    difference = compare(find_operator(name, old), find_operator(name, new))
    if as_json:
        rows = {"old": convert_schema(difference.old), "new": convert_schema(difference.new)}
        print_json(rows | {"changes": [to_json_values(change) for change in difference.changes]})
    else:
        _print(difference)


def _print(difference: Difference) -> None:
    out = make_console()
    out.print(f"{display_name(difference.old)} → {display_name(difference.new)}", style="bold")
    if not difference.changes:
        out.print("Nothing changed: both opsets select the same version.")
        return
    changes = make_table("what", "name", "change")
    for change in difference.changes:
        changes.add_row(change.kind, change.name, change.text)
    out.print(changes)
