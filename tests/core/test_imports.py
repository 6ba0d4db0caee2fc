"""``import splitops`` loads nothing heavier than NumPy, and imports run downwards only."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import splitops

HEAVY = ["torch", "jax", "dask", "cupy", "xarray", "sparse", "onnx", "onnx_ir", "onnxruntime", "openvino"]
HEAVY += ["rich", "click", "defusedxml", "ml_dtypes", "xml.etree"]
ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(splitops.__file__).parents[1])}


def python(*arguments: str) -> str:
    """Run a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, *arguments], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(*statements: str, names: Sequence[str] = HEAVY) -> list[str]:
    """Return which of these modules a fresh interpreter has after the forms."""
    script = "\n".join(
        ["import sys", *statements, f"print(*[name for name in {names!r} if name in sys.modules])"]
    )
    return python("-c", script).split()


def test_importing_splitops_loads_nothing_heavier_than_numpy() -> None:
    assert loaded("import splitops") == []
    assert loaded("import splitops", names=["numpy"]) == ["numpy"]


def test_splitting_a_numpy_array_loads_nothing_more() -> None:
    statements = [
        "import numpy as np, splitops",
        "splitops.onnx.split(np.zeros((6, 4)), num_outputs=4, copy=True)",
        "splitops.openvino.variadic_split(np.zeros((6, 4)), 0, [2, -1])",
        "splitops.onnx.split(np.zeros((6, 4)), num_outputs=2, out=np.zeros((2, 3, 4)))",
        "splitops.plan('SplitToSequence', shape=(3,))(np.arange(3))",
        "splitops.difference('Split', 13, 18), splitops.history('VariadicSplit')",
    ]
    assert loaded(*statements) == []


@pytest.mark.parametrize("name", ["rich", "onnx", "ml_dtypes", "defusedxml"])
def test_a_module_that_is_loaded_would_be_found(name: str) -> None:
    pytest.importorskip(name)
    assert name in loaded("import splitops", f"import {name}")


def test_the_time_of_the_import_is_reported(record_property: pytest.RecordProperty) -> None:
    """Not held to a limit: machines differ."""
    script = (
        "import time, numpy; start = time.perf_counter(); import splitops; print(time.perf_counter() - start)"
    )
    seconds = float(python("-c", script))
    assert seconds > 0
    record_property("seconds to import splitops after NumPy", round(seconds, 4))


def lint(config: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("importlinter")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    command += ["--config", str(config), "--no-cache"]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_imports_run_downwards_only() -> None:
    done = lint(ROOT / ".importlinter")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("contract", "number"), [("layers", 1), ("models", 2)])
def test_the_tables_of_layers_are_those_of_the_contracts(contract: str, number: int) -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts[f"importlinter:contract:{contract}"]["layers"].split("\n")[1:]
    table = (ROOT / "CONTRIBUTING.md").read_text().split("| layer | modules |")[number].partition("\n\n")[0]
    stated = [re.findall(r"`(\w+)`", row.split("|")[2]) for row in table.splitlines()[2:]]
    assert [" ".join(row) for row in stated] == [" ".join(re.findall(r"\w+", layer)) for layer in layers]


@pytest.mark.parametrize(
    ("contract", "lower", "upper"),
    [
        ("From files down to errors", "calls", "cli"),
        ("In models: from tools down to abstract values", "ops", "infer"),
    ],
)
def test_a_contract_that_is_turned_upside_down_is_broken(
    contract: str, lower: str, upper: str, tmp_path: Path
) -> None:
    text = (ROOT / ".importlinter").read_text()
    assert text.count(f"    {lower}\n") == text.count(f"    {upper}\n") == 1
    (tmp_path / ".importlinter").write_text(
        text.replace(f"    {lower}\n", "").replace(f"    {upper}\n", f"    {lower}\n    {upper}\n")
    )
    done = lint(tmp_path / ".importlinter")
    assert done.returncode == 1
    assert f"{contract} BROKEN" in done.stdout


WITHOUT_POSIX = """
import os, sys
for name in ("fcntl", "resource"):
    sys.modules[name] = None
for name in ("pread", "preadv", "pwrite", "posix_fadvise", "posix_fallocate", "sync"):
    delattr(os, name)
"""


def test_files_are_imported_where_there_is_no_posix() -> None:
    python("-c", WITHOUT_POSIX + "import splitops.files.cluster, splitops.files.chunks, splitops.cli.split")
    with pytest.raises(AssertionError, match="resource"):
        python("-c", WITHOUT_POSIX + "import resource")


def test_the_package_lists_what_it_exports() -> None:
    assert dir(splitops) == sorted(splitops.__all__)
