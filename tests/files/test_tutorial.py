"""The tutorial of docs/files.md runs, in a shell that has less memory than the file has bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import splitops

PAGE = Path(__file__).parents[2] / "docs" / "files.md"


def test_the_tutorial_runs(tmp_path):
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    assert "ulimit -v" in commands
    assert "--resume" in commands
    script = f"""
set -e
python() {{ '{sys.executable}' "$@"; }}
splitops() {{ exec '{sys.executable}' -m splitops "$@"; }}
run() {{ (splitops "$@"); }}
""" + re.sub(r"^splitops (.*[^&])$", r"run \1", commands, flags=re.MULTILINE)
    environment = os.environ | {"PYTHONPATH": str(Path(splitops.__file__).parents[1])}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\.splitops-parts-big\.part$", done.stdout, re.MULTILINE)
    assert re.search(r"^\d+ of 671088640 bytes had been copied before\.$", done.stdout, re.MULTILINE), (
        done.stdout
    )
    parts = [np.load(tmp_path / "parts" / f"big.{i}.npy", mmap_mode="r") for i in range(3)]
    assert [part.shape[1] for part in parts] == [10240, 4096, 2048]
    assert parts[1][7, 3] == 10240 + 3 + 7
    del parts
    for path in (*tmp_path.glob("*.npy"), *tmp_path.glob("parts/*")):
        path.unlink()
