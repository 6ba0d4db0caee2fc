"""Reproductions: run as scripts in processes of their own; no text of a stranger becomes code in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from splitops.cli import cli
from splitops_compare import CompareError, ComparisonReport
from splitops_compare.cases import build_cases
from splitops_compare.data import Case, CaseResult, ImplementationInfo, Verdict, VerdictKind
from splitops_compare.driver.discovery import find_adapters
from splitops_compare.reports.reproduction import make_reproduction, write_reproduction

CEIL = "split-18/ceil/5-into-4/float32/static"
PLAIN = "split-13/even/6-into-2/float32/static"
TEXTS = "split-2/even/6-into-2/string/static"
VARIADIC = "openvino-variadicsplit-1/explicit/6-as-2+4/float32/static/axis=0"


@cache
def case_of(name: str) -> Case:
    (case,) = build_cases([name])
    return case


def reported(
    case: Case, adapter: str, word: VerdictKind = VerdictKind.REJECTS, **setting: str
) -> ComparisonReport:
    """A report in which an implementation disagrees on a case."""
    name = f"{adapter}[x]" if setting else adapter
    peer = ImplementationInfo(name=name, adapter=adapter, versions={adapter: "1.2.3"}, setting=setting)
    part = {"dtype": "float32", "shape": [2], "sample": [0.0, 1.0]}
    entry = CaseResult(
        id=case.id,
        operator=case.operator,
        format=case.format,
        rule=case.rule,
        title=case.title,
        valid=case.is_valid,
        spec=case.spec,
        expected={"error": case.error} if case.error else (part,) * len(case.outputs),
        baseline=None,
        verdicts={name: Verdict(kind=word, detail="no\nsuch thing", stage="load", got=(part,), confirmed=2)},
    )
    return ComparisonReport(
        environment={"platform": "Linux", "python": "3.11"}, implementations=(peer,), cases=(entry,)
    )


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(folder / "reproduce.py")], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("name", "adapter", "setting", "right"),
    [
        (CEIL, "onnxruntime", {}, False),
        (PLAIN, "onnxruntime", {"threads": "1"}, True),
        (TEXTS, "onnxruntime", {"optimisation": "none"}, True),
        (CEIL, "onnx_reference", {}, True),
        (PLAIN, "onnx_inference", {}, True),
        (CEIL, "openvino", {}, False),
        (VARIADIC, "openvino", {"threads": "1"}, True),
    ],
)
def test_a_reproduction_runs_alone(
    tmp_path: Path, name: str, adapter: str, setting: dict[str, str], right: bool
) -> None:
    pytest.importorskip(adapter.partition("_")[0])
    case = case_of(name)
    report = reported(case, adapter, **setting)
    write_reproduction(report, case, report.implementations[0].name, tmp_path / "made")
    done = run(tmp_path / "made")
    assert done.stdout.startswith("expected: float32 [2]: 0.0, 1.0")
    assert (done.returncode == 0) is right, done.stderr
    assert done.stdout.count("got:") == (len(case.outputs) if right else 0)
    assert "splitops" not in (tmp_path / "made" / "reproduce.py").read_text()


@pytest.mark.parametrize("adapter", find_adapters())
def test_every_folder_stands_alone(adapter: str) -> None:
    case = case_of(PLAIN)
    files = make_reproduction(reported(case, adapter, of="setting"), case, f"{adapter}[x]")
    assert json.loads(files["case.json"])["setting"] == {"of": "setting"}
    assert not [
        name for name, text in files.items() if b"import splitops" in text or b"from splitops" in text
    ]


def test_the_script_is_short() -> None:
    case = case_of(PLAIN)
    script = make_reproduction(reported(case, "onnxruntime"), case, "onnxruntime")["reproduce.py"].decode()
    assert len([line for line in script.splitlines() if line]) <= 40


def test_what_a_converter_makes_is_run(tmp_path: Path) -> None:
    case = case_of(PLAIN)
    write_reproduction(reported(case, "onnx_converter"), case, "onnx_converter", tmp_path / "made")
    done = run(tmp_path / "made")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("got: float32 (3,)") == 2


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_reproduction_asks_an_adapter_of_node(tmp_path: Path) -> None:
    """With a package that stands for onnxruntime's: it gives its input twice, in halves."""
    package = tmp_path / "node_modules" / "onnxruntime-node"
    package.mkdir(parents=True)
    (package / "index.js").write_text(FAKE_PACKAGE)
    case = case_of(PLAIN)
    write_reproduction(reported(case, "onnxruntime-node"), case, "onnxruntime-node", tmp_path / "made")
    done = run(tmp_path / "made")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("got: float32 (3,)") == 2


FAKE_PACKAGE = """
class Tensor { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } }
const half = (tensor, from) => new Tensor(tensor.type, tensor.data.slice(from, from + 3), [3]);
const InferenceSession = { create: async () => ({ release: async () => {}, run: async (feeds, names) => {
  const [tensor] = Object.values(feeds);
  return Object.fromEntries(names.map((name, index) => [name, half(tensor, 3 * index)]));
} }) };
module.exports = { Tensor, InferenceSession, env: { versions: {} } };
"""


def test_the_report_says_what_was_expected_and_got() -> None:
    case = case_of(CEIL)
    text = make_reproduction(reported(case, "onnxruntime"), case, "onnxruntime")["report.md"].decode()
    for words in (
        "Changelog.md#Split-18",
        "5 into 4 gives 2, 2, 1, 0",
        "rejects at load",
        "    no\n    such thing",
        "onnxruntime 1.2.3",
        "Linux",
        "pip install onnxruntime",
        "    float32 [2]: 0.0, 1.0",
    ):
        assert words in text


def test_of_an_invalid_case_an_error_is_expected() -> None:
    case = case_of("split-18/lengths.sum/6-as-2+3/float32/static")
    files = make_reproduction(reported(case, "onnxruntime", VerdictKind.WRONGLY_ACCEPTS), case, "onnxruntime")
    assert json.loads(files["case.json"])["expected"] == "an error (lengths.sum)"


HOSTILE = "'''\"\"\"\nimport os; os.abort()\n\x1b[2J```\n# x"


def test_hostile_texts_are_no_code() -> None:
    case = case_of(PLAIN)
    report = reported(case, "onnxruntime")
    peer = replace(report.implementations[0], name=HOSTILE, versions={HOSTILE: HOSTILE})
    part: dict[str, Any] = {"dtype": HOSTILE, "shape": [HOSTILE], "sample": [HOSTILE]}
    verdict = Verdict(kind=VerdictKind.DIFFERS, detail=HOSTILE, got=(part,), confirmed=2)
    entry = replace(
        report.cases[0],
        operator=HOSTILE,
        title=HOSTILE,
        rule=HOSTILE,
        expected=(part,),
        verdicts={HOSTILE: verdict},
    )
    hostile = replace(report, implementations=(peer,), cases=(entry,), environment={"platform": HOSTILE})
    case = replace(case, outputs=(HOSTILE,))
    files = make_reproduction(hostile, case, HOSTILE)
    plain = make_reproduction(report, case_of(PLAIN), "onnxruntime")
    assert {name for name in files if files[name] != plain[name]} == {"case.json", "report.md"}
    assert "\x1b" not in files["report.md"].decode()


def test_what_there_is_no_reproduction_of() -> None:
    case = case_of(PLAIN)
    with pytest.raises(CompareError, match="no reproduction for implementations of 'mine'"):
        make_reproduction(reported(case, "mine"), case, "mine")
    with pytest.raises(CompareError, match="there is no implementation 'nobody'"):
        make_reproduction(reported(case, "onnxruntime"), case, "nobody")
    with pytest.raises(CompareError, match="no confirmed finding"):
        make_reproduction(reported(case, "onnxruntime", VerdictKind.AGREES), case, "onnxruntime")


def test_inputs_of_an_ir_are_npy_files() -> None:
    texts = case_of("openvino-split-1/even/6-into-2/string/static/axis=0")
    files = make_reproduction(reported(texts, "openvino"), texts, "openvino")
    [content] = [content for name, content in files.items() if name.endswith(".npy")]
    assert np.load(BytesIO(content)).tolist() == texts.inputs["x"].tolist()
    narrow = case_of("openvino-variadicsplit-1/explicit/6-as-2+4/bfloat16/static/axis=0")
    with pytest.raises(CompareError, match="no reproduction of IR with an input of type bfloat16"):
        make_reproduction(reported(narrow, "openvino"), narrow, "openvino")


def test_a_folder_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    case = case_of(PLAIN)
    (tmp_path / "made").write_text("a file")
    with pytest.raises(ValueError, match="made"):
        write_reproduction(reported(case, "onnxruntime"), case, "onnxruntime", tmp_path / "made")
    assert (tmp_path / "made").read_text() == "a file"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_the_command_writes_one(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    made = tmp_path / "made"
    done = CliRunner().invoke(cli, ["compare", "onnxruntime[threads=1]", "--repro", CEIL, "-o", str(made)])
    assert done.exit_code == 1, done.output
    names = {path.name for path in made.iterdir()}
    assert names == {
        "adapter.py",
        "case.json",
        "input_0.pb",
        "model.onnx",
        "reproduce.py",
        "report.md",
        "worker.py",
    }
    assert json.loads((made / "case.json").read_bytes())["setting"] == {"threads": "1"}


@pytest.mark.parametrize(
    "arguments", [["onnxruntime", "--repro", CEIL], ["-o", "made"], ["b", "--repro", "a", "-o", "c"]]
)
def test_usage_that_is_wrong(arguments: list[str]) -> None:
    done = CliRunner().invoke(cli, ["compare", *arguments])
    assert done.exit_code == 2
    assert "Error: " in done.output
