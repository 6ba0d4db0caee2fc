"""Explain codes and messages: the meaning, an example, the messages of runtimes, and the fix."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from splitops.errors import Rule
from splitops.models.check.codes import get_page, list_codes
from splitops.models.check.limits import Limit
from splitops.models.check.messages import Message, find_messages
from splitops.models.check.targets import list_limits


@dataclass(frozen=True, slots=True)
class RuntimeMessage:
    """A message that a runtime or another program prints. ``release`` is empty if it is not known."""

    runtime: str
    release: str
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a code, or of a message without a code.

    Attributes:
        code: code of a rule, a limit or another fault; None for a message that belongs to none.
        example: a line of Python that breaks the rule, or a split to which the limit applies; may be empty.
        error: the error message of that line; empty if the code is not a rule.
        fix: instructions for a fix by hand, or a note that no rewrite is known; may be empty.
        command: the command that fixes it, with ``{model}`` and ``{fixed}`` as file names, or None.
        page: URL in the documentation, relative to the site.
    """

    code: str | None
    meaning: str
    example: str
    error: str
    fix: str
    command: str | None
    messages: tuple[RuntimeMessage, ...] = ()
    limit: Limit | None = None
    source: str = ""
    page: str = ""


def explain(code: str) -> Explanation:
    """Explain a code of :func:`~splitops.models.check.codes.list_codes`.

    Examples:
        >>> explain("lengths.sum").meaning
        'The lengths do not add up to the size of the axis'
        >>> explain("opencv.default-axis").command
        'splitops fix {model} --for opencv -o {fixed}'
    """
    recorded = _load_recorded().get(code, _NOTHING)
    messages, example, error = _get_messages(code), recorded["example"], recorded["error"]
    limit = next((one for one in list_limits() if one.code == code), None)
    if limit is not None:
        command = f"splitops fix {{model}} --for {limit.runtime} -o {{fixed}}" if limit.is_fixable else None
        fix = limit.fix or ("" if command else "no known rewrite of this split works in the runtime")
        return Explanation(
            code,
            limit.format_message(),
            example,
            "",
            fix,
            command,
            messages,
            limit,
            limit.source,
            get_page(code),
        )
    row = _load_texts()[code]
    command = "splitops fix {model} -o {fixed}" if row.get("fixable") else None
    example = row.get("example", "")
    return Explanation(
        code, row["meaning"], example, error, row["fix"], command, messages, page=get_page(code)
    )


def get_rule_examples() -> dict[Rule, str]:
    """Return, for each rule, a line of Python that breaks it. ``x`` is an array of shape (4, 6)."""
    return {Rule(code): row["example"] for code, row in _load_texts().items() if "example" in row}


def explain_message(text: str) -> list[Explanation]:
    """Explain an error message of a program: every rule or limit that may have caused it.

    If the text contains a code in brackets, only that code is explained.

    Returns:
        The explanations: several if the message is ambiguous, empty if it is not about splits.

    Examples:
        >>> [one.code for one in explain_message("Invalid num_outputs value of 3. Split sizes would ...")][:2]
        ['onnxruntime.ceil-negative-part', 'onnxruntime.open-axis']
        >>> [one.command for one in explain_message("No Adapter From Version $18 for Split")]
        ['splitops convert {model} --to onnx:13 -o {fixed}']
    """
    code = next((word for word in re.findall(r"\[([a-z0-9.-]+)\]", text) if word in list_codes()), None)
    if code is not None:
        return [explain(code)]
    found = find_messages(text)
    own = [_make_message_explanation(message) for message in found if message.meaning]
    return [*own, *map(explain, dict.fromkeys(code for message in found for code in message.codes))]


def _make_message_explanation(message: Message) -> Explanation:
    """Return the explanation of a message that no code explains."""
    printed = RuntimeMessage(message.program, "", message.text)
    return Explanation(
        None,
        message.meaning,
        "",
        "",
        message.fix,
        message.command,
        (printed,),
        source=message.seen,
        page=f"runtime-errors.html#{message.anchor}",
    )


@cache
def _load_texts() -> Mapping[str, Mapping[str, Any]]:
    """Return the meaning, example and fix of each code that is not a limit."""
    return tomllib.loads(files(__package__).joinpath("explanations.toml").read_text(encoding="utf-8"))


@cache
def _load_recorded() -> Mapping[str, Mapping[str, Any]]:
    """Return the messages, the example and the error of each code, as recorded by dev/pages/check.py."""
    content = files(__package__).joinpath("messages.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(content)
    return found


def _get_messages(code: str) -> tuple[RuntimeMessage, ...]:
    """Return the recorded messages of runtimes for a code."""
    return tuple(RuntimeMessage(**row) for row in _load_recorded().get(code, _NOTHING)["messages"])


_NOTHING: Final[Mapping[str, Any]] = {"messages": (), "example": "", "error": ""}
