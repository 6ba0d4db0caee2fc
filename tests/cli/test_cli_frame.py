"""The command itself: finding commands, exit codes, one-line errors, fast starts."""

from __future__ import annotations

import os
import pkgutil
import re
import signal
import subprocess
import sys

import click
import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
from splitops import cli as package
from splitops.cli import cli
from splitops.cli._console import escape

COMMANDS = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))


def test_every_command_is_listed_with_a_sentence(invoke):
    result = invoke("--help")
    assert result.exit_code == 0
    assert {"run", "split", "spec", "diff", "explain"} <= set(COMMANDS)
    _, _, listed = result.output.partition("Commands:\n")
    sentences = re.sub(r"\n {4,}", " ", listed).splitlines()  # a long one goes on in the next line
    for name, sentence in zip(sorted(COMMANDS), sentences, strict=True):
        assert sentence.split()[0] == name.replace("_", "-")
        assert sentence.endswith(".")


@pytest.mark.parametrize("name", ["run", "split", "spec", "diff", "explain"])
def test_every_help_has_examples(invoke, name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert f"splitops {name} " in result.output


def test_every_target_is_short_too():
    targets = [
        (name, option.opts)
        for name in cli.list_commands(click.Context(cli))
        for option in cli.get_command(click.Context(cli), name).params
        if "--out" in option.opts
    ]
    assert len(targets) == 12
    assert all(options == ["-o", "--out"] for _, options in targets), targets


def test_version(process):
    result = process("--version")
    assert (result.returncode, result.stdout.strip()) == (0, f"splitops, version {splitops.__version__}")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["spec"], ["diff", "Split", "13", "18"], ["split", "--help"]]
)
def test_light_commands_load_no_model_library(environment, arguments):
    heavy = ["onnx", "onnx_ir", "openvino", "defusedxml", "ml_dtypes", "torch"]
    code = (
        "import sys\nfrom splitops.cli import main\n"
        f"sys.argv = ['splitops', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code, done.code\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stderr.strip().splitlines()[-1] == "[]", done.stderr


def test_the_check_above_sees_a_loaded_library(environment):
    code = "import sys, onnx; print([name for name in ['onnx', 'torch'] if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "['onnx']"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["spec", "Foo"],
        ["spec", "Split-12"],
        ["spec", "Split-13", "--opset", "13"],
        ["spec", "SplitToSequence", "--opset", "10"],
        ["spec", "nowhere:Split"],
        ["spec", "--opset", "13"],
        ["diff", "Split", "13"],
        ["explain"],
        ["explain", "--shape", "6"],
        ["explain", "--shape", "6,x", "--parts", "2"],
        ["explain", "--shape", "-6", "--parts", "2"],
        ["explain", "--shape", "6", "--parts", "2", "--sizes", "3,3"],
        ["explain", "--shape", "6", "--chunk", "2", "--op", "Split-18"],
        ["explain", "--shape", "6", "--parts", "2", "--op", "VariadicSplit"],
        ["explain", "--shape", "6", "--op", "Split"],
        ["explain", "--shape", "6", "--parts", "2", "--no-keepdims"],
        ["explain", "--shape", "6", "--parts", "2", "--dtype", "float33"],
        ["explain", "--shape", str(1 << 63), "--parts", "2"],
        ["split"],
        ["run"],
        ["run", "m.txt"],
        ["infer", "m"],
        ["infer", "m.onnx", "-o", "m.xml"],
        ["infer", "m.xml", "-o", "m.pb"],
        ["check", "m.json"],
        ["fix", "m.onnx", "-o", "m.txt"],
        ["fix", "m.onnx", "-o", "m.xml"],
        ["simplify", "m.xml", "-o", "m.onnx"],
        ["simplify", "m.onnx", "-o", "m"],
        ["convert", "m.onnx"],
        ["convert", "m.onnx", "--to", "tflite"],
        ["convert", "m.onnx", "--to", "onnx:"],
        ["convert", "m.onnx", "--to", "onnx:0"],
        ["convert", "m.onnx", "--to", "onnx:9999"],
        ["convert", "m.onnx", "--to", "onnx:18", "-o", "m.xml"],
        ["convert", "m.onnx", "--to", "openvino", "-o", "m.onnx"],
        ["convert", "m.xml", "--splits-only", "-o", "m.onnx"],
        ["convert", "m.onnx", "--to", "onnx:18", "-o", "m.bin"],
    ],
)
def test_wrong_usage_is_2(invoke, arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: splitops" in result.stderr


ABSENT = {
    "run": ["run", "absent.onnx"],
    "input": ["run", "{model}", "--input", "x=absent.npy"],
    "input of an archive": ["run", "{model}", "--input", "x=absent.npz:x"],
    "protobuf": ["run", "{model}", "--input", "x=absent.pb"],
    "infer": ["infer", "absent.onnx"],
    "check": ["check", "absent.onnx"],
    "one of several": ["check", "{model}", "absent.onnx"],
    "fix": ["fix", "absent.onnx"],
    "simplify": ["simplify", "absent.xml"],
    "convert": ["convert", "absent.onnx", "--to", "onnx"],
    "compare": ["compare", "--model", "absent.onnx"],
    "compare with a report": ["compare", "onnx_reference", "--diff", "absent.json"],
    "compare with expectations": ["compare", "onnx_reference", "--expect", "absent.toml"],
    "split": ["split", "absent.npy", "--parts", "2"],
    "split in a folder that is a file": ["split", "{model}/absent.npy", "--parts", "2"],
    "split at an address": ["split", "file:///absent.npy", "--parts", "2"],
    "merge": ["merge", "absent.0.npy", "absent.1.npy", "--out", "whole.npy"],
    "inspect": ["inspect", "absent.safetensors"],
    "shard": ["shard", "absent", "--ranks", "2", "--out", "ranks"],
    "plan": ["shard", "{folder}", "--ranks", "2", "--plan", "absent.toml", "--out", "ranks"],
    "reshard": ["reshard", "absent", "--ranks", "2", "--out", "ranks"],
    "like": ["reshard", "{folder}", "--ranks", "2", "--out", "ranks", "--files-like", "absent"],
}


@pytest.mark.parametrize("name", ABSENT)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_file_that_is_not_there_is_wrong_usage(invoke, process, tmp_path, name, as_json):
    text = "g (float[4] x) => (float[2] a, float[2] b) { a, b = Split<num_outputs = 2>(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
    onnx.save(model, tmp_path / "m.onnx")
    known = {"model": tmp_path / "m.onnx", "folder": tmp_path}
    arguments = [word.format(**known) for word in ABSENT[name]]
    json_too = ["--output-format", "json"] if arguments[0] == "check" else ["--json"]
    result = invoke(*arguments, *(json_too if as_json else []))
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "absent" in result.stderr
    assert "does not exist" in result.stderr or "no such file" in result.stderr


def test_a_file_that_is_not_at_an_address_is_wrong_usage(invoke):
    pytest.importorskip("fsspec")
    result = invoke("inspect", "memory://nowhere/absent.npy")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "memory://nowhere/absent.npy does not exist." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["inspect", "{folder}"], 2, "splitops inspect {folder}/model.safetensors"),
        (["inspect", "{empty}"], 2, "is a folder without tensor files. Name a file."),
        (["split", "{folder}", "--parts", "2"], 2, "splitops split {folder}/model.safetensors"),
        (["inspect", "{folder}"], 2, "splitops shard {folder} --dry-run"),
        (["reshard", "{folder}", "--ranks", "2", "--out", "r"], 1, "use splitops shard {folder} ..."),
        (["merge", "{folder}", "--out", "m"], 1, "use splitops shard {folder} ..."),
        (["explain", "--shape", "6", "--parts", "0"], 2, "--parts must be at least 1."),
        (["explain", "--shape", "6", "--chunk", "-1"], 2, "--chunk must be at least 1."),
        (["convert", "{model}", "--to", "13"], 2, "Use onnx:13 or openvino:opset13."),
        (["convert", "{model}", "--to", "openvino:opset99"], 2, "opset1 to opset"),
    ],
)
def test_what_is_wrong_says_what_to_do_instead(invoke, tmp_path, arguments, code, hint):
    folder = tmp_path / "model"
    for made in (folder, tmp_path / "empty"):
        made.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (tmp_path / "m.onnx").write_bytes(b"")
    known = {"folder": folder, "empty": tmp_path / "empty", "model": tmp_path / "m.onnx"}
    result = invoke(*(word.format(**known) for word in arguments))
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert hint.format(**known) in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("splitops sp", {"spec", "split"}),
        ("splitops convert --spl", {"--splits-only"}),
        ("splitops convert m.onnx --style ", {"same", "lengths", "count"}),
        ("splitops explain --op Variadic", {"VariadicSplit", "VariadicSplit-1"}),
        ("splitops spec SplitTo", {"SplitToSequence", "SplitToSequence-11", "SplitToSequence-24"}),
        ("splitops diff openvino:S", {"openvino:Split", "openvino:Split-1"}),
        ("splitops explain --dtype bfl", {"bfloat16"}),
    ],
)
def test_the_shell_completes(process, environment, words, expected):
    variables = {"_SPLITOPS_COMPLETE": "bash_complete", "COMP_WORDS": words}
    variables["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    result = process(env=environment | variables)
    assert result.returncode == 0, result.stderr
    assert {line.partition(",")[2] for line in result.stdout.split()} == expected


def test_the_script_of_the_readme_is_one(process, environment):
    for shell in ("bash", "zsh", "fish"):
        result = process(env=environment | {"_SPLITOPS_COMPLETE": f"{shell}_source"})
        assert (result.returncode, result.stderr) == (0, "")
        assert "_SPLITOPS_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--shape", "6", "--sizes", "2,3"], "lengths.sum"),
        (["--shape", "7", "--parts", "2", "--op", "Split-13"], "parts.divisible"),
        (["--shape", "7", "--parts", "2", "--op", "openvino:Split"], "parts.divisible"),
        (["--shape", "7", "--sizes", "8,-1"], "remainder.negative"),
        (["--shape", "7", "--sizes", "-1,-1"], "remainder.repeated"),
        (["--shape", "7", "--sizes", "-2,9"], "lengths.negative"),
        (["--shape", "7", "--sizes", ""], "lengths.count"),
        (["--shape", "7", "--axis", "1", "--parts", "2"], "axis.range"),
        (["--shape", "", "--parts", "2"], "axis.range"),
        (["--shape", "6", "--parts", "2", "--dtype", "bfloat16", "--op", "Split-2"], "type.unsupported"),
    ],
)
def test_a_broken_rule_is_1_and_one_line(invoke, arguments, rule):
    result = invoke("explain", *arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert f"[{rule}]" in result.stderr


def test_an_error_in_a_process_is_one_line_without_traceback(process, tmp_path):
    (tmp_path / "odd\n\x1b[31m.npy").write_bytes(b"")
    result = process("split", tmp_path / "odd\n\x1b[31m.npy", "--parts", "2")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "\x1b" not in result.stderr
    assert "Traceback" not in result.stderr


def test_the_name_of_a_file_that_is_not_there_cannot_move_the_cursor(process, tmp_path):
    result = process("split", tmp_path / "odd\n\x1b[31m.npy", "--parts", "2")
    assert result.returncode == 2
    assert "\x1b" not in result.stderr
    assert "Traceback" not in result.stderr


def test_text_of_files_cannot_move_the_cursor():
    assert escape("a\r\nb\x1b[2J\x07\udcff\u202e") == "a\\r\\nb\\x1b[2J\\x07\\udcff\\u202e"
    assert escape("é日本 [red]") == "é日本 [red]"
    assert len(escape("x" * 10_000)) == 2000


@pytest.mark.parametrize(
    ("failure", "code", "text"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "not enough memory"),
        (PermissionError(13, "Permission denied", "x.npy"), 1, "x.npy: permission denied"),
        (splitops.ModelError("red \x1b[31m"), 1, "red \\x1b[31m"),
    ],
)
def test_what_stops_a_command_is_one_line(monkeypatch, invoke, failure, code, text):
    @click.command()
    def command() -> None:
        raise failure

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: command)
    result = invoke("anything")
    assert (result.exit_code, result.stderr) == (code, f"splitops: {text}\n")


def test_a_defect_is_not_hidden(monkeypatch, invoke):
    @click.command()
    def command() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: command)
    assert isinstance(invoke("anything").exception, ZeroDivisionError)


def test_a_reader_that_stops_reading_is_no_error(environment):
    command = f"{sys.executable} -m splitops explain --shape 20000 --parts 10000 --json | head -1"
    done = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=180
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_nobody_who_reads_is_no_error(process, options):
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"capture_output": False, "stdout": writing, "stderr": subprocess.PIPE}
    result = process("spec", "Split", *options, **streams)
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


def test_ctrl_c_before_the_command_begins(monkeypatch):
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(cli, "main", interrupted)
    with pytest.raises(SystemExit) as ended:
        package.main()
    assert ended.value.code == 130


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_terminals_that_are_not_unicode(process, environment, encoding, tmp_path):
    np.save(tmp_path / "日本.npy", np.arange(6))
    variables = environment | {"PYTHONIOENCODING": encoding}
    for arguments in (["explain", "--shape", "6,4", "--axis", "1", "--parts", "2"], ["spec", "Split"]):
        result = process(*arguments, env=variables)
        assert (result.returncode, result.stderr) == (0, "")
    result = process(
        "split", tmp_path / "日本.npy", "--parts", "2", "--out", tmp_path, env=variables, encoding=encoding
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "日本.0.npy").exists()
