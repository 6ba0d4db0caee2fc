"""What a terminal shows: words are whole at 80 columns, and neighbouring parts differ with 8 colours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from command_line import printed, runner
from splitops.cli import cli

NAME = "/model/decoder/layers.31/self_attn/rotary_emb/Split_output_0"
MODEL = f"""
<ir_version: 9, opset_import: ["": 18]>
heads_of_the_decoder (float[5, 2] x) => (float[A, 2] "{NAME}", float[B, 2] b, float[C, 2] c, float[D, 2] d) {{
    "{NAME}", b, c, d = Split<num_outputs = 4>(x) }}"""
LONG = "model.language_model.layers.31.self_attn.q_proj.weight_scale_inverse"
COMMANDS = [
    "targets",
    "targets onnxruntime",
    "targets onnxruntime-node",
    "targets openvino",
    "spec",
    "spec Split --opset 18",
    "spec SplitToSequence",
    "diff Split 13 18",
    "rule",
    "simplify --list",
    "explain --shape 123456789,12345678,1234567 --axis 1 --parts 3",
    "inspect {folder}/arrays.npz",
    "split {folder}/arrays.npz --tensor " + LONG + " --axis 0 --parts 2 --out {folder}/parts-%d --dry-run",
    "check {folder}/m.onnx --for onnxruntime",
    "infer {folder}/m.onnx",
    "convert {folder}/m.onnx --to openvino",
    "run {folder}/m.onnx --backend reference",
]


def shown(command: str, columns: str) -> str:
    """Return what a command prints in a terminal of some columns."""
    return printed(runner().invoke(cli, command.split(), env={"COLUMNS": columns}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("m")
    text = MODEL.replace(f'"{NAME}"', "a")
    model = onnx.parser.parse_model(text)
    for values in (model.graph.node[0].output, [model.graph.output[0]]):
        if isinstance(values, list):
            values[0].name = NAME
        else:
            values[0] = NAME
    onnx.save(model, str(made / "m.onnx"))
    np.savez(made / "arrays.npz", **{LONG: np.zeros((4, 3)), "b": np.zeros((2, 3), "int8")})
    return made


def words(text: str) -> set[str]:
    """The words of what is shown, without the colon behind the name of a column."""
    return {word.removesuffix(":") for word in re.split(r"[\s│]+", text) if re.search(r"\w", word)}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", ["80", "60"])
def test_no_word_is_broken(folder: Path, command: str, columns: str) -> None:
    command = command.format(folder=folder)
    wide, narrow = shown(command, "500"), shown(command, columns)
    assert words(wide), wide
    broken = {word for word in words(wide) - words(narrow) if len(word) < int(columns) - 4}
    assert broken <= {"graph"}, narrow  # a column without text has no lines


@pytest.mark.parametrize(("columns", "is_table"), [("120", True), ("50", False)])
def test_a_table_that_does_not_fit_becomes_lines(columns: str, is_table: bool) -> None:
    text = shown("spec", columns)
    assert ("──" in text) is is_table
    assert ("operator: VariadicSplit-1\ndomain: openvino\n" in text) is not is_table


BACKGROUND = re.compile(r"\x1b\[(?:\d+;)*(4[0-7]|48;[\d;]+)m")


@pytest.mark.parametrize("term", ["xterm", "linux", "xterm-256color"])
@pytest.mark.parametrize("shape", ["9", "4,17", "2,3"])
def test_neighbouring_parts_have_different_colours(term: str, shape: str) -> None:
    size = shape.rpartition(",")[2]
    arguments = ["explain", "--shape", shape, "--axis", "-1", "--parts", size]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLORTERM", "NO_COLOR")}
    done = subprocess.run(
        [sys.executable, "-m", "splitops", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "TERM": term, "FORCE_COLOR": "1", "COLUMNS": "120"},
    )
    lines = [BACKGROUND.findall(line) for line in done.stdout.splitlines()]
    coloured = [line for line in lines if line]
    assert coloured
    assert all(before != after for line in coloured for before, after in pairwise(line)), done.stdout
    assert max(map(len, coloured)) >= int(size)
