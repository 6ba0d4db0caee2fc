"""The arithmetic of the interactive page, held against binding and planning, case by case."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import splitops
from splitops.calls.arguments import bind_call
from splitops.errors import RuleError
from splitops.explain import explain
from splitops.explain.interactive import make_operator_data, make_type_data
from splitops.spec import ELEMENT_TYPES, SCHEMAS, OperatorSchema
from splitops.splitting import plan_request
from splitops.splitting.binding import Fact

NODE = shutil.which("node")
SIZES = Path(str(files("splitops.explain") / "page" / "sizes.js"))
EDGES = (0, 1, 2, 3, 5, 7, 10, (1 << 53) + 1, (1 << 63) - 1, 1 << 63)
Case = tuple[OperatorSchema, dict[str, Any]]


def cases() -> list[Case]:
    """Each way of each row at its edges, and requests at random, valid and not."""
    draw = random.Random(18)
    made: list[Case] = []
    for row in SCHEMAS:
        for way in make_operator_data(row)["ways"]:
            pairs = itertools.product((0, 1, 4, 5, 6, 7, 10), (-2, -1, *EDGES))
            asked = [((size,), 0, [number]) for size, number in pairs]
            asked += [((6,), 0, [-1, 2, -1]), ((6,), 0, [1, -1, 2])] if way == "sizes" else []
            for _ in range(150):
                shape = tuple(draw.choice((0, 1, 2, 3, 6, 7)) for _ in range(draw.randrange(4)))
                lengths = [draw.choice((-2, -1, 0, 1, 2, 3)) for _ in range(draw.randrange(5))]
                if way != "sizes":
                    lengths = [draw.randrange(-1, 9)]
                elif shape and draw.random() < 0.6:  # lengths that fit
                    lengths = [*lengths[1:], shape[0] - sum(lengths[1:])]
                asked.append((shape, draw.randrange(-4, 4), lengths))
            for shape, axis, numbers in asked:
                request = {
                    "row": make_operator_data(row),
                    "shape": list(map(str, shape)),
                    "axis": str(axis),
                    "way": way,
                    "numbers": list(map(str, numbers)) if way != "ones" else [],
                    "keepdims": draw.random() < 0.5 or row.keepdims is None,
                    "dtype": (dtype := draw.choice(list(make_type_data()))),
                    "packing": make_type_data()[dtype],
                }
                made.append((row, request))
    return made


def expected(row: OperatorSchema, request: dict[str, Any]) -> Any:
    """What splitops says of a request, in the words of the page."""
    numbers = list(map(int, request["numbers"]))
    arguments: dict[str, Any] = {"axis": int(request["axis"])}
    if request["way"] == "sizes":
        arguments[row.lengths[0].name] = numbers
    elif request["way"] == "parts":
        assert row.count is not None
        arguments[row.count.name] = numbers[0]
    elif request["way"] == "chunk":
        arguments[row.lengths[0].name] = numbers[0]
    elif row.keepdims is not None:
        arguments[row.keepdims.name] = int(request["keepdims"])
    element_type = ELEMENT_TYPES[request["dtype"]]
    shape = tuple(map(int, request["shape"]))
    try:
        plan = plan_request(bind_call(row, Fact(None, shape), arguments).request())
    except RuleError as error:
        return str(error.rule)
    groups = ((group.first, group.count) for group in explain(plan, element_type).groups())
    parts = [[part.size, many, part.shape, part.bytes, part.runs, part.run_elements] for part, many in groups]
    return [plan.axis, parts]


def merged(answer: Any) -> Any:
    """An answer of the page with integers as such, and equal neighbours as one run."""
    if isinstance(answer, str):
        return answer
    axis, parts = answer
    joined: list[list[Any]] = []
    for size, many, shape, *rest in parts:
        part = [int(size), int(many), tuple(map(int, shape)), *map(int, rest)]
        if joined and joined[-1][0] == part[0]:
            joined[-1][1] += part[1]
        else:
            joined.append(part)
    return [axis, joined]


def answers(requests: list[dict[str, Any]], script: str | None = None) -> list[Any]:
    return [merged(answer) for answer in asked_of(requests, script or str(SIZES))]


def asked_of(requests: list[dict[str, Any]], *scripts: str) -> list[Any]:
    assert NODE is not None
    worker = Path(__file__).with_name("page_sizes.js")
    said = subprocess.run(
        [NODE, worker, *scripts],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found: list[Any] = json.loads(said.stdout)
    return found


@pytest.mark.skipif(NODE is None, reason="Node.js, which runs the page's arithmetic, is not installed")
def test_the_page_divides_as_splitops_does():
    asked = cases()
    assert len(asked) > 3000
    wanted = [expected(row, request) for row, request in asked]
    assert {answer for answer in wanted if isinstance(answer, str)} >= {
        "axis.range", "lengths.negative", "lengths.sum", "lengths.value", "parts.count", "parts.divisible",
        "chunk.positive", "remainder.negative", "remainder.repeated",
    }  # fmt: skip
    wrong = [
        (str(row), request, answer, right)
        for (row, request), answer, right in zip(
            asked, answers([request for _, request in asked]), wanted, strict=True
        )
        if answer != right
    ]
    assert wrong[:3] == []


@pytest.mark.skipif(NODE is None, reason="Node.js, which runs the page's arithmetic, is not installed")
def test_a_page_that_divides_otherwise_is_seen(tmp_path):
    other = tmp_path / "sizes.js"
    other.write_text(SIZES.read_text().replace("(size + count - 1n) / count", "size / count"))
    asked = [(row, request) for row, request in cases() if request["row"]["parts"] == "ceil"]
    found = answers([request for _, request in asked], str(other))
    assert found != [expected(row, request) for row, request in asked]


@pytest.mark.skipif(NODE is None, reason="Node.js, which writes the page's code, is not installed")
def test_the_code_of_the_page_runs_for_every_row_and_way():
    asked = []
    for row in SCHEMAS:
        for way in make_operator_data(row)["ways"]:
            numbers = {"parts": ["3"], "sizes": ["2", "1", "3"], "chunk": ["4"], "ones": []}[way]
            squeezes = [True, False] if row.keepdims is not None and way == "ones" else [True]
            for keepdims in squeezes:
                given = {"way": way, "numbers": numbers, "keepdims": keepdims}
                asked.append({"row": make_operator_data(row), "shape": ["2", "6"], "axis": "1", **given})
    found = asked_of(asked, str(SIZES), str(SIZES.with_name("code.js")))
    assert len(found) >= len(SCHEMAS)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for request, codes in zip(asked, found, strict=True):
        ours = eval(codes["splitops"], {"splitops": splitops, "x": x})
        theirs = eval(codes["NumPy"], {"np": np, "x": x})
        assert len(ours) == len(theirs) > 1, request
        for part, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(part, other, str(request))
