#!/usr/bin/env python3
"""Development tasks: ``python3.11 tasks.py demo|test|lint|oldest|backends|docs|bench|fuzz|soak|mutants|...``.

Each task makes the virtual environment that it needs, so a fresh clone needs nothing but Python and a C++
compiler. Arguments after the task go to the tool that it runs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
MAIN = ROOT / ".venv"
OLDEST = ROOT / ".venv-oldest"
BACKENDS = ROOT / ".venv-backends"
BENCH = ROOT / ".venv-bench"
COVERAGE = ROOT / ".venv-coverage"
FUZZ = ROOT / ".venv-fuzz"
MUTANTS = ROOT / ".venv-mutants"
RELEASE = ROOT / ".venv-release"


def run(*command: str | Path, **environment: str) -> None:
    """Run a command in the repository; its failure is ours."""
    print("+", *command, flush=True)
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=os.environ | environment, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)


def python(
    environment: Path = MAIN, extras: str = "dev", constraints: str = "tests/runtimes.txt", *build: str
) -> Path:
    """Return the Python of a virtual environment with the package in it, made or renewed where needed.

    ``build`` are settings of the build of the native core.
    """
    executable = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    sources = [
        ROOT / "pyproject.toml",
        ROOT / "CMakeLists.txt",
        *sorted((ROOT / "src/splitops/native/core").rglob("*.*")),
        *sorted((ROOT / "tests").glob("*.txt")),
    ]
    stated = "".join((extras, *build)).encode()
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + stated).hexdigest()
    stamp = environment / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return executable
    if not executable.exists():
        venv.create(environment, with_pip=True)
    pip = [executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    settings = [f"--config-settings={setting}" for setting in build]
    run(*pip, "--upgrade", "--constraint", constraints, *settings, "--editable", f"{ROOT}[{extras}]")
    stamp.write_text(wanted)
    return executable


def demo() -> None:
    """Split real input with a shipped ONNX model and a shipped OpenVINO IR."""
    splitops = python().with_name("splitops")
    for arguments in DEMO:
        run(splitops, *arguments)


def test(*arguments: str) -> None:
    """Run the tests."""
    run(python(), "-m", "pytest", "-q", "-n", "2", *arguments)


def lint() -> None:
    """Check style, types and the layering of the imports."""
    tools = python()
    run(tools, "-m", "ruff", "check", ".")
    run(tools, "-m", "ruff", "format", "--check", ".")
    run(tools, "-m", "mypy")
    run(tools.with_name("lint-imports"))
    run(tools.with_name("zizmor"), "--offline", "--quiet", ".github")


def oldest(*arguments: str) -> None:
    """Run the tests with the oldest dependencies that are allowed and no runtime, fewer examples of each.

    What needs onnxruntime or OpenVINO is skipped: these are tested as current releases do.
    """
    kinds = ("core", "native", "models", "conformance", "cli", "files", "sharding", "test_packing.py")
    kinds += ("inference", "check", "convert", "simplify", "fix")
    kinds += tuple(f"compare/test_{part}.py" for part in ("comparing", "worker", "own_models"))
    tests = (f"tests/{kind}" for kind in kinds)
    tools = python(OLDEST, "test", "tests/oldest.txt")
    run(tools, "-m", "pytest", "-q", "-n", "2", *tests, *arguments, HYPOTHESIS_PROFILE="brief")


def backends(*arguments: str) -> None:
    """Run the tests of the array libraries, with PyTorch, JAX, Dask, xarray and sparse."""
    tools = python(BACKENDS, "backends", "tests/backends.txt")
    run(tools, "-m", "pytest", "-q", "-n", "2", "tests/backends", *arguments)


def docs() -> None:
    """Make the generated pages anew and build the documentation without warnings."""
    tools = python()
    for script in sorted((ROOT / "docs").glob("generate*.py")):
        run(tools, script)
    run(tools, "-m", "mkdocs", "build", "--strict", NO_MKDOCS_2_WARNING="1")


def fuzz(*arguments: str) -> None:
    """Fuzz one target, or all of them, for so many seconds: ``fuzz [TARGET [SECONDS]]``."""
    run(python(FUZZ, "fuzz"), "-m", "dev.fuzz", *arguments)


def soak(*arguments: str) -> None:
    """Make mixed calls for so many minutes in several threads while memory is watched: ``soak [MINUTES]``."""
    run(python(BACKENDS, "backends", "tests/backends.txt"), "-m", "dev.soak", *arguments)


def mutants(*arguments: str) -> None:
    """Change the code that decides sizes in small ways and see tests fail: ``mutants [MODULE ...]``."""
    run(python(MUTANTS, "mutants"), "dev/tools/mutants.py", *arguments)


def coverage(*arguments: str) -> None:
    """Count the lines and branches, of Python and the native core, that the tests take."""
    build = ("cmake.define.SPLITOPS_COVERAGE=ON", "build-dir=build/coverage")
    tools = python(COVERAGE, "coverage", "tests/backends.txt", *build)
    run(tools, "dev/tools/covered.py", *arguments)


def wheels(*arguments: str) -> None:
    """Build, check and try the distributions: those for every platform alone (``any``), or for Linux too."""
    run(python(RELEASE, "release"), "dev/tools/wheels.py", *arguments)


def bench(*arguments: str) -> None:
    """Print the benchmark tables, with every peer installed."""
    run(python(BENCH, "bench", "tests/backends.txt"), "-m", "dev.benchmarks", *arguments)


DEMO = (
    ("run", "examples/models/attention_block.onnx", "--input", "x=examples/data/attention_block_x.npy"),
    ("run", "examples/models/feature_split.xml", "--input", "x=examples/data/feature_split_x.npy"),
)
_TASKS = (demo, test, lint, oldest, backends, docs, bench, fuzz, soak, mutants, coverage, wheels)
TASKS = {task.__name__: task for task in _TASKS}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TASKS:
        sys.exit(f"usage: tasks.py {'|'.join(TASKS)} [argument ...]")
    TASKS[sys.argv[1]](*sys.argv[2:])
