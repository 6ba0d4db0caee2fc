"""The threat model is held: every row of docs/threats.md names tests, and each of them exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "threats.md"
NAME = re.compile(r"`([\w/]+\.py)::([\w:]+)`")


def rows() -> list[str]:
    """Return the rows of all tables, without their heads."""
    tables = re.findall(r"^\|[ -]*---.*\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    return [row for table in tables for row in table.splitlines()]


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the tests of a file as pytest names them, as far unchanged in it."""

    def names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield prefix + node.name
            elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                yield from names(node.body, f"{prefix}{node.name}::")

    path = (TESTS.parent if file.startswith("compare/") else TESTS) / file
    return frozenset(names(ast.parse(path.read_text()).body)) if path.is_file() else frozenset()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_row_is_held_by_tests_that_exist(row: str) -> None:
    _, threat, holds, held_by, _ = (cell.strip() for cell in row.split("|"))
    assert threat
    assert holds
    named = NAME.findall(held_by)
    assert named
    assert held_by == ", ".join(f"`{file}::{test}`" for file, test in named)
    for file, test in named:
        assert test in names_in(file), f"there is no {file}::{test}"


def test_the_page_has_rows() -> None:
    assert len(rows()) > 40


def test_a_test_that_does_not_exist_would_be_found() -> None:
    assert "test_a_test_that_does_not_exist_would_be_found" in names_in("core/test_threats.py")
    assert "test_of_nothing" not in names_in("core/test_threats.py")
    assert not names_in("core/test_nothing.py")
    assert "TestExternalData::test_sizes_that_lie" in names_in("models/onnx/test_onnx_files.py")
    assert "test_sizes_that_lie" not in names_in("models/onnx/test_onnx_files.py")
