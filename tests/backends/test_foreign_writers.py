"""Ranks of fairscale, megatron-core and DeepSpeed are merged to the models that these have cut."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from splitops import sharding
from splitops.errors import PlanError

SCRIPT = Path(__file__).with_name("foreign_writers.py")
LIBRARIES = {
    "meta": "fairscale",
    "megatron": "megatron",
    "megatron-experts": "megatron",
    "deepspeed": "deepspeed",
    "deepspeed-phi3": "deepspeed",
    "deepspeed-neox": "deepspeed",
}


def load(folder: Path) -> dict[str, np.ndarray]:
    return {name: array for path in folder.glob("*.safetensors") for name, array in load_file(path).items()}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("writer", LIBRARIES)
def test_what_another_program_has_cut_is_merged(tmp_path: Path, writer: str, ranks: int) -> None:
    if find_spec(LIBRARIES[writer]) is None or find_spec("torch") is None:
        pytest.skip(f"{LIBRARIES[writer]} is not installed")
    command = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", "--standalone"]
    done = subprocess.run(
        [sys.executable, *command, SCRIPT, writer, tmp_path],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    sharding.merge(tmp_path / "ranks").run(tmp_path / "merged", sync=False)
    found, wanted = load(tmp_path / "merged"), load(tmp_path / "whole")
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].tobytes() == array.tobytes(), name
        assert found[name].shape == array.shape
    count = 3
    if writer not in ("meta", "deepspeed"):  # fused heads, which are never divided
        with pytest.raises(PlanError, match=r"3 ranks would split .*: use \[1, 2\b"):
            sharding.plan(tmp_path / "ranks", ranks=count)
        count = 2
    sharding.plan(tmp_path / "ranks", ranks=count).run(tmp_path / "other", sync=False)
    sharding.merge(tmp_path / "other").run(tmp_path / "again", sync=False)
    found = load(tmp_path / "again")
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in wanted.items()
    }
