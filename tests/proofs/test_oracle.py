"""The verified functions of ``proofs/split.mlw`` answer every conformance case on sizes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "core"))

from corpus import Case, read_all  # noqa: E402

from splitops.spec import ELEMENT_TYPES  # noqa: E402

NOT_OF_SIZES = {
    "axis.dtype": 18,
    "axis.rank": 7,
    "keepdims.value": 8,
    "lengths.dtype": 23,
    "lengths.value": 9,
    "op.version": 12,
    "type.unsupported": 9,
}
"""Rules on types, ranks and attributes, of which the theory says nothing, and their numbers of cases."""

MAX_PARTS = "more than 16777216 parts"
"""The words of the limit on one call, which the theory does not have."""


def is_asked(case: Case) -> bool:
    """Whether a case is about sizes: its numbers are integers, and no other rule is broken."""
    counts = [case.attributes.get(name, 0) for name in ("num_outputs", "num_splits")]
    integers = all(type(count) is int for count in counts)
    return integers and case.error not in NOT_OF_SIZES and MAX_PARTS not in case.rule


CASES = [case for case in read_all() if is_asked(case)]


def set_value(case: Case, name: str, where: str = "either") -> Any:
    """Return what a node sets, as an array; None if it sets nothing."""
    if where != "input" and name in case.attributes:
        return np.asarray(case.attributes[name])
    given = case.inputs.get(name) if where != "attribute" else None
    return None if given is None else np.array(given["value"], ELEMENT_TYPES[given["dtype"]].numpy)


def written(value: Any) -> str:
    if value is None:
        return "-"
    if value.ndim > 1:
        return "h"
    numbers = [str(int(number)) for number in np.atleast_1d(value)]
    return "s" + numbers[0] if value.ndim == 0 else "l" + ",".join(numbers)


def questions(case: Case) -> tuple[str, str]:
    """Return what is asked about the axis and about the sizes, as ``proofs/oracle.ml`` reads it."""
    axis = set_value(case, "axis")
    place = 0 if axis is None else int(axis.reshape(()))
    rank = len(case.shape)
    size = case.shape[place] if -rank <= place < rank else 0
    outputs = -1 if case.outputs is None else case.outputs
    match case.schema.domain, case.schema.name, case.schema.since_version:
        case "", "Split", 18:
            lengths, count = written(set_value(case, "split")), written(set_value(case, "num_outputs"))
            asked = f"split_18 {size} {lengths} {count} {outputs}"
        case "", "Split", _:
            attribute, given = (written(set_value(case, "split", kind)) for kind in ("attribute", "input"))
            asked = f"split_13 {size} {attribute} {given} {outputs}"
        case "", "SplitToSequence", _:
            asked = f"split_to_sequence {size} {written(set_value(case, 'split'))} {outputs}"
        case "openvino", "Split", _:
            asked = f"openvino_split {size} {written(set_value(case, 'num_splits'))} {outputs}"
        case _:
            asked = f"variadic_split {size} {written(set_value(case, 'split_lengths'))} {outputs}"
    return f"axis {place} {rank}", asked


def test_the_cases_that_are_not_asked_are_counted() -> None:
    left = [case.error for case in read_all() if case.error in NOT_OF_SIZES]
    assert {rule: left.count(rule) for rule in NOT_OF_SIZES} == NOT_OF_SIZES
    assert len(read_all()) - len(CASES) - len(left) == 4  # of them 3 with a count that is not an integer


def test_the_page_names_what_the_theory_has() -> None:
    page = (ROOT / "docs" / "proof.md").read_text()
    theory = (ROOT / "proofs" / "split.mlw").read_text()
    proved, _, left = page.partition("## The code that ships")
    rows = [line for line in proved.splitlines() if line.startswith("| ") and "`" in line]
    names = {name for row in rows for name in re.findall(r"`([a-z]\w*_\w+)`", row)} - {"num_outputs"}
    assert len(names) > 30
    assert names <= set(re.findall(r"(?m)^  (?:let )?(?:rec )?(?:lemma )?(\w+)", theory))
    assert f"{len(CASES)} of the {len(read_all())} conformance cases" in page.replace("\n", " ")
    assert "What is not proved" in left


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for program, package in (("why3", "why3"), ("ocamlfind", "ocaml-nox libzarith-ocaml-dev")):
        if shutil.which(program) is None:
            pytest.skip(f"the proved oracle needs {program}: apt-get install {package}")
    folder = tmp_path_factory.mktemp("oracle")
    shutil.copy(ROOT / "proofs" / "oracle.ml", folder)
    extract = f"why3 extract --recursive -D ocaml64 -L {ROOT / 'proofs'} split.Operators -o extracted.ml"
    # The answer must know every rule: a constructor without its code is an error.
    build = (
        "ocamlfind ocamlopt -package zarith -linkpkg -w -a+8 -warn-error +8 extracted.ml oracle.ml -o oracle"
    )
    for command in (extract, build):
        subprocess.run(command.split(), cwd=folder, check=True, timeout=300)
    return folder / "oracle"


def test_the_proved_oracle_answers_as_the_cases_say(oracle: Path) -> None:
    asked = [questions(case) for case in CASES]
    lines = "".join(f"{line}\n" for pair in asked for line in pair)
    answers = subprocess.run(oracle, input=lines, capture_output=True, text=True, check=False, timeout=300)
    replies = answers.stdout.splitlines()
    assert len(replies) == 2 * len(CASES), answers.stderr
    wrong = []
    for case, pair, axis, sizes in zip(CASES, asked, replies[::2], replies[1::2], strict=True):
        expected = case.error or " ".join(("sizes", *map(str, case.sizes or ())))
        got = axis if not axis.startswith("axis ") else sizes
        if got != expected or (case.error is None and axis != f"axis {case.axis}"):
            wrong.append(f"{case}: {pair} -> {axis}; {sizes}; expected {expected}")
    assert not wrong, "\n".join(wrong)
