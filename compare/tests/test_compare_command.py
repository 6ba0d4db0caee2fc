"""``splitops compare`` as its user types it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from splitops.cli import cli
from splitops_compare.cli import _print_report
from splitops_compare.data import CaseResult, ComparisonReport, ImplementationInfo, Verdict, VerdictKind
from splitops_compare.protocol import parse_report

PLAIN = "split-18/ceil/6-into-2/float32/static"
FIVE = "split-18/ceil/5-into-4/float32/static"
FAKES = Path(__file__).with_name("fakes.py")


def fake(fault: str) -> str:
    return f"fake={shlex.join([sys.executable, '-S', '-E', str(FAKES), fault])}"


def ran(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compare", "--no-shrink", *map(str, arguments)])


def test_agreement_and_disagreement_have_exit_codes_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    files = [tmp_path / name for name in ("a.html", "a.sarif")]
    options = [part for pair in zip(("--html", "--sarif"), files, strict=True) for part in pair]
    found = ran("onnxruntime", "--case", PLAIN, *options)
    assert found.exit_code == 0, found.output
    assert "1 case, 0 findings" in found.output
    assert all(path.stat().st_size for path in files)
    found = ran("onnxruntime", "--case", FIVE, "--json")
    assert found.exit_code == 1
    (tmp_path / "old.json").write_text(found.stdout)
    assert len(parse_report(found.stdout.encode()).findings) == 1
    expected = ran("onnxruntime", "--case", FIVE, "--expect", tmp_path / "old.json")
    assert expected.exit_code == 0, expected.output
    assert expected.stderr.endswith("all as expected\n")
    same = ran("onnxruntime", "--case", FIVE, "--diff", tmp_path / "old.json")
    assert same.output.splitlines()[-3:] == ["new: 0", "resolved: 0", "changed: 0"]
    before = json.loads(found.stdout) | {"cases": []}
    before["implementations"][0]["versions"] = {"onnxruntime": "0.1"}
    (tmp_path / "before.json").write_text(json.dumps(before))
    new = ran("onnxruntime", "--case", FIVE, "--diff", tmp_path / "before.json")
    assert "onnxruntime: onnxruntime 0.1 -> " in new.output
    assert f"new: 1\n  {FIVE} onnxruntime: " in new.output
    fallen = ran(fake("dies at the start"), "--case", FIVE, "--expect", tmp_path / "old.json")
    assert fallen.exit_code == 3
    assert "did not start: fake" in fallen.stderr
    useless = ran(fake("rejects"), "--case", PLAIN, "--expect", tmp_path / "old.json")
    assert useless.exit_code == 3, useless.output
    assert "no result: fake" in useless.stderr
    assert "did not start" not in useless.output
    (tmp_path / "known.toml").write_text(
        f'[[expected]]\ncase = "{PLAIN}"\nimplementation = "*"\nverdict = "differs"\n'
    )
    gone = ran("onnxruntime", "--case", FIVE, "--expect", tmp_path / "known.toml")
    assert gone.exit_code == 1
    assert "new: " in gone.output
    assert "resolved: " in gone.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nobody", "--case", PLAIN], 2, "there is no adapter 'nobody'"),
        (["--case", "nothing"], 2, "there is no case 'nothing'"),
        (["--setting", "onnxruntime", "--case", PLAIN], 2, "a setting is NAME=KEY=VALUE"),
        (["--python", "onnxruntime"], 2, "is not NAME="),
        (["onnxruntime", "--repro", PLAIN], 2, "require each other"),
        (["--expect", __file__], 2, "is not TOML"),
        (["--diff", __file__], 2, "is not JSON"),
        (["onnxruntime", "--case", PLAIN, "--html", "/no/such/folder/x"], 1, "cannot write"),
        ([fake("dies at the start"), "--case", PLAIN], 3, "did not start: "),
        ([fake("absent"), "--case", PLAIN], 3, "not installed: "),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], code: int, message: str) -> None:
    found = ran(*arguments)
    assert (found.exit_code, message in found.output) == (code, True), found.output
    assert "Traceback" not in found.output


def test_a_reproduction_runs_without_splitops(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = ran("onnxruntime", "--repro", FIVE, "-o", tmp_path / "repro")
    assert found.exit_code == 1, found.output
    done = subprocess.run(
        [sys.executable, tmp_path / "repro" / "reproduce.py"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode
    assert "num_outputs" in done.stderr or "exceeds the remaining size" in done.stderr  # below 1.32


def test_each_implementation_has_a_line_as_soon_as_it_is_done_without_a_terminal() -> None:
    for more in ([], ["--json"]):
        found = ran(fake("values"), "onnx_reference", "--case", PLAIN, *more)
        lines = [line for line in found.stderr.splitlines() if " after " in line]
        assert sorted(line.partition(":")[0].split()[0] for line in lines) == ["fake", "onnx_reference"]
        assert any(re.fullmatch(r"fake 1\.0: 1 case, 1 finding, after \d+ s", line) for line in lines)


def test_what_nobody_could_ask_again_is_not_said_to_have_not_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = {"kind": VerdictKind.DIFFERS, "detail": "other values"}
    verdicts = {
        "stopped": Verdict(**values),
        "unsteady": Verdict(**values, unstable="alone: agrees, then differs"),
        "sure": Verdict(**values, confirmed=2),
    }
    entry = CaseResult(
        id="x",
        operator="Split-18",
        format="onnx",
        rule="ceil",
        title="x",
        valid=True,
        spec=None,
        expected=(),
        baseline=None,
        verdicts=verdicts,
    )
    peers = tuple(ImplementationInfo(name=name, adapter=name) for name in verdicts)
    _print_report(ComparisonReport(environment={"stopped": True}, implementations=peers, cases=(entry,)))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "1 case, 1 finding, 1 that did not repeat, 1 not confirmed because the comparison was interrupted"
    )


def test_ctrl_c_stops_everything_and_keeps_what_is_known(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "splitops", "compare", "--op", "Split-18", "--no-shrink", "--json"]
    command += ["--seconds", "600", fake("sleeps"), "onnxruntime"]
    mark = tmp_path.name.upper() + "_MARK"
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {mark: "1"}) as process:
        deadline = time.monotonic() + 120
        while not any("fakes.py\0sleeps" in line for line in _lines(mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=120)[0]
        assert process.returncode == 130
    report = parse_report(printed)
    assert report.environment["stopped"] is True
    assert all("fake" not in entry.verdicts for entry in report.cases)
    assert json.loads(printed)["cases"]
    assert _lines(mark) == []


def _lines(mark: str) -> list[str]:
    """The command lines of all processes with a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_inputs_of_a_model_are_given_as_run_takes_them() -> None:
    model = Path(__file__).parents[2] / "examples/models/attention_block.onnx"
    data = model.parents[1] / "data/attention_block_x.npy"
    found = ran("onnx_reference", "--model", model, "--input", f"x={data}")
    assert found.exit_code == 0, found.output
    for arguments, message in (
        (["--model", model, "--input", "y=1"], "there is no input"),
        (["--input", "x=1"], "requires --model"),
    ):
        found = ran(*arguments)
        assert (found.exit_code, message in found.output) == (2, True), found.output
