"""Simplification of OpenVINO IR: the same decisions, and models that OpenVINO still loads."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simplify_helpers import difference

import splitops
from splitops.errors import SplitError
from splitops.models.formats import openvino as ov
from splitops.models.formats.openvino.constants import Constant, Weights
from splitops.models.graph import openvino_editor
from splitops.models.simplify import Simplification, simplify, simplify_with_report

END = 9223372036854775807

WORKER = """
import json, sys
import numpy as np
import openvino
core = openvino.Core()
for path, folder in json.loads(sys.stdin.read()):
    model = core.compile_model(core.read_model(path), "CPU")
    feeds = {key: value for key, value in np.load(folder).items()}
    results = model(feeds)
    np.savez(path + ".npz", **{str(index): results[output] for index, output in enumerate(model.outputs)})
"""


def layers(model: ov.OpenVINOModel) -> list[str]:
    """Return the types of the layers but inputs, constants and outputs."""
    return [layer.type for layer in model.graph.order if layer.type not in ("Parameter", "Const", "Result")]


class Make:
    """A model in the making."""

    def __init__(self, version: int = 11) -> None:
        self.builder = ov.Builder("g", version=version)

    def input(self, shape: str, name: str = "x") -> ov.Output:
        return self.builder.parameter(name, "f32", shape)

    def split(self, data: ov.Output, axis: int, parts: int) -> tuple[ov.Output, ...]:
        axis_ = self.builder.const(np.array(axis))
        return self.builder.layer("Split", [data, axis_], {"num_splits": parts}, outputs=parts)

    def variadic(self, data: ov.Output, axis: int, lengths: list[int]) -> tuple[ov.Output, ...]:
        inputs = [data, self.builder.const(np.array(axis)), self.builder.const(np.array(lengths))]
        return self.builder.layer("VariadicSplit", inputs, outputs=len(lengths))

    def concat(self, axis: int, *values: ov.Output) -> ov.Output:
        return self.builder.layer("Concat", list(values), {"axis": axis})[0]

    def sliced(self, data: ov.Output, axis: int, begin: int, end: int) -> ov.Output:
        bounds = [self.builder.const(np.array([number])) for number in (begin, end, 1, axis)]
        return self.builder.layer("Slice", [data, *bounds], version="opset8")[0]

    def cut(self, data: ov.Output, bounds: dict[int, slice]) -> ov.Output:
        numbers = [
            [taken.start for taken in bounds.values()],
            [taken.stop for taken in bounds.values()],
            [taken.step for taken in bounds.values()],
            list(bounds),
        ]
        given = [self.builder.const(np.array(listed)) for listed in numbers]
        return self.builder.layer("Slice", [data, *given], version="opset8")[0]

    def gathered(self, data: ov.Output, axis: int, positions: list[int]) -> ov.Output:
        inputs = [data, self.builder.const(np.array(positions)), self.builder.const(np.array(axis))]
        return self.builder.layer("Gather", inputs, {"batch_dims": 0}, version="opset8")[0]

    def moved(self, value: ov.Output) -> ov.Output:
        """Put a layer between a part and the output."""
        return self.builder.layer("Transpose", [value, self.builder.const(np.array([1, 0]))])[0]

    def outputs(self, *values: ov.Output) -> ov.OpenVINOModel:
        for index, value in enumerate(values):
            self.builder.result(value, f"y{index}")
        return self.builder.model()


def feeds_of(model: ov.OpenVINOModel, **sizes: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    feeds = {}
    for layer, name in zip(model.inputs, ov.make_input_names(model), strict=True):
        shape = layer.read_shape(layer.where)
        assert shape is not None
        exact = [dim if isinstance(dim, int) else sizes.get(name, 6) for dim in shape]
        feeds[name] = random.random(exact, dtype=np.float32)
    return feeds


def outcome(model: ov.OpenVINOModel, feeds: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return splitops.run(model, feeds, engine="reference")
    except SplitError:
        return None


def simplified(model: ov.OpenVINOModel, *, bad: int | None = None, size: int = 6) -> Simplification:
    """Simplify a model and prove the result equal, also after writing and reading it."""
    found = simplify_with_report(model)
    again = ov.from_bytes(*ov.to_bytes(found.model))
    for given_size in (size, bad):
        if given_size is None:
            continue
        feeds = feeds_of(model, **dict.fromkeys(ov.make_input_names(model), given_size))
        expected, results = outcome(model, feeds), outcome(again, feeds)
        assert (expected is None) == (results is None) == (given_size == bad)
        if expected is not None:
            assert difference(expected, results) is None
    assert not simplify_with_report(found.model).changes
    return found


@pytest.mark.parametrize("read", [False, True])
def test_strings_that_are_not_what_they_claim_stay(read: bool) -> None:
    builder = ov.Builder()
    data = builder.const(np.array(["a", "b"], object), "string")
    for index, part in enumerate(
        builder.layer("Split", [data, builder.const(0)], {"num_splits": 2}, outputs=2)
    ):
        shape = builder.const(np.array([1, 1]))
        builder.result(builder.layer("Reshape", [part, shape])[0] if read else part, f"y{index}")
    graph = builder.model().graph
    lying = np.array([3, 0, 1, 2], "<i4").tobytes() + b"ab"  # of three strings
    layers = [
        replace(layer, constant=Constant(layer.constant.element_type, (2,), Weights(lying), 0, len(lying)))
        if layer.constant is not None and not layer.constant.element_type.bits
        else layer
        for layer in graph.layers
    ]
    model = builder.model().with_graph(replace(graph, layers=tuple(layers)))
    assert "Split" in [layer.type for layer in simplify(model).graph.layers]


@pytest.mark.parametrize("bounds", [[[0], [3]], [[0], [3], [1, 1]]])
def test_slices_of_bounds_that_do_not_match_stay(bounds: list[list[int]]) -> None:
    builder = ov.Builder()
    data = builder.parameter("x", "f32", (6, 2))
    for index, stated in enumerate((bounds, [[3], [6], [1]])):
        (made,) = builder.layer(
            "Slice", [data, *(builder.const(np.array(one)) for one in stated)], version="opset8"
        )
        builder.result(made, f"y{index}")
    after = simplify(builder.model())
    assert [layer.type for layer in after.graph.layers].count("Slice") == 2


def test_one_part_is_the_data() -> None:
    make = Make()
    found = simplified(make.outputs(make.moved(make.split(make.input("4,6"), 1, 1)[0])))
    assert layers(found.model) == ["Transpose"]
    assert found.nodes_before == 2
    assert found.nodes_after == 1


@pytest.mark.parametrize("declared", [1, 2])
def test_parts_without_a_port_keep_their_split(declared: int) -> None:
    """OpenVINO runs a Split with fewer ports than parts."""
    make = Make()
    data, axis = make.input("6,4"), make.builder.const(0)
    parts = make.builder.layer("Split", [data, axis], {"num_splits": 3}, outputs=declared)
    made = make.concat(0, *parts) if declared > 1 else parts[0]
    model = make.outputs(make.moved(made))
    (name,) = (each.name for each in splitops.session(model, "reference").inputs)
    feeds = {name: np.arange(24, dtype=np.float32).reshape(6, 4)}
    wanted = splitops.run(model, feeds, engine="reference")
    found = splitops.run(simplify(model), feeds, engine="reference")
    for one, other in zip(wanted.values(), found.values(), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.size == 8 * declared


def test_all_parts_but_one_are_empty() -> None:
    make = Make()
    found = simplified(make.outputs(make.moved(make.variadic(make.input("4,6"), 1, [0, -1, 0])[1])))
    assert layers(found.model) == ["Transpose"]


def test_one_part_that_is_an_output_keeps_its_split_and_name() -> None:
    make = Make()
    model = make.outputs(make.split(make.input("4,6"), 1, 1)[0])
    assert not simplified(model).changes


def test_one_part_of_given_length_of_a_dynamic_axis_stays() -> None:
    make = Make()
    model = make.outputs(make.moved(make.variadic(make.input("4,?"), 1, [6])[0]))
    assert not simplified(model, bad=7).changes


def test_concatenated_again() -> None:
    make = Make()
    parts = make.variadic(make.input("4,6"), 1, [1, 2, -1])
    found = simplified(make.outputs(make.moved(make.concat(1, *parts))))
    assert layers(found.model) == ["Transpose"]
    assert found.counts == {"cancel-split-concat": 1}


def test_concatenated_again_on_a_dynamic_axis_stays() -> None:
    make = Make()
    parts = make.split(make.input("4,?"), 1, 2)
    assert not simplified(make.outputs(make.moved(make.concat(1, *parts))), bad=7).changes


def test_concatenated_again_where_the_remainder_always_fits() -> None:
    make = Make()
    parts = make.variadic(make.input("4,3.."), 1, [1, 2, -1])
    found = simplified(make.outputs(make.moved(make.concat(1, *parts))), size=9)
    assert layers(found.model) == ["Transpose"]


def test_concatenated_again_where_the_remainder_may_not_fit_stays() -> None:
    make = Make()
    parts = make.variadic(make.input("4,2.."), 1, [1, 2, -1])
    assert not simplified(make.outputs(make.moved(make.concat(1, *parts))), bad=2).changes


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2), (0, 0, 1, 2)])
def test_other_concatenations_stay(order: tuple[int, ...]) -> None:
    make = Make()
    parts = make.split(make.input("4,6"), 1, 3)
    found = simplified(make.outputs(make.moved(make.concat(1, *(parts[index] for index in order)))))
    assert "Concat" in layers(found.model)


def test_neighbouring_parts_merge() -> None:
    make = Make()
    data = make.input("4,8")
    a, b, c, d = make.split(data, 1, 4)
    found = simplified(make.outputs(make.concat(1, b, c, data), make.moved(a), make.moved(d)))
    assert sorted(layers(found.model)) == ["Concat", "Transpose", "Transpose", "VariadicSplit"]
    concat = next(layer for layer in found.model.graph.layers if layer.type == "Concat")
    assert len(concat.inputs) == 2


def test_neighbouring_parts_that_are_an_output_keep_its_name() -> None:
    make = Make()
    a, b, c = make.split(make.input("4,6"), 1, 3)
    assert not simplified(make.outputs(make.concat(1, a, b), make.moved(c))).changes


def test_what_was_concatenated_is_not_split() -> None:
    make = Make()
    joined = make.concat(1, make.input("4,2"), make.input("4,4", "w"))
    parts = make.variadic(joined, 1, [2, 4])
    found = simplified(make.outputs(*(make.moved(part) for part in parts)))
    assert layers(found.model) == ["Transpose", "Transpose"]


def test_a_concat_that_could_fail_stays() -> None:
    make = Make()
    joined = make.concat(1, make.input("?,2"), make.input("?,4", "w"))
    parts = make.variadic(joined, 1, [2, 4])
    assert not simplified(make.outputs(*(make.moved(part) for part in parts))).changes


def test_nested_splits() -> None:
    make = Make()
    a, b = make.variadic(make.input("4,8"), 1, [2, 6])
    c, d = make.variadic(b, -1, [1, 5])
    found = simplified(make.outputs(a, c, d))
    assert layers(found.model) == ["VariadicSplit"]
    assert found.counts == {"merge-splits": 1}


def test_nested_splits_on_other_axes_stay() -> None:
    make = Make()
    a, b = make.split(make.input("4,8"), 1, 2)
    assert not simplified(make.outputs(a, *make.split(b, 0, 2))).changes


def test_unused_parts() -> None:
    make = Make()
    parts = make.variadic(make.input("4,10"), 1, [1, 2, 0, 3, 4])
    found = simplified(make.outputs(parts[0], parts[4]))
    split = next(layer for layer in found.model.graph.layers if layer.type == "VariadicSplit")
    assert len(split.outputs) == 3


def test_equal_lengths_are_a_number_of_parts() -> None:
    make = Make()
    found = simplified(make.outputs(*make.variadic(make.input("4,6"), 1, [2, -1, 2])))
    assert layers(found.model) == ["Split"]
    assert found.counts == {"shorten-lengths": 1}


def test_equal_lengths_of_a_dynamic_axis_stay() -> None:
    make = Make()
    assert not simplified(make.outputs(*make.variadic(make.input("4,?"), 1, [3, 3])), bad=8).changes


def test_constants_are_folded() -> None:
    make = Make()
    x = make.input("2,2")
    constant = make.builder.const(np.arange(8, dtype=np.float32).reshape(2, 4))
    parts = make.split(constant, 1, 2)
    found = simplified(make.outputs(make.concat(0, x, parts[0]), make.concat(0, x, parts[1])))
    assert layers(found.model) == ["Concat", "Concat"]


def test_a_constant_that_only_a_split_reads_is_divided_without_a_copy() -> None:
    make = Make()
    x = make.input("2,4")
    whole = np.arange(24, dtype=np.float32).reshape(6, 4)
    parts = make.variadic(make.builder.const(whole), 0, [2, 4])
    model = make.outputs(make.concat(0, x, parts[0]), make.concat(0, x, parts[1]))
    found = simplify_with_report(model, ["split-initializers"])
    assert found.counts == {"split-initializers": 1}
    made = [layer.constant for layer in found.model.graph.layers if layer.type == "Const"]
    assert [(part.offset, part.size) for part in made if part] == [(0, 32), (32, 64)]
    assert len({id(part.weights) for part in made if part}) == 1
    feeds = feeds_of(model)
    assert difference(outcome(model, feeds), outcome(found.model, feeds)) is None


def test_one_part_that_is_read_is_a_slice() -> None:
    make = Make()
    parts = make.variadic(make.input("4,10"), 1, [1, 2, -1])
    found = simplified(make.outputs(make.moved(parts[1])))
    assert layers(found.model) == ["Slice", "Transpose"]
    assert next(layer.version for layer in found.model.graph.layers if layer.type == "Slice") == "opset8"


def test_one_part_that_is_read_stays_a_split_where_the_reader_may_lack_slice() -> None:
    make = Make(10)
    parts = make.variadic(make.input("4,10"), 1, [1, 2, -1])
    assert "Slice" not in layers(simplified(make.outputs(make.moved(parts[1]))).model)


def test_slices_that_are_a_whole_axis_are_a_split() -> None:
    make = Make()
    data = make.input("4,9")
    cuts = [make.sliced(data, 1, begin, end) for begin, end in ((0, 2), (2, -3), (6, 99))]
    found = simplified(make.outputs(*map(make.moved, cuts)))
    assert found.counts == {"replace-slices": 1}
    assert layers(found.model).count("VariadicSplit") == 1


def test_a_slice_of_a_whole_axis_is_its_data() -> None:
    make = Make()
    found = simplified(
        make.outputs(make.moved(make.cut(make.input("4,?"), {0: slice(0, 9, 1), 1: slice(0, END, 1)})))
    )
    assert layers(found.model) == ["Transpose"]


def test_a_slice_of_a_whole_axis_that_is_an_output_keeps_its_name() -> None:
    make = Make()
    assert not simplified(make.outputs(make.cut(make.input("4,6"), {0: slice(0, 9, 1)}))).changes


def test_a_slice_of_a_slice_is_one() -> None:
    make = Make()
    inner = make.cut(make.input("4,?"), {1: slice(1, -1, 2)})
    found = simplified(make.outputs(make.cut(inner, {0: slice(3, 0, -1)})))
    assert layers(found.model) == ["Slice"]
    assert found.counts == {"merge-slices": 1}


def test_slices_in_steps_are_a_split() -> None:
    make = Make()
    data = make.input("?,6")
    parts = [make.cut(data, {1: slice(start, END, 3)}) for start in (1, 0, 2)]
    found = simplified(make.outputs(*map(make.moved, parts)))
    assert found.counts == {"replace-strided-slices": 1}
    assert sorted(set(layers(found.model))) == ["Reshape", "Split", "Squeeze", "Transpose"]


def test_a_concat_of_concats_is_one() -> None:
    make = Make()
    data = make.input("4,2")
    found = simplified(make.outputs(make.concat(1, make.concat(-1, data, data), data, make.concat(1, data))))
    assert layers(found.model) == ["Concat"]
    assert found.counts == {"merge-concats": 1}


def test_a_concat_of_one_value_is_the_value() -> None:
    make = Make()
    assert layers(simplified(make.outputs(make.moved(make.concat(1, make.input("4,2"))))).model) == [
        "Transpose"
    ]


def packed(make: Make) -> ov.OpenVINOModel:
    """Make a model of a packed projection of attention, divided into three."""
    builder = make.builder
    shaped = builder.layer(
        "Reshape", [make.input("4,12"), builder.const(np.array([0, 3, 4]))], special_zero()
    )[0]
    turned = builder.layer("Transpose", [shaped, builder.const(np.array([1, 0, 2]))])[0]
    axis = builder.const(np.array(0))
    parts = [
        builder.layer(
            "Gather", [turned, builder.const(np.array(at)), axis], {"batch_dims": 0}, version="opset8"
        )
        for at in (2, 0, 1)
    ]
    return make.outputs(*(make.moved(part) for (part,) in parts))


def special_zero() -> dict[str, object]:
    return {"special_zero": "true"}


def test_a_packed_projection_is_one_split() -> None:
    found = simplified(packed(Make()))
    assert found.counts["hoist-splits"] == 1
    assert sorted(layers(found.model)) == ["Split", "Transpose", "Transpose", "Transpose"]


def heads(make: Make) -> list[ov.Output]:
    """Split an axis that a Reshape and a Transpose have put first."""
    shape, order = make.builder.const(np.array([0, 2, 6])), make.builder.const(np.array([1, 0, 2]))
    (shaped,) = make.builder.layer("Reshape", [make.input("4,12"), shape], special_zero())
    return list(make.split(make.builder.layer("Transpose", [shaped, order])[0], 0, 2))


def test_what_moves_the_whole_and_a_part_moves_it_once() -> None:
    make = Make()
    a, b = (
        make.builder.layer("Squeeze", [part, make.builder.const(np.array([0]))])[0] for part in heads(make)
    )
    found = simplified(
        make.outputs(
            make.concat(0, a, make.input("1,6", "v")), make.concat(0, make.moved(b), make.input("1,4", "w"))
        )
    )
    assert found.counts["hoist-splits"] == 1
    assert sorted(layers(found.model)) == ["Concat", "Concat", "Split", "Transpose"]


def test_a_split_behind_moves_that_gives_outputs_stays() -> None:
    make = Make()
    assert not simplified(make.outputs(*heads(make))).changes


def test_moves_in_a_row_are_fewer() -> None:
    make = Make()
    turned = make.moved(make.input("4,6"))
    flat = make.builder.layer("Reshape", [turned, make.builder.const(np.array([-1]))], special_zero())[0]
    shaped = make.builder.layer("Reshape", [flat, make.builder.const(np.array([6, 4]))], special_zero())[0]
    found = simplified(make.outputs(make.concat(0, make.moved(shaped), make.input("4,6", "w"))))
    assert layers(found.model) == ["Concat"]


def test_gathers_that_are_a_whole_axis_are_a_split() -> None:
    make = Make()
    data = make.input("4,6")
    found = simplified(
        make.outputs(*(make.moved(make.gathered(data, 1, at)) for at in ([0, 1, 2], [3, 4, 5])))
    )
    assert found.counts == {"replace-gathers": 1}
    assert layers(found.model).count("Split") == 1


@pytest.mark.parametrize(
    ("positions", "axis", "version"),
    [([-3, -2, -1], 1, "opset7"), ([3, 4, 5], [1, 1], "opset8"), ([3, 4, 5], None, "opset8")],
    ids=["outside before Gather-8", "two axes", "no axis"],
)
def test_other_gathers_stay(positions: list[int], axis: Any, version: str) -> None:
    make = Make()
    data, given = make.input("4,6"), [] if axis is None else [make.builder.const(np.array(axis))]
    parts = [
        make.builder.layer(
            "Gather",
            [data, make.builder.const(np.array(at)), *given],
            {"batch_dims": 0},
            version=version,
            shapes=[(4, 3)],
        )[0]
        for at in ([0, 1, 2], positions)
    ]
    found = simplify(make.outputs(*map(make.moved, parts)))
    assert layers(found).count("Gather") == 2


@pytest.mark.parametrize("version", [10, 11])
def test_outputs_that_are_a_whole_axis_keep_their_names(version: int) -> None:
    make = Make(version)
    data = make.input("4,6")
    cuts = [make.gathered(data, 1, at) for at in ([0, 1, 2], [3, 4, 5])]
    model = make.outputs(*cuts)
    assert ov.make_output_names(simplified(model).model) == ov.make_output_names(model)


def test_pieces_are_concatenated_anew() -> None:
    make = Make()
    pieces = [make.input("4,2"), make.input("4,1", "v"), make.input("4,3", "w")]
    parts = make.variadic(make.concat(1, *pieces), 1, [3, 3])
    found = simplified(make.outputs(*map(make.moved, parts)))
    assert found.counts == {"cancel-concat-split": 1}
    assert sorted(layers(found.model)) == ["Concat", "Transpose", "Transpose"]


def test_empty_parts_alone_stay_where_they_prove_the_size() -> None:
    make = Make()
    parts = make.variadic(make.input("2,?"), 1, [0, 0])
    assert not simplify_with_report(make.outputs(*parts)).changes


def test_empty_parts_are_constants() -> None:
    make = Make()
    parts = make.variadic(make.input("4,6"), 1, [2, 0, 4])
    found = simplified(make.outputs(*map(make.moved, parts)))
    assert found.counts["fold-empty-parts"] == 1
    assert (
        len(next(layer for layer in found.model.graph.layers if layer.type == "VariadicSplit").outputs) == 2
    )


def test_constants_larger_than_the_limit_stay() -> None:
    make = Make()
    x = make.input("2,2")
    parts = make.split(make.builder.const(np.arange(8, dtype=np.float32).reshape(2, 4)), 1, 2)
    model = make.outputs(make.concat(0, x, parts[0]), make.concat(0, x, parts[1]))
    assert not simplify_with_report(model, ["fold-constants"], limit=15).changes
    assert simplify_with_report(model, ["fold-constants"], limit=16).changes


def test_bodies_of_layers(tmp_path: Path) -> None:
    make = Make()
    parts = make.split(make.input("4,6", "v"), 1, 2)
    body = make.outputs(make.moved(make.concat(1, *parts))).graph
    outer = Make()
    data = outer.input("4,6")
    outer.builder.layer("If", [data], {}, name="choose")
    model = outer.builder.model()
    choose = next(layer for layer in model.graph.layers if layer.type == "If")
    with_body = replace(choose, bodies=(("then_body", body), ("else_body", body)))
    graph = replace(
        model.graph, layers=tuple(with_body if layer is choose else layer for layer in model.graph.layers)
    )
    found = simplify_with_report(model.with_graph(graph))
    assert [change.where.graph for change in found.changes] == ["choose/then_body", "choose/else_body"]
    after = next(layer for layer in found.model.graph.layers if layer.type == "If")
    assert [layer.type for _, inner in after.bodies for layer in inner.order if layer.type == "Concat"] == []


@st.composite
def models(draw: st.DrawFn) -> ov.OpenVINOModel:
    """Draw a model of splits and concatenations."""
    make = Make(draw(st.sampled_from([10, 11])))
    values: list[tuple[ov.Output, int]] = []
    for index in range(draw(st.integers(1, 2))):
        size = draw(st.integers(1, 8))
        values.append((make.input(f"2,{size}", f"x{index}"), size))
    for _ in range(draw(st.integers(1, 7))):
        data, size = draw(st.sampled_from(values[-5:]))
        if draw(st.booleans()):
            count = draw(st.integers(1, 4))
            cuts = sorted(draw(st.lists(st.integers(0, size), min_size=count - 1, max_size=count - 1)))
            sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
            if len(set(sizes)) == 1 and draw(st.booleans()):
                parts = make.split(data, draw(st.sampled_from([1, -1])), count)
            else:
                stated = list(sizes)
                if draw(st.booleans()):
                    stated[draw(st.integers(0, count - 1))] = -1
                parts = make.variadic(data, draw(st.sampled_from([1, -1])), stated)
            values += zip(parts, sizes, strict=True)
        else:
            at = draw(st.integers(0, len(values) - 1))
            chosen = values[at : at + draw(st.integers(1, 4))]
            if draw(st.booleans()):
                chosen = draw(st.permutations(chosen))
            values.append((make.concat(1, *(value for value, _ in chosen)), sum(size for _, size in chosen)))
    ends = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    return make.outputs(*(make.moved(end) if draw(st.booleans()) else end for end, _ in ends))


@settings(max_examples=150)
@given(models())
def test_random_models(model: ov.OpenVINOModel) -> None:
    simplified(model)


@pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="the openvino package is not installed"
)
def test_openvino_gives_the_same(tmp_path: Path) -> None:
    built = []
    make = Make()
    data = make.input("4,8")
    a, b, c, d = make.split(data, 1, 4)
    built.append(make.outputs(make.concat(1, b, c, data), make.moved(a), make.moved(d)))
    make = Make(10)
    a, b = make.variadic(make.input("4,8"), 1, [2, 6])
    c, d = make.variadic(b, -1, [1, 5])
    built.append(make.outputs(make.moved(a), make.moved(c), make.moved(d)))
    make = Make()
    parts = make.variadic(make.input("4,10"), 1, [1, 2, 0, 3, 4])
    built.append(make.outputs(parts[0], parts[4]))
    make = Make()
    parts = make.split(make.input("4,6"), 1, 3)
    joined = make.concat(1, *parts)
    built.append(make.outputs(make.moved(joined), make.moved(make.variadic(joined, 1, [4, 2])[1])))
    make = Make()
    built.append(make.outputs(make.moved(make.variadic(make.input("4,10"), 1, [1, 2, -1])[1])))
    make = Make()
    data = make.input("4,9")
    cuts = [make.sliced(data, 1, begin, end) for begin, end in ((0, 2), (2, -3), (6, 99))]
    built.append(make.outputs(*map(make.moved, cuts)))
    make = Make()
    data = make.input("4,6")
    built.append(make.outputs(*(make.moved(make.gathered(data, 1, at)) for at in ([0, 1, 2], [3, 4, 5]))))
    make = Make()
    whole = make.builder.const(np.arange(24, dtype=np.float32).reshape(6, 4))
    data = make.input("2,4")
    built.append(make.outputs(*(make.concat(0, data, part) for part in make.variadic(whole, 0, [2, 4]))))
    make = Make()
    data = make.input("4,6")
    cuts = [make.cut(data, {1: slice(start, END, 2)}) for start in (0, 1)]
    inner = make.cut(data, {1: slice(1, END, 1)})
    parts = [make.moved(cut) for cut in cuts] + [make.cut(inner, {0: slice(3, 0, -2)})]
    built.append(make.outputs(*parts, make.moved(make.cut(data, {0: slice(0, END, 1)}))))
    make = Make()
    data = make.input("4,2")
    built.append(make.outputs(make.concat(1, make.concat(-1, data, data), data, make.concat(1, data))))
    built.append(packed(Make()))
    jobs, pairs = [], []
    for index, model in enumerate(built):
        found = simplify_with_report(model)
        assert found.changes
        np.savez(tmp_path / f"{index}.npz", **feeds_of(model))
        for name, version in (("before", model), ("after", found.model)):
            path = tmp_path / f"{index}{name}.xml"
            splitops.save(version, path)
            jobs.append((str(path), str(tmp_path / f"{index}.npz")))
        pairs.append(jobs[-2:])
    subprocess.run([sys.executable, "-c", WORKER], input=json.dumps(jobs), text=True, check=True, timeout=120)
    for before, after in pairs:
        left, right = (dict(np.load(path + ".npz")) for path, _ in (before, after))
        assert difference(left, right) is None


def test_joining_nested_splits_states_each_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # The joined layer stands for every one of the splits, but is called like the outermost one alone.
    stated: list[int] = []

    def counting(node: Any, layer: Any) -> None:
        stated.append(len(layer.outputs))
        set_layer(node, layer)

    set_layer = openvino_editor.set_layer
    monkeypatch.setattr(openvino_editor, "set_layer", counting)
    splits = 40
    builder = ov.Builder("nested")
    rest = builder.parameter("x", "f32", str(splits + 1))
    for number in range(splits):
        inputs = [rest, builder.const(np.array(0)), builder.const(np.array([1, splits - number]))]
        part, rest = builder.layer("VariadicSplit", inputs, outputs=2, name=f"split{number}")
        builder.result(part, f"part{number}")
    builder.result(rest, "rest")
    result = simplify_with_report(builder.model())
    (split,) = result.model.graph.list_layers("Split", "VariadicSplit")
    assert (split.name, len(split.outputs)) == ("split0", splits + 1)
    assert sum(stated) < 4 * splits
