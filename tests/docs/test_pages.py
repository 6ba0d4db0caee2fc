"""Pages and pictures are what their scripts make of the code, and a script that has nothing to show fails."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

import pytest

from scripts import DOCS, PICTURES, ROOT, script


def test_the_page_on_inference_is_current() -> None:
    pytest.importorskip("openvino")
    made = script("dev/pages/inference")
    page = (DOCS / "inference.md").read_text()
    if made.releases() not in page:
        pytest.skip("the page was made with other releases of onnx and OpenVINO")
    assert page == made.page(), "run dev/pages/inference.py"


def test_the_page_on_fuzzing_is_current() -> None:
    assert (DOCS / "fuzzing.md").read_text() == script("dev/pages/fuzzing").page(), "run dev/pages/fuzzing.py"


def test_the_page_on_soaks_is_current() -> None:
    assert (DOCS / "soak.md").read_text() == script("dev/pages/soak").page(), "run dev/pages/soak.py"


def test_the_pages_on_sizes_are_current() -> None:
    made = script("dev/pages/sizes")
    assert (DOCS / "sizes.md").read_text() == made.page(), "run dev/pages/sizes.py"
    assert len(made.pictures()) == 16


@pytest.mark.parametrize("name", ["sizes", "history", "speed", "architecture", "proof"])
def test_pictures_are_current(name: str) -> None:
    drawn = script(f"dev/pages/{name}").pictures()
    assert drawn
    for file, picture in drawn.items():
        assert (PICTURES / file).read_text() == picture, f"run dev/pages/{name}.py"


def test_every_picture_is_made_by_a_script_and_shown() -> None:
    scripts = "".join(path.read_text() for path in (ROOT / "dev/pages").glob("*.py"))
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    made = set(script("dev/pages/sizes").pictures())
    for path in PICTURES.iterdir():
        wide = path.name.replace(".narrow.", ".")
        stem = "terminal-" if path.stem.startswith("terminal-") else wide
        assert path.name in made or stem in scripts, path.name
        assert f"pictures/{wide})" in pages, path.name


def test_the_page_on_the_architecture_is_current() -> None:
    made = script("dev/pages/architecture")
    assert (DOCS / "architecture.md").read_text() == made.page(), "run dev/pages/architecture.py"


def test_an_arrow_that_is_no_import_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    made = script("dev/pages/architecture")
    monkeypatch.setitem(made.LANES, "Wrong", (made.Box("native", ""), made.Box("splitting.binding", "")))
    with pytest.raises(AssertionError, match=r"neither native nor splitting\.binding"):
        made.picture()
    monkeypatch.setitem(made.LANES, "Wrong", (made.Box("nowhere", ""),))
    with pytest.raises(AssertionError, match="there is no nowhere"):
        made.picture()


def test_the_figures_of_speed_are_those_of_the_text() -> None:
    made = script("dev/pages/speed")
    text = (DOCS / "speed.md").read_text()
    assert text == made.page(text), "run dev/pages/speed.py"
    sections = made.read(text)
    listed = re.findall(r"^  .* (?:n|u|m)s   ", text, re.MULTILINE)
    assert sum(map(len, sections.values())) == len(listed) > 30
    first = sections["fresh"][0]
    assert first.case == "f32 [1024, 65536], axis 0 in 4"
    assert set(first.ratios) == {"memcpy", "numpy", "onnxruntime", "torch", "jax"}


def test_what_the_terminal_shows_is_current() -> None:
    made = script("dev/pages/terminal")
    page = (DOCS / "terminal.md").read_text()
    try:
        version("openvino")
        here = f"onnxruntime {version('onnxruntime')}"
    except PackageNotFoundError as error:
        pytest.skip(f"{error} is not installed")
    if here not in page:
        pytest.skip("the page was made with another release of onnxruntime")
    text, drawn = made.recorded()
    assert page == text, "run dev/pages/terminal.py"
    for file, picture in drawn.items():
        assert (PICTURES / file).read_text() == picture, "run dev/pages/terminal.py"


def test_a_command_that_fails_is_not_recorded() -> None:
    made = script("dev/pages/terminal")
    with pytest.raises(AssertionError, match="splitops inspect"):
        made.said(made.Step("splitops inspect nothing.npy"))
