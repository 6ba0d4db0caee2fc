"""Find the known message in a text: whole patterns with holes, scored by the words that they match."""

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
"""Words of a text that are searched; a terminal takes no longer command."""
_MIN_SHARED: Final = 3
"""Words that a part of a message has to share, one of them about splits; without one, twice as many."""
_MAX_NAME: Final = 16
"""Words of a name or a path in a message."""
_MAX_LIST: Final = 1024
"""Words of a list or a shape in a message."""
_PATHS: Final = re.compile(
    r"""File\ "[^"\n]*",\ line\ \d+(,\ in\ \S+)?               # a frame of Python
    |\w+://[^\s'")\]]+                                      # an address
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
    """A part of a message that differs: how many words, which words, whether they are a split's name."""

    most: int
    least: int = 0
    words: frozenset[tuple[str, ...]] = frozenset()
    is_split: bool = False

    @property
    def is_text(self) -> bool:
        """Whether it takes any words, so that a text that ends in it proves nothing."""
        return self.most == _MAX_NAME and not self.words and not self.is_split

    def takes(self, words: Sequence[str]) -> bool:
        """Return whether some words fill the hole."""
        if self.words:
            return tuple(words) in self.words
        if self.is_split:
            return bool(words) and _SPLIT_NAME.fullmatch(words[-1]) is not None
        return len(words) >= self.least


class _Match(NamedTuple):
    """The words that a text shares with a message, and whether it has the whole message."""

    message: Message
    is_whole: bool
    words: Sequence[str]

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """The greatest rank is the best match."""
        return not self.message.general, self.is_whole, sum(map(len, self.words))


@dataclass(frozen=True)
class Message:
    """A message of a program about a split.

    Attributes:
        program: what prints it, such as ``"PyTorch"``.
        pattern: the message, with ``«»`` around each part that differs between models.
        codes: the rules and limits that it can be about.
        meaning: what it means, if no code says so.
        fix: what to do by hand, in words.
        command: the command that cures it, with ``{model}`` and ``{fixed}`` for files.
        any: whether every operator has this message.
        general: whether it leaves the cause open.
        seen: the source file or the thread that has it.
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
        """The message, word for word, of one model."""
        return _HOLE.sub(lambda hole: hole[1].partition("|")[0], self.pattern)

    @property
    def anchor(self) -> str:
        """The name of its place on the page of messages."""
        return "-".join(("message", *_words(self.text)[:12]))

    @cached_property
    def _elements(self) -> tuple[str | _Hole, ...]:
        found: list[str | _Hole] = []
        for index, part in enumerate(_HOLE.split(self.pattern)):
            found += [_hole(part)] if index % 2 else _words(_PATHS.sub(" ", part))
        return tuple(found)

    def match(self, runs: Sequence[Sequence[str]]) -> _Match | None:
        """Return how the runs of words between the gaps of a text match, or None if they do not."""
        for run in runs:
            whole = _whole(run, self._elements)
            if whole:
                return _Match(self, True, whole)
        begin = 0
        shared: list[str] = []
        for run in runs:
            found = max(_parts(run, self._elements, begin), key=lambda part: len(part[1]), default=None)
            if found is not None and found[1]:
                begin = found[0]
                shared += found[1]
        about = any(_ABOUT_SPLITS.search(word) for word in shared)
        enough = _MIN_SHARED if about else 2 * _MIN_SHARED
        return _Match(self, False, shared) if len(shared) >= enough else None


def _hole(text: str) -> _Hole:
    """Return the hole that one value stands for."""
    words = _words(text)
    if "|" in text:
        return _Hole(_MAX_NAME, words=frozenset(tuple(_words(one)) for one in text.split("|")))
    if re.fullmatch(r"-?[\d.]+", text):
        return _Hole(1, 1)
    if re.match(r"[\[({]", text):
        return _Hole(_MAX_LIST)
    return _Hole(_MAX_NAME, is_split=bool(words) and _SPLIT_NAME.fullmatch(words[-1]) is not None)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _runs(text: str) -> list[list[str]]:
    """Return the words of a text without paths and line numbers, in runs between its gaps ("...")."""
    words = _words(_PATHS.sub(" ", text))[:_MAX_WORDS]
    runs: list[list[str]] = [[]]
    for word in words:
        if "..." in word or "…" in word:
            runs.append([])
        else:
            runs[-1].append(word)
    return [run for run in runs if run]


def _whole(words: Sequence[str], elements: Sequence[str | _Hole]) -> list[str]:
    """Return the words of a pattern that is in some words from beginning to end; none if it is not."""
    for at in _beginnings(words, elements):
        end, shared = _walk(words, at, elements, 0)
        if end == len(elements):
            return shared
    return []


def _beginnings(words: Sequence[str], elements: Sequence[str | _Hole]) -> list[int]:
    """Return the places of words at which a pattern can begin."""
    first = elements[0]
    return [at for at, word in enumerate(words) if word == first or isinstance(first, _Hole)]


def _parts(
    words: Sequence[str], elements: Sequence[str | _Hole], begin: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the part of a pattern at which some words begin or end, and where it ends.

    The part begins with the words, or with the pattern; it ends with the words, or with the pattern.
    """
    starts = [
        (0, at)
        for at in range(begin, len(elements))
        if not (isinstance(own := elements[at], _Hole) and own.is_text)
    ]
    if begin == 0:
        starts += [(at, 0) for at in _beginnings(words, elements)]
    for at, element in starts:
        end, shared = _walk(words, at, elements, element)
        if end is not None:
            yield end, shared


def _walk(
    words: Sequence[str], at: int, elements: Sequence[str | _Hole], element: int
) -> tuple[int | None, list[str]]:
    """Match words and elements from two places on, until one of both ends.

    Returns:
        The element at which the match ends, or None if there is none; and the pattern's own words.
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
    for length in range(min(hole.most, len(words) - at) + 1):
        then = at + length
        if then == len(words):
            cannot = hole.is_text and following is not None
        else:
            cannot = isinstance(following, str) and not following.startswith(words[then])
        if cannot or not hole.takes(words[at:then]):
            continue
        end, rest = _walk(words, then, elements, element + 1)
        if end == len(elements):
            return end, shared + rest
        if end is not None and (best[0] is None or len(rest) > len(best[1]) - len(shared)):
            best = end, shared + rest
    return best


@cache
def every_message() -> tuple[Message, ...]:
    """Return every message that is known."""
    content = files(__package__).joinpath("messages.toml").read_text(encoding="utf-8")
    tables: dict[str, list[dict[str, Any]]] = tomllib.loads(content)
    return tuple(_message(program, table) for program, rows in tables.items() for table in rows)


def _message(program: str, table: dict[str, Any]) -> Message:
    fields = {key: value for key, value in table.items() if key not in ("text", "codes")}
    return Message(program, table["text"], tuple(table.get("codes", ())), **fields)


def find_messages(text: str) -> list[Message]:
    """Return the known messages that are in a text: those of which it matches the most.

    A whole message comes before a part of one. Paths, line numbers, and the text around a message do not
    count, and ``"..."`` stands for anything.

    Args:
        text: what a program printed, or a part of it.

    Returns:
        The messages; several if they match equally well, none if the text has no message about a split.

    Examples:
        >>> text = "RuntimeError: Split sizes add up to 7 but got the tensor's size of 9"
        >>> [one.codes for one in find_messages(text)]
        [('lengths.sum',)]
        >>> find_messages("shape '[4, 178, -1, 128]' is invalid for input of size 45568")
        []
    """
    runs = _runs(text)
    named = [next(filter(None, groups)).lower() for groups in _OPERATOR.findall(text)]
    is_of_another = bool(named) and not any(_SPLIT_NAME.fullmatch(name) for name in named)
    asked = (one for one in every_message() if not (one.any and is_of_another))
    matches = [found for one in asked if (found := one.match(runs)) is not None]
    # The beginning that many messages of a program have in common is no part of one of them.
    common = {word for found in matches if found.message.general and found.is_whole for word in found.words}
    matches = [found for found in matches if found.is_whole or not common.issuperset(found.words)]
    best = max((found.rank for found in matches), default=None)
    return [found.message for found in matches if found.rank == best]
