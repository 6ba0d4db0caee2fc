"""All inputs that fuzzing keeps or found are read again: nothing but a SplitError comes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from dev.fuzz.targets import READERS, TARGETS, TESTS, reader  # noqa: E402

ALL = sorted(path for kind in ("corpus", "found") for path in (ROOT / "dev/fuzz" / kind).glob("*/*"))
CORE = [path for path in ALL if path.parent.name == "core"]
INPUTS = [path for path in ALL if path not in CORE]


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: "/".join(path.parts[-3:]))
def test_an_input_is_read_or_rejected(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.skipif(sys.platform != "linux", reason="the harness of the core is written for Linux")
def test_the_core_takes_its_inputs(tmp_path: Path) -> None:
    build = ROOT / "dev/fuzz" / "core" / "build.sh"
    harness = subprocess.check_output([build, tmp_path, "replay"], text=True).strip()
    subprocess.run([harness, *CORE], check=True, capture_output=True)
    spoilt = subprocess.run(
        [harness, *CORE], check=False, capture_output=True, env=os.environ | {"SPOIL": "1"}
    )
    assert b"does not hold: std::equal" in spoilt.stderr


def test_every_reader_has_inputs() -> None:
    assert {path.parent.name for path in INPUTS} >= READERS.keys()


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_that_are_fuzzed_are_there(name: str) -> None:
    TARGETS[name](bytes(64))


def test_an_error_of_no_tree_is_seen() -> None:
    def breaks(data: bytes, folder: Path) -> None:
        raise UnicodeDecodeError("utf-8", data, 0, 1, "no text")

    with pytest.raises(UnicodeDecodeError):
        reader(breaks)(b"\xff")
