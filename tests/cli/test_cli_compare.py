"""``splitops compare`` runs splitops-compare, or names it if it is not installed."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner

from splitops.cli import cli
from splitops_compare.cli import command

WITHOUT = """
import sys
sys.modules["splitops_compare"] = None
sys.argv = ["splitops", *sys.argv[1:]]
from splitops.cli import main
main()
"""


def run_without(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_command_is_that_of_splitops_compare() -> None:
    from splitops.cli import compare

    assert compare.command is command
    result = CliRunner().invoke(cli, ["compare", "--help"])
    assert result.exit_code == 0
    assert "--repro CASE" in result.output


def test_without_the_package_it_says_what_to_install() -> None:
    for arguments in (["compare"], ["compare", "--html", "page.html"], ["compare", "--help"]):
        code, output = run_without(*arguments)
        assert (code, "pip install splitops-compare" in output) == (2, True), output


def test_the_other_commands_work_without_it() -> None:
    code, output = run_without("--help")
    assert (code, "compare" in output) == (0, True), output
    assert run_without("spec", "Split", "--opset", "18")[0] == 0
