"""``splitops spec``: the specification as data."""

from __future__ import annotations

import click

from splitops.cli._console import console, json_option, print_json, table
from splitops.cli._operators import OPERATOR, find_operator, schema_json
from splitops.spec.operators import SCHEMAS, OperatorSchema, display_name
from splitops.spec.operators.schemas import TypeConstraint, describe_item
from splitops.spec.sizes.rules import SizeRule

_RULES = {
    SizeRule.EXPLICIT: "the given sizes, whose sum is D",
    SizeRule.EVEN: "n parts of D / n; n must divide D",
    SizeRule.CEIL: "n parts of ceil(D / n) as long as D lasts, then what is left, then 0",
    SizeRule.CHUNK: "parts of the given size, the last one smaller",
    SizeRule.REMAINDER: "the given sizes; -1 takes what they leave of D",
}


@click.command(short_help="Print the definition of an operator version.")
@click.argument("name", required=False, shell_complete=OPERATOR.shell_complete)
@click.option("--opset", type=int, help="The opset that selects the version.  [default: the newest]")
@json_option
def command(name: str | None, opset: int | None, as_json: bool) -> None:
    """Print what one version of an operator takes, gives and means; without NAME, list every version.

    NAME is an operator, perhaps with its domain and its exact version.

    \b
    Examples:
      splitops spec
      splitops spec Split --opset 13
      splitops spec SplitToSequence-11
      splitops spec openvino:Split
      splitops spec VariadicSplit --json
    """
    if name is None:
        if opset is not None:
            raise click.UsageError("--opset needs the NAME of an operator.")
        if as_json:
            print_json([schema_json(row) for row in SCHEMAS])
        else:
            _print_list()
        return
    row = find_operator(name, opset)
    if as_json:
        print_json(schema_json(row))
    else:
        _print_row(row)


def _print_list() -> None:
    columns = ("operator", "domain", "lengths or number of parts from", "axis from", "size rules", "types")
    rows = table(*columns, right=("types",))
    for row in SCHEMAS:
        sources = [*row.lengths, *([row.count] if row.count else [])]
        rows.add_row(
            display_name(row),
            row.domain or "ai.onnx",
            " or ".join(map(str, sources)),
            str(row.axis),
            ", ".join(rule.value for rule in row.size_rules),
            str(len(row.types_of(row.inputs[0]))),
        )
    console().print(rows)


def _print_row(row: OperatorSchema) -> None:
    out = console()
    out.print(display_name(row), style="bold")
    out.print(f"{row.domain or 'ai.onnx'}, since opset {row.since_version}", style="dim")
    facts = table("", "name", "type", "what")
    for attribute in row.attributes:
        facts.add_row("attribute", attribute.name, attribute.type.value, describe_item(attribute))
    for kind, parameters in (("input", row.inputs), ("output", row.outputs)):
        for parameter in parameters:
            facts.add_row(kind, parameter.name, parameter.type, describe_item(parameter))
    for constraint in row.type_constraints:
        if "(" not in constraint.name:  # tensor(int64) says it all
            facts.add_row("type", constraint.name, "", _types(constraint))
    axis = f"from {row.axis}" + ("" if row.default_axis is None else f", {row.default_axis} where absent")
    facts.add_row("rule", "axis", "", axis)
    for rule in row.size_rules:
        facts.add_row("rule", rule.value, "", _RULES[rule])
    out.print(facts)
    for note in row.notes:
        out.print(f"• {note}")
    out.print(row.source, style="dim", soft_wrap=True)


def _types(constraint: TypeConstraint) -> str:
    names = ", ".join(sorted(map(str, constraint.types)))
    return f"sequence of tensors of {names}" if constraint.sequence else names
