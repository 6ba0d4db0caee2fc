"""Commands on models: the split nodes of ``inspect``, ``--verify``, and the last line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

import splitops
from splitops.models import engines
from splitops.models.verify import Trial, TrialVerdict, Verification

HEAD = '<ir_version: 9, opset_import: ["": 18, "local": 1]>'
HALVES = f"{HEAD} g (float[N, 5] x) => (float[A, 5] a, float[B, 5] b) {{ a, b = Split<num_outputs = 2>(x) }}"


def model(folder: Path, text: str, name: str = "m.onnx") -> Path:
    onnx.save(onnx.parser.parse_model(text), folder / name)
    return folder / name


def test_inspect_lists_the_split_nodes_of_a_model(invoke, tmp_path):
    path = model(
        tmp_path,
        f"""{HEAD}
        g (float[N, 6] x, int64[2] run) => (float p, float q, float r, seq(float) s, float u, float v)
        <int64[2] lengths = {{2, 3}}, int64 chunk = {{4}}> {{
            p, q = Split<axis = 1, num_outputs = 2>(x)
            r, bad = Split<axis = 1>(x, lengths)
            s = SplitToSequence<axis = 1>(x, chunk)
            u, v = local.halves(x)
        }}
        <domain: "local", opset_import: ["": 18]>
        halves (y) => (one, two) {{ one, two = Split<axis = 0, num_outputs = 2>(y) }}""",
    )
    found = json.loads(invoke("inspect", path, "--json").output)["splits"]
    assert [(split["operator"], split["axis"], split["data"]) for split in found] == [
        ("Split-18", 1, ["N", 6]),
        ("Split-18", None, ["N", 6]),
        ("SplitToSequence-11", 1, ["N", 6]),
        ("Split-18", 0, ["N", 6]),
    ]
    assert found[0]["parts"] == [["N", 3], ["N", 3]]
    assert (found[0]["lengths"], found[0]["error"], found[0]["outputs"]) == (None, None, ["p", "q"])
    assert (found[1]["parts"], found[2]["parts"]) == (None, None)
    assert "sums to 5, but axis 1 of data (N, 6) has size 6" in found[1]["error"]
    assert found[1]["error"].count("[lengths.sum]") == 1
    assert found[3]["parts"] == [["ceil(N/2)", 6], ["N - ceil(N/2)", 6]]
    shown = invoke("inspect", path).output
    for text in ("4 split nodes", "2 of (N, 3)", "[lengths.sum]", "sequence: 2 of (N, 2..4)"):
        assert text in shown, shown


def test_inspect_lists_the_split_nodes_of_an_ir(invoke, tmp_path):
    ir = splitops.convert(onnx.parser.parse_model(HALVES), to="openvino")
    splitops.save(ir, tmp_path / "m.xml")
    [split] = json.loads(invoke("inspect", tmp_path / "m.xml", "--json").output)["splits"]
    assert (split["operator"], split["axis"], split["data"]) == ("VariadicSplit-1", 0, ["?", 5])
    assert "splits" not in json.loads(
        invoke("inspect", tmp_path / "m.bin", "--raw", "-1:uint8", "--json").output
    )


def test_inspect_of_a_model_without_a_split(invoke, tmp_path):
    path = model(tmp_path, f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Add(x, x) }}")
    assert json.loads(invoke("inspect", path, "--json").output)["splits"] == []
    assert invoke("inspect", path).output.endswith("\n0 split nodes\n")


@pytest.mark.parametrize(
    "command", [("convert", "--to", "onnx:13"), ("simplify",), ("convert", "--to", "openvino")]
)
def test_a_command_says_whether_it_has_written(invoke, tmp_path, command):
    path = model(
        tmp_path,
        f"{HEAD} g (float[4] x) => (float[4] y) "
        "{ a, b = Split<num_outputs = 2>(x)  y = Concat<axis = 0>(a, b) }",
    )
    out = tmp_path / ("new.xml" if "openvino" in command else "new.onnx")
    assert "Nothing was written: add -o FILE to write the model." in invoke(*command, path).output
    assert f"Would write {out}." in invoke(*command, path, "-o", out, "--dry-run").output
    assert not out.exists()
    shown = invoke(*command, path, "-o", out).output
    assert f"Written to {out}" in shown
    assert "Nothing was written" not in shown
    assert out.exists()


def test_a_model_that_cannot_be_simplified_needs_no_file(invoke, tmp_path):
    assert invoke("simplify", model(tmp_path, HALVES)).output.splitlines() == [
        "Nothing to simplify. Only splits and the nodes around them are simplified."
    ]


@pytest.mark.skipif(not engines.is_installed("onnxruntime"), reason="onnxruntime is not installed")
def test_verify_compares_what_is_written_with_the_source(invoke, tmp_path):
    path, out = model(tmp_path, HALVES), tmp_path / "new.onnx"
    done = invoke("convert", path, "--to", "onnx:13", "--verify", "-o", out)
    assert done.exit_code == 0
    assert "Verified on onnxruntime" in done.output
    assert out.exists()
    done = json.loads(invoke("simplify", path, "--verify", "--json").output)
    assert {trial["verdict"] for trial in done["verified"]["trials"]} == {"identical"}
    assert json.loads(invoke("simplify", path, "--json").output)["verified"] is None


@pytest.mark.skipif(not engines.is_installed("onnxruntime"), reason="onnxruntime is not installed")
@pytest.mark.parametrize(
    "command", [("simplify", "--rewrite", "cancel-split-concat"), ("convert", "--to", "onnx:19")]
)
def test_nothing_is_written_if_the_runtime_rejects_the_result(invoke, tmp_path, command):
    # onnxruntime rejects a part that would begin past the end of the axis; the reference does not.
    path = model(
        tmp_path,
        f"{HEAD} g (float[5] x) => (float[2] a, float[2] b, float[1] c, float[0] d) "
        "{ a, b, c, d = Split<num_outputs = 4>(x) }",
    )
    out = tmp_path / "new.onnx"
    done = invoke(*command, path, "--verify", "-o", out)
    assert done.exit_code == 1
    assert "failed in a runtime" in done.output
    assert not out.exists()
    done = invoke(*command, path, "--verify", "-o", out, "--json")
    assert (done.exit_code, json.loads(done.output)["verified"]["trials"][0]["verdict"]) == (1, "failed")


@pytest.mark.skipif(not engines.is_installed("openvino"), reason="openvino is not installed")
def test_verify_of_an_ir_runs_openvino(invoke, tmp_path):
    path = model(tmp_path, HALVES)
    done = invoke("convert", path, "--to", "openvino", "--verify", "-o", tmp_path / "m.xml")
    assert (done.exit_code, "Verified on openvino" in done.output) == (0, True)
    done = invoke("simplify", tmp_path / "m.xml", "--verify")
    assert (done.exit_code, "Verified on openvino" in done.output) == (0, True)


@pytest.mark.parametrize(
    "command", [("simplify",), ("convert", "--to", "onnx:13"), ("fix", "--for", "onnxruntime")]
)
def test_nothing_is_written_if_no_sample_could_be_compared(invoke, tmp_path, monkeypatch, command):
    path = model(
        tmp_path,
        f"{HEAD} g (float[5] x) => (float[3] a, float[2] b) {{ a, b = Split<num_outputs = 2>(x) }}",
    )
    trial = Trial({}, TrialVerdict.UNSAMPLED, "it fails on empty tensors")
    found = Verification("onnxruntime", "1.0", (trial,))
    monkeypatch.setattr("splitops.models.verify.verify", lambda *arguments, **options: found)
    out = tmp_path / "new.onnx"
    done = invoke(*command, path, "--verify", "-o", out)
    assert done.exit_code == 1, done.output
    assert "Nothing was written: no sample could be compared. Set inputs with --input." in done.output
    assert "failed in a runtime" not in done.output
    assert not out.exists()
