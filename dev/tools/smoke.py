"""Tries an installed splitops, without its tests: ``smoke.py EXAMPLES [compiled|plain]``.

EXAMPLES is the folder of the shipped models and their inputs. The second word says which core must be in use.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

import splitops


def main(examples: Path, core: str | None) -> None:
    """Run the operators, both demo models and the command."""
    from splitops import native

    if core is not None and native.available != (core == "compiled"):
        sys.exit(f"the compiled core is {'' if native.available else 'not '}in use")
    if core == "compiled":
        check_instruction_set(native.get_instruction_set())
    x = np.arange(12).reshape(2, 6)
    left, right = splitops.onnx.split(x, [2, 4], axis=1, copy=True)
    assert (left == x[:, :2]).all()
    assert (right == x[:, 2:]).all()
    assert [part.shape for part in splitops.onnx.split_to_sequence(x, 4, axis=1)] == [(2, 4), (2, 2)]
    assert [part.shape for part in splitops.openvino.split(x, 1, 3)] == [(2, 2)] * 3
    assert [part.shape for part in splitops.openvino.variadic_split(x, 1, [1, -1])] == [(2, 1), (2, 5)]
    outputs = {}
    for suffix, name in ((".onnx", "attention_block"), (".xml", "feature_split")):
        data = np.load(examples / "data" / f"{name}_x.npy")
        outputs |= splitops.run(examples / "models" / f"{name}{suffix}", {"x": data}, engine="reference")
    assert [part.shape for part in outputs["windows"]] == [(1, 4, 32), (1, 4, 32), (1, 2, 32)]
    assert np.isfinite(outputs["y"]).all()
    assert (outputs["lidar"] == data[:, 8:]).all()  # the last part of the last input
    said = subprocess.run(
        [sys.executable, "-m", "splitops", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == f"splitops, version {splitops.__version__}"
    in_use = native.get_instruction_set() or "plain"
    print(f"splitops {splitops.__version__} on Python {sys.version.split()[0]}: core {in_use}, all right")


def check_instruction_set(used: str | None) -> None:
    """Prove that the core uses the widest instructions that Linux says the processor has."""
    said = Path("/proc/cpuinfo")
    words = set(said.read_text("utf-8").split()) if said.exists() else set()
    if platform.machine() in ("aarch64", "arm64"):
        best = "neon"
    elif {"avx512f", "avx512bw", "avx512vl", "avx512vbmi"} <= words:
        best = "avx512"
    else:
        best = "avx2" if "avx2" in words else "generic"
    if words and used != best:
        sys.exit(f"the core uses {used} instructions, and not {best}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if sys.argv[2:] else None)
