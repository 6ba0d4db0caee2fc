"""Plain English: the turns of phrase that made the text of this project strange stay rare."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
MOST: Final = 60
"""The habits that may be left, of 1,240 in the beginning: a pattern also finds what is good English."""

HABITS: Final = {
    "decided": r"\b(?:is|are|as|was) decided\b|\bthe decided\b",
    "restate": r"\brestat(?:e|es|ed|ing|ements?)\b",
    "state": r"\b(?:states|stating|(?:is|are|as) stated|stated (?:shape|type|size|length)s?|statements?)\b",
    "has not": r"\b(?:has|have) not\b(?! (?:been|yet))",
    "is no": r"(?<!there )\b(?:is|are|was|were) no (?!(?:longer|more|less|such|other|way|need)\b)[a-z]",
    "mind": r"\bwill mind\b|\bminds?\b",
    "stand": r"\bstands\b(?! for\b)",
    "behind the end": r"\bbehind the end of\b",
    "what became": r"\bwhat became of\b|\bmakes? of (?:it|a)\b",
    "hold to": r"\bheld to\b",
    "go on": r"\b(?:goes?|going) on with\b",
    "refuse": r"\brefus(?:es?|ed|als?|ing)\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "site": r"\b(?:split|a|the|each|every|one|no) site\b(?! (?:of the|finds|is built))",
    "peer": r"\bpeers?\b",
    "twin": r"\btwins?\b",
    "whoever": r"\b(?:whoever|who (?:computes|evaluates|runs|holds) what)\b",
}
PATTERNS: Final = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in HABITS.items()}
CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
ROLE: Final = re.compile(r"``[^`]*``|:\w+:`[^`]*`")


class Habit(NamedTuple):
    """A turn of phrase, and where it is."""

    name: str
    place: str
    text: str


def habits(text: str, place: str) -> Iterator[Habit]:
    """Yield each habit of a text."""
    for name, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            yield Habit(name, place, text[max(0, match.start() - 40) : match.end() + 40])


def of_pages() -> Iterator[Habit]:
    """Yield the habits of the pages, without their code and output."""
    folders = (ROOT / "docs", ROOT / "compare")
    pages = [path for folder in folders for path in sorted(folder.rglob("*.md"))]
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages]:
        yield from habits(CODE.sub("", path.read_text("utf-8")), str(path.relative_to(ROOT)))


def of_texts() -> Iterator[Habit]:
    """Yield the habits of messages, help and docstrings."""
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "compare/src").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield from habits(ROLE.sub("", node.value), place)


def test_texts_are_in_plain_english() -> None:
    found = [*of_pages(), *of_texts()]
    listed = "\n".join(f"{habit.place}: {habit.name}: {habit.text!r}" for habit in found)
    assert len(found) <= MOST, f"{len(found)} turns of phrase, of which {MOST} may be left:\n{listed}"


def test_each_habit_is_found() -> None:
    strange = (
        "This is as decided, restated as the file states it, in a type that GGUF has not, and is no list. "
        "A runtime will mind. It stands twice, behind the end of the file. See what became of it. "
        "It is held to the rule, goes on with it, is refused and mended at the site of a peer, a twin, "
        "by whoever."
    )
    assert {habit.name for habit in habits(strange, "here")} == set(HABITS)
    assert not [*habits("An invalid split raises one error. There is no default.", "here")]
