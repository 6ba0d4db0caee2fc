"""Whole models: subgraphs, functions, shared and replaceable constants, other operators, names, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from conversion_results import RECENT_OPSET, equal, runnable
from onnx import ModelProto, TensorProto, helper, numpy_helper

import splitops.models
from splitops.errors import LengthsError, ModelError, OperatorError, Rule
from splitops.models.convert import Conversion, Status, convert, convert_with_report, parse_target
from splitops.models.engines import is_installed

X = np.arange(30, dtype=np.float32).reshape(5, 6)


def parsed(text: str) -> ModelProto:
    return onnx.parser.parse_model(text)


def outputs(model: Any, feeds: dict[str, Any]) -> list[Any]:
    return list(splitops.models.run(model, feeds).values())


def assert_same(model: ModelProto, report: Conversion, feeds: dict[str, Any]) -> None:
    assert equal(outputs(report.model, feeds), outputs(model, feeds))


BRANCHES = """
    <ir_version: 8, opset_import: ["": 13]>
    g (float[5,6] x, bool c) => (float[a,b] o)
    <int64[2] lengths = {2, 4}> {
        o = If(c) <
            then_branch = t () => (float[a,b] p) { p, q = Split<axis = 1>(x, lengths) },
            else_branch = e () => (float[a,b] s) {
                own = Constant<value_ints = [4, 2]>()
                r, s = Split<axis = -1>(x, own)
            }
        >
    }"""


@pytest.mark.parametrize("target", ["onnx:11", "onnx:18", "openvino"])
@pytest.mark.parametrize("condition", [True, False])
def test_subgraphs_with_constants_of_the_graph_around_them(target: str, condition: bool) -> None:
    if target == "openvino":
        pytest.importorskip("openvino")  # whose converter takes If
    model = parsed(BRANCHES)
    report = convert_with_report(model, to=target)
    graphs = [change.where.graph for change in report.changes if "Split" in change.before]
    assert graphs == ["If -> o.then_branch", "If -> o.else_branch"]
    assert_same(model, report, {"x": X, "c": np.array(condition)})
    if target == "onnx:11":
        assert not report.model.graph.initializer  # nobody reads the lengths any more


FUNCTION = """
    <ir_version: 8, opset_import: ["": 13, "my": 1]>
    g (float[5,6] x) => (float[a,b] p, float[c,d] q) { p, q = my.halve<axis = 1>(x) }
    <domain: "my", opset_import: ["": 13]>
    halve <axis> (v) => (a, b) { a, b = Split<axis: int = @axis>(v) }
"""


def test_a_function_keeps_the_attributes_of_its_caller() -> None:
    model = parsed(FUNCTION)
    up = convert_with_report(model, to="onnx:18")
    *_, node = up.model.functions[0].node
    stated = {attribute.name: attribute for attribute in node.attribute}
    assert stated["axis"].ref_attr_name == "axis"
    assert "num_outputs" not in stated, "onnxruntime would reject an axis of size 0"
    assert [entry.version for entry in up.model.functions[0].opset_import] == [18]
    assert_same(model, up, {"x": X})
    assert_same(model, convert_with_report(model, to="onnx:11"), {"x": X})
    assert_same(model, convert_with_report(model, to="openvino"), {"x": X})
    # Which axis it is, and so whether two parts divide it, only the callers know.
    counted = parsed(FUNCTION.replace("13", "18").replace("Split<", "Split<num_outputs = 2, "))
    assert [change.rule for change in convert_with_report(counted, to="onnx:11").rejections] == [
        Rule.PARTS_DIVISIBLE
    ]


def test_lengths_that_a_caller_states_become_an_input() -> None:
    text = (
        FUNCTION.replace("13", "11")
        .replace("<axis>", "<axis, split>")
        .replace("Split<axis: int = @axis>", "Split<axis: int = @axis, split: ints = @split>")
    )
    model = parsed(text.replace("halve<axis = 1>(x)", "halve<axis = 1, split = [1, 5]>(x)"))
    report = convert_with_report(model, to="onnx:18")
    assert report.changes[0].status is Status.CONVERTED
    assert_same(model, report, {"x": X})


def test_shared_constants_stay_for_their_other_users() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x) => (float[a,b] p, float[c,d] q, int64[2] l)
        <int64[2] lengths = {2, 4}> {
            p, q = Split<axis = 1>(x, lengths)
            l = Identity(lengths)
        }""")
    report = convert_with_report(model, to="onnx:11")
    assert [tensor.name for tensor in report.model.graph.initializer] == ["lengths"]
    assert_same(model, report, {"x": X})


@pytest.mark.parametrize(
    "constant",
    [
        "Constant<value = int64[2] {2, 4}>()",
        "Constant<value_ints = [2, 4]>()",
    ],
)
def test_every_form_of_a_constant_is_read(constant: str) -> None:
    model = parsed(f"""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x) => (float[a,b] p, float[c,d] q) {{
            l = {constant}
            p, q = Split<axis = 1>(x, l)
        }}""")
    report = convert_with_report(model, to="onnx:2")
    assert [node.op_type for node in report.model.graph.node] == ["Split"]
    assert_same(model, report, {"x": X})


def test_a_chunk_as_value_int_becomes_lengths() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x) => (float[a,b] last) {
            chunk = Constant<value_int = 4>()
            at = Constant<value_int = -1>()
            parts = SplitToSequence<axis = 1>(x, chunk)
            last = SequenceAt(parts, at)
        }""")
    report = convert_with_report(model, to="openvino")
    assert report.changes[0].after == "openvino VariadicSplit-1(axis=1, split_lengths=[4, 2])"
    assert_same(model, report, {"x": X})


def test_no_lengths_are_as_many_as_the_chunks_of_an_empty_axis() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[0] x) => (seq(float[a]) s) <int64 k = {2}> { s = SplitToSequence(x, k) }""")
    made = convert(model, splits_only=True, style="lengths")
    assert [list(node.input) for node in made.graph.node] == [["x", "k"]]
    assert [numpy_helper.to_array(tensor).tolist() for tensor in made.graph.initializer] == [2]
    assert outputs(made, {"x": np.zeros(0, np.float32)}) == [[]]


def _replaceable() -> ModelProto:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x, int64[2] lengths) => (float[a,b] p, float[c,d] q) {
            p, q = Split<axis = 1>(x, lengths)
        }""")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 4]), "lengths"))
    return model


def test_lengths_that_the_caller_can_replace_are_never_folded() -> None:
    model = _replaceable()
    down = convert_with_report(model, to="onnx:11")
    for lengths in ([2, 4], [5, 1]):
        assert_same(model, down, {"x": X, "lengths": np.array(lengths)})
    for target in ("onnx:9", "openvino"):
        with pytest.raises(LengthsError, match=r"overridable initializer|the caller can replace"):
            _ = convert(model, to=target)


def test_absent_inputs_and_outputs_with_empty_names() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x) => (float[a,b] p, float[c,d] q) { p, r, q = Split<axis = 1>(x) }""")
    node = model.graph.node[0]
    node.input.append("")
    node.output[1] = ""
    for target in ("onnx:1", "onnx:11", "onnx:18", "openvino"):
        report = convert_with_report(model, to=target)
        assert_same(model, report, {"x": X})
        if target == "onnx:11":
            assert list(report.model.graph.node[0].input) == ["x"]


def test_names_and_metadata_survive() -> None:
    model = parsed("""
        <ir_version: 10, opset_import: ["": 18]>
        g (float[N,6] x) => (float[N,a] p, float[N,b] q) { p, q = Split<axis = 1, num_outputs = 2>(x) }""")
    model.producer_name, model.doc_string = "somebody", "of the model"
    model.metadata_props.add(key="author", value="somebody")
    node = model.graph.node[0]
    node.name, node.doc_string = "halves", "of the node"
    node.metadata_props.add(key="origin", value="layer 3")
    for target in ("onnx:11", "onnx:13", f"onnx:{RECENT_OPSET}"):
        converted = convert(model, to=target)
        assert converted.metadata_props == model.metadata_props
        assert (converted.producer_name, converted.doc_string) == ("somebody", "of the model")
        (after,) = converted.graph.node
        assert (after.name, after.doc_string) == ("halves", "of the node")
        assert after.metadata_props == node.metadata_props
        assert converted.graph.input == model.graph.input
        assert converted.graph.output == model.graph.output


def test_what_nobody_can_convert_is_named_and_every_split_reported() -> None:
    model = parsed("""
        <ir_version: 10, opset_import: ["": 18]>
        g (float[5,6] x) => (float[a,b] m, float[c,d] q) {
            p, q = Split<axis = 1, num_outputs = 2>(x)
            n = Cast<to = 6>(p)
            b = BitwiseNot(n)
            m = Cast<to = 1>(b)
        }""")
    report = convert_with_report(model, to="onnx:11")
    assert [change.status for change in report.changes] == [Status.CONVERTED, Status.REJECTED]
    assert report.changes[1].where.node == "BitwiseNot -> b"
    with pytest.raises(ModelError, match="opset 11 has no BitwiseNot"):
        _ = report.model
    only = convert_with_report(model, splits_only=True, style="lengths")
    assert "split=[3, 3]" in str(only.changes[0].after)
    assert_same(model, only, {"x": X})


def test_other_operators_move_with_the_splits() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 11]>
        g (float[5,6] x) => (float[a,b] s, float[c,d] t) {
            p, q = Split<axis = 1, split = [2, 4]>(x)
            u = Unsqueeze<axes = [0]>(p)
            s = Squeeze<axes = [0]>(u)
            r = ReduceSum<axes = [0], keepdims = 1>(q)
            t = Relu(r)
        }""")
    for opset in (13, 18, RECENT_OPSET):
        report = convert_with_report(model, to=f"onnx:{opset}")
        onnx.checker.check_model(report.model, full_check=True)
        assert_same(model, report, {"x": X})
        back = convert_with_report(report.model, to="onnx:11")
        assert_same(model, back, {"x": X})


def test_the_meaning_of_softmax_moves_too() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 11]>
        g (float[2,3,4] x) => (float[a,b,c] p, float[d,e,f] q) {
            y = Softmax<axis = 1>(x)
            p, q = Split<axis = 2>(y)
        }""")
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)}
    converted = convert(model, to="onnx:18")
    for own, wanted in zip(outputs(converted, feeds), outputs(model, feeds), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", ["path", "proto", "ir"])
def test_every_kind_of_model_is_taken_and_none_changed(kind: str, tmp_path: Path) -> None:
    model = parsed(BRANCHES)
    before = model.SerializeToString(deterministic=True)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    given = {"path": path, "proto": model, "ir": onnx_ir.from_proto(model)}[kind]
    report = convert_with_report(given, to="onnx:18")
    assert isinstance(report.model, ModelProto)
    assert model.SerializeToString(deterministic=True) == before
    assert report.changes[0].where.model == (str(path) if kind == "path" else None)


def test_external_data_comes_along(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "w"], ["y"]),
                helper.make_node("Split", ["y"], ["p", "q"], axis=1, num_outputs=2),
            ],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 6])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 4]) for name in "pq"],
            initializer=[numpy_helper.from_array(weights, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=8,
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    convert_with_report(path, to="onnx:13").save(tmp_path / "out.onnx")
    assert equal(outputs(tmp_path / "out.onnx", {"x": X}), outputs(path, {"x": X}))


@pytest.mark.parametrize("target", ["onnx:", "onnx:x", "tensorrt", "onnx:-3", ""])
def test_unknown_targets(target: str) -> None:
    with pytest.raises(ModelError, match="unknown target"):
        convert_with_report(parsed(BRANCHES), to=target)


def test_a_target_or_only_the_splits() -> None:
    model = parsed(BRANCHES)
    with pytest.raises(ModelError, match="splits_only keeps the opset of the model"):
        convert(model, to="onnx:18", splits_only=True)  # type: ignore[call-overload]
    with pytest.raises(ModelError, match="a conversion needs a target"):
        convert(model)  # type: ignore[call-overload]


def test_a_conversion_in_one_line() -> None:
    model = parsed(BRANCHES)
    assert (
        repr(convert_with_report(model, to="onnx:18")) == "Conversion(target='onnx:18', 2 changes, complete)"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "(float[4097] x) => (seq(float) r) { s = SplitToSequence(x) r = SequenceErase(s, i) }",
            "has 4097 parts",
        ),
        ("(float[0] x) => (float p) { s = SplitToSequence(x) p = SequenceAt(s, i) }", "has 0 parts"),
        (
            "(float[4] x) => (seq(float) r) { s = SplitToSequence(x) r = SequenceErase(s, i) }",
            "SequenceErase reads the sequence",
        ),
        (
            "(float[3] x) => (float p) { s = SplitToSequence(x) p = SequenceAt(s, j) }",
            "SequenceAt reads position 3 of a sequence of 3 elements",
        ),
    ],
)
def test_sequences_that_are_no_splits(body: str, words: str) -> None:
    constants = "i = Constant<value_int = 0>() j = Constant<value_int = 3>() s = "
    model = parsed(f'<ir_version: 8, opset_import: ["": 13]> g {body.replace("s = ", constants, 1)}')
    report = convert_with_report(model, to="onnx:10")
    assert words in str(report.rejections[0].error)
    assert repr(report).endswith(f"{len(report.rejections)} rejected)")


def test_what_reads_a_sequence_of_known_parts() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x) => (int64 n, float[a,b,c] w) {
            s = SplitToSequence<axis = 1>(x)
            n = SequenceLength(s)
            w = ConcatFromSequence<axis = 0, new_axis = 1>(s) }""")
    report = convert_with_report(model, to="onnx:10")
    assert report.complete
    assert_same(model, report, {"x": X})


@pytest.mark.parametrize("target", ["onnx:0", "onnx:999", "openvino:opset0"])
def test_opsets_that_do_not_exist(target: str) -> None:
    with pytest.raises(OperatorError) as caught:
        convert_with_report(parsed(BRANCHES), to=target)
    assert caught.value.rule is Rule.OPERATOR_VERSION


def test_the_newest_operation_set_is_that_of_the_newest_release() -> None:
    openvino = pytest.importorskip("openvino")
    folder = Path(openvino.__file__).parent
    newest = max(int(path.name.removeprefix("opset")) for path in folder.glob("opset*"))
    assert parse_target(f"openvino:opset{newest}").opset == newest
    with pytest.raises(OperatorError, match=rf"opset{newest + 1} does not exist.* opset1 to opset{newest}$"):
        parse_target(f"openvino:opset{newest + 1}")


@pytest.mark.parametrize(("size", "count"), [(0, 0), (5000, 5000), (2**40, 2**40)])
def test_too_many_parts_of_a_sequence_are_counted_to_their_end(size: int, count: int) -> None:
    body = "{ s = SplitToSequence(x) e = SequenceEmpty() c = Identity(s) d = SequenceErase(c, i) }"
    text = f"g (float[{size}] x, int64 i) => (seq(float[k]) d) {body}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
    [change] = [change for change in convert_with_report(model, "openvino").changes if change.is_split]
    assert f"the sequence has {count} parts, but a Split returns 1 to 4096" in str(change.error)


def test_an_invalid_split_is_rejected_with_its_own_rule() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x) => (float[a,b] p, float[c,d] q) {
            l = Constant<value_ints = [2, 3]>()
            p, q = Split<axis = 1>(x, l)
        }""")
    (change,) = convert_with_report(model, to="onnx:11").rejections
    assert change.rule is Rule.LENGTHS_SUM


def test_the_newest_opset_and_a_model_without_onnx_operators() -> None:
    newest = onnx.defs.onnx_opset_version()
    model = parsed(BRANCHES)
    assert convert(model, to=f"onnx:{newest}").opset_import[0].version == newest


@pytest.mark.parametrize("count", [2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("size", ["N", 0, 7])
@pytest.mark.parametrize("target", ["onnx:1", "onnx:11", "onnx:13", "openvino"])
def test_a_huge_number_of_parts_takes_no_memory(count: int, size: int | str, target: str) -> None:
    model = parsed(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[{size}] x) => (float[a] p, float[b] q) {{ p, q = Split<num_outputs = {count}>(x) }}""")
    report = convert_with_report(model, to=target)
    if not report.complete:
        assert [change.rule for change in report.rejections] == [Rule.PARTS_DIVISIBLE]
        return
    assert_same(model, report, {"x": np.arange(7 if size == "N" else size, dtype=np.float32)})


def test_the_long_name_of_the_domain() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["ai.onnx": 18]>
        g (float[7] x) => (float[a] p, float[b] q) { p, q = Split<num_outputs = 2>(x) }""")
    model.graph.node[0].domain = "ai.onnx"
    report = convert_with_report(model, to="onnx:11")
    onnx.checker.check_model(report.model)
    assert_same(model, report, {"x": np.arange(7, dtype=np.float32)})


def test_training_information_stays_or_is_rejected() -> None:
    model = parsed(BRANCHES)
    model.training_info.add().algorithm.name = "step"
    assert convert(model, splits_only=True).training_info == model.training_info
    with pytest.raises(ModelError, match="training information"):
        _ = convert(model, to="onnx:18")


@pytest.mark.parametrize("target", ["openvino", "onnx:9"])
def test_a_computed_position_of_parts_of_one_size_is_gathered(target: str) -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x, int64 i) => (float[a,b] p) {
            parts = SplitToSequence<axis = 1>(x)
            p = SequenceAt(parts, i)
        }""")
    converted = convert(model, to=target)
    x = np.arange(30, dtype=np.float32).reshape(5, 6)
    for position in range(-6, 6):
        feeds = {"x": x, "i": np.array(position)}
        for each in (model, converted):
            np.testing.assert_array_equal(splitops.models.run(each, feeds)["p"], np.split(x, 6, 1)[position])


@pytest.mark.parametrize(
    ("target", "rule"), [("openvino", Rule.OPERATOR_UNKNOWN), ("onnx:9", Rule.OPERATOR_VERSION)]
)
def test_a_computed_position_of_parts_of_several_sizes_is_rejected(target: str, rule: Rule) -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x, int64 i) => (float[a,b] p) <int64 four = {4}> {
            parts = SplitToSequence<axis = 1>(x, four)
            p = SequenceAt(parts, i)
        }""")
    (change,) = convert_with_report(model, to=target).rejections[:1]
    assert change.rule is rule
    assert "position" in str(change.error)


def test_slice_takes_what_the_decision_says() -> None:
    from splitops.spec import schema

    for opset in range(1, onnx.defs.onnx_opset_version() + 1):
        published = onnx.defs.get_schema("Slice", opset).inputs[0].types
        row = schema("Split", max(opset, 2))
        assert {kind.onnx_tensor for kind in row.types_of(row.inputs[0])} <= set(published)


def test_casts_exist_for_every_carrier() -> None:
    from splitops.models.split_nodes.ways import _FLOAT_BITS, _VALUE_BITS
    from splitops.spec import ELEMENT_TYPES

    for opset in (1, 6, 9, 13):
        cast = onnx.defs.get_schema("Cast", opset)
        for name in (*_VALUE_BITS, *_FLOAT_BITS):
            kind = ELEMENT_TYPES[name].onnx_tensor
            assert kind in cast.inputs[0].types
            assert kind in cast.outputs[0].types
    for name, bits in _FLOAT_BITS.items():
        most = 2**bits
        assert int(np.dtype(name).type(most)) == most
        assert int(np.dtype(name).type(most + 1)) != most + 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"])
def test_casts_around_a_split_lose_nothing(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Split", ["x"], ["p", "q"])],
            "g",
            [helper.make_tensor_value_info("x", kind, ["N"])],
            [helper.make_tensor_value_info(name, kind, [None]) for name in "pq"],
        ),
        opset_imports=[helper.make_opsetid("", 11)],
        ir_version=8,
    )
    report = convert_with_report(model, to="onnx:6")
    assert report.changes[0].status is Status.KEPT
    report = convert_with_report(model, to="onnx:1")
    assert "on float" in str(report.changes[0].after)
    extremes = [0, 1] if dtype == "bool" else [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1]
    feeds = {"x": np.array(extremes * 2, dtype)}
    assert equal(outputs(runnable(report.model), feeds), outputs(model, feeds))


def test_a_part_that_several_outputs_name_is_each_of_them() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[5,6] x) => (float[5,3] b, float[5,3] a) { a, b = Split<axis = 1>(x) }""")
    model.graph.output.append(model.graph.output[1])
    model.graph.output[2].name = "c"
    model.graph.node.append(helper.make_node("Identity", ["a"], ["c"]))
    report = convert_with_report(model, to="openvino:opset1")
    assert_same(model, report, {"x": X})
    assert list(splitops.models.run(report.model, {"x": X})) == ["b", "a", "c"]


def test_a_split_keeps_its_name_as_a_layer() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["": 13]>
        g (float[6] x) => (float[3] a, float[3] b) { [halve] a, b = Split<axis = 0>(x) }""")
    (split,) = convert(model, to="openvino").graph.list_layers("Split", "VariadicSplit")  # type: ignore[union-attr]
    assert split.name == "halve"


def test_a_false_shape_of_an_output_does_not_keep_a_model_from_newer_opsets() -> None:
    """The inference of opset 12 does not follow the shape that Reshape is given, that of 18 does."""
    model = onnx.parser.parse_model("""
        <ir_version: 6, opset_import: ["": 12]>
        g (float[2, 3, N] x) => (float[1, K] y, float[2, 3, N] z)
        <int64 at = {1}, int64[1] one = {1}, int64[1] rest = {-1}> {
            s = Shape(x)
            n = Gather(s, at)
            u = Unsqueeze<axes = [0]>(n)
            to = Concat<axis = 0>(u, one, rest)
            y = Reshape(x, to)
            z = Relu(x)
        }""")
    data = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    for target in ("onnx:18", "onnx:23"):
        converted = convert(model, to=target)
        onnx.checker.check_model(converted, full_check=True)
        shapes = [value.type.tensor_type.shape for value in converted.graph.output]
        assert len(shapes[0].dim) == 3
        assert [size.dim_value or size.dim_param for size in shapes[1].dim] == [2, 3, "N"]
        assert splitops.run(converted, {"x": data})["y"].tolist() == data.reshape(3, 1, 4).tolist()


def test_functions_that_call_twice_as_often_at_each_level_are_not_inlined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In onnx, functions are inferred and inlined once for each of 2^22 calls, and cannot be interrupted."""
    functions = '<domain: "my", opset_import: ["": 18]> f0 (v) => (o) { o = Identity(v) }' + "".join(
        f'<domain: "my", opset_import: ["": 18, "my": 1]> f{i} (v) => (o) '
        f"{{ a = my.f{i - 1}(v) o = my.f{i - 1}(a) }}"
        for i in range(1, 23)
    )
    model = parsed(f"""
        <ir_version: 9, opset_import: ["": 18, "my": 1]>
        g (float[5,6] x) => (float[5,3] a, float[5,3] b) {{
            y = my.f22(x)
            a, b = Split<axis = 1, num_outputs = 2>(y) }}
        {functions}""")

    def never_returns(*_: object, **__: object) -> None:
        pytest.fail("this would not return")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", never_returns)
    monkeypatch.setattr("onnx.inliner.inline_local_functions", never_returns)
    assert len(convert_with_report(model, "onnx:13").changes) == 1
    with pytest.raises(ModelError, match="nodes once its functions are inlined, more than 65724"):
        convert(model, "openvino")


@pytest.mark.skipif(not is_installed("openvino"), reason="openvino is not installed")
def test_a_model_that_openvino_reads_as_one_without_layers() -> None:
    """Its frontend drops nodes that no output needs, and inputs that no node reads."""
    model = parsed("""
        <ir_version: 9, opset_import: ["": 18]> g (float[4] x, float[2] z) => () {
            y = RandomNormal<shape = [4]>()
            a, b = Split<num_outputs = 2>(y) }""")
    converted = convert(model, "openvino")
    assert [layer.name for layer in converted.inputs] == ["x", "z"]
    back = convert(converted, "onnx:18")
    assert [value.name for value in back.graph.input] == ["x", "z"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "body"),
    [
        ("", "", ""),
        ("float[4] x", "", ""),
        ("float[4] x", "float[4] x", ""),
        ("", "float[2] c", "c = Constant<value = float[2] {1, 2}>()"),
        ("float[4] x", "float[2] c", "c = Constant<value = float[2] {1, 2}>()"),
        ("float[4] x", "", "a, b = Split<num_outputs = 2>(x)"),
        ("float[4] x", "float[4] x", "a, b = Split<num_outputs = 2>(x)"),
        ("float[4] x", "float[4] x, float[2] a", "a, b = Split<num_outputs = 2>(x)"),
    ],
)
def test_models_without_nodes_inputs_or_outputs(inputs: str, outputs: str, body: str) -> None:
    model = parsed(f'<ir_version: 9, opset_import: ["": 18]> g ({inputs}) => ({outputs}) {{ {body} }}')
    feeds = {"x": np.arange(4, dtype=np.float32)} if inputs else {}
    expected = splitops.models.run(model, feeds)
    there = convert(model, "openvino")
    back = convert(there, "onnx:18")
    for found in (there, back):
        assert equal(list(splitops.models.run(found, feeds).values()), list(expected.values()))
