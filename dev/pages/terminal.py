"""Records commands as pictures of a terminal: terminal.md, its pictures, and that of a plan for ranks.

The commands run for real, one after the other in one folder, on files that are made here.
"""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import onnx
import onnx.parser
from click.testing import CliRunner
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text
from safetensors.numpy import save_file

from dev.pages import DOCS, PICTURES
from splitops.cli import cli

EXAMPLES: Final = DOCS.parent / "examples"
WIDTH: Final = 96
NARROW: Final = 46
"""Columns of the pictures for phones."""

MODEL: Final = """
<ir_version: 9, opset_import: ["": 18]>
quarters (float[5, 2] x) => (float[n, 2] a, float[m, 2] b, float[k, 2] c, float[l, 2] d) {
    a, b, c, d = Split<num_outputs = 4>(x)
}
"""
PLAN: Final = """
version = 1

[[rule]]
match = "*.qkv_proj.weight"
axis = 0
sections = [64, 16, 16]
unit = 8
replicate = [1, 2]

[[rule]]
match = "*.o_proj.weight"
hf = "rowwise"

[[rule]]
match = "embed_tokens.weight"
axis = 0
pad_to = 64

[[rule]]
match = "*.norm.weight"
replicate = true
"""


RUN: Final = """import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
parts = session.run(None, {"x": np.ones((5, 2), np.float32)})
print("It runs:", ", ".join(str(part.shape) for part in parts))
"""


class Step(NamedTuple):
    """A command, and its exit code."""

    command: str
    code: int = 0


class Recording(NamedTuple):
    """Commands, and what is to be said of them."""

    name: str
    heading: str
    words: str
    steps: tuple[Step, ...]


RECORDINGS: Final = (
    Recording(
        "story",
        "Fix a model that does not run",
        "onnxruntime rejects the model. `check` finds the reason without running it, and prints the "
        "command that fixes it.",
        (
            Step("python run.py model.onnx", 1),
            Step("splitops check model.onnx --for onnxruntime", 1),
            Step("splitops fix model.onnx --for onnxruntime -o model.fixed.onnx"),
            Step("python run.py model.fixed.onnx"),
        ),
    ),
    Recording(
        "rule",
        "Look up a code or a message",
        "What it means, what runtimes print, and the fix. A part of the message is enough.",
        (Step('splitops rule "Number of outputs (1) does not match num_outputs (4)"'),),
    ),
    Recording(
        "explain",
        "Show what a split does",
        "Sizes, offsets, bytes and places in memory, without any data.",
        (Step("splitops explain --shape 6,10,24 --axis 1 --parts 4"),),
    ),
    Recording(
        "fix",
        "Verify a fixed model",
        "The source runs here, the fixed model runs in the runtime, and the bits are compared.",
        (Step("splitops fix model.onnx --for onnxruntime --verify -o fixed.onnx"),),
    ),
    Recording(
        "run",
        "Run a model",
        "The table shows every split: which engine ran it, and its parts.",
        (Step("splitops run feature_split.xml --input x=feature_split_x.npy"),),
    ),
    Recording(
        "split",
        "Split a file",
        "Files of any size, with bounded memory. The parts appear all together, or not at all.",
        (Step("splitops split data.npy --axis 1 --sizes 2,4,-1 --out parts --verify"),),
    ),
    Recording(
        "shard",
        "See what each rank holds",
        "A plan is applied to a checkpoint; nothing is written yet.",
        (Step("splitops shard model --ranks 4 --plan plan.toml --dry-run --svg who-holds-what.svg"),),
    ),
)


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder with what the commands need, as long as the block lasts."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        onnx.save(onnx.parser.parse_model(MODEL), place / "model.onnx")
        (place / "run.py").write_text(RUN)
        for name in ("models/feature_split.xml", "models/feature_split.bin", "data/feature_split_x.npy"):
            shutil.copy(EXAMPLES / name, place)
        np.save(place / "data.npy", np.arange(40, dtype=np.float32).reshape(4, 10))
        (place / "plan.toml").write_text(PLAN)
        (place / "model").mkdir()
        save_file(_checkpoint(), place / "model" / "model.safetensors")
        os.chdir(place)
        try:
            yield place
        finally:
            os.chdir(before)


def _checkpoint() -> dict[str, np.ndarray]:
    shapes = {"embed_tokens.weight": (1001, 64)}
    for layer in range(2):
        shapes[f"layers.{layer}.qkv_proj.weight"] = (96, 64)
        shapes[f"layers.{layer}.o_proj.weight"] = (64, 64)
        shapes[f"layers.{layer}.norm.weight"] = (64,)
    return {name: np.zeros(shape, np.float16) for name, shape in shapes.items()}


def said(step: Step, width: int = WIDTH) -> str:
    """Run a command as on a terminal, and return what it prints, with its colours.

    Of a Python script that fails, it is the last line, as a traceback fills a screen.

    Raises:
        AssertionError: it ends with another exit code.
    """
    command, *arguments = shlex.split(step.command)
    if command == "python":
        done = subprocess.run(  # noqa: S603
            [sys.executable, *arguments], capture_output=True, text=True, check=False
        )
        code, output = done.returncode, done.stdout or f"...\n{done.stderr.strip().splitlines()[-1]}"
    else:
        environment = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(width), "NO_COLOR": None}
        found = CliRunner(env=environment).invoke(cli, arguments, color=True)
        code, output = found.exit_code, found.output
    assert code == step.code, f"{step.command}: {output}"
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    return "\n".join(lines).strip("\n")


def drawn(name: str, title: str, lines: Iterable[tuple[str, str]], width: int = WIDTH) -> str:
    """Draw a terminal with commands and what they printed."""
    console = Console(record=True, width=width, file=StringIO(), color_system="truecolor")
    for command, output in lines:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(output))
    style = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    style = style.replace("Fira Code, monospace", "ui-monospace, 'Liberation Mono', monospace")
    style = re.sub(r"\s*<!-- Generated.*?-->", "", style)
    drawing = console.export_svg(title=title, code_format=style, unique_id=f"terminal-{name}")
    return "\n".join(line.rstrip() for line in drawing.splitlines() if line.strip()) + "\n"


def recorded() -> tuple[str, dict[str, str]]:
    """Run the commands; return the page and the pictures by file name."""
    text, pictures = TEMPLATE, {}
    with workplace():
        for one in RECORDINGS:
            lines = [(step.command, said(step, NARROW)) for step in one.steps]
            pictures[f"terminal-{one.name}.narrow.svg"] = drawn(one.name, _title(one), lines, NARROW)
    with workplace() as place:
        for one in RECORDINGS:
            lines = [(step.command, said(step)) for step in one.steps]
            pictures[f"terminal-{one.name}.svg"] = drawn(one.name, _title(one), lines)
            printed = "\n".join(f"$ {command}\n{Text.from_ansi(output).plain}" for command, output in lines)
            plain = html.escape("\n".join(map(str.rstrip, printed.splitlines())), quote=False)
            commands = " and ".join(command for command, _ in lines).replace('"', "'")
            text += (
                f"\n## {one.heading}\n\n{one.words}\n\n"
                f"![A terminal with {commands}; the output is below as text]"
                f"(pictures/terminal-{one.name}.svg)\n\n"
                f'<details markdown="0"><summary>The same as text</summary><pre>{plain}</pre></details>\n'
            )
        pictures["who-holds-what.svg"] = (place / "who-holds-what.svg").read_text()
    return text, pictures


def _title(one: Recording) -> str:
    return one.heading if len(one.steps) > 1 else " ".join(one.steps[0].command.split()[:2])


TEMPLATE: Final = """# Use the terminal

<!-- Made by dev/pages/terminal.py, which runs the commands. -->

What the commands print. [The reference](cli.md) has every option, and so has `splitops COMMAND --help`.
"""


def write() -> None:
    """Write the pages and pictures of this module."""
    page, pictures = recorded()
    (DOCS / "terminal.md").write_text(page)
    for file, picture in pictures.items():
        (PICTURES / file).write_text(picture)
