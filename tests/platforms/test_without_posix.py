"""The package without its core on a system without POSIX: arrays, files, models and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import splitops

HERE = Path(__file__).parent
TESTS = HERE.parent
SOURCES = Path(splitops.__file__).parents[1]
SUITE = ("files/test_formats_numpy.py", "core/test_plan_calls.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter without plugins of pytest, which may need POSIX themselves."""
    paths = os.pathsep.join(str(path) for path in (SOURCES, HERE))
    environment = os.environ | {"PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_files_and_plans_need_no_posix() -> None:
    done = run(
        "-m", "pytest", "-p", "no:cacheprovider", "-p", "not_posix", *(str(TESTS / name) for name in SUITE)
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "splitops native core: not in use" in done.stdout
    assert " passed" in done.stdout


def test_models_and_commands_need_no_posix() -> None:
    smoke = TESTS.parent / "dev/tools/smoke.py"
    examples = TESTS.parent / "examples"
    statements = (
        "import not_posix, runpy, sys",
        f"sys.argv = ['smoke.py', {str(examples)!r}, 'plain']",
        f"runpy.run_path({str(smoke)!r}, run_name='__main__')",
    )
    done = run("-c", "\n".join(statements))
    assert done.returncode == 0, done.stderr
    assert "core plain, all right" in done.stdout


def test_comparing_says_that_it_needs_linux() -> None:
    statements = (
        "import not_posix, splitops_compare",
        "splitops_compare.compare(cases=['split-18/ceil/5-into-4/float32/static'])",
    )
    done = run("-c", "\n".join(statements))
    assert "comparisons run only on Linux" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("statements", "error"),
    [
        ("import fcntl", "ModuleNotFoundError"),
        ("os.fork()", "AttributeError"),
        ("exec(\"os.open('file', os.O_RDWR)\", {'os': os, '__name__': 'splitops.files'})", "opened as text"),
        ("os.open('folder', os.O_RDONLY | os.O_BINARY)", "a folder cannot be opened"),
        ("os.fsync(os.open('file', os.O_RDONLY))", "opened for reading alone"),
        ("exec(\"open('file')\", {'__name__': 'splitops.files'})", "EncodingWarning"),
        ("file = open('file'); os.replace('other', 'file')", "used by this process"),
        (
            "import mmap; m = mmap.mmap(os.open('file', os.O_RDWR), 0); os.unlink('file')",
            "used by this process",
        ),
        ("file = open('folder/inner', 'w'); os.rename('folder', 'moved')", "used by this process"),
    ],
)
def test_what_windows_rejects_is_rejected(tmp_path: Path, statements: str, error: str) -> None:
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "other").write_bytes(b"data")
    (tmp_path / "folder").mkdir()
    done = run("-c", f"import os, not_posix; os.chdir({str(tmp_path)!r}); {statements}")
    assert done.returncode == 1
    assert error in done.stderr.splitlines()[-1]
