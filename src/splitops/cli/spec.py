"""``splitops spec``: print the definitions of the operator versions."""

from __future__ import annotations

import click

from splitops.cli._console import json_option, make_console, make_table, print_json
from splitops.cli._operators import OPERATOR, convert_schema, find_operator
from splitops.spec.operators import SCHEMAS, OperatorSchema, display_name
from splitops.spec.operators.schemas import TypeConstraint, describe_item
from splitops.spec.sizes.rules import SizeRule

_RULES = {
    SizeRule.EXPLICIT: "the given sizes, whose sum is D",
    SizeRule.EVEN: "n parts of D / n; n must divide D",
    SizeRule.CEIL: "n parts of ceil(D / n); the last ones are smaller or empty if D is too small",
    SizeRule.CHUNK: "parts of the given size; the last one may be smaller",
    SizeRule.REMAINDER: "the given sizes; -1 is the rest of D",
}


@click.command(short_help="Print the definition of an operator version.")
@click.argument("name", required=False, shell_complete=OPERATOR.shell_complete)
@click.option("--opset", type=int, help="Opset that selects the version.  [default: the newest]")
@json_option
def command(name: str | None, opset: int | None, as_json: bool) -> None:
    """Print the attributes, inputs, outputs, types and rules of one version of an operator.

    NAME is an operator, optionally with its domain and its version. Without NAME, all versions are listed.

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
            print_json([convert_schema(schema) for schema in SCHEMAS])
        else:
            _print_list()
        return
    schema = find_operator(name, opset)
    if as_json:
        print_json(convert_schema(schema))
    else:
        _print_schema(schema)


def _print_list() -> None:
    columns = ("operator", "domain", "lengths or number of parts from", "axis from", "size rules", "types")
    rows = make_table(*columns, right=("types",))
    for schema in SCHEMAS:
        sources = [*schema.lengths, *([schema.count] if schema.count else [])]
        rows.add_row(
            display_name(schema),
            schema.domain or "ai.onnx",
            " or ".join(map(str, sources)),
            str(schema.axis),
            ", ".join(rule.value for rule in schema.size_rules),
            str(len(schema.types_of(schema.inputs[0]))),
        )
    make_console().print(rows)


def _print_schema(schema: OperatorSchema) -> None:
    out = make_console()
    out.print(display_name(schema), style="bold")
    out.print(f"{schema.domain or 'ai.onnx'}, since opset {schema.since_version}", style="dim")
    facts = make_table("", "name", "type", "description")
    for attribute in schema.attributes:
        facts.add_row("attribute", attribute.name, attribute.type.value, describe_item(attribute))
    for kind, parameters in (("input", schema.inputs), ("output", schema.outputs)):
        for parameter in parameters:
            facts.add_row(kind, parameter.name, parameter.type, describe_item(parameter))
    for constraint in schema.type_constraints:
        if "(" not in constraint.name:  # a name such as tensor(int64) is the type
            facts.add_row("type", constraint.name, "", _format_types(constraint))
    axis = f"from {schema.axis}" + ("" if schema.default_axis is None else f", default {schema.default_axis}")
    facts.add_row("rule", "axis", "", axis)
    for rule in schema.size_rules:
        facts.add_row("rule", rule.value, "", _RULES[rule])
    out.print(facts)
    for note in schema.notes:
        out.print(f"• {note}")
    out.print(schema.source, style="dim", soft_wrap=True)


def _format_types(constraint: TypeConstraint) -> str:
    names = ", ".join(sorted(map(str, constraint.types)))
    return f"sequence of tensors of {names}" if constraint.sequence else names
