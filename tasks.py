#!/usr/bin/env python3
"""Development tasks of both packages: ``python3.11 tasks.py demo|test|lint|oldest|backends|docs|bench|...``.

Each task makes the virtual environment that it needs, so a fresh clone needs nothing but Python and a C++
compiler. Arguments after the task go to the tool that it runs.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent
COMPARE = "compare"
"""The extra that stands for splitops-compare, with its own extras behind a colon: ``compare:runtimes``."""
TEST = "test,onnxruntime,openvino,compare"
PYTEST = ("-m", "pytest", "-q", "--timeout=900")
"""A test that hangs fails after so many seconds, with the stacks of its threads."""
MAIN = ROOT / ".venv"
LINT = ROOT / ".venv-lint"
DOCS = ROOT / ".venv-docs"
PROVE = ROOT / ".venv-prove"
OLDEST = ROOT / ".venv-oldest"
BACKENDS = ROOT / ".venv-backends"
BENCH = ROOT / ".venv-bench"
COVERAGE = ROOT / ".venv-coverage"
FUZZ = ROOT / ".venv-fuzz"
MUTANTS = ROOT / ".venv-mutants"
RELEASE = ROOT / ".venv-release"
RUNTIMES = ROOT / ".venv-runtimes"
TRAINED = ROOT / ".venv-trained"


def run(*command: str | Path, **environment: str) -> None:
    """Run a command in the repository. If it fails, exit with its code."""
    print("+", *command, flush=True)
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=os.environ | environment, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)


def python(
    environment: Path = MAIN, extras: str = TEST, constraints: str = "tests/runtimes.txt", *build: str
) -> Path:
    """Return the Python of a virtual environment with the packages in it. Create or update it if needed.

    An environment grows: ``demo`` installs less than ``test`` into the same one.

    Args:
        environment: folder of the environment.
        extras: extras of splitops, and ``compare`` for splitops-compare, separated by commas.
        constraints: file of constraints for pip.
        build: settings for the build of the native core.
    """
    executable = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    sources = [
        ROOT / "pyproject.toml",
        ROOT / "compare/pyproject.toml",
        ROOT / "CMakeLists.txt",
        *sorted((ROOT / "src/splitops/native/core").rglob("*.*")),
        *sorted((ROOT / "tests").glob("*.txt")),
    ]
    contents = [path.read_bytes() for path in sources]
    digest = hashlib.sha256(b"".join([*contents, *map(str.encode, build)])).hexdigest()
    stamp = environment / "installed"
    installed_digest, *installed = stamp.read_text().split() if stamp.exists() else [""]
    wanted = set(extras.split(","))
    if installed_digest == digest and wanted <= set(installed):
        return executable
    names = sorted(wanted.union(installed))
    packages = requirements(names)
    print(f"Installing {', '.join(packages)} into {environment.name}, once. This takes a minute or two.")
    if not executable.exists():
        venv.create(environment, with_pip=True)
    pip = [executable, "-m", "pip", "-qq", "--disable-pip-version-check", "install", "--upgrade"]
    settings = [f"--config-settings={setting}" for setting in build]
    editable = [part for package in packages for part in ("--editable", package)]
    command = [*pip, "--constraint", constraints, *settings, *editable]
    code = subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode
    if code:
        sys.exit(code)
    stamp.write_text(" ".join([digest, *names]))
    return executable


def requirements(names: list[str]) -> list[str]:
    """Return the paths of the packages with their extras, for pip."""
    extras = [name for name in names if name.partition(":")[0] != COMPARE]
    found = [f"./[{','.join(extras)}]"]
    if len(extras) < len(names):
        of_compare = [name.partition(":")[2] for name in names if name.startswith(f"{COMPARE}:")]
        found.append(f"./compare[{','.join(of_compare)}]" if of_compare else "./compare")
    return found


class Step(NamedTuple):
    """One step of the demo.

    Attributes:
        sentence: what it shows.
        command: ``{made}`` stands for the folder of what is made.
        code: the exit code that it ends with.
    """

    sentence: str
    command: str
    code: int = 0


def demo() -> None:
    """Fix a model that onnxruntime rejects and an IR that OpenVINO gets wrong; split an array and a file."""
    tools = python(MAIN, "onnxruntime,openvino")
    with tempfile.TemporaryDirectory(prefix="splitops-demo-") as made:
        for step in DEMO:
            command = step.command.format(made=made)
            print(f"\n{step.sentence}\n$ {command}", flush=True)
            program, *arguments = shlex.split(command)
            done = subprocess.run([tools.with_name(program), *arguments], cwd=ROOT, check=False)
            if done.returncode != step.code:
                sys.exit(f"The exit code is {done.returncode}, not {step.code}.")


def test(*arguments: str) -> None:
    """Run the tests."""
    run(python(), *PYTEST, "-n", "2", *arguments)


def lint() -> None:
    """Check style, types, the layering of the imports, and habits of prose and naming."""
    tools = python(LINT, "lint,compare")
    run(tools, "-m", "ruff", "check", ".")
    run(tools, "-m", "ruff", "format", "--check", ".")
    run(tools, "-m", "mypy")
    run(tools.with_name("lint-imports"))
    run(tools.with_name("zizmor"), "--offline", "--quiet", ".github")
    run(tools, "dev/tools/prose.py")


def oldest(*arguments: str) -> None:
    """Run the tests with the oldest dependencies that are allowed and no runtime, fewer examples of each.

    What needs onnxruntime or OpenVINO is skipped: these are tested as current releases do. So are the type
    checker and the fallback of the native core, which depend on no release.
    """
    kinds = ("core", "native", "models", "conformance", "cli", "files", "sharding", "test_packing.py")
    kinds += ("inference", "check", "convert", "simplify", "fix")
    tests = [f"tests/{kind}" for kind in kinds]
    tests += [f"compare/tests/test_{part}.py" for part in ("comparing", "worker", "own_models")]
    tests += [f"--ignore=tests/core/test_{part}.py" for part in ("fallback", "types")]
    tools = python(OLDEST, "test,compare", "tests/oldest.txt")
    run(tools, *PYTEST, "-n", "2", *tests, *arguments, HYPOTHESIS_PROFILE="brief")


def runtimes(*arguments: str) -> None:
    """Compare sessions on the oldest onnxruntime and OpenVINO that are allowed with the reference."""
    tools = python(RUNTIMES, "test,onnxruntime,openvino,compare", "tests/runtimes-oldest.txt")
    run(tools, *PYTEST, "-n", "2", "tests/engines", *arguments)


def backends(*arguments: str) -> None:
    """Run the tests of the array libraries, with PyTorch, JAX, Dask, xarray and sparse."""
    tools = python(BACKENDS, "backends", "tests/backends.txt")
    run(tools, *PYTEST, "-n", "2", "tests/backends", *arguments)


def docs(*arguments: str) -> None:
    """Generate the pages of the documentation, build it without warnings, and test the site."""
    tools = python(DOCS, f"docs,{TEST}")
    run(tools, "-m", "dev.pages")
    run(tools, "-m", "mkdocs", "build", "--strict", NO_MKDOCS_2_WARNING="1")
    run(tools, *PYTEST, "tests/docs", *arguments)


def pages(*arguments: str) -> None:
    """Generate the pages of the documentation, or some of them: ``pages [NAME ...]``."""
    run(python(), "-m", "dev.pages", *arguments)


def fuzz(*arguments: str) -> None:
    """Fuzz one target, or all of them, for so many seconds: ``fuzz [TARGET [SECONDS]]``."""
    run(python(FUZZ, "fuzz,compare"), "-m", "dev.fuzz", *arguments)


def soak(*arguments: str) -> None:
    """Make mixed calls for so many minutes in several threads while memory is watched: ``soak [MINUTES]``."""
    run(python(BACKENDS, "backends", "tests/backends.txt"), "-m", "dev.soak", *arguments)


def neighbours(*arguments: str) -> None:
    """Run random models with the patterns of networks around splits: ``neighbours [SECONDS]``."""
    run(python(), "-m", "dev.neighbours", *arguments)


def empties(*arguments: str) -> None:
    """Run every operator of onnxruntime on empty tensors: ``empties [OPERATOR ...]``."""
    run(python(), "-m", "dev.tools.empties", *arguments)


def releases(*arguments: str) -> None:
    """Run all listed cases on each release of a runtime: ``releases RUNTIME [RELEASE ...]``."""
    run(python(), "dev/tools/releases.py", *arguments)


def mutants(*arguments: str) -> None:
    """Change the code that decides sizes in small ways and see tests fail: ``mutants [MODULE ...]``."""
    run(python(MUTANTS, "mutants,compare"), "dev/tools/mutants.py", *arguments)


def prove(*arguments: str) -> None:
    """Prove the claims on the size arithmetic: ``prove [--mutants]``; replay: ``prove --why3 [--record]``."""
    if arguments[:1] == ("--why3",):
        run(sys.executable, "dev/tools/theory.py", *arguments[1:])
    else:
        tools = python(PROVE, "prove,test")
        run(tools, "proofs/contracts.py", *arguments)
        run(tools, *PYTEST, "tests/proofs")


def coverage(*arguments: str) -> None:
    """Count the lines and branches, of Python and the native core, that the tests take."""
    build = ("cmake.define.SPLITOPS_COVERAGE=ON", "build-dir=build/coverage")
    tools = python(COVERAGE, "coverage,compare", "tests/backends.txt", *build)
    run(tools, "dev/tools/covered.py", *arguments)


def wheels(*arguments: str) -> None:
    """Build, check and try the distributions: those for every platform alone (``any``), or for Linux too."""
    run(python(RELEASE, "release"), "dev/tools/wheels.py", *arguments)


def trained(*arguments: str) -> None:
    """Put trained models that wheels ship through every tool: ``trained [--write] [NAME ...]``."""
    run(python(TRAINED, "compare:runtimes"), "dev/tools/trained.py", *arguments)


def bench(*arguments: str) -> None:
    """Print tables of speed, or run a module of ``dev/benchmarks``: ``bench [SECTION ...|MODULE ...]``."""
    tools, modules = python(BENCH, "bench", "tests/backends.txt"), ROOT / "dev/benchmarks"
    if arguments and (modules / f"{arguments[0]}.py").exists():
        run(tools, "-m", f"dev.benchmarks.{arguments[0]}", *arguments[1:])
    else:
        run(tools, "-m", "dev.benchmarks", *arguments)


DEMO = (
    Step(
        "1. This model is valid: it splits 5 frames into 4 parts. onnxruntime rejects it when it runs.",
        "python examples/run_alone.py examples/models/quarters.onnx",
        1,
    ),
    Step(
        "check finds the reason without running the model, and prints the command that fixes it.",
        "splitops check examples/models/quarters.onnx --for onnxruntime",
        1,
    ),
    Step(
        "fix rewrites the split, runs both models, and compares the results bit by bit.",
        "splitops fix examples/models/quarters.onnx --for onnxruntime --verify -o {made}/quarters.onnx",
    ),
    Step(
        "onnxruntime runs the fixed model, without splitops.",
        "python examples/run_alone.py {made}/quarters.onnx",
    ),
    Step(
        "2. This IR splits 6 labels into three sets. OpenVINO returns the first labels in every set.",
        "python examples/run_alone.py examples/models/labels.xml",
    ),
    Step(
        "fix replaces the split by an operator that OpenVINO executes correctly.",
        "splitops fix examples/models/labels.xml --for openvino --verify -o {made}/labels.xml",
    ),
    Step("OpenVINO returns the right labels now.", "python examples/run_alone.py {made}/labels.xml"),
    Step(
        "3. splitops also runs models. This transformer block runs on onnxruntime, with all of its splits.",
        "splitops run examples/models/attention_block.onnx --input x=examples/data/attention_block_x.npy",
    ),
    Step(
        "The splits of this OpenVINO IR take sensor data apart.",
        "splitops run examples/models/feature_split.xml --input x=examples/data/feature_split_x.npy",
    ),
    Step(
        "4. Arrays are split by the same operators. The parts are views.",
        'python -c "import numpy, splitops; print(splitops.onnx.split(numpy.arange(7), num_outputs=3))"',
    ),
    Step(
        "5. Files are split by the same operators, with bounded memory, and read back to verify the parts.",
        "splitops split examples/data/feature_split_x.npy --axis 1 --sizes 6,2,-1 -o {made}/parts --verify",
    ),
)
_TASKS = (
    demo,
    test,
    lint,
    oldest,
    runtimes,
    backends,
    docs,
    pages,
    bench,
    fuzz,
    soak,
    neighbours,
    empties,
    releases,
    mutants,
    prove,
    coverage,
    wheels,
    trained,
)
TASKS = {task.__name__: task for task in _TASKS}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TASKS:
        sys.exit(f"usage: tasks.py {'|'.join(TASKS)} [argument ...]")
    TASKS[sys.argv[1]](*sys.argv[2:])
