"""File names that stay in their folder and differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitops.cli._filenames import make_safe_names


@given(st.lists(st.text(), max_size=6))
def test_names_are_safe_and_differ(names):
    found = make_safe_names(names, [".npy"])
    files = [f"{name}.npy" for name in found]
    assert len({file.casefold() for file in files}) == len(names)
    for file in files:
        assert Path(file).name == file
        assert not file.startswith(".")
        assert not set(file) & set('/\\:\0<>"|?*\n')
        assert len(file.encode()) < 255


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["../../x"], ["_.._x"]),
        (["/etc/passwd", "..", "", "."], ["_etc_passwd", "_", "_-2", "_-3"]),
        (["C:\\x", "a\0b"], ["C__x", "a_b"]),
        (["y", "Y", "y"], ["y", "Y-2", "y-3"]),
        (["y-2", "y", "y"], ["y-2", "y", "y-3"]),
        (["CON", "nul.txt"], ["_CON", "_nul.txt"]),
        (["é", "e\u0301"], ["é", "é-2"]),
        (["日" * 100, "日" * 99], ["日" * 40, "日" * 40 + "-2"]),
    ],
)
def test_names(names, expected):
    assert make_safe_names(names, [".npy"]) == expected
