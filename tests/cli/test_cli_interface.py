"""One word for one thing in all commands, and the nearest known word for an unknown one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnx.parser
import pytest

from splitops.cli import cli
from splitops.cli._models import RUNTIME
from splitops.cli._options import BYTES

COMMANDS = {
    name: command
    for name in cli.list_commands(click.Context(cli))
    if (command := cli.get_command(click.Context(cli), name)) is not None
}


def options(command: click.Command) -> dict[str, click.Option]:
    return {
        name: option for option in command.params if isinstance(option, click.Option) for name in option.opts
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chekc"], "No such command 'chekc'. Did you mean 'check'?"),
        (["legalize", "m.onnx"], "No such command 'legalize'. Did you mean 'fix'?"),
        (["validate", "m.onnx"], "No such command 'validate'. Did you mean 'check'?"),
        (["zzz"], "No such command 'zzz'."),
        (["check", "m.onnx", "--target", "onnxruntime"], "No such option '--target'. Did you mean '--for'?"),
        (["convert", "m.onnx", "--target", "onnx"], "No such option '--target'. Did you mean '--to'?"),
        (["run", "m.onnx", "--engine", "openvino"], "No such option '--engine'. Did you mean '--for'?"),
        (["fix", "m.onnx", "--verfy"], "No such option '--verfy'. Did you mean '--verify'?"),
        (["fix", "m.onnx", "--prove"], "No such option '--prove'. Did you mean '--verify'?"),
        (["fix", "m.onnx", "--output", "f"], "No such option '--output'. Did you mean '--out'?"),
        (["shard", "m", "--explain"], "No such option '--explain'. Did you mean '--dry-run'?"),
        (["check", "m.onnx", "--for", "onnxrunntime"], "'onnxrunntime'; did you mean 'onnxruntime'?"),
        (["spec", "--zzz"], "No such option '--zzz'."),
        (["--verzion"], "No such option '--verzion'. Did you mean '--version'?"),
        (["simplify", "m.onnx", "--rewrite", "merge-split"], "No such rewrite 'merge-split'. Did you mean"),
    ],
)
def test_an_unknown_word_names_the_one_that_is_meant(
    invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(b"")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_each_word_means_the_same_everywhere() -> None:
    for name, command in COMMANDS.items():
        known = options(command)
        assert not {"--target", "--peer", "--fix", "--prove", "--explain", "--legalize", "--engine"} & set(
            known
        ), name
        if "--for" in known:
            assert known["--for"].multiple is (name in ("check", "fix", "simplify")), name
            assert isinstance(known["--for"].type, click.Choice) or known["--for"].type is RUNTIME, name
        if "--memory" in known:
            assert known["--memory"].type is BYTES, name
        if "--limit" in known:
            assert known["--limit"].type is BYTES, name


def test_a_default_is_said_in_one_form_alone() -> None:
    for name, command in COMMANDS.items():
        context = click.Context(command, parent=click.Context(cli, **cli.context_settings))
        for spelled, option in options(command).items():
            record = option.get_help_record(context)
            assert record is not None
            text = record[1]
            assert not re.search(r"by default|; \d+\.$|default is |without one", text), (
                name,
                spelled,
                text,
            )
            assert text.count("[default") <= 1, (name, spelled, text)
            stated = option.get_default(context)
            plain = isinstance(stated, int | float | str) and not option.is_flag
            assert not plain or "[default: " in text, (name, spelled, text)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    text = """<ir_version: 8, opset_import: ["": 18]>
        g (float[5] x) => (float[A] a, float[B] b, float[C] c, float[D] d) {
            a, b, c, d = Split<num_outputs = 4>(x) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    np.save(tmp_path / "x.npy", np.zeros((4, 6), np.float32))
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["fix", "m.onnx", "-o", "o.onnx"],
        ["convert", "m.onnx", "--to", "onnx:19", "-o", "o.onnx"],
        ["simplify", "m.onnx", "-o", "o.onnx"],
        ["infer", "m.onnx", "-o", "o.onnx"],
        ["split", "x.npy", "--parts", "2", "-o", "parts"],
        ["merge", "x.npy", "x.npy", "-o", "y.npy"],
    ],
)
def test_a_dry_run_writes_nothing(
    invoke: Any, model: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(model.parent)
    before = sorted(model.parent.iterdir())
    result = invoke(*arguments, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "Written to" not in result.output
    assert sorted(model.parent.iterdir()) == before
    assert invoke(*arguments).exit_code == 0
    assert sorted(model.parent.iterdir()) != before


def test_every_command_that_writes_what_it_makes_has_a_dry_run() -> None:
    without = {name for name, command in COMMANDS.items() if "--out" in options(command)} - {
        name for name, command in COMMANDS.items() if "--dry-run" in options(command)
    }
    assert without == {"compare", "run"}  # their results are on the screen without --out


def test_a_generated_input_says_which_size_is_open(invoke: Any, tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    text = """<ir_version: 8, opset_import: ["": 18]>
        g (float[N, 7] x) => (float[A, 7] a) { a = Split<num_outputs = 1>(x) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    result = invoke("run", path, "--input", "x=ramp")
    assert result.exit_code == 2
    words = "Cannot generate 'x': the model leaves size N open. For example: --input x=ramp:2,7\n"
    assert result.stderr.endswith(words)
    assert invoke("run", path, "--input", "x=ramp:2,7").exit_code == 0
