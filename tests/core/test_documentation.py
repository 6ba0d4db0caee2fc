"""The documentation is true: every example shows what it says, and the generated pages are current."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import io
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import splitops
import splitops_compare
from scripts import script

ROOT = Path(__file__).parents[2]
SOURCES = os.pathsep.join(str(Path(one.__file__).parents[1]) for one in (splitops, splitops_compare))
NATIVE_PARTS = {"splitops.native._core"}  # compiled; its functions are documented in splitops.native
MODULES = sorted(
    {"splitops", "splitops_compare"}
    | {
        module.name
        for package in (splitops, splitops_compare)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda _: None)
        if not module.name.endswith("__main__") and module.name not in NATIVE_PARTS
    }
)
GLOBS = ("*.md", "docs/**/*.md", "compare/*.md", "compare/docs/**/*.md")
PAGES = sorted(path for glob in GLOBS for path in ROOT.glob(glob))
PAGE_NEEDS = re.compile(r"\A<!-- page needs: ([\w, .]+) -->\n")
SET_UP = {"pip", "python3.11"}  # commands that are not tried here
PRELUDE = f"""python() {{ {shlex.quote(sys.executable)} "$@"; }}
splitops() {{ python -m splitops "$@"; }}
splitops-compare() {{ python -m splitops_compare "$@"; }}
"""
FENCE = re.compile(
    r'^(?:<!-- needs: ([\w, .]+) -->\n)?```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL
)
FLAGS = doctest.ELLIPSIS | doctest.FAIL_FAST


def run_doctest(test: doctest.DocTest, *, keep_names: bool = False) -> int:
    """Run the examples, and return how many there are.

    Raises:
        AssertionError: an example shows something else, with a report of it.
    """
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    result = runner.run(test, out=report.append, clear_globs=not keep_names)
    assert result.failed == 0, "".join(report)
    return result.attempted


def import_or_skip(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing == "splitops":
            raise
        pytest.skip(f"{name} needs {missing}, which is not installed")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = import_or_skip(name)
    assert Path.cwd() == tmp_path, "importing it leaves the folder"
    for test in doctest.DocTestFinder().find(module):
        run_doctest(test)


def public_functions() -> dict[str, Any]:
    found = {}
    for module in (splitops, splitops.onnx, splitops.openvino):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(inspect.unwrap(value)):
                found[f"{module.__name__}.{name}"] = value
    return found


@pytest.mark.parametrize("name", public_functions())
def test_public_functions_show_an_example_and_say_what_they_take(name: str) -> None:
    function = public_functions()[name]
    text = inspect.getdoc(function) or ""
    assert ">>>" in text
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"^ +\**{parameter}: |^Args:$(?s:.*)\b{parameter}\b", text, re.MULTILINE), parameter


# Pages


def blocks(page: Path) -> list[tuple[int, str, str, str]]:
    """Return the code blocks of a page: line, needed modules, language or name of the file, and text."""
    text = page.read_text()
    return [(text.count("\n", 0, m.start(4)), m[1] or "", m[3] or m[2], m[4]) for m in FENCE.finditer(text)]


def run_python(page: Path, text: str, line: int, names: dict[str, Any], shown: str = "") -> int:
    """Run the examples of a block, or a script, which prints what is shown behind it."""
    if ">>>" not in text:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + text, str(page), "exec"), names)
        got = printed.getvalue()
        assert doctest.OutputChecker().check_output(shown, got, FLAGS), f"{page.name}, line {line}:\n{got}"
        return 1
    test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), line)
    test.globs = names  # one page is one session
    return run_doctest(test, keep_names=True)


def run_console(text: str) -> int:
    """Run the commands ``$ ...`` of a block in a shell, compare what they print, and return their number."""
    commands = re.findall(r"^\$ (.*(?:\n> .*)*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    count = 0
    for command, shown in commands:
        if command.split()[0] in SET_UP:
            continue
        if "Runs on openvino" in shown and importlib.util.find_spec("openvino") is None:
            continue  # it shows which engine evaluates what
        script = PRELUDE + command.replace("\n> ", "\n")
        environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONPATH": SOURCES}
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, env=environment, check=False
        )
        got = "".join(f"{line.rstrip()}\n" for line in (done.stdout + done.stderr).splitlines())
        assert doctest.OutputChecker().check_output(shown, got, FLAGS), f"$ {command}\n{got}"
        count += 1
    return count


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, with the shipped examples in it, for what the pages write."""
    if (ROOT / "examples").is_dir():
        (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # the modules that a page shows
    return tmp_path


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path) -> None:
    whole = PAGE_NEEDS.match(page.read_text())
    if whole and not installed(whole[1]):
        pytest.skip(f"it needs {whole[1]}")
    names: dict[str, Any] = {"__name__": "__main__"}
    found = blocks(page)
    behind = [*found[1:], (0, "", "", "")]
    for (line, needs, language, text), (_, _, following, shown) in zip(found, behind, strict=False):
        if not installed(needs):
            continue
        if language == "python":
            assert run_python(page, text, line, names, shown if following == "text" else "") > 0
        elif language == "console":
            run_console(text)
        elif "." in language:
            Path(language).write_text(text)


def installed(needs: str) -> bool:
    return all(importlib.util.find_spec(need.strip()) for need in needs.split(",") if need.strip())


def test_each_error_can_be_pasted() -> None:
    """A reader copies one example, into an interpreter that has seen no other."""
    page = ROOT / "docs" / "errors.md"
    examples = [(line, text) for line, _, language, text in blocks(page) if language == "python"]
    assert len(examples) == len(splitops.Rule)
    for line, text in examples:
        assert run_python(page, text, line, {}) > 1


def test_the_pages_have_examples() -> None:
    counts = {page.name: sum(language == "python" for _, _, language, _ in blocks(page)) for page in PAGES}
    for name in ("index.md", "semantics.md", "arrays.md", "models.md"):
        assert counts[name] > 1, name


INSTALL = re.compile(
    r'^(?:\$ )?pip install ("?)\./splitops(\[[\w,-]+\]|)\1'
    r" +# from a clone: splitops is not on the package index yet\n"
    r"(?:\$ )?pip install \1splitops\2\1 +# once it is\n"
    r'|^(?:\$ )?pip install \./splitops "\./splitops/compare(\[[\w,-]+\])"'
    r" +# from a clone: they are not on the package index yet\n"
    r'(?:\$ )?pip install "splitops-compare\3" +# once they are\n',
    re.MULTILINE,
)
OTHER_INSTALL = re.compile(r"pip3? (?:-\S+ )*install [^\n`]*splitops")


def test_pages_install_in_the_way_that_works_before_the_one_that_will() -> None:
    """A page that shows one way alone ends in "no matching distribution"."""
    shown = 0
    for page in PAGES:
        rest, count = INSTALL.subn("", page.read_text())
        shown += count
        if page.name != "install.md":  # it has the wheels of a folder, too
            assert not OTHER_INSTALL.search(rest), page.name
    assert shown >= 8
    for wrong in ("pip install splitops", 'pip install "splitops[compare]"', "pip install ./splitops # then"):
        assert OTHER_INSTALL.search(INSTALL.sub("", f"$ {wrong}\n"))


def test_every_fence_of_a_page_is_read() -> None:
    """An unclosed or indented fence would hide an example."""
    for page in PAGES:
        fences = re.findall(r"^\s*```", page.read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(page)), page.name


@pytest.mark.parametrize(
    "text",
    [
        ">>> 1 + 1\n3\n",
        ">>> import splitops\n>>> splitops.onnx.split([1, 2], [1])\n(array([1]),)\n",
        "raise ValueError('no')\n",
        "print('what no block shows')\n",
    ],
    ids=["value", "error", "script", "printed"],
)
def test_a_wrong_example_fails(text: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ValueError)):
        run_python(tmp_path / "page.md", text, 1, {})


@pytest.mark.usefixtures("workplace")
def test_a_wrong_console_example_fails() -> None:
    assert run_console("$ splitops diff SplitToSequence 11 24\n...\n") == 1
    assert (
        run_console("$ echo one > file\n$ cat file &&\n> python -c 'print(2)'\none\n2\n$ pip install it\n")
        == 2
    )
    for wrong in ("$ splitops diff SplitToSequence 11 24\nnothing of the kind\n", "$ splitops nothing\n"):
        with pytest.raises(AssertionError):
            run_console(wrong)


# Generated pages


@pytest.mark.parametrize("name", ["operators.md", "errors.md", "backends.md"])
def test_generated_pages_are_current(name: str) -> None:
    made = script("dev/pages/reference")
    assert set(made.PAGES) == {"operators.md", "errors.md", "backends.md"}
    assert (ROOT / "docs" / name).read_text() == made.PAGES[name](), "run dev/pages/reference.py"


def test_the_generator_rejects_an_example_of_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    made = script("dev/pages/reference")
    for wrong in ("splitops.onnx.split(x, [4], axis=9)", "splitops.onnx.split(x, [4])"):
        monkeypatch.setitem(made._EXAMPLES, splitops.Rule.LENGTHS_SUM, wrong)
        with pytest.raises(AssertionError, match="breaks"):
            made.errors()


def test_the_readme_names_what_is_installed_too() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=!~ ;\[]", dependency)[0] for dependency in project["dependencies"]]
    [said] = re.findall(r"It installs (.+?) too\.", (ROOT / "README.md").read_text())
    assert sorted(re.split(", | and ", said.lower())) == sorted(name.lower() for name in names)
