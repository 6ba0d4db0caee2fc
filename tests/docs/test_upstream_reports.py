"""The reports for others: each reproduces what it says, on the installed release."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "compare" / "docs" / "reports"
REPORTS = sorted(path for path in FOLDER.glob("*.md") if path.name != "overview.md")


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_a_report_reproduces_its_fault(report: Path) -> None:
    pytest.importorskip("openvino")
    text = report.read_text()
    script = re.search(r"```py\n(.*?)```", text, re.DOTALL)
    shown = re.search(r"```text\n(.*?)\n```", text, re.DOTALL)
    assert script
    assert shown
    command = [sys.executable, "-c", script[1]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert shown[1] in done.stdout + done.stderr
    assert all(word in text for word in ("**Where.**", "**Releases.**", "**Proposed change.**"))


def test_each_report_is_listed() -> None:
    overview = (FOLDER / "overview.md").read_text()
    assert len(REPORTS) == 7
    assert all(f"]({report.name})" in overview for report in REPORTS)
