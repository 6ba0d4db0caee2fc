"""Running ONNX models: the family ours wherever it stands, every other operator onnx's."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import splitops
import splitops.onnx.reference
from splitops.calls.node import observe_splits
from splitops.errors import NOWHERE, ModelError, Rule, RuleError, SplitError, Where
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.graph.split_nodes import iter_split_nodes
from splitops.models.ops.shapes import slice_size
from splitops.models.split_nodes import SplitNode
from splitops.splitting.binding import Fact

run = partial(splitops.run, engine="reference")

X = np.arange(24, dtype=np.float32).reshape(6, 4)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def split_model(opset: int, outputs: list[str], *, split: Any = None, **attributes: Any) -> onnx.ModelProto:
    """One Split node of float x [6, 4]; ``split`` is its second input."""
    inputs = ["x"] if split is None else ["x", "split"]
    node = helper.make_node("Split", inputs, outputs, name="cut", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name],
        [onnx.numpy_helper.from_array(np.asarray(split), "split")] if split is not None else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def assert_parts(outputs: dict[str, Any], sizes: list[int], axis: int = 0) -> None:
    expected = np.split(X, np.cumsum(sizes)[:-1], axis)
    assert len(outputs) == len(expected)
    for part, wanted in zip(outputs.values(), expected, strict=True):
        np.testing.assert_array_equal(part, wanted, strict=True)


class TestEveryOpset:
    @pytest.mark.parametrize("opset", range(1, onnx.defs.onnx_opset_version() + 1))
    def test_split(self, opset: int) -> None:
        if opset < 13:
            model = split_model(opset, ["a", "b"], axis=1)
            model.graph.node[0].attribute.append(helper.make_attribute("split", [1, 3]))
        else:
            model = split_model(opset, ["a", "b"], split=np.array([1, 3]), axis=1)
        assert_parts(run(model, {"x": X}), [1, 3], axis=1)

    @pytest.mark.parametrize("opset", range(1, 18))
    def test_split_even(self, opset: int) -> None:
        assert_parts(run(split_model(opset, ["a", "b", "c"]), {"x": X}), [2, 2, 2])

    @pytest.mark.parametrize("opset", range(1, 18))
    def test_even_must_divide(self, opset: int) -> None:
        with pytest.raises(RuleError) as caught:
            run(split_model(opset, ["a", "b", "c", "d"]), {"x": X})
        assert caught.value.rule is Rule.PARTS_DIVISIBLE

    @pytest.mark.parametrize("opset", range(18, onnx.defs.onnx_opset_version() + 1))
    def test_split_ceil(self, opset: int) -> None:
        assert_parts(run(split_model(opset, list("abcd"), num_outputs=4), {"x": X}), [2, 2, 2, 0])

    @pytest.mark.parametrize("opset", range(11, onnx.defs.onnx_opset_version() + 1))
    def test_split_to_sequence(self, opset: int) -> None:
        node = helper.make_node("SplitToSequence", ["x"], ["s"], keepdims=0)
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 4])],
            [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        outputs = run(model, {"x": X})
        assert isinstance(outputs["s"], list)
        np.testing.assert_array_equal(np.stack(outputs["s"]), X)

    def test_split_to_sequence_does_not_exist_before_11(self) -> None:
        model = parse("""<ir_version: 8, opset_import: ["": 10]>
            g (float[6] x) => (seq(float[n]) s) { s = SplitToSequence(x) }""")
        with pytest.raises(RuleError) as caught:
            run(model, {"x": X[:, 0]})
        assert caught.value.rule is Rule.OPERATOR_VERSION
        assert caught.value.where.node == "SplitToSequence -> s"

    def test_split_1_takes_lengths_as_float_input(self) -> None:
        model = split_model(1, ["a", "b"], split=np.array([2, 4], np.float32))
        assert_parts(run(model, {"x": X}), [2, 4])

    def test_domain_alias(self) -> None:
        model = split_model(13, ["a", "b"], split=np.array([2, 4]))
        model.graph.node[0].domain = "ai.onnx"
        assert_parts(run(model, {"x": X}), [2, 4])
        model.opset_import[0].domain = "ai.onnx"
        model.graph.node[0].domain = ""
        assert_parts(run(model, {"x": X}), [2, 4])


class TestOutputs:
    def test_parts_are_views(self) -> None:
        outputs = run(split_model(13, ["a", "b"]), {"x": X})
        assert all(np.shares_memory(part, X) for part in outputs.values())

    def test_unread_outputs_are_skipped(self) -> None:
        outputs = run(split_model(13, ["", "b", ""]), {"x": X})
        assert list(outputs) == ["b"]
        np.testing.assert_array_equal(outputs["b"], X[2:4])

    def test_unread_output_is_not_taken_for_an_absent_input(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (float[4] x) => (float[n] y, float[m] b) {
                "", b = Split<num_outputs = 2>(x)
                y = Clip(x, "", b0)
            }""")
        model.graph.node[0].output[:] = ["", "b"]
        model.graph.node[1].input[:] = ["x", "", "top"]
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2), "top"))
        outputs = run(model, {"x": np.array([-9, 1, 5, 7], np.float32)})
        assert outputs["y"].tolist() == [-9, 1, 2, 2]

    def test_slices_begin_and_end_where_their_text_says(self) -> None:
        model = parse("""<ir_version: 8, opset_import: ["": 13]>
            g (float[N] x, int64[1] starts, int64[1] ends, int64[1] steps) => (float[M] y)
              <int64[1] axes = {0}> { y = Slice(x, starts, ends, axes, steps) }""")
        session = splitops.session(model, "reference")
        bounds, steps = (-9, -6, -5, -2, -1, 0, 1, 4, 5, 9), (-3, -2, -1, 1, 2, 7)
        for size, start, end, step in itertools.product((0, 1, 5), bounds, bounds, steps):
            first, end_ = (bound + size if bound < 0 else bound for bound in (start, end))
            low, high = (0, size) if step > 0 else (-1, size - 1)
            position = min(max(first, 0), high)
            stop = min(max(end_, low), high)
            expected = list(range(position, stop, step))
            x = np.arange(size, dtype=np.float32)
            y = session.run({"x": x, **{name: np.array([number]) for name, number in
                (("starts", start), ("ends", end), ("steps", step))}})["y"]  # fmt: skip
            assert y.tolist() == expected, (size, start, end, step)
            assert slice_size(size, start, end, step) == len(expected)

    def test_hostile_num_outputs_computes_the_declared_ones(self) -> None:
        outputs = run(split_model(18, ["a", "b"], num_outputs=2**62), {"x": X})
        assert [part.shape for part in outputs.values()] == [(1, 4), (1, 4)]

    def test_more_outputs_than_num_outputs(self) -> None:
        with pytest.raises(RuleError) as caught:
            run(split_model(18, ["a", "b", "c"], num_outputs=2), {"x": X})
        assert caught.value.rule is Rule.OUTPUTS_COUNT

    def test_empty_sequence(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (float[N] x) => (seq(float[n]) s, int64 n) {
                s = SplitToSequence(x)
                n = SequenceLength(s)
            }""")
        outputs = run(model, {"x": np.empty(0, np.float32)})
        assert outputs["s"] == []
        assert outputs["n"] == 0


IF = """<ir_version: 9, opset_import: ["": 18]>
    g (bool c, float[6] x, int64[2] sizes) => (float[n] y) {
        [choose] y = If (c) <
            then_branch = t () => (float[n] u) { [cut] u, v = Split (x, sizes) },
            else_branch = e () => (float[n] w) { [halve] w, z = Split <num_outputs = 2> (x) }
        >
    }"""


class TestSubgraphs:
    def test_if(self) -> None:
        inputs = {"x": X[:, 0], "sizes": np.array([2, 4])}
        assert run(parse(IF), inputs | {"c": np.array(True)})["y"].shape == (2,)
        assert run(parse(IF), inputs | {"c": np.array(False)})["y"].shape == (3,)

    def test_error_says_where(self) -> None:
        with pytest.raises(RuleError) as caught:
            run(parse(IF), {"x": X[:, 0], "sizes": np.array([2, 5]), "c": np.array(True)})
        assert caught.value.rule is Rule.LENGTHS_SUM
        assert caught.value.where == Where("g", "choose.then_branch", "cut", "split")
        assert "\n" not in str(caught.value)

    def test_operator_knows_its_place_before_anything_fails(self) -> None:
        places = []
        with observe_splits(lambda request, _: places.append(request.where)):
            run(parse(IF), {"x": X[:, 0], "sizes": np.array([2, 4]), "c": np.array(False)})
        assert places == [Where("g", "choose.else_branch", "halve")]

    def test_loop_stacks_and_carries(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (int64 trips, float[6] x) => (float[6] last, float[k, 2] firsts) {
                last, firsts = Loop (trips, "", x) <
                    body = b (int64 i, bool going, float[6] held)
                        => (bool still, float[6] turned, float[2] a) {
                        sizes = Constant <value = int64[2] {2, 4}> ()
                        a, rest = Split (held, sizes)
                        turned = Concat <axis = 0> (rest, a)
                        still = Identity (going)
                    }
                >
            }""")
        x = X[:, 0]
        outputs = run(model, {"trips": np.array(3), "x": x})
        np.testing.assert_array_equal(outputs["firsts"], x.reshape(3, 2))
        np.testing.assert_array_equal(outputs["last"], x)
        outputs = run(model, {"trips": np.array(0), "x": x})
        assert outputs["firsts"].shape == (0, 2)
        assert outputs["firsts"].dtype == np.float32

    def test_scan_over_any_axis_and_direction(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (float[4] start, float[6, 4] x) => (float[4] sum, float[2, 4] heads) {
                sum, heads = Scan <
                    num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
                    scan_output_axes = [1], scan_output_directions = [1],
                    body = b (float[4] held, float[6] column) => (float[4] next, float[2] head) {
                        sizes = Constant <value = int64[2] {2, 4}> ()
                        head, tail = Split (column, sizes)
                        next = Add (held, tail)
                    }
                > (start, x)
            }""")
        outputs = run(model, {"start": np.zeros(4, np.float32), "x": X})
        np.testing.assert_array_equal(outputs["heads"], X[:2])
        np.testing.assert_array_equal(outputs["sum"], X[2:].sum(axis=1))

    def test_sequence_map_sees_the_graph_around_it(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (float[6] x, float[1] shift, int64 chunk) => (seq(float[n]) shifted) {
                parts = SplitToSequence (x, chunk)
                shifted = SequenceMap (parts) <
                    body = b (float[n] part) => (float[n] sum) { sum = Add (part, shift) }
                >
            }""")
        x = X[:, 0]
        outputs = run(model, {"x": x, "shift": np.array([1], np.float32), "chunk": np.array(4)})
        assert [part.tolist() for part in outputs["shifted"]] == [[1, 5, 9, 13], [17, 21]]

    def test_failing_body_names_the_innermost_node(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (bool c, float[6] x) => (float[n] y) {
                [outer] y = If (c) <
                    then_branch = t () => (float[n] u) { [bad] u = MatMul (x, c) },
                    else_branch = e () => (float[n] w) { w = Identity (x) }
                >
            }""")
        with pytest.raises(ModelError, match="MatMul") as caught:
            run(model, {"c": np.array(True), "x": X[:, 0]})
        assert caught.value.where == Where("g", "outer.then_branch", "bad")
        assert caught.value.__cause__ is not None

    @pytest.mark.parametrize(
        ("takes", "gives", "trips", "reason"),
        [
            ("int64 i, bool c", "bool d, float[2] z", 1, "the body of Loop has 2 inputs, but gets 3"),
            ("int64 i, bool c, float[2] u", "bool d", 1, "the body of Loop has 1 outputs, but needs 2"),
            ("int64 i, bool c, float[2] u", "bool d, float[2] z", [1, 2], r"M has shape \(2,\)"),
        ],
    )
    def test_a_loop_that_does_not_fit_its_body(self, takes: str, gives: str, trips: Any, reason: str) -> None:
        model = parse(f"""<ir_version: 9, opset_import: ["": 18]>
            g (int64 n, float[2] x) => (float[A] y) {{
                [loop] y = Loop(n, , x) <
                    body = b ({takes}) => ({gives}) {{ d = Identity(c) z = Relu(x) }}> }}""")
        model.graph.input[0].type.tensor_type.ClearField("shape")
        with pytest.raises(ModelError, match=reason) as caught:
            run(model, {"n": np.array(trips), "x": X[0, :2]})
        assert caught.value.where == Where("g", None, "loop")

    def test_a_loop_without_turns_gives_the_types_that_its_body_infers(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (int64 n, float[2] x) => (float[A] y, float[B, C] w) {
                y, w = Loop(n, , x) <
                    body = b (int64 i, bool c, float[2] u) => (bool d, float[2] z, w)
                    { d = Identity(c) z = Relu(x) w = Relu(x) }> }""")
        outputs = run(model, {"n": np.array(0), "x": X[0, :2]})
        assert (outputs["w"].shape, outputs["w"].dtype) == ((0, 2), np.float32)

    @pytest.mark.parametrize(
        ("opset", "scanned", "inputs", "reason"),
        [
            (7, "1", "z, x", "Scan-8 with its batch axis is not supported: use opset 9 or later"),
            (8, "1", "z, x", "Scan-8 with its batch axis is not supported: use opset 9 or later"),
            (18, "5", "z, x", "Scan has num_scan_inputs = 5 and 2 inputs"),
            (18, "0", "z, x", "Scan has num_scan_inputs = 0 and 2 inputs"),
            (18, "2", "x, v", r"the scanned axes have different sizes: \[3, 4\]"),
            (18, "1, scan_input_axes = [0, 0]", "z, x", "Scan declares 2 axes or directions for 1 tensors"),
            (18, "1, scan_input_axes = [7]", "z, x", "axis 7 is out of bounds"),
        ],
    )
    def test_a_scan_that_does_not_fit_its_body(
        self, opset: int, scanned: str, inputs: str, reason: str
    ) -> None:
        model = parse(f"""<ir_version: 9, opset_import: ["": {opset}]>
            g (float[2] z, float[3, 2] x, float[4, 2] v) => (float[A] y, float[B, C] s) {{
                [scan] y, s = Scan<num_scan_inputs = {scanned},
                    body = b (float[2] h, float[2] e) => (float[2] o, float[2] p)
                        {{ o = Add(h, e) p = Relu(e) }}
                >({inputs}) }}""")
        feeds = {"z": X[0, :2], "x": X[:3, :2], "v": X[:4, :2]}
        with pytest.raises(ModelError, match=reason) as caught:
            run(model, feeds)
        assert caught.value.where == Where("g", None, "scan")

    def test_the_most_runs_of_a_body_are_an_integer(self) -> None:
        with pytest.raises(
            ModelError, match="max_iterations = 'many', but it must be an integer of at least 0"
        ):
            run(parse(IF), {"x": X[:, 0], "sizes": np.array([2, 4]), "c": True}, max_iterations="many")

    @pytest.mark.parametrize(
        ("opset", "node", "reason"),
        [
            (18, "y, z = Relu(x)", "'Relu' did not return output 'z'"),
            (13, "y = Gelu(x)", "No registered schema for operator 'Gelu'"),
            (11, "y = Softmax<axis = 5>(x)", "axis = 5 is out of range for data of rank 1"),
        ],
    )
    def test_what_an_operator_does_not_do_names_it(self, opset: int, node: str, reason: str) -> None:
        model = parse(f"""<ir_version: 8, opset_import: ["": {opset}]>
            g (float[6] x) => (float[n] y) {{ [bad] {node} }}""")
        with pytest.raises(ModelError, match=reason) as caught:
            run(model, {"x": X[:, 0]})
        assert caught.value.where == Where("g", None, "bad")

    def test_an_operator_that_takes_no_sequence_says_that_it_was_given_one(self) -> None:
        model = parse("""
            <ir_version: 8, opset_import: ["": 18]>
            g (float[6, 4] x) => (float[A, 4] y) { s = SplitToSequence(x) y = Concat<axis = 0>(s) }""")
        with pytest.raises(ModelError, match="'Concat' failed on a sequence: "):
            splitops.run(model, {"x": X}, engine="reference")


class TestOtherInputs:
    def test_an_optional_input_may_be_left_out(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }""")
        assert not run(model, {})["y"]
        assert not run(model, {"x": None})["y"]
        assert run(model, {"x": X[0, :2]})["y"]
        with pytest.raises(ModelError, match=r"has shape \(3,\), but .* declares optional of float32 \(2\)"):
            run(model, {"x": X[0, :3]})

    def test_of_an_input_of_another_type_nothing_is_checked(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (map(int64, float[2]) x) => (bool y) { y = OptionalHasElement(x) }""")
        assert run(model, {"x": {1: 2.0}})["y"]

    def test_objects_are_no_strings(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (string[2] x) => (string[2] y) { y = Identity(x) }""")
        with pytest.raises(ModelError, match="input 'x' has an element of type int, not str"):
            run(model, {"x": np.array(["a", 3], object)})


FUNCTIONS = """<ir_version: 10, opset_import: ["": 18, "local": 1]>
    g (float[6] x) => (float[n] a, float[m] b, float[k] c) {
        a, b = local.pair <at = 2> (x)
        c = local.first (x)
    }
    <opset_import: ["": 11], domain: "local">
    first <axis> (x) => (y) { y, rest = Split <axis: int = @axis> (x) }
    <opset_import: ["": 13, "local": 1], domain: "local">
    pair <at> (x) => (a, b) {
        [inner] a, b = local.cut <at: int = @at> (x)
    }
    <opset_import: ["": 13], domain: "local">
    cut <at> (x) => (a, b) {
        size = Constant <value_int: int = @at> ()
        zero = Constant <value_ints = [0]> ()
        one = Constant <value_ints = [-1]> ()
        n = Shape (x)
        rest = Sub (n, size)
        head = Reshape (size, one)
        sizes = Concat <axis = 0> (head, rest)
        [cut] a, b = Split (x, sizes)
    }"""


class TestFunctions:
    def test_own_opsets_and_attributes(self) -> None:
        outputs = run(parse(FUNCTIONS), {"x": X[:, 0]})
        assert [part.shape for part in outputs.values()] == [(2,), (4,), (3,)]

    def test_error_says_which_function(self) -> None:
        model = parse(FUNCTIONS.replace("at = 2", "at = 7"))
        with pytest.raises(RuleError) as caught:
            run(model, {"x": X[:, 0]})
        assert caught.value.operator == "Split-13"
        assert caught.value.where.graph == "function local.cut"
        assert caught.value.where.node == "cut"

    def test_attribute_default(self) -> None:
        model = parse(FUNCTIONS)
        function = next(function for function in model.functions if function.name == "first")
        function.ClearField("attribute")
        function.attribute_proto.append(helper.make_attribute("axis", 5))
        with pytest.raises(RuleError) as caught:
            run(model, {"x": X[:, 0]})
        assert caught.value.rule is Rule.AXIS_RANGE

    def test_attribute_that_the_function_does_not_have(self) -> None:
        with pytest.raises(ModelError, match="no attribute 'at'"):
            run(parse(FUNCTIONS.replace("local.first (x)", "local.first <at = 1> (x)")), {"x": X[:, 0]})

    @pytest.mark.parametrize(
        ("call", "reason"),
        [
            ("y = local.f <slope = 0.5> (x, x)", "1 inputs and 1 outputs, but is called with 2 and 1"),
            ("y, z = local.f <slope = 0.5> (x)", "1 inputs and 1 outputs, but is called with 1 and 2"),
            ("y = local.f <slope = 3> (x)", "'alpha' does not have the type of 'slope', to which it refers"),
        ],
    )
    def test_a_call_that_does_not_fit_its_function(self, call: str, reason: str) -> None:
        model = parse(f"""<ir_version: 10, opset_import: ["": 18, "local": 1]>
            g (float[6] x) => (float[n] y) {{ [call] {call} }}
            <opset_import: ["": 18], domain: "local">
            f <slope> (x) => (y) {{ y = LeakyRelu <alpha: float = @slope> (x) }}""")
        with pytest.raises(ModelError, match=reason) as caught:
            run(model, {"x": X[:, 0]})
        assert caught.value.where == Where("g", None, "call")

    def test_calls_with_too_many_sets_of_attributes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("splitops.models.running.onnx.evaluator._MAX_BODIES", 2)
        text = """<ir_version: 10, opset_import: ["": 18, "local": 1]>
            g (float[6] x) => (float[n] a, float[m] b, float[k] c) {{
                a = local.f <slope = 0.5> (x)  b = local.f <slope = 0.25> (x)  c = local.f <slope = {}> (x) }}
            <opset_import: ["": 18], domain: "local">
            f <slope> (x) => (y) {{ y = LeakyRelu <alpha: float = @slope> (x) }}"""
        assert len(run(parse(text.format(0.5)), {"x": X[:, 0]})) == 3
        with pytest.raises(ModelError, match="called with more than 2 sets of attributes"):
            run(parse(text.format(0.75)), {"x": X[:, 0]})

    def test_subgraph_in_a_function(self) -> None:
        model = parse("""<ir_version: 10, opset_import: ["": 18, "local": 1]>
            g (bool c, float[6] x) => (float[n] y) { y = local.f <parts = 3> (c, x) }
            <opset_import: ["": 18], domain: "local">
            f <parts> (c, x) => (y) {
                y = If (c) <
                    then_branch = t () => (float[n] u) { u = Split <num_outputs: int = @parts> (x) },
                    else_branch = e () => (float[n] w) { w = Identity (x) }
                >
            }""")
        assert run(model, {"c": np.array(True), "x": X[:, 0]})["y"].shape == (2,)

    def test_the_split_of_onnx_never_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from onnx.reference.ops import op_split

        def forbidden(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("onnx's own Split ran")

        monkeypatch.setattr(op_split.CommonSplit, "common_run", forbidden)
        assert_parts(run(split_model(13, ["a", "b"]), {"x": X}), [3, 3])
        assert run(parse(FUNCTIONS), {"x": X[:, 0]})["c"].shape == (3,)
        assert run(parse(IF), {"x": X[:, 0], "sizes": np.array([2, 4]), "c": np.array(True)})["y"].shape == (
            2,
        )
        with pytest.raises(AssertionError):
            ReferenceEvaluator(split_model(13, ["a", "b"])).run(None, {"x": X})


def test_values_that_nothing_reads_any_more_are_freed() -> None:
    model = parse("""<ir_version: 9, opset_import: ["": 18]>
        g (float[n] x, bool condition) => (float[n] y) {
            kept = Neg(x)
            a = Neg(x)
            b = Neg(a)
            c = Neg(b)
            d = Neg(c)
            e = Neg(d)
            y = If(condition) <
                then_branch = t () => (float[n] q) { p = Neg(e) q = Sub(p, kept) },
                else_branch = f () => (float[n] r) { r = Neg(kept) }
            >
        }""")
    ready = splitops.session(model, "reference")
    data = np.ones(1 << 18, np.float32)
    tracemalloc.start()
    try:
        assert ready.run({"x": data, "condition": np.array(True)})["y"][0] == 2
        assert tracemalloc.get_traced_memory()[1] < 4.5 * data.nbytes
    finally:
        tracemalloc.stop()


class TestInputs:
    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ({}, "input 'x' is missing"),
            ({"x": X, "y": X}, "the model has no input 'y': its inputs are 'x'"),
            ({"x": X.astype(np.float64)}, "has element type float64, but the model declares float32"),
            ({"x": X[:5]}, r"has shape \(5, 4\), but the model declares float32 \(6, 4\)"),
            ({"x": X[0]}, r"has shape \(4,\), but the model declares float32 \(6, 4\)"),
            ({"x": [[1.0], [2.0, 3.0]]}, "is not an array"),
            ({"x": X.astype("M8[s]")}, "has element type datetime64"),
        ],
    )
    def test_does_not_fit(self, inputs: dict[str, Any], message: str) -> None:
        with pytest.raises(ModelError, match=message) as caught:
            run(split_model(13, ["a", "b"]), inputs)
        assert caught.value.where.model == "one"

    def test_symbols_agree(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (float[N, N] x, float[N] y) => (float[N, N] z) { z = Add (x, y) }""")
        assert run(model, {"x": X[:4], "y": X[0]})["z"].shape == (4, 4)
        with pytest.raises(ModelError, match="size 6 on axis 0, but 'N' is 4 in input 'x'"):
            run(model, {"x": X[:4], "y": X[:, 0]})
        with pytest.raises(ModelError, match="size 4 on axis 1, but 'N' is 6 in input 'x'"):
            run(model, {"x": X, "y": X[0]})

    def test_a_negative_size_is_an_unknown_one(self) -> None:
        model = split_model(13, ["a", "b"])
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
        assert_parts(run(model, {"x": X}), [3, 3])

    def test_initializer_is_the_default_of_an_input(self) -> None:
        model = split_model(13, ["a", "b"], split=np.array([2, 4]))
        model.ir_version = 3
        model.graph.input.append(helper.make_tensor_value_info("split", TensorProto.INT64, [2]))
        assert [item.name for item in splitops.session(model, "reference").inputs if item.required] == ["x"]
        assert_parts(run(model, {"x": X}), [2, 4])
        assert_parts(run(model, {"x": X, "split": np.array([5, 1])}), [5, 1])

    @pytest.mark.parametrize("dtype", ["object", "U5", "S5"])
    def test_strings(self, dtype: str) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (string[4] x) => (string[n] a, string[m] b) { a, b = Split <num_outputs = 2> (x) }""")
        outputs = run(model, {"x": np.array(["é" if dtype != "S5" else "e", "", "b", "ccc"], dtype)})
        assert outputs["b"].tolist() == ["b", "ccc"]
        mixed = np.array(["a", "", "é".encode(), "ccc"], object)
        assert run(model, {"x": mixed})["b"].tolist() == ["é", "ccc"]
        mixed[2] = b"\xff"
        with pytest.raises(ModelError, match="input 'x' has a string that is not UTF-8"):
            run(model, {"x": mixed})

    def test_bfloat16(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (bfloat16[4] x) => (bfloat16[n] a, bfloat16[m] b) { a, b = Split <num_outputs = 2> (x) }""")
        outputs = run(model, {"x": np.arange(4).astype(ml_dtypes.bfloat16)})
        assert outputs["b"].dtype == ml_dtypes.bfloat16
        assert outputs["b"].astype(int).tolist() == [2, 3]

    @pytest.mark.parametrize("name", ["float8e4m3fn", "int4", "uint2", "float4e2m1"])
    def test_types_that_no_version_lists(self, name: str) -> None:
        if name.upper() not in dict(TensorProto.DataType.items()):
            pytest.skip(f"onnx {onnx.__version__} has no {name}")
        model = parse(f"""<ir_version: 14, opset_import: ["": {onnx.defs.onnx_opset_version()}]>
            g (float[4] x) => ({name}[n] a, {name}[m] b) {{
                t = Cast <to = {TensorProto.DataType.Value(name.upper())}> (x)
                a, b = Split <num_outputs = 2> (t)
            }}""")
        with pytest.raises(RuleError) as caught:
            run(model, {"x": X[0]})
        assert caught.value.rule is Rule.TYPE_UNSUPPORTED

    def test_big_endian_and_read_only(self) -> None:
        data = X.astype(">f4")
        data.flags.writeable = False
        assert_parts(run(split_model(13, ["a", "b"]), {"x": data}), [3, 3])

    def test_sequence_input(self) -> None:
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (seq(float[n]) s) => (float[m] y) { y = ConcatFromSequence <axis = 0> (s) }""")
        assert run(model, {"s": [X[0], X[:, 0]]})["y"].shape == (10,)
        with pytest.raises(ModelError, match="is a sequence"):
            run(model, {"s": X})


class TestForeignOperators:
    def test_defaults_are_those_of_the_imported_version(self) -> None:
        """The newest, which onnx alone takes, are others: Hardmax went from axis 1 to axis -1 in opset 13."""
        text = """<ir_version: 8, opset_import: ["": %d]>
            g (float[2, 3] x) => (float[2, 3] y) { y = Hardmax (x) }"""
        x = np.array([[1, 2, 3], [3, 2, 1]], np.float32)
        for opset in (11, 13):
            assert run(parse(text % opset), {"x": x})["y"].tolist() == [[0, 0, 1], [1, 0, 0]]

    @pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
    @pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
    @pytest.mark.parametrize("opset", [11, 12, 13])
    def test_softmax_before_13_takes_all_axes_from_one_on(
        self, name: str, axis: int | None, opset: int
    ) -> None:
        onnxruntime = pytest.importorskip("onnxruntime")
        stated = "" if axis is None else f"<axis = {axis}>"
        model = parse(f"""<ir_version: 7, opset_import: ["": {opset}]>
            g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = {name} {stated} (x) }}""")
        x = np.sin(np.arange(24, dtype=np.float32)).reshape(2, 3, 4)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(run(model, {"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-5)

    def test_unknown_operator(self) -> None:
        model = parse("""<ir_version: 8, opset_import: ["": 18, "else": 1]>
            g (float[2] x) => (float[2] y) { [odd] y = else.Unheard (x) }""")
        with pytest.raises(ModelError, match="'Unheard'") as caught:
            run(model, {"x": X[0, :2]})
        assert caught.value.where.node == "odd"

    def test_family_attribute_of_another_type(self) -> None:
        model = split_model(13, ["a", "b"], axis=1.5)
        with pytest.raises(RuleError) as caught:
            run(model, {"x": X})
        assert caught.value.rule is Rule.AXIS_DTYPE
        model = split_model(13, ["a", "b"], axis="left")
        with pytest.raises(ModelError, match="is not numeric"):
            run(model, {"x": X})


class TestOtherForms:
    def test_onnx_ir(self) -> None:
        model = split_model(13, ["a", "b"], split=np.array([2, 4]))
        assert_parts(run(onnx_ir.from_proto(model), {"x": X}), [2, 4])

    def test_something_else(self) -> None:
        with pytest.raises(ModelError, match="dict is neither"):
            run({}, {})  # type: ignore[arg-type]

    def test_the_model_is_not_changed(self) -> None:
        model = parse(FUNCTIONS)
        before = model.SerializeToString(deterministic=True)
        run(model, {"x": X[:, 0]})
        assert model.SerializeToString(deterministic=True) == before

    def test_threads_share_a_model(self) -> None:
        model = splitops.session(
            parse("""<ir_version: 9, opset_import: ["": 18]>
            g (float[1] shift, int64 trips) => (float[n, 1] y) {
                y = Loop (trips, "") <
                    body = b (int64 i, bool going) => (bool still, float[1] z) {
                        still = Identity (going)
                        z = Identity (shift)
                    }
                >
            }"""),
            "reference",
        )

        def sums(value: float) -> float:
            return float(
                model.run({"shift": np.array([value], np.float32), "trips": np.array(200)})["y"].sum()
            )

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(sums, range(16))) == [200.0 * value for value in range(16)]

    def test_runs_again(self) -> None:
        model = splitops.session(parse(IF), "reference")
        for _ in range(2):
            outputs = model.run({"x": X[:, 0], "sizes": np.array([1, 5]), "c": np.array(True)})
            assert outputs["y"].shape == (1,)


class TestReferenceOps:
    def test_plugged_into_onnx(self) -> None:
        evaluator = ReferenceEvaluator(parse(IF), new_ops=splitops.onnx.reference.get_reference_ops())
        with pytest.raises(SplitError, match="sums to 7"):
            evaluator.run(None, {"x": X[:, 0], "sizes": np.array([2, 5]), "c": np.array(True)})
        (y,) = evaluator.run(None, {"x": X[:, 0], "sizes": np.array([2, 4]), "c": np.array(True)})
        assert y.shape == (2,)

    def test_version_follows_the_opset(self) -> None:
        ops = splitops.onnx.reference.get_reference_ops()
        with pytest.raises(SplitError, match=r"Split-13 \[parts.divisible\]"):
            ReferenceEvaluator(split_model(13, list("abcd")), new_ops=ops).run(None, {"x": X})
        parts = ReferenceEvaluator(split_model(18, list("abcd"), num_outputs=4), new_ops=ops).run(
            None, {"x": X}
        )
        assert [len(part) for part in parts] == [2, 2, 2, 0]

    @pytest.mark.parametrize(
        ("attribute", "reason"),
        [
            (onnx.AttributeProto(name="axis", i=0), "attribute 'axis' of Split has no type"),
            (
                helper.make_attribute("axis", "one"),
                "attribute 'axis' of Split is not a number or a list of numbers",
            ),
            (helper.make_attribute("axis", [0.5]), r"Split-13 \[axis.dtype\]: "),
        ],
    )
    def test_attributes_that_are_no_integers(self, attribute: onnx.AttributeProto, reason: str) -> None:
        model = split_model(13, ["a", "b"])
        del model.graph.node[0].attribute[:]
        model.graph.node[0].attribute.append(attribute)
        ops = splitops.onnx.reference.get_reference_ops()
        with pytest.raises(SplitError, match=reason) as caught:
            ReferenceEvaluator(model, new_ops=ops).run(None, {"x": X})
        assert caught.value.where.node == "cut"

    def test_attributes_of_functions(self) -> None:
        """A function alone: those of a model are given none but the operators of onnx."""
        (function,) = parse("""<ir_version: 10, opset_import: ["": 18, "local": 1]>
            g (float[6, 4] x) => (float[n, m] a) { a, b = local.halve <at = 1> (x) }
            <opset_import: ["": 13], domain: "local">
            halve <at> (x) => (y, z) { y, z = Split <axis: int = @at> (x) }""").functions
        evaluator = ReferenceEvaluator(function, new_ops=splitops.onnx.reference.get_reference_ops())
        for attributes, shape in (({"at": 1}, (6, 2)), ({"at": 0}, (3, 4)), ({"other": 1}, (3, 4))):
            parts = evaluator.run(None, {"x": X}, attributes=attributes)
            assert [part.shape for part in parts] == [shape] * 2
        with pytest.raises(SplitError, match=r"Split-13 \[axis.range\]"):
            evaluator.run(None, {"x": X}, attributes={"at": 2})

    def test_what_is_fed_is_a_tensor(self) -> None:
        ops = splitops.onnx.reference.get_reference_ops()
        model = parse("""<ir_version: 9, opset_import: ["": 18]>
            g (float[N] x, int64 chunk) => (seq(float[n]) s) { [cut] s = SplitToSequence(x, chunk) }""")
        evaluator = ReferenceEvaluator(model, new_ops=ops)
        (parts,) = evaluator.run(None, {"x": X[0], "chunk": np.int64(3)})
        assert [part.shape for part in parts] == [(3,), (1,)]
        with pytest.raises(
            ModelError, match="SplitToSequence-11: an input is a list, not a tensor"
        ) as caught:
            evaluator.run(None, {"x": [X[0]], "chunk": np.int64(3)})
        assert caught.value.where.node == "cut"

    def test_importing_it_does_not_import_onnx(self) -> None:
        code = "import sys, splitops.onnx.reference; print('onnx' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"


def sites_of(model: onnx.ModelProto, where: Where = NOWHERE) -> list[SplitNode]:
    return list(iter_split_nodes(deserialize_model(model), where))


class TestSites:
    def test_if_branches(self) -> None:
        found = [(str(s.schema), s.attributes, s.inputs, s.outputs, s.where) for s in sites_of(parse(IF))]
        assert found == [
            ("Split-18", {}, ("x", "sizes"), ("u", "v"), Where(None, "choose.then_branch", "cut")),
            ("Split-18", {"num_outputs": 2}, ("x",), ("w", "z"), Where(None, "choose.else_branch", "halve")),
        ]

    def test_functions_have_their_own_opset_and_references(self) -> None:
        first, cut = sites_of(parse(FUNCTIONS), Where("m.onnx"))
        assert str(first.schema) == "Split-11"
        assert first.references == {"axis": "axis"}
        assert first.attributes == {"axis": Fact()}
        assert str(cut.schema) == "Split-13"
        assert cut.where == Where("m.onnx", "function local.cut", "cut")
        assert cut.node.op_type == "Split"

    def test_lists_are_tuples(self) -> None:
        model = split_model(11, ["a", "b"])
        model.graph.node[0].attribute.append(helper.make_attribute("split", [2, 4]))
        (site,) = sites_of(model)
        assert site.attributes == {"split": (2, 4)}

    def test_version_error_says_where(self) -> None:
        model = parse("""<ir_version: 8, opset_import: ["": 10]>
            g (float[6] x) => (seq(float[n]) s) { [early] s = SplitToSequence(x) }""")
        with pytest.raises(RuleError) as caught:
            sites_of(model)
        assert caught.value.where.node == "early"


def test_a_question_mark_is_no_name_of_a_size() -> None:
    """Paddle's exporter writes it for each size that it does not know; these need not be equal."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]> g (float[A, B] x) => (float[A, B] y) { y = Relu(x) }""")
    for value in (*model.graph.input, *model.graph.output):
        for size in value.type.tensor_type.shape.dim:
            size.dim_param = "?"
    for engine in ("reference", "auto"):
        assert splitops.run(model, {"x": np.ones((2, 3), np.float32)}, engine=engine)["y"].shape == (2, 3)
    assert not list(splitops.check(model))
    assert str(splitops.infer(model)["y"]) == "float32[?, ?]"


@pytest.mark.parametrize("member", ["_init", "_load_impl", "inits_", "rt_inits_", "rt_nodes_"])
def test_onnx_has_the_private_members_that_the_evaluator_overrides(member):
    """Its constructor calls `_init`, which turns `inits_` and nodes into `rt_inits_` and `rt_nodes_`."""
    from onnx.reference import ReferenceEvaluator

    assert hasattr(ReferenceEvaluator(parse(IF)), member)
