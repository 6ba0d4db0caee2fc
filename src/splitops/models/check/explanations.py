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

    The example is a line of Python that breaks the rule, with the error that it prints, or a split that meets
    the limit. In the command that fixes it, ``{model}`` stands for the file.
    """

    code: str
    meaning: str
    example: str
    error: str
    fix: str
    command: str | None
    messages: tuple[RuntimeMessage, ...] = ()
    limit: Limit | None = None

    @property
    def page(self) -> str:
        """The place in the documentation, relative to the site."""
        return page_of(self.code)


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
        command = f"splitops fix {{model}} --for {limit.runtime} -o {{fixed}}" if limit.forms else None
        fix = limit.fix or ("" if command else "no form of this split is known that the runtime executes")
        return Explanation(code, limit.words(), example, "", fix, command, messages, limit)
    row = _texts()[code]
    command = "splitops fix {model} -o {fixed}" if row.get("fixable") else None
    return Explanation(code, row["meaning"], row.get("example", ""), error, row["fix"], command, messages)


def rule_examples() -> dict[Rule, str]:
    """Return a line of Python for each rule that breaks it; ``x`` is an array of (4, 6)."""
    return {Rule(code): row["example"] for code, row in _texts().items() if "example" in row}


def find(text: str) -> list[str]:
    """Return the codes that a message of a runtime is about, the likeliest ones.

    Examples:
        >>> find("[ONNXRuntimeError] : 1 : FAIL : Invalid num_outputs value of 3. Split sizes would ...")
        ['onnxruntime.ceil-negative-part', 'onnxruntime.open-axis']
    """
    wanted = _words(text)
    scores: dict[str, float] = {}
    for code in every_code():
        for message in _messages(code):
            common = wanted & _words(message.text)
            score = len(common) / len(wanted) if wanted else 0.0
            scores[code] = max(scores.get(code, 0.0), score)
    best = max(scores.values(), default=0.0)
    return [code for code, score in scores.items() if score == best] if best >= _LIKELY else []


_LIKELY: Final = 0.6
"""The share of the words of a text that a message has at least in common with it."""


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]{3,}", text.lower()))


@cache
def _texts() -> Mapping[str, Mapping[str, Any]]:
    """Return meaning, example and fix of each code that is not a limit."""
    return tomllib.loads(files(__package__).joinpath("explanations.toml").read_text(encoding="utf-8"))


@cache
def _recorded() -> Mapping[str, Mapping[str, Any]]:
    """Return what docs/generate_check.py has recorded of each code."""
    content = files(__package__).joinpath("messages.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(content)
    return found


def _messages(code: str) -> tuple[RuntimeMessage, ...]:
    """Return what runtimes print of a code, as the comparison has seen it."""
    return tuple(RuntimeMessage(**row) for row in _recorded().get(code, _NOTHING)["messages"])


_NOTHING: Final[Mapping[str, Any]] = {"messages": (), "example": "", "error": ""}
