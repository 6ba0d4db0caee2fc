"""ONNX's Split with another meaning at the newest opset: a number of parts that must divide the axis."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import onnx.defs
import onnx.parser
from onnx.reference import ReferenceEvaluator
from rejections import rejects

import splitops
import splitops.cli
from dev.pages.reference import operators
from splitops.models.convert import convert_with_report

NEW = onnx.defs.onnx_opset_version()
OLD = NEW - 1
X = np.arange(7, dtype=np.float32)
SIZES = [3, 3, 1]
run = partial(splitops.run, engine="reference")  # a runtime that takes the opset knows no such row


def model(opset: int = NEW, size: int | str = 7) -> Any:
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": {opset}]>
        g (float[{size}] x) => (float[a] p, float[b] q, float[c] r) {{
            p, q, r = Split<axis = 0, num_outputs = 3>(x) }}""")


def with_lengths(opset: int, sizes: tuple[int, ...]) -> Any:
    text = ", ".join(map(str, sizes))
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": {opset}]>
        g (float[{sum(sizes)}] x) => (float[a] p, float[b] q, float[c] r)
        <int64[{len(sizes)}] k = {{{text}}}> {{
            p, q, r = Split<axis = 0>(x, k) }}""")


def sizes_of(parts: Any) -> list[int]:
    return [len(part) for part in (parts.values() if isinstance(parts, dict) else parts)]


def stated_by(converted: Any) -> list[set[str]]:
    """Return what each Split declares: the names of its attributes, and of the inputs that it has."""
    splits = [node for node in converted.graph.node if node.op_type == "Split"]
    inputs = [{"split"} if len(node.input) > 1 else set() for node in splits]
    return [given | {a.name for a in node.attribute} for node, given in zip(splits, inputs, strict=True)]


def step_the_table_has_it() -> None:
    assert [row.since_version for row in splitops.history("Split")][-2:] == [18, NEW]
    assert splitops.schema("Split", OLD).since_version == 18


def step_calls() -> None:
    split = splitops.onnx.split
    for _ in range(3):  # remembered or not
        assert sizes_of(split(X, num_outputs=3, opset=OLD)) == SIZES
        assert sizes_of(split(X[:6], num_outputs=3)) == [2, 2, 2]
        for opset in (None, NEW):
            rejects("parts.divisible", lambda opset=opset: split(X, num_outputs=3, opset=opset))
    rejects("parts.divisible", lambda: splitops.plan("Split", shape=(7,), axis=0, num_outputs=3))


def step_infers() -> None:
    infer = splitops.onnx.infer_split
    assert infer([7], num_outputs=3, opset=OLD) == [(3,), (3,), (1,)]
    assert infer([(6, 8)], num_outputs=3) == [(2,)] * 3
    rejects("parts.divisible", lambda: infer([7], num_outputs=3))
    rejects("parts.divisible", lambda: splitops.infer(model()))
    assert str(splitops.infer(model(OLD))["r"]) == "float32[1]"
    assert str(splitops.infer(model(size="N"))["r"]) == "float32[N/3]"


def step_runs() -> None:
    assert sizes_of(run(model(OLD), {"x": X})) == SIZES
    assert sizes_of(run(model(size="N"), {"x": X[:6]})) == [2, 2, 2]
    rejects("parts.divisible", lambda: run(model(size="N"), {"x": X}))


def step_runs_in_the_reference() -> None:
    evaluator = ReferenceEvaluator(model(size="N"), new_ops=splitops.onnx.get_reference_ops())
    assert sizes_of(evaluator.run(None, {"x": X[:6]})) == [2, 2, 2]
    rejects("parts.divisible", lambda: evaluator.run(None, {"x": X}))


def step_checks() -> None:
    assert "parts.divisible" in {finding.code for finding in splitops.check(model())}
    assert not {"parts.divisible", "model.invalid"} & {finding.code for finding in splitops.check(model(OLD))}
    bare = model()
    del bare.graph.node[0].attribute[1:]
    (missing,) = (found for found in splitops.check(bare) if found.code == "lengths.missing")
    assert missing.fix == "add num_outputs = the number of declared outputs"


def step_converts_to_it() -> None:
    converted = splitops.convert(model(OLD), f"onnx:{NEW}")
    assert stated_by(converted) == [{"axis", "split"}]
    assert sizes_of(run(converted, {"x": X})) == SIZES
    whole = convert_with_report(model(OLD, 6), f"onnx:{NEW}")
    assert stated_by(whole.model) == [{"axis", "num_outputs"}]
    assert sizes_of(run(whole.model, {"x": X[:6]})) == [2, 2, 2]


def step_an_open_axis_keeps_its_meaning() -> None:
    converted = splitops.convert(model(OLD, "N"), f"onnx:{NEW}")
    for size in (7, 6, 2, 0):
        wanted = sizes_of(run(model(OLD, "N"), {"x": X[:size]}))
        assert sizes_of(run(converted, {"x": X[:size]})) == wanted


def step_converts_from_it() -> None:
    for opset in (1, 11, 13, 18):
        converted = splitops.convert(model(NEW, 6), f"onnx:{opset}")
        assert sizes_of(run(converted, {"x": X[:6]})) == [2, 2, 2]


def step_converts_between_the_dialects() -> None:
    converted = splitops.convert(model(NEW, "N"), "openvino")
    assert "Split" in {layer.type for layer in converted.graph.layers}  # of equal parts, as the new row
    assert sizes_of(run(converted, {"x": X[:6]})) == [2, 2, 2]
    back = splitops.convert(converted, f"onnx:{NEW}")
    assert stated_by(back) == [{"axis", "num_outputs"}]
    rejects("parts.divisible", lambda: run(back, {"x": X}))


def step_writes_and_reads_back() -> None:
    path = Path(tempfile.mkdtemp()) / "model.onnx"
    splitops.save(model(size="N"), path)
    assert sizes_of(run(splitops.load(path), {"x": X[:6]})) == [2, 2, 2]
    rejects("parts.divisible", lambda: run(path, {"x": X}))


def step_simplifies_to_it() -> None:
    for opset, sizes, expected in (
        (NEW, (2, 2, 2), {"axis", "num_outputs"}),
        (NEW, (3, 3, 1), {"axis", "split"}),
        (OLD, (3, 3, 1), {"axis", "num_outputs"}),
    ):
        found = splitops.simplify(with_lengths(opset, sizes), ["shorten-lengths"])
        assert stated_by(found) == [expected], (opset, sizes)


def step_differs() -> None:
    changes = splitops.difference("Split", OLD, NEW).changes
    assert [change.text for change in changes if "number of parts" in change.name] == ["ceil -> even"]


def step_is_documented() -> None:
    text = operators()
    assert f"## ai.onnx Split-{NEW}" in text
    assert f"### Split-18 to Split-{NEW}" in text


def step_commands_know_it() -> None:
    runner = click.testing.CliRunner()
    explain = ["explain", "--shape", "7", "--parts", "3", "--op"]
    assert runner.invoke(splitops.cli.cli, [*explain, "Split-18"]).exit_code == 0
    assert runner.invoke(splitops.cli.cli, [*explain, "Split"]).exit_code == 1
    assert f"Split-{NEW}" in runner.invoke(splitops.cli.cli, ["spec", "Split"]).output
