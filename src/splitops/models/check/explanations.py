"""Explain each code: a sentence, an example that breaks it, what runtimes print, and the fix."""

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
from splitops.models.check.codes import every_code, page_of
from splitops.models.check.limits import Limit
from splitops.models.check.messages import Message, find_messages
from splitops.models.check.targets import every_limit


@dataclass(frozen=True, slots=True)
class RuntimeMessage:
    """What a release of a runtime prints, word for word."""

    runtime: str
    release: str
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one code: of a rule of the operators, or of a limit of a runtime.

    A message about a split that is about no code has an explanation too. The example is a line of Python that
    breaks the rule, with the error that it prints, or a split that meets the limit. In the command that fixes
    it, ``{model}`` stands for the file. The page is a place in the documentation, relative to the site.
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
    """Explain a code of :func:`~splitops.models.check.codes.every_code`.

    Examples:
        >>> explain("lengths.sum").meaning
        'The lengths do not add up to the size of the axis'
        >>> explain("opencv.default-axis").command
        'splitops fix {model} --for opencv -o {fixed}'
    """
    recorded = _recorded().get(code, _NOTHING)
    messages, example, error = _messages(code), recorded["example"], recorded["error"]
    limit = next((one for one in every_limit() if one.code == code), None)
    if limit is not None:
        command = f"splitops fix {{model}} --for {limit.runtime} -o {{fixed}}" if limit.is_fixable else None
        fix = limit.fix or ("" if command else "no form of this split is known that the runtime executes")
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
            page_of(code),
        )
    row = _texts()[code]
    command = "splitops fix {model} -o {fixed}" if row.get("fixable") else None
    example = row.get("example", "")
    return Explanation(
        code, row["meaning"], example, error, row["fix"], command, messages, page=page_of(code)
    )


def rule_examples() -> dict[Rule, str]:
    """Return a line of Python for each rule that breaks it; ``x`` is an array of (4, 6)."""
    return {Rule(code): row["example"] for code, row in _texts().items() if "example" in row}


def explain_message(text: str) -> list[Explanation]:
    """Explain what a program printed, or a part of it: each rule or limit that it can be about.

    Returns:
        Several explanations if the text does not say which; none if it is not a message about a split.

    Examples:
        >>> [one.code for one in explain_message("Invalid num_outputs value of 3. Split sizes would ...")][:2]
        ['onnxruntime.ceil-negative-part', 'onnxruntime.open-axis']
        >>> [one.command for one in explain_message("No Adapter From Version $18 for Split")]
        ['splitops convert {model} --to onnx:13 -o {fixed}']
    """
    code = next((word for word in re.findall(r"\[([a-z0-9.-]+)\]", text) if word in every_code()), None)
    if code is not None:
        return [explain(code)]
    found = find_messages(text)
    own = [_of_message(message) for message in found if message.meaning]
    return [*own, *map(explain, dict.fromkeys(code for message in found for code in message.codes))]


def _of_message(message: Message) -> Explanation:
    """Explain a message by what is known of it alone."""
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
def _texts() -> Mapping[str, Mapping[str, Any]]:
    """Return meaning, example and fix of each code that is not a limit."""
    return tomllib.loads(files(__package__).joinpath("explanations.toml").read_text(encoding="utf-8"))


@cache
def _recorded() -> Mapping[str, Mapping[str, Any]]:
    """Return what dev/pages/check.py has recorded of each code."""
    content = files(__package__).joinpath("messages.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(content)
    return found


def _messages(code: str) -> tuple[RuntimeMessage, ...]:
    """Return what runtimes print of a code, as the comparison has seen it."""
    return tuple(RuntimeMessage(**row) for row in _recorded().get(code, _NOTHING)["messages"])


_NOTHING: Final[Mapping[str, Any]] = {"messages": (), "example": "", "error": ""}
