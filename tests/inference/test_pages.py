"""The pages on inference, checking and sizes are what their scripts make of the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_on_inference_is_current() -> None:
    pytest.importorskip("openvino")
    made = script("generate_inference")
    page = (DOCS / "inference.md").read_text()
    if made.releases() not in page:
        pytest.skip("the page was made with other releases of onnx and OpenVINO")
    assert page == made.page(), "run docs/generate_inference.py"


def test_the_page_on_checking_is_current() -> None:
    assert (DOCS / "check.md").read_text() == script("generate_check").page(), "run docs/generate_check.py"


def test_the_pages_on_sizes_are_current() -> None:
    made = script("generate_sizes")
    written = {path.name: path.read_text() for path in (DOCS / "pictures").iterdir()}
    assert (DOCS / "sizes.md").read_text() == made.page(), "run docs/generate_sizes.py"
    assert (DOCS / "explain.html").read_text() == made.interactive(), "run docs/generate_sizes.py"
    assert written == made.pictures(), "run docs/generate_sizes.py"
    assert len(written) == 7
