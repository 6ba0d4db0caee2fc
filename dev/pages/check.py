"""Writes runtime-errors.md and its messages from the targets and the cases of splitops-compare."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import splitops
from dev.pages import COMPARE_DOCS, DOCS
from splitops import Rule
from splitops.models import check
from splitops.models.check import LIMITS, Limit, Target
from splitops.models.check.codes import get_page
from splitops.models.check.explanations import Explanation, explain, get_rule_examples
from splitops.models.check.messages import Message, list_messages
from splitops.models.check.targets import list_target_names
from splitops_compare.cases import build_case, find_case

PAGE: Final = DOCS / "runtime-errors.md"
REPORT: Final = COMPARE_DOCS / "data" / "report.json"
MESSAGES: Final = Path(check.__file__).with_name("messages.json")
_RULE_PEERS: Final = ("onnxruntime", "openvino", "opencv", "onnx_inference")
"""The implementations whose messages about broken rules are shown."""
_OPERATORS: Final = ("Split-18", "Split-13", "SplitToSequence-11", "Split-2")
"""The operators whose cases are shown first, as models use them most."""


def messages() -> dict[str, Any]:
    """Return an example of each code, its error, and what runtimes print in the comparison."""
    report = json.loads(REPORT.read_text())
    releases = {peer["name"]: next(iter(peer["versions"].values()), "") for peer in report["implementations"]}
    found: dict[str, Any] = {}
    for limit in LIMITS:
        cases = [case for case in report["cases"] if case["id"] == limit.evidence]
        example = build_case(find_case(limit.evidence)).title if limit.evidence else ""
        found[limit.code] = _record(example, "", _of_limit(limit, cases, releases))
    for rule, example in get_rule_examples().items():
        cases = sorted(
            (case for case in report["cases"] if case["rule"] == rule),
            key=lambda case: _rank(case["operator"]),
        )
        found[str(rule)] = _record(example, _error(rule, example), _of_rule(cases, releases))
    return found


def _record(example: str, error: str, rows: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    return {"example": example, "error": error, "messages": list(rows)}


def _rank(operator: str) -> int:
    return _OPERATORS.index(operator) if operator in _OPERATORS else len(_OPERATORS)


def _of_limit(
    limit: Limit, cases: Iterable[Mapping[str, Any]], releases: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Yield what the implementations of a runtime print at the case of a limit, each text once."""
    seen: set[str] = set()
    for case in cases:
        for name, verdict in case["verdicts"].items():
            text = verdict["detail"]
            if verdict.get("limit") == limit.code and text and _bare(text) not in seen:
                seen.add(_bare(text))
                yield {"runtime": name, "release": releases[name], "text": text}


def _of_rule(cases: Sequence[Mapping[str, Any]], releases: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield what runtimes print where they reject what breaks a rule, one text each."""
    for name in _RULE_PEERS:
        verdicts = [case["verdicts"][name] for case in cases if name in case["verdicts"]]
        text = next((one["detail"] for one in verdicts if one["verdict"] == "agrees" and one["detail"]), None)
        if text is not None:
            yield {"runtime": name, "release": releases[name], "text": text}


def _bare(text: str) -> str:
    """Return what two texts have in common that say the same of different values or places."""
    return re.sub(r"[\d.]+|0x[0-9a-f]+|/\S+", "", text)


def _error(rule: Rule, example: str) -> str:
    """Return what an example prints."""
    names = {"np": np, "splitops": splitops, "onnx": onnx, "x": np.zeros((4, 6), np.float32)}
    try:
        eval(example, names)  # noqa: S307
    except splitops.RuleError as error:
        if error.rule is rule:
            return str(error)
    raise AssertionError(f"{example} does not break {rule}")


def page() -> str:
    """Return the page of the messages."""
    text = HEAD
    for heading, words in SYMPTOMS.items():
        text += f"\n## {heading}\n\n"
        for limit in LIMITS:
            if any(re.search(rf"\b{word}\b", limit.message) for word in words):
                text += f"- [`{limit.code}`](#{_anchor(limit.code)}): {limit.message}.\n"
    for target in map(Target.load, list_target_names()):
        text += f"\n## {target.title}\n"
        for limit in sorted(target.limits, key=lambda one: one.code):
            text += f'\n<div class="card" markdown>\n\n{_limit(limit, explain(limit.code))}\n</div>\n'
    text += RULES
    for rule in Rule:
        found = explain(str(rule))
        if found.messages:
            text += f"\n### {rule} {{ #{_anchor(rule)} }}\n\n{found.meaning}. "
            text += f"[Details](errors.md#{_anchor(rule)}).\n"
            text += _printed(found) + _cure(found)
    return text + ALL + "".join(map(_message, list_messages()))


def _message(message: Message) -> str:
    """Write a message under a heading of its own, which the search finds, and what it is about."""
    text = f"\n#### {_code(message.text)} {{ #{message.anchor} }}\n\n{message.program}"
    text += f" ([source]({message.seen}))" if "://" in message.seen else f" (`{message.seen}`)"
    text += f". {message.meaning}." if message.meaning else "."
    if message.codes:
        links = (f"[`{code}`]({_place(code)})" for code in message.codes)
        text += f" See {', '.join(links)}."
    if message.command is not None:
        text += f"\n\n```sh\n{_filled(message.command)}\n```"
    if message.fix:
        text += f"\n\n{message.fix[0].upper()}{message.fix[1:]}."
    return f"{text}\n"


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _place(code: str) -> str:
    """Return the place of a code, relative to the page."""
    page, _, anchor = get_page(code).partition("#")
    return f"#{anchor}" if page == "runtime-errors.html" else f"{page.replace('.html', '.md')}#{anchor}"


def _filled(command: str) -> str:
    return command.format(model="model.onnx", fixed="fixed.onnx")


def _limit(limit: Limit, found: Explanation) -> str:
    seen = f"Seen in {limit.seen}" if limit.seen else "Documented, not tested here"
    text = f"### {limit.code} {{ #{_anchor(limit.code)} }}\n\n{found.meaning}.\n"
    link = (
        f"[Source]({limit.source})"
        if limit.source
        else f"[Results](../compare/docs/implementations/{limit.runtime}.md)"
    )
    text += f"{seen}. {link}.\n"
    if found.example:
        text += f"\nExample: {found.example}.\n"
    return text + _printed(found) + _cure(found)


def _printed(found: Explanation) -> str:
    """Write what runtimes print."""
    text = ""
    for message in found.messages:
        prints = "prints" if found.limit is None or _is_message(message.text) else "raises no error, but"
        text += f"\n{message.runtime} {message.release} {prints}:\n\n```text\n{message.text}\n```\n"
    return text


def _is_message(text: str) -> bool:
    """Tell what a runtime printed from what the comparison says of its result."""
    return not re.match(r"output '|it runs what breaks|\d+ outputs", text)


def _cure(found: Explanation) -> str:
    """Write the command that fixes it, and what to do by hand."""
    text = ""
    if found.command is not None:
        text += f"\nFix:\n\n```sh\n{_filled(found.command)}\n```\n"
    if found.fix:
        by_hand = "By hand" if found.command is not None else "Fix"
        text += f"\n{by_hand}: {found.fix}.\n"
    return text


def _anchor(code: object) -> str:
    return str(code).replace(".", "-")


HEAD: Final = """<!-- Made by dev/pages/check.py. -->

# Error messages of runtimes

A runtime rejects your model, and the message names a `Split`, a `SplitToSequence` or `num_outputs`. Search
this page for a part of the message, or let splitops look it up:

```console
$ splitops rule "Invalid num_outputs value of 4. Split sizes would produce a negative final split"
This message has 2 possible causes. splitops check MODEL shows which.

onnxruntime.ceil-negative-part: onnxruntime rejects num_outputs if a part would start past ...
```

`splitops check model.onnx` finds the same in your model, without running it, and prints the command that
fixes it. The messages below are word for word those of the named releases. Some runtimes print that
`num_outputs` or a sequence is not supported. Some print nothing, and return wrong values.
"""

SYMPTOMS: Final = {
    "num_outputs not supported, or invalid": ("num_outputs",),
    "SplitToSequence not supported": ("SplitToSequence", "sequence", "sequences", "chunks"),
    "Element type not supported": ("complex", "strings", "float16", "element type", "u3"),
}
"""What messages are about, and the words of the limits that are."""

RULES: Final = """
## Models that break a rule

These models are invalid for every runtime. `splitops check model.onnx` names the node and the numbers.
"""

ALL: Final = """
## All messages { #all-messages }

`splitops rule MESSAGE` knows these messages of runtimes, converters and frameworks, with other numbers, names
and paths. They stand here word for word, as one model gets them.
"""


def write() -> None:
    """Write the pages and pictures of this module."""
    MESSAGES.write_text(json.dumps(messages(), indent=1) + "\n")
    PAGE.write_text(page())
