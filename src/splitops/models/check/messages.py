"""Find known error messages in a text. They are patterns with variable parts; the best matches win."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from itertools import takewhile
from typing import Any, Final, NamedTuple

_MAX_WORDS: Final = 20_000
"""Maximum number of words of a text that are searched."""
_MIN_SHARED: Final = 3
"""Minimum number of words of a partial match that mentions splits. Others need twice as many."""
_MAX_NAME: Final = 16
"""Maximum number of words of a name or path in a message."""
_MAX_LIST: Final = 1024
"""Maximum number of words of a list or shape in a message."""
_PATHS: Final = re.compile(
    r"""File\ "[^"\n]*",\ line\ \d+(,\ in\ \S+)?               # a frame of Python
    |\w+://[^\s'")\]]+                                      # a URL
    |[^\s'"()\[\]<>,]*[\\/][^\s'"()\[\]<>,]*\.[A-Za-z]\w{0,4}(?![\w\\/.])(:\d+)*   # a path of a file
    |[\w.-]+\.(py|pyx|c|cc|cpp|cxx|cu|h|hpp|inc|rs|ts|js|mjs|cs|mlir|onnx|xml|bin|pt|pth|so|dll|tflite)\b(:\d+)*
    """,
    re.VERBOSE,
)
_WORD: Final = re.compile(r"\w*(?:\.{3}|…)\w*|\d+(?:\.\d+)?(?:e[+-]?\d+)?|[^\W\d]\w*", re.IGNORECASE)
_HOLE: Final = re.compile(r"«([^»]*)»")
_ABOUT_SPLITS: Final = re.compile("split|chunk|unbind|num_outputs|sections")
_SPLIT_NAME: Final = re.compile(r"(?:variadic)?split(?:tosequence)?(?:_?\d+)*")
_OPERATOR: Final = re.compile(
    r"op_?type[:=]\s*'?(\w+)|\bOp \((\w+)|running (\w+) node|operator \(?(\w+)|Node \[(\w+)", re.IGNORECASE
)


class _Hole(NamedTuple):
    """A variable part of a message. It matches a limited number of words, certain words or a split's name."""

    max_words: int
    min_words: int = 0
    words: frozenset[tuple[str, ...]] = frozenset()
    is_split: bool = False

    @property
    def is_text(self) -> bool:
        """Whether the hole accepts any words. A partial match cannot begin or end inside such a hole."""
        return self.max_words == _MAX_NAME and not self.words and not self.is_split

    def can_match(self, words: Sequence[str]) -> bool:
        """Return whether ``words``, which are at most ``max_words``, can fill the hole."""
        if self.words:
            return tuple(words) in self.words
        if self.is_split:
            return bool(words) and _SPLIT_NAME.fullmatch(words[-1]) is not None
        return len(words) >= self.min_words


class _Match(NamedTuple):
    """The words that a text shares with a message, and whether it contains the whole message."""

    message: Message
    is_whole: bool
    words: Sequence[str]

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Sort key; the best match has the largest."""
        return not self.message.general, self.is_whole, sum(map(len, self.words))


@dataclass(frozen=True)
class Message:
    """A message that a program prints about a split.

    Attributes:
        program: the program that prints it, such as ``"PyTorch"``.
        pattern: the message, with ``«»`` around each part that differs between models.
        codes: the rules and limits that may have caused it.
        meaning: its meaning, if no code explains it.
        fix: instructions for a fix by hand.
        command: the command that fixes it, with ``{model}`` and ``{fixed}`` in place of the file names.
        any: whether any operator can cause the message, not only splits.
        general: whether the message leaves the cause open.
        seen: the source file or thread where the message was found.
    """

    program: str
    pattern: str
    codes: tuple[str, ...] = ()
    meaning: str = ""
    fix: str = ""
    command: str | None = None
    any: bool = False
    general: bool = False
    seen: str = ""

    @property
    def text(self) -> str:
        """The message with example values in its variable parts."""
        return _HOLE.sub(lambda hole: hole[1].partition("|")[0], self.pattern)

    @property
    def anchor(self) -> str:
        """The anchor of the message on its documentation page."""
        return "-".join(("message", *_split_words(self.text)[:12]))

    @cached_property
    def _elements(self) -> tuple[str | _Hole, ...]:
        found: list[str | _Hole] = []
        for index, part in enumerate(_HOLE.split(self.pattern)):
            found += [_parse_hole(part)] if index % 2 else _split_words(_PATHS.sub(" ", part))
        return tuple(found)

    def match(self, runs: Sequence[Sequence[str]]) -> _Match | None:
        """Match the message against a text, given as the runs of words between its gaps (``...``).

        Return None if too few words match.
        """
        for run in runs:
            whole = _match_whole(run, self._elements)
            if whole:
                return _Match(self, True, whole)
        begin = 0
        shared: list[str] = []
        for run in runs:
            found = max(
                _iter_partial_matches(run, self._elements, begin), key=lambda part: len(part[1]), default=None
            )
            if found is not None and found[1]:
                begin = found[0]
                shared += found[1]
        about = any(_ABOUT_SPLITS.search(word) for word in shared)
        enough = _MIN_SHARED if about else 2 * _MIN_SHARED
        return _Match(self, False, shared) if len(shared) >= enough else None


def _parse_hole(text: str) -> _Hole:
    """Return the :class:`_Hole` (a variable part) for an example value from between ``«`` and ``»``."""
    words = _split_words(text)
    if "|" in text:
        return _Hole(_MAX_NAME, words=frozenset(tuple(_split_words(one)) for one in text.split("|")))
    if re.fullmatch(r"-?[\d.]+", text):
        return _Hole(1, 1)
    if re.match(r"[\[({]", text):
        return _Hole(_MAX_LIST)
    return _Hole(_MAX_NAME, is_split=bool(words) and _SPLIT_NAME.fullmatch(words[-1]) is not None)


def _split_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _split_runs(text: str) -> list[list[str]]:
    """Return the runs of words between the gaps ("...") of a text, without paths and line numbers."""
    words = _split_words(_PATHS.sub(" ", text))[:_MAX_WORDS]
    runs: list[list[str]] = [[]]
    for word in words:
        if "..." in word or "…" in word:
            runs.append([])
        else:
            runs[-1].append(word)
    return [run for run in runs if run]


def _match_whole(words: Sequence[str], elements: Sequence[str | _Hole]) -> list[str]:
    """Return the literal words of a pattern if ``words`` contain all of it, otherwise an empty list."""
    for at in _find_beginnings(words, elements):
        end, shared = _match_elements(words, at, elements, 0)
        if end == len(elements):
            return shared
    return []


def _find_beginnings(words: Sequence[str], elements: Sequence[str | _Hole]) -> list[int]:
    """Return the positions in ``words`` at which the pattern can begin."""
    first = elements[0]
    return [at for at, word in enumerate(words) if word == first or isinstance(first, _Hole)]


def _iter_partial_matches(
    words: Sequence[str], elements: Sequence[str | _Hole], begin: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield partial matches: the index of the pattern element at which each ends, and its literal words.

    A match begins at the start of ``words`` or of the pattern, and ends at the end of one of them.
    """
    starts = [
        (0, at)
        for at in range(begin, len(elements))
        if not (isinstance(own := elements[at], _Hole) and own.is_text)
    ]
    if begin == 0:
        starts += [(at, 0) for at in _find_beginnings(words, elements)]
    for at, element in starts:
        end, shared = _match_elements(words, at, elements, element)
        if end is not None:
            yield end, shared


def _match_elements(
    words: Sequence[str], at: int, elements: Sequence[str | _Hole], element: int
) -> tuple[int | None, list[str]]:
    """Match ``words`` from ``at`` with ``elements`` from ``element``, until one of them ends.

    Returns:
        The index of the element at which the match ends, or None if they do not match; and the literal words.
    """
    literals = [str(own) for own in takewhile(lambda own: isinstance(own, str), elements[element:])]
    texts = words[at : at + len(literals)]
    shared = [
        word for word, _ in takewhile(lambda pair: pair[0] == pair[1], zip(texts, literals, strict=False))
    ]
    if len(shared) + 1 == len(texts) == len(words) - at and literals[len(shared)].startswith(texts[-1]):
        shared.append(texts[-1])  # a message that was cut inside a word
    if len(shared) < len(texts):
        return None, []
    at, element = at + len(shared), element + len(shared)
    if at == len(words) or element == len(elements):
        return element, shared
    hole = elements[element]
    assert isinstance(hole, _Hole)
    following = elements[element + 1] if element + 1 < len(elements) else None
    best: tuple[int | None, list[str]] = None, []
    for length in range(min(hole.max_words, len(words) - at) + 1):
        then = at + length
        if then == len(words):
            cannot = hole.is_text and following is not None
        else:
            cannot = isinstance(following, str) and not following.startswith(words[then])
        if cannot or not hole.can_match(words[at:then]):
            continue
        end, rest = _match_elements(words, then, elements, element + 1)
        if end == len(elements):
            return end, shared + rest
        if end is not None and (best[0] is None or len(rest) > len(best[1]) - len(shared)):
            best = end, shared + rest
    return best


@cache
def list_messages() -> tuple[Message, ...]:
    """Return all known messages."""
    content = files(__package__).joinpath("messages.toml").read_text(encoding="utf-8")
    tables: dict[str, list[dict[str, Any]]] = tomllib.loads(content)
    return tuple(_parse_message(program, table) for program, rows in tables.items() for table in rows)


def _parse_message(program: str, table: dict[str, Any]) -> Message:
    fields = {key: value for key, value in table.items() if key not in ("text", "codes")}
    return Message(program, table["text"], tuple(table.get("codes", ())), **fields)


def find_messages(text: str) -> list[Message]:
    """Return the known messages that match a text best.

    Messages that name a cause rank first, then complete matches, then those with more matching text. Paths,
    line numbers and the text around a message are ignored, and ``"..."`` matches anything.

    Args:
        text: output of a program, or a part of it.

    Returns:
        The messages: several if they match equally well, empty if the text has no message about splits.

    Examples:
        >>> text = "RuntimeError: Split sizes add up to 7 but got the tensor's size of 9"
        >>> [one.codes for one in find_messages(text)]
        [('lengths.sum',)]
        >>> find_messages("shape '[4, 178, -1, 128]' is invalid for input of size 45568")
        []
    """
    runs = _split_runs(text)
    named = [next(filter(None, groups)).lower() for groups in _OPERATOR.findall(text)]
    is_of_another = bool(named) and not any(_SPLIT_NAME.fullmatch(name) for name in named)
    asked = (one for one in list_messages() if not (one.any and is_of_another))
    matches = [found for one in asked if (found := one.match(runs)) is not None]
    # The beginning that many messages of a program have in common does not identify one of them.
    common = {word for found in matches if found.message.general and found.is_whole for word in found.words}
    matches = [found for found in matches if found.is_whole or not common.issuperset(found.words)]
    best = max((found.rank for found in matches), default=None)
    return [found.message for found in matches if found.rank == best]
