"""What onnx's node tests give fits what is inferred where their inputs are constants."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from onnx.backend.test.case.node import collect_testcases

from splitops.models.abstract_values import Opaque
from splitops.models.infer import AbstractSequence, AbstractTensor, InferredModel, infer
from splitops.models.ops.shapes import list_positions, slice_size
from splitops.spec.sizes import names
from splitops.spec.sizes.dims import Range

WITHOUT_TYPE = {
    "Scan": "Scan-8, whose batch axis and lengths are not followed",
    "Loop": "an optional state that has an element in later rounds",
}
"""Why the type of an output stays unknown, by operator."""
WITHOUT_SIZE = {
    "NonMaxSuppression": "the boxes are not compared",
    "ImageDecoder": "the picture is not read",
    "Range": "numbers of float16 and bfloat16, and some of the expansions of functions, are not followed",
    "Loop": "the condition or the number of rounds is not followed",
    "FlexAttention": "onnx does not infer operators with graphs one by one",
    "SequenceMap": "the elements of a sequence have several sizes",
    "SequenceInsert": "the elements of a sequence have several sizes",
    "Identity": "the elements of a sequence have several sizes",
    "SplitToSequence": "the elements of a sequence have several sizes",
}
"""Why a size of an output stays unknown, by the operator that is not followed."""


def with_constants(model: ModelProto, inputs: list[Any]) -> ModelProto:
    """A model whose inputs are constants, where a constant can be one, and whose outputs declare nothing."""
    made = ModelProto()
    made.CopyFrom(model)
    del made.graph.input[:]
    for value, info in zip(inputs, model.graph.input, strict=False):
        kind = info.type.tensor_type.elem_type
        if not info.type.HasField("tensor_type") or value is None:
            made.graph.input.add().CopyFrom(info)
        elif isinstance(value, onnx.TensorProto):
            made.graph.initializer.add().CopyFrom(value)
            made.graph.initializer[-1].name = info.name
        elif kind == onnx.TensorProto.STRING:
            texts = [str(text).encode() for text in np.asarray(value).reshape(-1)]
            made.graph.initializer.append(onnx.helper.make_tensor(info.name, kind, np.shape(value), texts))
        else:
            made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), info.name))
    for info in made.graph.output:
        info.ClearField("type")
    return made


def contradiction(known: Any, value: Any) -> str | None:
    """What a result contradicts of what is known of it, in type, shape or numbers."""
    if isinstance(value, list):
        if isinstance(known, AbstractSequence):
            length = known.length
            if length != len(value) if isinstance(length, int) else not inside(len(value), length):
                return f"{len(value)} elements"
            return next(filter(None, (contradiction(known.element, one) for one in value)), None)
        return None if known is None or isinstance(known, Opaque) else "a list"
    if value is None or not isinstance(known, AbstractTensor):
        return None if known is None or isinstance(known, Opaque) else str(value)
    array = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    if known.type is not None and array.dtype.kind not in "OUS" and known.type.numpy != array.dtype:
        return str(array.dtype)
    if known.shape is not None:
        if len(known.shape) != array.ndim:
            return f"rank {array.ndim}"
        for dim, size in zip(known.shape, array.shape, strict=True):
            if dim != size if isinstance(dim, int) else not inside(size, dim):
                return str(array.shape)
    if known.elements is not None and known.elements.shape != array.shape:
        return str(array.shape)
    if known.elements is not None:
        for entry, number in zip(
            known.elements.reshape(-1).tolist(), array.reshape(-1).tolist(), strict=True
        ):
            both_nan = entry != entry and number != number
            if isinstance(entry, int | float) and entry != number and not both_nan:
                return f"{number} in the place of {entry}"
    return None


def inside(size: int, dim: Range) -> bool:
    return dim.lo <= size and (dim.hi is None or size <= dim.hi)


def results() -> Iterator[tuple[str, ModelProto, InferredModel, str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if case.model is None or not case.data_sets:
            continue
        inputs, outputs = case.data_sets[0]
        inferred = infer(with_constants(case.model, inputs))
        for info, value in zip(case.model.graph.output, outputs, strict=False):
            yield case.name, case.model, inferred, info.name, value


def reason(model: ModelProto, reasons: dict[str, str]) -> str:
    """The first operator of a model that has a reason; of none, its operators."""
    operators = {node.op_type for node in model.graph.node}
    return next((name for name in reasons if name in operators), "+".join(sorted(operators)))


def test_the_results_of_every_node_test_fit() -> None:
    wrong, types, sizes = [], Counter[str](), Counter[str]()
    seen = 0
    for case, model, inferred, name, value in results():
        known = inferred[name]
        seen += 1
        why = contradiction(known, value)
        if why is not None:
            wrong.append(f"{case} {name}: {known}, but it is {why}")
        element = known.element if isinstance(known, AbstractSequence) else known
        if isinstance(element, Opaque):
            continue
        if element is None or element.type is None:
            types[reason(model, WITHOUT_TYPE)] += 1
        elif element.shape is None or not all(isinstance(size, int) for size in element.shape):
            sizes[reason(model, WITHOUT_SIZE)] += 1
    assert not wrong
    assert seen > 1900
    assert dict(types) == {"Scan": 2, "Loop": 1}
    assert set(sizes) <= set(WITHOUT_SIZE)
    assert not any(map(onnx.defs.has, set(WITHOUT_SIZE) - set(sizes))), (
        "sizes are known: take it off the list"
    )
    assert sum(sizes.values()) <= 55, sizes


@pytest.mark.parametrize("value", [np.zeros((2, 3), np.float32), np.zeros((2, 2), np.int32), [1], None])
def test_the_comparison_can_fail(value: Any) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[2, 2] x) => (float[2, 2] y) { y = Relu(x) }""")
    assert contradiction(infer(model)["y"], np.zeros((2, 2), np.float32)) is None
    assert contradiction(infer(model)["y"], value) is not None


def test_sizes_of_slices_hold_for_every_size_of_an_axis() -> None:
    ends = ((1 << 31) - 1, (1 << 63) - 1)
    bounds = (*range(-5, 7), *ends, *(-end for end in ends), *(-end - 1 for end in ends))
    for lo, more in product(range(4), (None, 1, 3)):
        hi = None if more is None else lo + more
        axis = Range(lo, hi, "N")
        for start, end, step in product(bounds, bounds, (1, 2, 3, -1, -3)):
            said = slice_size(axis, start, end, step)
            for size in range(lo, (lo + 6 if hi is None else hi) + 1):
                true = len(list_positions(size, slice(start, end, step)))
                place = f"{axis}[{start}:{end}:{step}] of {size}"
                assert said == true if isinstance(said, int) else inside(true, said), place
                if isinstance(said, Range) and said.name is not None:
                    assert names.evaluate(said.name, {"N": size}) == true, place


@pytest.mark.parametrize(
    ("bounds", "size"),
    [
        ([[0], [2147483647]], "N + 2"),
        ([[0], [9223372036854775807]], "N + 2"),
        ([[0], [9223372036854775807], [0], [2]], "ceil(N/2) + 1"),
        ([[2], [2147483647]], "N"),
        ([[1], [9223372036854775807]], "N + 1"),
        ([[-1], [2147483647]], "1"),
        ([[-2], [9223372036854775807]], "2"),
        ([[-1], [-2147483648], [0], [-1]], "N + 2"),
        ([[-1], [-9223372036854775808], [0], [-1]], "N + 2"),
        ([[2147483647], [-2147483648], [0], [-1]], "N + 2"),
        ([[-2], [-9223372036854775807], [0], [-1]], "N + 1"),
    ],
)
def test_a_slice_to_the_end_keeps_the_symbol(bounds: list[list[int]], size: str) -> None:
    made = " ".join(f"c{at} = Constant<value_ints = {one}>()" for at, one in enumerate(bounds))
    read = ", ".join(f"c{at}" for at in range(len(bounds)))
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[N] x, float[2] two) => (float[a] y) {{
            {made} z = Concat<axis = 0>(two, x) y = Slice(z, {read})
        }}""")
    found = infer(model)["y"]
    assert isinstance(found, AbstractTensor)
    assert str(found.shape[0] if found.shape else None) == size


def inferred(text: str, *names: str) -> list[str]:
    found = infer(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> g {text}'))
    return [str(found[name]) for name in names]


def test_sizes_that_depend_on_constant_elements() -> None:
    assert inferred(
        """(float[N, 3] x, bool[4] k) => (float[a] y)
        <bool[3] c = {1, 0, 1}, int64[2, 3] d = {0, 4, 4, 5, 4, 0}> {
            y = Compress<axis = 1>(x, c) z = Compress(x, c) few = Compress<axis = 0>(d, k)
            n = NonZero(d) o = NonZero(x) u, at, which, often = Unique(d)
            m, _, of, _n = Unique<axis = 1>(x)
            r = Reshape(z, u)
        }""",
        *("y", "z", "few", "n", "o", "u", "at", "which", "often", "m", "of"),
    ) == [
        "float32[N, 2]",
        "float32[2]",
        "int64[0..2, 3]",
        "int64[2, 4]",
        "int64[2, ?]",
        "int64[3]",
        "int64[3]",
        "int64[6]",
        "int64[3]",
        "float32[N, 1..3]",
        "int64[3]",
    ]


def test_sizes_of_constant_texts() -> None:
    assert inferred(
        """(string[2] x) => (string[a] y) <string[2] t = {"a b c", "d"}, string[2] over = {"a", "b"}> {
            y, n = StringSplit(t) z, m = StringSplit<maxsplit = 1>(t) o, k = StringSplit(x)
            w = StringNormalizer<stopwords = ["b"]>(over)
        }""",
        *("y", "n", "z", "o", "k", "w"),
    ) == ["string[2, 3]", "int64[2]", "string[2, 2]", "string[2, ?]", "int64[2]", "string[1]"]


def test_texts_that_a_caller_can_replace_say_nothing() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 20]>
        g (string[1] t) => (string[a, b] y) { y, n = StringSplit(t) }""")
    model.graph.initializer.append(onnx.helper.make_tensor("t", onnx.TensorProto.STRING, [1], [b"a b"]))
    assert str(infer(model)["y"]) == "string[1, b]"


def test_optionals_keep_what_is_known_of_their_element() -> None:
    assert inferred(
        """(float[N, 3] x, bool c) => (float[a] y) {
            o = Optional(x) y = OptionalGetElement(o)
            s = SplitToSequence(x) p = Optional(s) t = OptionalGetElement(p)
            j = ConcatFromSequence<axis = 0>(t)
            e = If(c) <then_branch = t1 () => (b1) { b1 = Optional(x) },
                       else_branch = t2 () => (b2) { w = Relu(x) b2 = Optional(w) }>
            z = OptionalGetElement(e) v = OptionalGetElement(x)
        }""",
        *("y", "j", "z", "v"),
    ) == ["float32[N, 3]", "float32[N, 3]", "float32[N, 3]", "float32[N, 3]"]


def test_sequences_are_mapped() -> None:
    assert inferred(
        """(float[N, 3] x, float[2, 1] w) => (float[a] y) {
            s = SplitToSequence(x)
            t, k = SequenceMap(s, w) <body = b (e, f) => (g, h) { g = MatMul(f, e) h = Shape(g) }>
            y = ConcatFromSequence<axis = 0>(t)
        }""",
        *("t", "k", "y"),
    ) == ["N x float32[2, 3]", "N x int64[2]", "float32[2*N, 3]"]


def test_the_default_of_an_attribute_counts_where_onnx_forgets_it() -> None:
    """STFT is onesided unless it says otherwise."""
    assert inferred(
        """(float[1, 128, 1] x) => (float[a] y) <int64 step = {8}, int64 length = {16}> {
            y = STFT(x, step, "", length) z = STFT<onesided = 0>(x, step, "", length)
        }""",
        *("y", "z"),
    ) == ["float32[1, 15, 9, 2]", "float32[1, 15, 16, 2]"]
