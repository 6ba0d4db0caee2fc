"""Command lines of any kind: each ends with one of the documented codes, and says why in one line."""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from click.testing import CliRunner
from hostile import TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from splitops.cli import cli

PASSED = [text for text in TEXTS if set(text).isdisjoint("\0\ud800")]
"""Texts that a system can pass to a command."""
WORDS = [
    *PASSED[1:],
    "-",
    "--",
    "-1",
    "7",
    "99999999999999999999",
    "1,2",
    "-1,2",
    "4,,6",
    "x.npy",
    "none.npy",
]
ANY_WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
NUMBERS = ["0", "1", "2", "3", "-1", "-2", "7", "9223372036854775808"]
SHAPES = [
    "4",
    "4,6",
    "0,3",
    "7,1,2",
    "",
    "-1",
    "4,x",
    "9223372036854775807,9",
    "100000,100000",
    ",".join("1" * 65),
]
SPLIT = {
    "--axis": NUMBERS,
    "--sizes": ["2,2", "1,3", "-1,2", "0,4", "1,-1,-1", "5", *SHAPES],
    "--parts": NUMBERS,
    "--chunk": NUMBERS,
    "--op": [
        "Split",
        "Split-13",
        "Split-18",
        "SplitToSequence-11",
        "openvino:Split-1",
        "VariadicSplit-1",
        "Split-99",
        "x:y",
    ],
    "--keepdims": None,
    "--no-keepdims": None,
    "--json": None,
}
FILES = {
    "--tensor": ["x", ""],
    "--to": ["npy", "npz", "safetensors", "gguf", "onnx", "raw", "hdf5", "zarr", "zip"],
    "--raw": [
        "4,6:float32",
        "-1:i4",
        "2:f4@3",
        "4:nonsense",
        "-1,-1:u1",
        "0:u1",
        ":",
        "99999999999,99999999999:f8",
    ],
    "--dry-run": None,
    "--overwrite": None,
    "--resume": None,
    "--verify": None,
    "--memory": ["1", "64M", "0", "-1", "1e9", "9" * 30],
    "--sha256": None,
}
COMMANDS: dict[str, tuple[list[list[str]], dict[str, list[str] | None]]] = {
    "explain": (
        [["--shape"], SHAPES],
        SPLIT
        | {
            "--dtype": ["i4", "string", "u3", "nonsense"],
            "--svg": ["p.svg", "no/p.svg"],
            "--html": ["p.html", "."],
        },
    ),
    "split": (
        [
            ["x.npy", "y.npz", "m.onnx", "none", "."],
            ["--out"],
            ["parts", "x.npy", "", "no/parts"],
            ["--no-sync"],
        ],
        SPLIT
        | FILES
        | {
            "--prefix": PASSED[:-1],
            "--dtype": ["bfloat16", "f4", "?"],
            "--keep-other-tensors": None,
            "--max-size": ["5GB", "1", "0", "-1", "9" * 30, "x"],
        },
    ),
    "merge": (
        [
            ["x.npy", "y.npz", "m.onnx", "none"],
            ["x.npy", "x3.npy"],
            ["--out"],
            ["z.npy", "x.npy", "z.npz", "z.zip", "z.onnx", "."],
            ["--no-sync"],
        ],
        {"--axis": NUMBERS, "--external-data": None, "--json": None} | FILES,
    ),
    "inspect": (
        [["x.npy", "y.npz", "m.onnx", "none", "."]],
        {"--raw": FILES["--raw"], "--svg": ["p.svg"], "--json": None},
    ),
    "spec": ([["Split", "VariadicSplit", "nobody", ""]], {"--opset": NUMBERS, "--json": None}),
    "diff": ([["Split", "SplitToSequence", "nobody"], NUMBERS, NUMBERS], {"--json": None}),
    "infer": (
        [["m.onnx", "x.npy", "none.onnx"]],
        {"-o": ["o.onnx", "o.xml", "no/o.onnx"], "--all": None, "--json": None},
    ),
    "check": (
        [["m.onnx", "x.npy"]],
        {
            "--for": ["onnxruntime", "openvino", "no"],
            "--select": ["lengths", "onnxruntime.unbind,no", ""],
            "--ignore": ["opencv", ",", "no"],
            "--output-format": ["text", "sarif", "github", "no"],
            "--json": None,
        },
    ),
    "convert": (
        [["m.onnx", "x.npy"], ["--to"], ["onnx:13", "openvino", "onnx:-1", "openvino:opset99", "onnx:", "x"]],
        {
            "--style": ["same", "lengths", "count", "no"],
            "-o": ["o.onnx", "o.xml"],
            "--splits-only": None,
            "--json": None,
        },
    ),
    "simplify": (
        [["m.onnx", "x.npy"], ["-o"], ["o.onnx", "o.xml", "m.onnx"]],
        {"--limit": NUMBERS, "--rewrite": ["no", "merge-splits"], "--list": None, "--json": None},
    ),
    "fix": (
        [["m.onnx", "x.npy"]],
        {
            "--for": ["onnxruntime", "opencv", "no"],
            "-o": ["o.onnx", "o.xml"],
            "--partial": None,
            "--dry-run": None,
            "--unbind": ["as-written", "no"],
            "--json": None,
        },
    ),
    "run": (
        [["m.onnx", "x.npy"]],
        {
            "--input": ["x=x.npy", "x=ones", "x=nobody", "y=x.npy", "x", "=", "x=x3.npy", "x=random:f4"],
            "--out": ["results", "x.npy"],
            "--for": ["reference", "no"],
            "--json": None,
        },
    ),
    "shard": (
        [["x.npy", ".", "none"], ["--ranks"], NUMBERS],
        {
            "--plan": ["auto", "x.npy"],
            "--pad": None,
            "--pad-for": NUMBERS,
            "--layout": ["hf", "no"],
            "--json": None,
        },
    ),
    **{
        command: (
            [["x.npy", ".", "none"], ["--out"], ["o", "x.npy", ""]],
            {"--plan": ["auto", "x.npy", "none"], "--base": [".", "none"], "--dry-run": None, "--json": None},
        )
        for command in ("fuse", "unfuse")
    },
    "index": (
        [["x.npy", ".", "none"]],
        {"--include": ["*", "x.npy", ""], "--allow-missing": None, "--dry-run": None, "--json": None},
    ),
    "report-environment": ([], {"--json": None}),
}
CODES = {0, 1, 2}


@cache
def contents() -> dict[str, bytes]:
    """Small files that commands are given."""
    model = """<ir_version: 10, opset_import: ["": 18]>
    g (float[N, 6] x) => (float[A, 6] a, float[B, 6] b) { a, b = Split<num_outputs = 2>(x) }"""
    with tempfile.TemporaryDirectory() as folder:
        x = np.arange(24, dtype=np.float32).reshape(4, 6)
        np.save(f"{folder}/x.npy", x)
        np.save(f"{folder}/x3.npy", x[:3].astype(np.float16))
        np.savez(f"{folder}/y.npz", x=x, y=x[0])
        onnx.save(onnx.parser.parse_model(model), f"{folder}/m.onnx")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    needed, options = COMMANDS[name]
    words = [name]
    # One word in twenty is left out, one in ten is another one.
    given_words = [choices for choices in needed if draw(st.integers(0, 19))]
    words += [draw(st.sampled_from(choices if draw(st.integers(0, 9)) else WORDS)) for choices in given_words]
    for option in draw(st.lists(st.sampled_from(sorted(options)), max_size=4)):
        values = options[option]
        words.append(option)
        if values is not None:
            words.append(draw(st.sampled_from(values if draw(st.integers(0, 9)) else WORDS)))
    if draw(st.integers(0, 19)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.one_of(st.sampled_from(WORDS), ANY_WORD)))
    return words


def run(words: list[str]) -> Any:
    separate = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in contents().items():
            Path(folder, name).write_bytes(content)
        os.chdir(folder)
        try:
            return CliRunner(**separate).invoke(cli, words, prog_name="splitops")
        finally:
            os.chdir(before)


def assert_ends_well(found: Any, words: list[str]) -> None:
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code in CODES, words
    if found.exit_code == 1 and not {"check", "fix"} & {*words}:
        assert found.stderr.count("\n") == 1, found.stderr
    if found.exit_code == 0 and "--json" in words and "--help" not in words:
        json.loads(found.stdout)


@settings(max_examples=60, deadline=None)
@given(command_lines())
def test_any_command_line(words: list[str]) -> None:
    assert_ends_well(run(words), words)


def test_a_traceback_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import splitops.cli.spec

    monkeypatch.setattr(splitops.cli.spec.command, "callback", lambda **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        assert_ends_well(run(["spec", "Split"]), ["spec", "Split"])
