"""The site, built once as it is published."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site without a warning; return its folder."""
    pytest.importorskip("material", reason="the theme of the site is not installed")
    pytest.importorskip("mkdocstrings", reason="what makes the reference is not installed")
    pytest.importorskip("material", reason="the theme of the site is not installed")
    pytest.importorskip("mkdocstrings", reason="what makes the reference is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder
