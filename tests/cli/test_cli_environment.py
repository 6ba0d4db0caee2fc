"""``splitops report-environment``."""

from __future__ import annotations

import json
import os
from importlib.metadata import distribution, version

import pytest

import splitops
from splitops import native


def test_the_report_says_what_runs_here(invoke):
    found = json.loads(invoke("report-environment", "--json").output)
    assert found["splitops"] == splitops.__version__
    tags = [f"Tag: {tag}" for tag in found["wheel"].split(", ") if tag != "editable"]
    assert all(tag in distribution("splitops").read_text("WHEEL").splitlines() for tag in tags)
    assert found["threads"] == splitops.get_num_threads()
    assert (found["native_core"] != "not in use") == native.available
    assert found["libraries"]["numpy"] == version("numpy")
    assert "splitops" not in found["libraries"]


def test_the_table_says_the_same(invoke):
    found = json.loads(invoke("report-environment", "--json").output)
    text = invoke("report-environment").output
    assert all(name in text and release in text for name, release in found["libraries"].items())


@pytest.mark.skipif("HOME" not in os.environ, reason="there is no home to leave out")
def test_the_report_names_no_path(invoke):
    assert os.environ["HOME"] not in invoke("report-environment").output


def test_a_core_that_is_not_in_use_is_said(process, environment):
    environment = {**environment, "SPLITOPS_NATIVE": "0"}
    found = json.loads(process("report-environment", "--json", env=environment).stdout)
    assert found["native_core"] == "not in use"
    assert found["variables"] == {"SPLITOPS_NATIVE": "0"}
