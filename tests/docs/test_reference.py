"""The reference has every public name, and the page of commands is what the commands say."""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path

import pytest

from scripts import DOCS, ROOT, script

PUBLIC = [
    "splitops",
    "splitops.backends",
    "splitops.errors",
    "splitops.explain",
    "splitops.extension",
    "splitops.files",
    "splitops.models",
    "splitops.models.check",
    "splitops.models.convert",
    "splitops.models.infer",
    "splitops.models.fix",
    "splitops.models.sessions",
    "splitops.models.simplify",
    "splitops.models.verify",
    "splitops.native",
    "splitops.onnx",
    "splitops.onnx.backend",
    "splitops.openvino",
    "splitops.spec",
    "splitops.splitting",
    "splitops.sharding",
    "splitops.testing",
    "splitops_compare",
]
UNSHOWN = {
    "splitops": {"__version__"},
    "splitops.errors": {
        *("NOWHERE", "brief", "count_of", "nearest", "one_line", "rule_error"),
        *("shown", "shown_path", "without_addresses", "without_passwords"),
    },
    "splitops.native": {"Array", "Function", "Parts", "set_calls"},
    "splitops.onnx.backend": {
        *("is_compatible", "prepare", "run_model", "run_node"),
        "supports_device",
    },
}
"""What is for other modules of splitops; and the functions of the ONNX backend, which are methods there."""


@pytest.fixture(scope="module")
def names(site: Path) -> set[str]:
    """The names that the reference has, of the inventory that other sites link by."""
    *_, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    return {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_every_public_name(module: str, names: set[str]) -> None:
    expected = set(importlib.import_module(module).__all__) - UNSHOWN.get(module, set())
    assert {name for name in expected if f"{module}.{name}" not in names} == set()


def test_names_that_are_not_shown_exist() -> None:
    for module, unshown in UNSHOWN.items():
        assert unshown <= set(importlib.import_module(module).__all__), module


def test_no_role_is_left_in_the_reference(site: Path) -> None:
    for page in sorted((site / "api").glob("*.html")):
        for role in (":func:", ":class:", ":meth:", ":mod:", ":data:", ":attr:"):
            assert role not in page.read_text(), page.name


def test_signatures_and_docstrings_link_what_they_name(site: Path) -> None:
    page = (site / "api" / "models.html").read_text()
    assert 'href="#splitops.models.sessions.Session"' in page
    assert 'href="errors.html#splitops.errors.ModelError"' in page


def test_the_page_of_commands_is_current() -> None:
    made = script("dev/pages/cli")
    assert (DOCS / "cli.md").read_text() == made.page(), "run dev/pages/cli.py"
    assert (ROOT / "compare/docs/cli.md").read_text() == made.compare_page(), "run dev/pages/cli.py"


def test_help_is_written_as_it_is_meant() -> None:
    made = script("dev/pages/cli")
    assert made.marked("Of --raw: `a|b` [x>=1]") == "Of `--raw`: `a|b` \\[x>=1\\]"
    assert made.spelled("--target [a|b]") == "<code>--target \\[a&#124;b\\]</code>"
