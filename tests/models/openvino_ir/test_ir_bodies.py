"""If, Loop and TensorIterator: their bodies run here, so that no split reaches OpenVINO unproved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_helpers import Array, array_of, assert_same, needs_openvino, run_by_openvino, run_ir, stated

import splitops
from body_models import (
    CONDITION,
    COUNTER,
    Body,
    fill,
    if_model,
    iterator,
    loop_model,
    nested_model,
    parts_model,
    port,
    reread,
    slices,
)
from splitops.errors import ModelError, RuleError
from splitops.models.engines import is_installed
from splitops.models.engines.engine import EngineError, Event
from splitops.models.engines.profile_events import collect_events
from splitops.models.formats import openvino as ir
from splitops.models.formats.openvino.nodes import to_nodes
from splitops.models.graph.split_nodes import iter_split_nodes
from splitops.models.running.onnx import control_flow
from splitops.spec import element_type_of

DATA = np.arange(30, dtype=np.float32).reshape(5, 2, 3)


def run_loop(model: ir.OpenVINOModel, trips: int, /, **changed: Any) -> dict[str, Array]:
    inputs = {
        "trips": np.array(trips),
        "going": np.array(True),
        "x": DATA,
        "before": np.full((1, 1, 3), -1, np.float32),
        "checks": np.ones(5, np.bool_),
    }
    return run_ir(model, inputs | changed)


def test_an_if_runs_the_branch_that_the_condition_names() -> None:
    x, lengths = np.arange(5, dtype=np.float32), np.array([2, -1])
    for condition in (np.array(True), np.array([True])):
        got = run_ir(if_model(), {"c": condition, "x": x, "lengths": lengths})
        assert_same(got["y"], x[:2])
    assert_same(run_ir(if_model(), {"c": np.array(False), "x": x, "lengths": lengths})["y"], x[2:])


@pytest.mark.parametrize("lengths", [[400, -1], [-1, 400], [6, -1]])
@pytest.mark.parametrize("branch", [True, False])
def test_a_body_reads_no_foreign_memory(lengths: list[int], branch: bool) -> None:
    inputs = {"c": np.array(branch), "x": np.ones(4, np.float32), "lengths": np.array(lengths)}
    with pytest.raises(RuleError) as caught:
        splitops.run(if_model(), inputs)
    assert caught.value.rule == "remainder.negative"
    assert caught.value.where.graph == f"gate/{'then' if branch else 'else'}_body"
    assert caught.value.where.node == "cut"
    assert caught.value.where.graph in {site.where.graph for site in iter_split_nodes(to_nodes(if_model()))}


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"kind": "if"}, "if layer 'gate'"),
        ({"kind": "Mystery"}, "Mystery layer 'gate'"),
        ({"version": "opset7"}, "of opset7 cannot be converted to ONNX"),
        ({"version": "extension"}, "of extension cannot be converted to ONNX"),
        ({"split": "variadicsplit"}, "variadicsplit layer 'cut'"),
    ],
)
def test_no_split_is_left_to_openvino(wrong: dict[str, str], what: str) -> None:
    inputs = {"c": np.array(True), "x": np.ones(4, np.float32), "lengths": np.array([400, -1])}
    with pytest.raises(ModelError, match=what) as caught:
        run_ir(if_model(**wrong), inputs)
    assert "the reference cannot run the model" in str(caught.value)
    with pytest.raises(ModelError):
        splitops.run(if_model(**wrong), inputs, engine="auto")


def test_a_split_under_another_spelling_is_rejected_in_the_main_graph() -> None:
    builder = ir.Builder()
    x = builder.parameter("x", "f32", "?")
    parts = builder.layer("variadicSPLIT", [x, builder.const(0), builder.const([400, -1])], outputs=2)
    builder.result(parts[0], "y")
    with pytest.raises(ModelError, match="the reference cannot run the model"):
        run_ir(builder.model(), {"x": np.ones(4, np.float32)})
    if is_installed("openvino"):
        with pytest.raises(
            EngineError, match="has a misspelt type that only OpenVINO accepts, without checks"
        ):
            splitops.session(builder.model(), "openvino")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("trips", [0, 1, 3, 5])
def test_a_loop_slices_carries_counts_and_joins(trips: int, reverse: bool) -> None:
    got = run_loop(loop_model(reverse=reverse), trips)
    parts = [DATA[at : at + 1] for at in (range(4, -1, -1) if reverse else range(5))][:trips]
    seconds = [part[:, 1:] for part in parts]
    joined = np.concatenate([np.empty((0, 1, 3), np.float32), *(seconds[::-1] if reverse else seconds)])
    assert_same(got["joined"], joined)
    assert_same(got["last"], parts[-1][:, :1] if parts else np.full((1, 1, 3), -1, np.float32))
    assert_same(got["numbers"], np.arange(trips))


def test_a_loop_ends_with_its_condition() -> None:
    checks = np.array([True, True, False, True, True])
    for trips in (-1, 5, 2**62):
        assert run_loop(loop_model(), trips, checks=checks)["numbers"].tolist() == [0, 1, 2]
    assert run_loop(loop_model(), -1, going=np.array([False]))["numbers"].tolist() == []


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 5),
    size=st.integers(1, 3),
    axis=st.integers(0, 2),
    reverse=st.booleans(),
    back=st.booleans(),
)
def test_what_a_tensor_iterator_slices_it_joins(
    count: int, size: int, axis: int, reverse: bool, back: bool
) -> None:
    """Parts that are joined in the order in which they are sliced give the data, else the parts turned."""
    shape = [2, 3, 2]
    shape[axis] = count * size
    data = np.arange(np.prod(shape)).reshape(shape)
    got = run_ir(parts_model(size, axis, reverse=reverse, back=back), {"x": data})
    parts = np.split(data, count, axis=axis)
    assert_same(got["joined"], data if reverse == back else np.concatenate(parts[::-1], axis=axis))
    assert_same(got["last"], parts[0 if reverse else -1])


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ('start="2" end="-1" stride="2"', [2, 3, 4, 5]),
        ('start="0" end="-3" stride="2"', [0, 1, 2, 3]),
        ('start="-1" end="2" stride="-2"', [4, 5, 2, 3]),
        ('start="-3" end="0" stride="-2"', [2, 3, 0, 1]),
        ('start="3" end="-4" stride="2"', []),
    ],
)
def test_slices_of_a_part_of_the_axis(ends: str, expected: list[int]) -> None:
    """OpenVINO counts the same parts, but its CPU plugin takes them from the start of the axis."""
    builder = ir.Builder()
    outputs = builder.layer("TensorIterator", [builder.parameter("x", "i64", "?")], name="ti")
    builder.result(outputs[0], "y")
    body = Body()
    part = body.takes("part", "i64", (2,), f'{port(0)} axis="0" {ends} part_size="2"')
    halves = body.builder.layer(
        "Split", [part, body.builder.const(np.array(0))], {"num_splits": 2}, outputs=2
    )
    (whole,) = body.builder.layer("Concat", halves, {"axis": 0}, shapes=[(2,)])
    body.gives("y", whole, slices(1, 2))
    assert (
        run_ir(reread(fill(builder.model(), "ti", {"": body})), {"x": np.arange(6)})["y"].tolist() == expected
    )


def test_bodies_in_bodies() -> None:
    inputs = {
        "c": np.array([True, False, True]),
        "x": np.arange(4, dtype=np.float32),
        "lengths": np.array([2, -1]),
    }
    seen: list[Event] = []
    with collect_events(seen):
        got = run_ir(nested_model(), inputs)
    assert got["y"].tolist() == [0, 1, 2, 3, 0, 1]
    assert [event.operator for event in seen if event.operator == "VariadicSplit"] == ["VariadicSplit"] * 3
    with pytest.raises(RuleError) as caught:
        run_ir(nested_model(), inputs | {"lengths": np.array([5, -1])})
    assert caught.value.where.graph == "loop/body/gate/then_body"


# --- hostile files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("trips", [-1, 2**63 - 1])
def test_a_loop_without_end_is_an_error(trips: int) -> None:
    builder = ir.Builder()
    inputs = [
        builder.const(np.array(trips)),
        builder.const(np.array(True)),
        builder.parameter("x", "f32", "?"),
    ]
    builder.result(builder.layer("Loop", inputs, version="opset5", name="loop", element_type="f32")[0], "y")
    body = Body()
    x = body.takes("x", "f32", "?", port(2))
    body.gives("y", x, port(3))
    body.gives("ok", body.builder.const(np.array(True)), CONDITION)
    model = reread(fill(builder.model(), "loop", {"": body}))
    with pytest.raises(ModelError, match="more than 1000 times") as caught:
        run_ir(model, {"x": np.ones(4, np.float32)}, max_iterations=1000)
    assert caught.value.where.node == "loop/Loop"


@needs_openvino
def test_a_loop_whose_condition_is_constantly_false_goes_to_openvino() -> None:
    builder = ir.Builder()
    inputs = [builder.const(np.array(-1)), builder.const(np.array(True)), builder.parameter("x", "f32", "4")]
    builder.result(builder.layer("Loop", inputs, version="opset5", name="loop", element_type="f32")[0], "y")
    body = Body()
    x = body.takes("x", "f32", "4", port(2))
    parts = body.builder.layer("Split", [x, body.builder.const(0)], {"num_splits": 2}, outputs=2)
    body.gives("y", parts[1], port(3))
    body.gives("ok", body.builder.const(np.array(False)), CONDITION)
    ready = splitops.session(reread(fill(builder.model(), "loop", {"": body})), "openvino")
    assert ready.run({"x": np.arange(4, dtype=np.float32)})["y"].tolist() == [2, 3]
    assert ready.engine == "openvino"


def test_what_is_joined_is_held_against_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flow, "_MEMORY", 1 << 20)
    builder = ir.Builder()
    inputs = [builder.const(np.array(-1)), builder.const(np.array(True)), builder.parameter("x", "f32", "?")]
    builder.result(builder.layer("Loop", inputs, version="opset5", name="loop", element_type="f32")[0], "y")
    body = Body()
    x = body.takes("x", "f32", "?", port(2))
    body.gives("y", x, slices(3, 1000))
    body.gives("ok", body.builder.const(np.array(True)), CONDITION)
    model = reread(fill(builder.model(), "loop", {"": body}))
    with pytest.raises(ModelError, match="larger than the memory"):
        run_ir(model, {"x": np.ones(1000, np.float32)})


@pytest.mark.parametrize(
    "changed",
    [
        {"x": DATA[:2]},
        {"trips": np.array(-2)},
        {"trips": np.array([3, 3])},
        {"going": np.array([True, True])},
    ],
)
def test_values_that_do_not_fit_a_loop(changed: dict[str, Array]) -> None:
    with pytest.raises(ModelError) as caught:
        run_loop(loop_model(), 5, **changed)
    assert "loop" in str(caught.value.where)


def test_slices_that_do_not_divide_their_axis() -> None:
    with pytest.raises(ModelError, match="Reshape"):
        run_loop(loop_model(size=2), 1)


def test_zero_iterations_give_no_value_that_nothing_carries() -> None:
    content, weights = ir.to_bytes(loop_model())
    start, end = content.index(b"<back_edges>"), content.index(b"</back_edges>")
    model = ir.from_bytes(content[:start] + content[end + len(b"</back_edges>") :], weights)
    assert run_loop(model, 1)["last"].shape == (1, 1, 3)
    with pytest.raises(ModelError, match="Gather"):
        run_loop(model, 0)


def test_the_type_of_a_body_is_held() -> None:
    content, weights = ir.to_bytes(if_model())
    at = content.index(b"<then_body")
    lying = content[:at] + content[at:].replace(
        b'shape="?" element_type="f32"', b'shape="?" element_type="f16"'
    )
    inputs = {"c": np.array(True), "x": np.ones(4, np.float32), "lengths": np.array([2, 2])}
    with pytest.raises(ModelError, match="the body declares f16, but receives float32"):
        run_ir(ir.from_bytes(lying, weights), inputs)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('external_port_id="2"', 'external_port_id="9"', "names input port 9"),
        ('external_port_id="2"', 'external_port_id="-1"', "names input port -1"),
        ('external_port_id="2"', 'external_port_id="x"', "is not a 64-bit integer"),
        ('external_port_id="2"', "", "has no external_port_id"),
        ('external_port_id="6"', 'external_port_id="5"', "does not produce each of its outputs once"),
        ('internal_layer_id="1"', 'internal_layer_id="77"', "which is not a Parameter"),
        ('internal_layer_id="1"', 'internal_layer_id="2"', "does not feed each Parameter"),
        ('axis="0"', 'axis="5"', "axis 5"),
        ('axis="0"', 'axis="-4"', "is not an axis of rank 3"),
        ('stride="1"', 'stride="0"', "stride = 0"),
        ('stride="1"', 'stride="2"', "not supported"),
        ('part_size="1"', 'part_size="0"', "not supported"),
        ('part_size="1"', 'part_size="-1"', "not supported"),
        ('start="0"', 'start="-2"', "are ambiguous"),
        ('end="-1"', 'end="3"', "are ambiguous"),
        ('end="-1"', 'end="-9"', "operator 'Gather' failed"),
        ('start="0"', 'start="9"', "operator 'Gather' failed"),
        ('purpose="current_iteration"', 'purpose="magic"', "purpose = 'magic'"),
        ('purpose="execution_condition"', "", "names output port -1"),
        ("<port_map>", "<port_map><thing/>", "contains a <thing>"),
        ("</port_map>", "</port_map><port_map/>", "has 2 <port_map> sections"),
        ("<back_edges>", '<back_edges><edge from-layer="0" to-layer="2"/>', "the back edge of"),
        ("<back_edges>", '<back_edges><edge to-layer="2"/>', "has no from-layer"),
        ("<body ", "<bodice ", "has 0 <body> sections"),
    ],
)  # fmt: skip
def test_hostile_port_maps(old: str, new: str, what: str) -> None:
    content, weights = ir.to_bytes(loop_model())
    text = content.decode()
    assert old in text
    first = text.index("<port_map>")
    text = text[:first] + text[first:].replace(old, new, 1)
    if new == "<bodice ":
        text = text.replace("</body>", "</bodice>")
    model = ir.from_bytes(text.encode(), weights)
    with pytest.raises(ModelError, match=what) as caught:
        run_loop(model, 5)
    assert "loop" in str(caught.value.where)


@pytest.mark.parametrize(
    ("pattern", "new", "what"),
    [
        (r'<output [^>]*purpose="execution_condition"[^>]*/>', "", "has no execution_condition"),
        (r'(<output [^>]*purpose="execution_condition"[^>]*/>)', r"\1\1", "has two conditions"),
        (r'to-layer="2"', 'to-layer="1"', "a back edge to a sliced or unset Parameter"),
        (r'(external_port_id="5" axis="0" start=)"0"', r'\1"1"', "fills only a part of its axis"),
        (r'(external_port_id="5" .*?)stride="1" part_size="1"', r'\1stride="2" part_size="2"',
         r"joins parts of size 1 on axis 0, but declares size 2"),
        (r'(name="number".*?)element_type="i64"', r'\1element_type="u64"',
         "current_iteration is uint64 .*must be one int32"),
        (r'(name="number".*?)shape="1"', r'\1shape="1,1"', "current_iteration is int64 of shape '1,1'"),
    ],
)  # fmt: skip
def test_loops_that_do_not_fit(pattern: str, new: str, what: str) -> None:
    content, weights = ir.to_bytes(loop_model())
    text, count = re.subn(pattern, new, content.decode(), count=1, flags=re.DOTALL)
    assert count == 1
    with pytest.raises(ModelError, match=what) as caught:
        run_loop(ir.from_bytes(text.encode(), weights), 5)
    assert "loop" in str(caught.value.where)


@pytest.mark.parametrize(
    ("lines", "joined", "back", "axis", "what"),
    [
        ([slices(0), slices(1)], slices(2, 2), [], 0, r"Reshape"),
        ([port(0), port(1)], port(2), [], 0, "slices no input, so its number of iterations is unknown"),
        ([slices(0), COUNTER], port(2), [], 0, "has a purpose, which only a Loop supports"),
        ([slices(0), port(1)], slices(2, 2, axis=1), ["r>z"], 0, "must have the same shape"),
    ],
)  # fmt: skip
def test_iterators_that_do_not_fit(
    lines: list[str], joined: str, back: list[str], axis: int, what: str
) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    with pytest.raises(ModelError, match=what):
        run_ir(iterator(lines, joined, back, axis=axis), {"x": x, "z": np.ones((4, 2), np.float32)})


def test_no_iterations_give_what_their_result_states() -> None:
    content, weights = ir.to_bytes(iterator([slices(0), slices(1)], slices(2, 2)))
    nothing = {name: np.empty((0, 2), np.float32) for name in "xz"}
    assert run_ir(ir.from_bytes(content, weights), nothing)["y"].shape == (0, 2)
    port = rb'(type="Result".*?<port id="0" precision="FP32") />'
    stating = re.sub(port, rb"\1><dim>-1</dim><dim>2</dim></port>", content, count=1, flags=re.DOTALL)
    assert run_ir(ir.from_bytes(stating, weights), nothing)["y"].shape == (0, 2)


@pytest.mark.parametrize("kind", ["If", "Loop", "TensorIterator"])
def test_a_layer_with_bodies_and_without_inputs(kind: str) -> None:
    """It is ours because of the split in it."""
    builder = ir.Builder()
    outputs = builder.layer(kind, [], name="gate", version="opset8", element_type="f32")
    builder.result(outputs[0], "y")
    bodies = {}
    for prefix in ("then_", "else_") if kind == "If" else ("",):
        body = Body()
        (part,) = body.builder.layer(
            "Split", [body.builder.const(np.ones(2)), body.builder.const(0)], {"num_splits": 1}
        )
        body.gives("r", part, port(0))
        bodies[prefix] = body
    with pytest.raises(ModelError, match=r"has (no condition|too few inputs: 0 instead of)"):
        run_ir(reread(fill(builder.model(), "gate", bodies)), {})


def test_an_if_repeats_nothing() -> None:
    content, weights = ir.to_bytes(if_model())
    first = content.index(b"<input ")
    lying = content[:first] + content[first:].replace(
        b'external_port_id="1"', b'external_port_id="1" axis="0"', 1
    )
    inputs = {"c": np.array(True), "x": np.ones(4, np.float32), "lengths": np.array([2, 2])}
    with pytest.raises(ModelError, match="slices, counts or repeats, which an If cannot"):
        run_ir(ir.from_bytes(lying, weights), inputs)


# --- against OpenVINO ----------------------------------------------------------------------------------


def opset_models() -> dict[str, tuple[Any, list[list[Array]]]]:
    """Models made with OpenVINO's own operation set, each with some inputs."""
    import openvino as ov
    from openvino import opset13 as ops

    def parameters(*shapes: Any) -> list[Any]:
        return [ops.parameter(list(shape), np.float32) for shape in shapes]

    # If: the branches take different inputs.
    x, lengths, gate = ops.parameter([-1], np.float32), ops.parameter([2], np.int64), ops.parameter([], bool)
    (p,), q = parameters([-1]), ops.parameter([2], np.int64)
    cut = ops.variadic_split(p, 0, q)
    then = ov.Model([ops.result(cut.output(1)), ops.result(cut.output(0))], [p, q])
    (e,) = parameters([-1])
    otherwise = ov.Model([ops.result(ops.exp(e)), ops.result(ops.split(e, 0, 2).output(1))], [e])
    node = ops.if_op(gate)
    node.set_then_body(then)
    node.set_else_body(otherwise)
    node.set_input(x.output(0), p, e)
    node.set_input(lengths.output(0), q, None)
    outputs = [node.set_output(a, b) for a, b in zip(then.results, otherwise.results, strict=True)]
    made = {}
    values = np.arange(4, dtype=np.float32)
    made["if"] = (
        ov.Model([ops.result(output) for output in outputs], [x, lengths, gate]),
        [[values, np.array([1, -1]), np.array(choice)] for choice in (True, False)],
    )

    # Loop: sliced, merged and invariant inputs, the iteration's number, a condition, both kinds of outputs.
    for reverse in (False, True):
        x, y, z = parameters([-1, 2, 3], [1, 2, 3], [1, 2, 3])
        trips, going = ops.parameter([], np.int64), ops.parameter([], bool)
        xi, yi, zi = parameters([1, 2, 3], [1, 2, 3], [1, 2, 3])
        number = ops.parameter([], np.int64)
        total = ops.add(ops.add(xi, yi), zi)
        half = ops.split(total, 1, 2).output(1)
        more = ops.less(number, ops.constant(3, np.int64))
        body = ov.Model([ops.result(more), ops.result(total), ops.result(half)], [number, xi, yi, zi])
        loop = ops.loop(trips, going)
        loop.set_function(body)
        loop.set_special_body_ports([0, 0])
        loop.set_sliced_input(xi, x.output(0), *((-1, -1, 1, 0, 0) if reverse else (0, 1, 1, -1, 0)))
        loop.set_merged_input(yi, y.output(0), total.output(0))
        loop.set_invariant_input(zi, z.output(0))
        last = loop.get_iter_value(total.output(0), -1)
        joined = loop.get_concatenated_slices(half, 0, 1, 1, -1, 0)
        one = np.full((1, 2, 3), 0.5, np.float32)
        made[f"loop {reverse}"] = (
            ov.Model([ops.result(last), ops.result(joined)], [x, y, z, trips, going]),
            [
                [DATA, one, one * 8, np.array(count), np.array(start)]
                for count, start in [(0, True), (1, True), (3, True), (5, True), (-1, True), (3, False)]
            ],
        )

    # TensorIterator: parts of two, either direction.
    for ends in ((0, 2, 2, -1), (-1, -2, 2, 0)):
        for out in ((0, 1, 1, -1), (-1, -1, 1, 0)):
            x, y, z = parameters([2, -1, 3], [2, 2, 3], [2, 2, 3])
            xi, yi, zi = parameters([2, 2, 3], [2, 2, 3], [2, 2, 3])
            total = ops.add(ops.add(xi, yi), zi)
            half = ops.split(total, 1, 2).output(1)
            node = ops.tensor_iterator()
            node.set_body(ov.Model([ops.result(total), ops.result(half)], [xi, yi, zi]))
            node.set_sliced_input(xi, x.output(0), *ends, 1)
            node.set_merged_input(yi, y.output(0), total.output(0))
            node.set_invariant_input(zi, z.output(0))
            last = node.get_iter_value(total.output(0), -1)
            joined = node.get_concatenated_slices(half, *out, 1)
            data = np.arange(36, dtype=np.float32).reshape(2, 6, 3)
            made[f"tensor iterator {ends} {out}"] = (
                ov.Model([ops.result(last), ops.result(joined)], [x, y, z]),
                [[data, data[:, :2] * 100, data[:, 2:4]], [data[:, :2], data[:, :2], data[:, :2]]],
            )
    return made


ONNX_MODELS: dict[str, tuple[str, list[list[Array]]]] = {
    "if": (
        """<ir_version: 9, opset_import: ["": 18]>
        g (float[n, 4] x, bool c) => (float[n, m] y, float[n, k] z) {
            y, z = If(c) <
                then_branch = t () => (a, b) { a, b = Split<axis = 1, num_outputs = 2>(x) },
                else_branch = e () => (d, f) {
                    s = Constant<value_ints = [1, 3]>()
                    d, f = Split<axis = 1>(x, s)
                }>
        }""",
        [[np.arange(8, dtype=np.float32).reshape(2, 4), np.array(choice)] for choice in (True, False)],
    ),
    "loop": (
        """<ir_version: 9, opset_import: ["": 18]>
        g (float[2, 4] x, int64 M, bool c) => (float[2, 4] y, float[k, 2, 2] z) {
            y, z = Loop(M, c, x) <body = b (int64 i, bool ci, float[2, 4] v) => (co, w, p) {
                co = Identity(ci)
                p, q = Split<axis = 1, num_outputs = 2>(v)
                e = Exp(q)
                w = Concat<axis = 1>(e, p)
            }>
        }""",
        [
            [np.arange(8, dtype=np.float32).reshape(2, 4) / 16, np.array(trips), np.array(going)]
            for trips, going in [(0, True), (1, True), (3, True), (3, False)]
        ],
    ),
    "scan": (
        """<ir_version: 9, opset_import: ["": 18]>
        g (float[2] x, float[5, 4] s) => (float[2] y, float[5, 2] z) {
            y, z = Scan<num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1],
                body = b (float[2] v, float[4] r) => (float[2] w, float[2] p) {
                    p, q = Split<axis = 0, num_outputs = 2>(r)
                    w = Add(q, v)
                }>(x, s)
        }""",
        [[np.ones(2, np.float32), np.arange(20, dtype=np.float32).reshape(5, 4)]],
    ),
}


def compare(folder: Path, cases: Sequence[tuple[str, Path, list[Array]]]) -> None:
    jobs = []
    for _, path, arrays in cases:
        kinds = [element_type_of(array.dtype) for array in arrays]
        tensors = [stated(array, kind) for array, kind in zip(arrays, kinds, strict=True) if kind is not None]
        assert len(tensors) == len(arrays)
        jobs.append({"xml": str(path), "inputs": tensors, "by": "CPU"})
    for (name, path, arrays), answer in zip(cases, run_by_openvino(folder, jobs), strict=True):
        assert "error" not in answer, (name, answer)
        model = ir.read(path)
        split_bodies = {site.where.graph for site in iter_split_nodes(to_nodes(model))}
        assert split_bodies, name
        assert None not in split_bodies, f"{name}: the splits are in bodies"
        got = run_ir(model, dict(zip(ir.make_input_names(model), arrays, strict=True)))
        assert len(got) == len(answer["tensors"])
        for array, tensor in zip(got.values(), answer["tensors"], strict=True):
            expected = array_of(tensor)
            assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(array, expected, rtol=1e-6)


@needs_openvino
def test_same_as_openvino(tmp_path: Path) -> None:
    import openvino

    cases = []
    for index, (name, (model, inputs)) in enumerate(opset_models().items()):
        path = tmp_path / f"model{index}.xml"
        openvino.serialize(model, str(path))
        cases += [(name, path, arrays) for arrays in inputs]
    assert len(cases) >= 20
    compare(tmp_path, cases)


@needs_openvino
def test_a_loop_without_an_iteration_returns_nothing_of_the_run_before(tmp_path: Path) -> None:
    """OpenVINO itself returns what the loop has joined then."""
    import openvino

    source, inputs = opset_models()["loop False"]
    openvino.serialize(source, str(tmp_path / "model.xml"))
    model = ir.read(tmp_path / "model.xml")
    with splitops.session(model, "openvino") as ready, splitops.session(model, "reference") as reference:
        for arrays in (inputs[3], inputs[5], inputs[0], inputs[3]):
            feeds = dict(zip(ir.make_input_names(model), arrays, strict=True))
            expected, found = reference.run(feeds), ready.run(feeds)
            iterates = bool(feeds[ir.make_input_names(model)[3]] and feeds[ir.make_input_names(model)[4]])
            assert ("reference" in ready.describe()) is not iterates
            for name, array in expected.items():
                assert array.shape == found[name].shape
                np.testing.assert_allclose(found[name], array, rtol=1e-6)


@needs_openvino
def test_same_as_openvino_on_converted_models(tmp_path: Path) -> None:
    import onnx.parser

    jobs, cases = [], []
    for name, (text, inputs) in ONNX_MODELS.items():
        source, path = tmp_path / f"{name}.onnx", tmp_path / f"{name}.xml"
        onnx.save(onnx.parser.parse_model(text), source)
        jobs.append({"source": str(source), "xml": str(path), "by": "save_model"})
        cases += [(name, path, arrays) for arrays in inputs]
    assert run_by_openvino(tmp_path, jobs) == [{}] * len(jobs)
    compare(tmp_path, cases)


# --- inputs --------------------------------------------------------------------------------------------


def echo(kind: str, shape: str) -> ir.OpenVINOModel:
    builder = ir.Builder()
    x = builder.parameter("x", kind, shape)
    parts = builder.layer("VariadicSplit", [x, builder.const(0), builder.const([1, -1])], outputs=2)
    builder.result(parts[1], "y")
    return builder.model()


@pytest.mark.parametrize("inputs", [None, [("x", 1)], 3, "x", np.ones(3)])
def test_inputs_that_are_no_mapping(inputs: Any) -> None:
    with pytest.raises(ModelError, match=r"inputs have type \w+, not a mapping"):
        splitops.run(echo("f32", "?"), inputs)


def test_masked_arrays_are_rejected() -> None:
    model = echo("f32", "?")
    data = np.ma.MaskedArray(np.arange(3, dtype=np.float32), [False, True, False])
    with pytest.raises(ModelError, match="input 'x' is a masked array"):
        run_ir(model, {"x": data})
    got = run_ir(model, {"x": np.ma.MaskedArray(np.arange(3, dtype=np.float32))})["y"]
    assert got.tolist() == [1, 2]


@pytest.mark.parametrize(
    "data",
    [
        np.array(["a", "é", "日"]),
        np.array(["a", "é", "日"], object),
        np.array([text.encode() for text in ("a", "é", "日")]),
        np.array(["a", "é".encode(), "日"], object),
        np.array(["a", "é", "日"], np.dtypes.StringDType()),
    ],
)
def test_strings_of_any_kind_become_str(data: Array) -> None:
    got = run_ir(echo("string", "?"), {"x": data})["y"]
    assert got.dtype == object
    assert got.tolist() == ["é", "日"]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (np.array([b"a", b"\xff\xfe"]), "not UTF-8"),
        (np.array(["a", b"\xff"], object), "not UTF-8"),
        (np.array(["a", 3], object), "has an element of type int, not str"),
        (np.array(["a", None], object), "has an element of type NoneType, not str"),
    ],
)
def test_what_is_no_string(data: Array, what: str) -> None:
    with pytest.raises(ModelError, match=what):
        run_ir(echo("string", "?"), {"x": data})
