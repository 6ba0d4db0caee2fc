"""``splitops rule``: explain a code of a check, or the error message of a runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from splitops.cli._console import escape, json_option, make_console, make_table, print_json
from splitops.cli._options import Read, suggest
from splitops.common.json_values import select_json_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from splitops.models.check.explanations import Explanation


def _list_codes() -> Sequence[str]:
    from splitops.models.check.codes import list_codes

    return list_codes()


@click.command(short_help="Explain a code, or the error message of a runtime.")
@click.argument("words", metavar="[CODE|MESSAGE]", nargs=-1, type=Read("code", str, _list_codes))
@json_option
def command(words: tuple[str, ...], as_json: bool) -> None:
    """Explain CODE: its meaning, an example that causes it, messages of runtimes, and the fix.

    CODE is the code in brackets in the output of splitops check and in error messages. MESSAGE is an error
    message of a runtime, a converter or a framework, or a part of one; its paths, numbers and names do not
    matter. The exit code is 1 if it is not a message about a split, and 2 if CODE is unknown. Without an
    argument, all codes are listed.

    \b
    Examples:
      splitops rule lengths.sum
      splitops rule onnxruntime.ceil-negative-part
      splitops rule "Invalid num_outputs value of 4"
      splitops rule "No Adapter From Version $18 for Split"
      splitops rule
    """
    from splitops.models.check.explanations import explain, explain_message

    text = " ".join(words).strip()
    known = _list_codes()
    if text in known or not text:
        found = [explain(code) for code in ([text] if text else known)]
    else:
        found = explain_message(text)
    if not found:
        quoted = repr(escape(text, 80))
        if len(text.split()) == 1:
            raise click.UsageError(
                f"{quoted} is not a code, and not a message about a split.{suggest(text, known)}"
            )
        raise click.ClickException(
            f"not a message about a split: {quoted}. To check the splits of a model: splitops check MODEL"
        )
    if as_json:
        print_json([_to_json(one) for one in found])
    elif not text:
        _print_list(found)
    else:
        _print(found)


def _to_json(one: Explanation) -> dict[str, Any]:
    return {
        **select_json_values(one, "code", "meaning", "example", "error", "messages"),
        "command": None if one.command is None else _format_command(one.command),
        **select_json_values(one, "fix", "page"),
        "source": one.source or None,
    }


def _print_list(found: Sequence[Explanation]) -> None:
    rows = make_table("code", "meaning")
    for one in found:
        rows.add_row(str(one.code), one.meaning)
    make_console().print(rows)


def _print(found: Sequence[Explanation]) -> None:
    screen = make_console()
    codes = [explanation.code for explanation in found if explanation.code is not None]
    if len(codes) > 1:
        screen.print(f"This message has {len(codes)} possible causes. splitops check MODEL shows which.\n")
    for index, explanation in enumerate(found):
        if index:
            screen.print()
        for line in _iter_lines(explanation):
            screen.print(line, soft_wrap=True)


def _iter_lines(explanation: Explanation) -> Iterator[str]:
    yield f"{'' if explanation.code is None else f'{explanation.code}: '}{explanation.meaning}."
    if explanation.example and explanation.limit is None:
        yield "Example, with x = np.zeros((4, 6), np.float32):"
        yield f"  >>> {explanation.example}"
        yield f"  {explanation.error}"
    elif explanation.example:
        yield f"Example: {explanation.example}"
    for message in explanation.messages:
        yield f"{message.runtime} {message.release}".rstrip() + ":"
        yield f"  {escape(message.text)}"
    if explanation.command is not None:
        yield f"Fix: {_format_command(explanation.command)}"
    if explanation.fix:
        yield f"{'By hand' if explanation.command is not None else 'Fix'}: {explanation.fix}."
    yield f"More: {explanation.page}"
    if explanation.source:
        yield f"Source: {explanation.source}"


def _format_command(template: str) -> str:
    return template.format(model="model.onnx", fixed="fixed.onnx")
