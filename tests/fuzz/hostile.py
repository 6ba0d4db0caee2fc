"""What strangers send: documents that are edited anywhere, and values that look like others."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

TEXTS = [
    "",
    ".",
    "..",
    "/",
    "../x",
    "a/b",
    "a\0b",
    "\ud800",
    "\x1b[2J",
    "*",
    "{e}",
    "{",
    "0",
    "1e9",
    "x" * 300,
]
_NUMBERS = [0, 1, -1, 2, 3, 5, 64, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30, 10**4299]
_FLOATS = [0.0, 2.0, 0.5, -1.0, 1e308, float("inf"), float("nan")]
_VALUES = st.one_of(
    st.sampled_from(_NUMBERS),
    st.sampled_from(TEXTS),
    st.sampled_from(_FLOATS),
    st.sampled_from([None, True, False]),
    st.text(max_size=6),
    st.integers(-10, 70),
    st.builds(list),
    st.builds(dict),
)


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every list and object with each of its keys."""
    found, open_ = [], [document]
    while open_:
        node = open_.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        found += [(node, key) for key in keys]
        open_ += [node[key] for key in keys]
    return found


@st.composite
def edited(draw: st.DrawFn, document: Any, *, most: int = 3) -> Any:
    """A document with up to so many edits: values replaced, moved, left out, doubled or renamed."""
    found = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, most))):
        places = _places(found)
        if not places:
            break
        node, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.sampled_from(["replace", "replace", "copy", "remove", "add", "rename"])):
            case "replace":
                node[key] = draw(_VALUES)
            case "copy":
                other, place = places[draw(st.integers(0, len(places) - 1))]
                node[key] = copy.deepcopy(other[place])
            case "remove":
                del node[key]
            case "add" if isinstance(node, list):
                node.insert(key, draw(st.one_of(_VALUES, st.just(copy.deepcopy(node[key])))))
            case "add" | "rename" if isinstance(node, dict):
                value = copy.deepcopy(node[key]) if draw(st.booleans()) else node.pop(key)
                node[draw(st.one_of(st.sampled_from([*node, *TEXTS]), st.text(max_size=4)))] = value
            case _:
                continue
    return found


def assert_one_line(error: Exception) -> None:
    """An error is one line of bounded length."""
    text = str(error)
    assert text.strip()
    assert "\n" not in text
    assert len(text) < 2000
