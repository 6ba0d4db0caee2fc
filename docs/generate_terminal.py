#!/usr/bin/env python3
"""Records commands as pictures of a terminal: terminal.md, its pictures, and that of a plan for ranks.

The commands run for real, one after the other in one folder, on files that are made here.

python docs/generate_terminal.py
"""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
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

from splitops.cli import cli

DOCS: Final = Path(__file__).parent
PICTURES: Final = DOCS / "pictures"
EXAMPLES: Final = DOCS.parent / "examples"
WIDTH: Final = 96

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


class Recording(NamedTuple):
    """A command, what is to be said of it, and its exit code."""

    name: str
    heading: str
    words: str
    command: str
    code: int = 0


RECORDINGS: Final = (
    Recording(
        "explain",
        "What a split does",
        "Sizes, offsets, bytes and places in memory, without any data.",
        "splitops explain --shape 6,10,24 --axis 1 --parts 4",
    ),
    Recording(
        "check",
        "Why a model does not load",
        "Each rule that is broken and each limit of a runtime, with the place and the repair.",
        "splitops check model.onnx --target onnxruntime",
        code=1,
    ),
    Recording(
        "legalize",
        "A model that loads",
        "The same model, restated so that the runtime gives what is decided; both are run to prove it.",
        "splitops legalize model.onnx --for onnxruntime --prove -o legal.onnx",
    ),
    Recording(
        "run",
        "A model run",
        "What was split, by whom, and what came out.",
        "splitops run feature_split.xml --input x=feature_split_x.npy",
    ),
    Recording(
        "split",
        "A file split",
        "Files of any size, with bounded memory; nothing is there before everything is.",
        "splitops split data.npy --axis 1 --sizes 2,4,-1 --out parts --verify",
    ),
    Recording(
        "shard",
        "Who holds what of a checkpoint",
        "A plan read against a checkpoint; nothing is written yet.",
        "splitops shard model --ranks 4 --plan plan.toml --dry-run --svg who-holds-what.svg",
    ),
    Recording(
        "compare",
        "A runtime asked",
        "A case asked in a process of its own, confirmed twice, held to what the operator means.",
        "splitops compare onnxruntime --op Split-18 --case split-18/ceil/5-into-4/float32/static",
        code=1,
    ),
)


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder with what the commands need, as long as the block lasts."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        onnx.save(onnx.parser.parse_model(MODEL), place / "model.onnx")
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


def said(command: str, code: int) -> str:
    """Run a command as on a terminal, and return what it prints, with its colours.

    Raises:
        AssertionError: it ends with another exit code.
    """
    environment = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "NO_COLOR": None}
    done = CliRunner(env=environment).invoke(cli, shlex.split(command)[1:], color=True)
    assert done.exit_code == code, f"{command}: {done.output}"
    lines = [line.rstrip() for line in done.output.strip("\n").splitlines()]
    return "\n".join(lines)


def drawn(name: str, command: str, output: str) -> str:
    """Draw a terminal with a command and what it printed."""
    console = Console(record=True, width=WIDTH, file=StringIO(), color_system="truecolor")
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    console.print(Text.from_ansi(output))
    style = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    style = style.replace("Fira Code, monospace", "ui-monospace, 'Liberation Mono', monospace")
    style = re.sub(r"\s*<!-- Generated.*?-->", "", style)
    drawing = console.export_svg(title=f"splitops {name}", code_format=style, unique_id=f"terminal-{name}")
    return "\n".join(line.rstrip() for line in drawing.splitlines() if line.strip()) + "\n"


def recorded() -> tuple[str, dict[str, str]]:
    """Run the commands; return the page and the pictures by file name."""
    text, pictures = TEMPLATE, {}
    with workplace() as place:
        for one in RECORDINGS:
            output = said(one.command, one.code)
            pictures[f"terminal-{one.name}.svg"] = drawn(one.name, one.command, output)
            printed = "\n".join(line.rstrip() for line in Text.from_ansi(output).plain.splitlines())
            plain = html.escape(f"$ {one.command}\n{printed}", quote=False)
            text += (
                f"\n## {one.heading}\n\n{one.words}\n\n"
                f"![A terminal with the command {one.command}; what it prints stands below as text]"
                f"(pictures/terminal-{one.name}.svg)\n\n"
                f'<details markdown="0"><summary>The same as text</summary><pre>{plain}</pre></details>\n'
            )
        pictures["who-holds-what.svg"] = (place / "who-holds-what.svg").read_text()
    return text, pictures


TEMPLATE: Final = """# In the terminal

<!-- Made by docs/generate_terminal.py, which runs the commands. -->

What the commands print. [Their reference](cli.md) has every option; `splitops COMMAND --help` says the same.
"""

if __name__ == "__main__":
    page, pictures = recorded()
    (DOCS / "terminal.md").write_text(page)
    for file, picture in pictures.items():
        (PICTURES / file).write_text(picture)
