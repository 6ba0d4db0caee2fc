"""Progress: what is told of long work, and that it is shown on a terminal alone."""

from __future__ import annotations

import io
from itertools import groupby
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto

import splitops
from splitops.cli import _progress, cli
from splitops.common.progress import Steps, report_progress_to, track
from splitops.models.formats import openvino as openvino_ir


def chain(length: int = 6) -> ModelProto:
    nodes = "".join(
        f"a{i}, b{i} = Split<num_outputs = 2>(x{i}) x{i + 1} = Concat<axis = 0>(b{i}, a{i}) "
        for i in range(length)
    )
    return onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[6] x0) => (float[6] x{length}) {{ {nodes} }}""")


def ir_chain() -> openvino_ir.OpenVINOModel:
    builder = openvino_ir.Builder()
    weights = builder.const(np.arange(6, dtype=np.float32))
    parts = builder.layer("Split", [weights, builder.const(0)], {"num_splits": 2}, outputs=2)
    for index, part in enumerate(parts):
        builder.result(part, f"y{index}")
    return builder.model()


USES: dict[str, Any] = {
    "infer": splitops.infer,
    "check": splitops.check,
    "convert splits": lambda model: splitops.convert(model, 13),
    "simplify": splitops.simplify,
    "run": lambda model: splitops.run(model, {"x0": np.zeros(6, np.float32)}, engine="reference"),
}


@pytest.mark.parametrize("what", USES)
def test_every_tool_tells_how_far_it_is(what):
    heard: list[Steps | None] = []
    with report_progress_to(heard.append):
        USES[what](chain())
    works = [list(work) for told, work in groupby(heard, key=lambda progress: progress is not None) if told]
    work = next(work for work in works if work[0].what == what)
    assert [progress.done for progress in work] == list(range(len(work)))
    assert len(work) >= 6
    assert {progress.total for progress in work} == ({None} if what == "simplify" else {len(work)})
    assert heard[-1] is None


@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("infer", splitops.infer),
        ("convert", lambda model: splitops.convert(model, 18)),
        ("simplify", splitops.simplify),
        ("run", lambda model: splitops.run(model, {}, engine="reference")),
    ],
)
def test_tools_of_openvino_ir_tell_it_too(what, use):
    heard: list[Steps | None] = []
    with report_progress_to(heard.append):
        use(ir_chain())
    assert what in {progress.what for progress in heard if progress is not None}


def test_work_inside_work_is_not_told():
    heard: list[Steps | None] = []
    with report_progress_to(heard.append):
        for _ in track("ab", "outer"):
            list(track("cd", "inner"))
        list(track("e", "next"))
    assert [progress and (progress.what, progress.done) for progress in heard] == [
        ("outer", 0),
        ("outer", 1),
        None,
        ("next", 0),
        None,
    ]


def test_work_that_fails_has_ended():
    heard: list[Steps | None] = []

    def fail() -> None:
        for _ in track("ab", "work"):
            raise RuntimeError

    with report_progress_to(heard.append):
        with pytest.raises(RuntimeError):
            fail()
        list(track("c", "next"))
    assert [progress and progress.what for progress in heard] == ["work", None, "next", None]


def test_nobody_who_listens_costs_nothing():
    items = [1, 2]
    assert track(items, "work") is items


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def invoke(tmp_path, monkeypatch, capsys, stream: io.StringIO, delay: float = 0.0) -> tuple[str, str]:
    """Run a command with a stderr; return what it wrote there and to stdout."""
    splitops.save(chain(40), tmp_path / "m.onnx")
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(_progress, "DELAY", delay)
    monkeypatch.setattr(_progress, "_INTERVAL", 0.0)
    cli.main(["convert", str(tmp_path / "m.onnx"), "--to", "onnx:13"], standalone_mode=False)
    return stream.getvalue(), capsys.readouterr().out


def test_a_terminal_shows_a_bar_and_stdout_none_of_it(tmp_path, monkeypatch, capsys):
    shown, printed = invoke(tmp_path, monkeypatch, capsys, _Terminal())
    assert "convert splits" in shown
    assert "/40" in shown
    assert "to onnx:13" in printed
    assert "convert splits" not in printed
    assert "to onnx:13" not in shown


def test_a_pipe_gets_nothing_whatever_the_environment_says(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown, printed = invoke(tmp_path, monkeypatch, capsys, io.StringIO())
    assert shown == ""
    assert "to onnx:13" in printed


def test_short_work_has_no_bar(tmp_path, monkeypatch, capsys):
    shown, _ = invoke(tmp_path, monkeypatch, capsys, _Terminal(), delay=600.0)
    assert shown == ""
