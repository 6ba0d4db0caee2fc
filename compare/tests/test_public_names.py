"""splitops-compare uses only the public names of splitops, and reads the reports of earlier releases."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_reference import PUBLIC

import splitops
import splitops_compare
from splitops_compare.reports.report_diff import read_report

SOURCE = Path(splitops_compare.__file__).parent


def private_names(source: str) -> Iterator[str]:
    """Yield the names of splitops in a module that are not public."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module.partition(".")[0] == "splitops":
                public = importlib.import_module(node.module).__all__ if node.module in PUBLIC else []
                yield from (f"{node.module}.{name.name}" for name in node.names if name.name not in public)
        elif isinstance(node, ast.Import):
            names = (name.name for name in node.names)
            yield from (name for name in names if name.startswith("splitops."))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from [f"splitops.{node.attr}"] * (
                node.value.id == "splitops" and node.attr not in splitops.__all__
            )


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_uses_public_names_only(path: Path) -> None:
    assert list(private_names(path.read_text("utf-8"))) == []


def test_private_names_are_found() -> None:
    source = (
        "import splitops, splitops.spec\n"
        "from splitops.common.json_values import to_json_values\n"
        "from splitops.extension import to_json_values, secret\n"
        "splitops.schema, splitops.calls\n"
    )
    assert sorted(private_names(source)) == [
        "splitops.calls",
        "splitops.common.json_values.to_json_values",
        "splitops.extension.secret",
        "splitops.spec",
    ]


def test_a_report_of_an_earlier_release_is_read() -> None:
    """Its cases have other ids and titles today; it has every field that a report had."""
    report = read_report(Path(__file__).with_name("old_report.json"))
    assert len(report.implementations) == 19
    assert [result.id for result in report.cases if result.spec and result.spec.special == "twin"]
    assert any(verdict.kind == "crash" for _, _, verdict in report.findings)
