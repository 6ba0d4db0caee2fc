"""All inputs that fuzzing keeps or found are read again: nothing but a SplitError comes of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from fuzz.targets import READERS, TARGETS, TESTS, reader  # noqa: E402

INPUTS = sorted(path for kind in ("corpus", "found") for path in (ROOT / "fuzz" / kind).glob("*/*"))


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: "/".join(path.parts[-3:]))
def test_an_input_is_read_or_refused(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


def test_every_reader_has_inputs() -> None:
    assert {path.parent.name for path in INPUTS} >= READERS.keys()


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_that_are_fuzzed_are_there(name: str) -> None:
    TARGETS[name](bytes(64))


def test_an_error_of_no_tree_is_seen() -> None:
    def breaks(data: bytes, folder: Path) -> None:
        raise UnicodeDecodeError("utf-8", data, 0, 1, "no text")

    with pytest.raises(UnicodeDecodeError):
        reader(breaks)(b"\xff")
