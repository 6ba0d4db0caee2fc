"""``splitops run --repeat``, ``--profile`` and ``--trace``."""

from __future__ import annotations

import json

import onnx
import onnx.parser
import pytest

from splitops.cli._profile import _format_time
from splitops.models.engines import is_installed

ENGINES = ["reference", *(["onnxruntime"] if is_installed("onnxruntime") else [])]
ENGINES += ["openvino"] if is_installed("openvino") else []


@pytest.fixture
def model(tmp_path):
    """A model with a split that simplification takes away, and a branch."""
    onnx.save(
        onnx.parser.parse_model("""
            <ir_version: 9, opset_import: ["": 18]>
            g (float[64, 6] x) => (float[64, 6] z) {
                a, b = Split<axis = 1, num_outputs = 2>(x)
                y = Concat<axis = 1>(a, b)
                w = Neg(y)
                z = Mul(w, w) }"""),
        tmp_path / "m.onnx",
    )
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("engine", ENGINES)
def test_where_the_time_goes(invoke, model, tmp_path, engine):
    arguments = ["run", model, "--input", "x=random", "--for", engine, "--profile", "--repeat", "4"]
    result = invoke(*arguments, "--trace", tmp_path / "t.json", "--json")
    assert result.exit_code == 0, result.output
    stated = json.loads(result.output)
    assert len(stated["seconds"]) == 4
    profile = stated["profile"]
    rows = {row["operator"]: row for row in profile["operators"]}
    by = "splitops" if engine == "reference" else engine
    assert all(row["by"] == by and row["seconds"] >= 0 for row in rows.values())
    assert sum(row["seconds"] for row in rows.values()) == pytest.approx(profile["seconds"])
    if engine != "openvino":  # which fuses them
        assert {name: row["calls"] for name, row in rows.items()} == {
            "Split": 1,
            "Concat": 1,
            "Neg": 1,
            "Mul": 1,
        }
        assert 0 < profile["share_of_splits"] < 1
        assert 0 < profile["data_movement_share"] < 1
    assert len(profile["simplified"]) == 2
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert len(events) == sum(row["calls"] for row in rows.values()) * 4
    assert all(event["ph"] == "X" and event["ts"] >= 0 for event in events)
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)


def test_the_report_says_it_in_words(invoke, model):
    text = invoke(
        "run", model, "--input", "x=random", "--profile", "--repeat", "2", "--for", "reference"
    ).output
    for words in (
        "2 runs: the first",
        "Where the time of a run goes",
        "Splits take",
        "After splitops simplify",
    ):
        assert words in text


def test_operators_inside_others_are_counted_once(invoke, tmp_path):
    onnx.save(
        onnx.parser.parse_model("""
            <ir_version: 9, opset_import: ["": 18, "my": 1]>
            g (float[6] x, bool k) => (float[n] c) {
                c = If(k) <then_branch = t () => (float[n] d) { d = my.twice(x) },
                           else_branch = e () => (float[m] f) { f = Neg(x) }> }
            <domain: "my", opset_import: ["": 18]>
            twice (v) => (w) { w = Add(v, v) }"""),
        tmp_path / "m.onnx",
    )
    feeds = ["--input", "x=ramp", "--input", "k=random:::1"]
    result = invoke("run", tmp_path / "m.onnx", *feeds, "--profile", "--for", "reference", "--json")
    (row,) = json.loads(result.output)["profile"]["operators"]
    assert (row["operator"], row["calls"]) in {("Add", 1), ("Neg", 1)}


def test_a_session_without_a_profile_has_no_events(model):
    import splitops

    with (
        splitops.session(model, "reference") as ready,
        pytest.raises(splitops.ModelError, match="profile=True"),
    ):
        ready.events()


def test_a_trace_needs_no_profile(invoke, model, tmp_path):
    result = invoke(
        "run", model, "--input", "x=random", "--trace", tmp_path / "t.json", "--for", "reference", "--json"
    )
    assert result.exit_code == 0, result.output
    assert "profile" not in json.loads(result.output)
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == 4


def test_a_profile_without_a_rewrite(invoke, tmp_path, monkeypatch):
    onnx.save(
        onnx.parser.parse_model("""
            <ir_version: 9, opset_import: ["": 18]>
            g (float[6] x) => (float[6] z) { y = Neg(x) z = Exp(y) }"""),
        tmp_path / "m.onnx",
    )
    monkeypatch.setattr("splitops.cli._profile._MAX_ROWS", 1)
    arguments = ["run", tmp_path / "m.onnx", "--input", "x=random", "--profile", "--for", "reference"]
    text = invoke(*arguments).output
    assert "splitops simplify has nothing to rewrite." in text
    assert "... and 1 more" in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(12.0, "12 s"), (1.0, "1 s"), (0.0123, "12.3 ms"), (0.0009876, "988 us"), (0, "0 us")],
)
def test_times_have_the_unit_that_they_need(seconds, words):
    assert _format_time(seconds) == words
