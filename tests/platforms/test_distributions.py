"""What releases rest on: workflows that call tasks, one version, and a page that names every extra."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import splitops
from splitops import native

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def called_tasks(text: str) -> set[str]:
    """Return the tasks that a workflow or page calls."""
    return set(re.findall(r"tasks\.py (\w+)", text))


def test_workflows_call_tasks_that_there_are(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    import tasks

    called = set[str]().union(*(called_tasks(path.read_text("utf-8")) for path in WORKFLOWS))
    assert {"test", "fuzz", "wheels"} <= called
    assert called <= tasks.TASKS.keys()
    assert called_tasks("python tasks.py publish now") == {"publish"}


@pytest.mark.skipif(not native.available, reason="the native core is not in use")
def test_the_core_passes_the_smoke_test_here():
    command = [sys.executable, ROOT / "dev/tools/smoke.py", ROOT / "examples", "compiled"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_stated_in_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert version("splitops") == splitops.__version__


def test_the_page_of_installing_names_every_extra_for_users():
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    extras = list(PROJECT["project"]["optional-dependencies"])
    for_users = extras[: extras.index("test")]  # the rest is for work on splitops itself
    assert {"openvino", "zstd"} <= set(for_users)
    assert [name for name in for_users if f"`{name}`" not in page] == []


def test_wheels_are_built_for_every_python_that_is_named():
    named = {
        text.rsplit(" ", 1)[-1].replace(".", "")
        for text in PROJECT["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", text)
    }
    built = set(re.findall(r"cp(\d+)-\*", PROJECT["tool"]["cibuildwheel"]["build"]))
    assert named == built
