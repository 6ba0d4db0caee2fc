"""Models run by splitops and by OpenVINO, on every element type, bit by bit.

Where OpenVINO gives another result or none, the case is in DISAGREEMENTS with its reason; when it begins
to agree, its entry fails.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ir_helpers import (
    OPENVINO_TYPES,
    Array,
    array_of,
    assert_same,
    data_of,
    needs_openvino,
    openvino_version,
    run_by_openvino,
    run_ir,
    stated,
)

from splitops.models.formats import openvino as ir
from splitops.models.ops.element_conversion import is_convertible
from splitops.spec import ELEMENT_TYPES, ElementType
from splitops.spec.elements.types import from_openvino

pytestmark = [
    needs_openvino,
    pytest.mark.skipif(
        openvino_version() < (2026, 4), reason="the disagreements are those of OpenVINO 2026.4 and later"
    ),
]


@dataclass
class Case:
    """A model with its inputs; the name tells what it is about."""

    name: str
    model: ir.OpenVINOModel
    inputs: dict[str, Array]
    by: str = "CPU"
    types: list[ElementType] = field(default_factory=list)


def case(
    name: str,
    operation: str,
    values: list[tuple[str, str | None, Array]],
    data: dict[str, Any] | None = None,
    *,
    outputs: int = 1,
    version: str = "opset1",
    gives: str | None = None,
    by: str = "CPU",
    dynamic: bool = False,
) -> Case:
    """Make a model of one layer; a value is "in" or "const", its element type (or None), its array."""
    builder = ir.Builder()
    ports, inputs, types = [], {}, []
    for index, (kind, type_name, array) in enumerate(values):
        constant = builder.const(array, type_name) if kind == "const" else None
        if constant is not None:
            ports.append(constant)
            continue
        element_type = from_openvino(type_name) if type_name else ELEMENT_TYPES[array.dtype.name]
        assert element_type is not None
        shape = ",".join("?" * array.ndim) if dynamic else array.shape
        ports.append(builder.parameter(f"in{index}", element_type, shape))
        inputs[f"in{index}"] = array
        types.append(element_type)
    parts = builder.layer(operation, ports, data, outputs=outputs, version=version, element_type=gives)
    for index, part in enumerate(parts):
        builder.result(part, f"out{index}")
    return Case(name, builder.model(), inputs, by, types)


def split_cases() -> Iterator[Case]:
    for kind in OPENVINO_TYPES:
        name = kind.openvino or ""
        for shape, axis, count in [((6, 4), 0, 3), ((2, 6, 3), -2, 2), ((3, 8), 1, 4)]:
            tag = f"split {name} {'x'.join(map(str, shape))} axis {axis}"
            source = ("in", name, data_of(kind, shape))
            yield case(
                tag, "Split", [source, ("const", None, np.array(axis))], {"num_splits": count}, outputs=count
            )
            size = shape[axis]
            lengths = np.array([1, -1, 2])
            values = [source, ("const", None, np.array([axis])), ("const", None, lengths)]
            yield case(f"variadic {tag} of {size}", "VariadicSplit", values, outputs=3)
    data = ("in", "f32", data_of(ELEMENT_TYPES["float32"], (4, 6)))
    for index in ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]:
        dtype = from_openvino(index)
        assert dtype is not None
        axis = ("const", index, np.array(1, dtype.numpy))
        yield case(f"split axis of {index}", "Split", [data, axis], {"num_splits": 2}, outputs=2)
        lengths = ("const", index, np.array([4, 2], dtype.numpy))
        yield case(f"variadic axis and lengths of {index}", "VariadicSplit", [data, axis, lengths], outputs=2)
    yield case(
        "split num_splits 3.0",
        "Split",
        [data, ("const", None, np.array(1))],
        {"num_splits": "3.0"},
        outputs=3,
    )
    for name, lengths_ in {
        "empty part": [0, 6],
        "remainder 0": [6, -1],
        "all in one": [-1],
        "zeros": [0, 0, -1],
    }.items():
        values = [data, ("const", None, np.array(1)), ("const", None, np.array(lengths_))]
        yield case(f"variadic {name}", "VariadicSplit", values, outputs=len(lengths_))
        yield case(f"variadic dynamic {name}", "VariadicSplit", values, outputs=len(lengths_), dynamic=True)
    values = [("in", "f32", np.zeros((0, 6), np.float32)), ("const", None, np.array(0))]
    yield case("split axis of size 0", "Split", values, {"num_splits": 2}, outputs=2)
    values = [data, ("in", None, np.array(1)), ("in", None, np.array([2, 4]))]
    yield case("variadic axis and lengths from inputs", "VariadicSplit", values, outputs=2)
    values = [data, ("const", None, np.array(1)), ("const", None, np.array([5, 2, -1]))]
    yield case("variadic negative remainder", "VariadicSplit", values, outputs=3)


def mover_cases() -> Iterator[Case]:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1)
    numbers = np.arange(24, dtype=np.int32).reshape(2, 3, 4)

    def const(*values: int, scalar: bool = False, type_name: str = "i64") -> tuple[str, str, Array]:
        kind = from_openvino(type_name)
        assert kind is not None
        return "const", type_name, np.array(values[0] if scalar else values, kind.numpy)

    for kind in OPENVINO_TYPES:
        if not kind.packed:
            pair = [("in", kind.openvino, data_of(kind, (2, size))) for size in (1, 3)]
            yield case(f"concat {kind.openvino}", "Concat", pair, {"axis": -1})
            yield case(
                f"gather {kind.openvino}", "Gather", [pair[1], const(2, 0), const(1)], version="opset8"
            )
    for dynamic in (False, True):
        word = "dynamic" if dynamic else "static"
        squeezed: dict[str, list[tuple[str, str, Array]]] = {
            "first": [const(0)], "last": [const(-1)], "both": [const(0, 3)], "repeated": [const(0, 0)],
            "scalar": [const(0, scalar=True)],
        }  # fmt: skip
        if not dynamic:
            squeezed |= {
                "no axes": [],
                "of size 2": [const(0, 1)],
                "empty": [("const", "i64", np.empty(0, np.int64))],
            }
        for name, axes in squeezed.items():
            for version in ("opset1", "opset15"):
                data = {"allow_axis_skip": "false"} if version == "opset15" else None
                yield case(
                    f"squeeze {version} {word} {name}",
                    "Squeeze",
                    [("in", None, x), *axes],
                    data,
                    version=version,
                    dynamic=dynamic,
                )
        for name, given in {
            "first": const(0), "middle": const(1, -1), "scalar": const(2, scalar=True),
            "repeated": const(0, 0), "negative": const(0, -5),
        }.items():  # fmt: skip
            yield case(f"unsqueeze {word} {name}", "Unsqueeze", [("in", None, x), given], dynamic=dynamic)
        for name, (pattern, special) in {
            "copy and rest": ((0, -1), True), "exact": ((3, 2), False), "rest first": ((-1, 2), False),
            "copies": ((0, 0, 0, 1), True),
        }.items():  # fmt: skip
            data = {"special_zero": str(special).lower()}
            yield case(
                f"reshape {word} {name}", "Reshape", [("in", None, x), const(*pattern)], data, dynamic=dynamic
            )
        empty = np.zeros((0, 3), np.float32)
        for name, (pattern, special) in {"copy": ((0, -1), True), "rest": ((-1, 3), False)}.items():
            data = {"special_zero": str(special).lower()}
            yield case(
                f"reshape {word} empty {name}",
                "Reshape",
                [("in", None, empty), const(*pattern)],
                data,
                dynamic=dynamic,
            )
        for name, order in {
            "order": const(2, 0, 1),
            "reversed": ("const", "i64", np.empty(0, np.int64)),
        }.items():
            yield case(
                f"transpose {word} {name}", "Transpose", [("in", None, numbers), order], dynamic=dynamic
            )
        yield case(f"shape {word}", "ShapeOf", [("in", None, numbers)], gives="i64", dynamic=dynamic)
        for text in ("i32", "i64"):
            data = {"output_type": text}
            yield case(
                f"shape {word} {text}",
                "ShapeOf",
                [("in", None, numbers)],
                data,
                version="opset3",
                gives=text,
                dynamic=dynamic,
            )
        for version in ("opset1", "opset7", "opset8"):
            data = None if version == "opset1" else {"batch_dims": 0}
            for name, indices in {
                "two": const(2, 0), "scalar": const(1, scalar=True), "negative": const(0, -1),
                "outside": const(0, 5, -9), "table": ("const", "i32", np.array([[0, 1], [2, 0]], np.int32)),
            }.items():  # fmt: skip
                values = [("in", None, numbers), indices, const(1, scalar=True)]
                yield case(
                    f"gather {version} {word} {name}",
                    "Gather",
                    values,
                    data,
                    version=version,
                    dynamic=dynamic,
                )
        for name, bounds in SLICES.items():
            given = [("in", None, numbers), *(const(*entries) for entries in bounds)]
            yield case(f"slice {word} {name}", "Slice", given, version="opset8", dynamic=dynamic)


SLICES: dict[str, list[tuple[int, ...]]] = {
    "middle": [(1,), (2,), (1,), (1,)],
    "without axes": [(1, 0), (2, 2), (1, 1)],
    "from the end": [(-2,), (-1,), (1,), (-1,)],
    "beyond both ends": [(-99,), (99,), (1,), (0,)],
    "nothing": [(2,), (1,), (1,), (0,)],
    "every second one": [(0,), (99,), (2,), (1,)],
    "backwards": [(99,), (-99,), (-1,), (1,)],
    "backwards to 0": [(2,), (0,), (-1,), (1,)],
    "backwards from before the first": [(-99,), (-999,), (-2,), (1,)],
    "two axes": [(1, -1), (9, -9), (1, -2), (1, 0)],
}


def convert_cases() -> Iterator[Case]:
    for source in OPENVINO_TYPES:
        for target in OPENVINO_TYPES:
            if is_convertible(source, target) and source.bits:
                values = [("in", source.openvino, convert_data(source))]
                data = {"destination_type": target.openvino}
                name = f"convert {source.openvino} to {target.openvino}"
                yield case(name, "Convert", values, data, gives=target.openvino, by="reference")


def convert_data(kind: ElementType) -> Array:
    """Every bit pattern up to 16 bits; of wider types the bounds of all others, and random bits."""
    if kind.bits < 8:
        return data_of(kind, (1 << kind.bits + 4,))
    if kind.name == "bool":
        return np.array([False, True])
    if kind.bits <= 16:
        return np.arange(1 << kind.bits).astype(f"u{kind.bits // 8}").view(kind.numpy)
    rng = np.random.default_rng(7)
    edges = [
        sign * ((1 << bits) + step)
        for bits in (0, 7, 8, 15, 16, 24, 31, 32, 53, 62, 63)
        for step in (-1, 0, 1)
        for sign in (-1, 1)
    ]
    if kind.integer:
        info = np.iinfo(kind.numpy)
        return np.array([edge for edge in edges if info.min <= edge <= info.max], kind.numpy)
    fractions = [
        0.0,
        -0.0,
        0.3,
        -0.7,
        1.5,
        2.5,
        1e39,
        1e-40,
        6e-39,
        1.1e-38,
        65504,
        65519,
        65520,
        np.inf,
        -np.inf,
        np.nan,
    ]
    random = rng.integers(0, 1 << 32, 2000, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        return np.concatenate([np.array([*edges, *fractions], np.float64), random.astype(np.float64)]).astype(
            kind.numpy
        )


_NARROW = "the CPU plugin computes in 32 bits: 64-bit integers lose their high half, f64 becomes f32"
_RAW_STRINGS = "the CPU plugin moves strings as raw memory: it gives wrong strings or crashes"
_BYTES = "the CPU plugin copies whole bytes where the parts of a row begin inside one"
_NO_INPUT = "the CPU plugin takes no inputs of this type"
_BF16 = (
    "the reference adds half a unit before it cuts to bf16 only if the last bit is odd: not the nearest one"
)
_NAN = "the reference cuts a NaN of f16 down to f8e5m2, and its payload away: infinity"

DISAGREEMENTS: dict[str, str] = {
    "*split i64 ?x*": _NARROW,
    "*split u64 ?x*": _NARROW,
    "*split f64 ?x*": _NARROW,
    "concat i64": _NARROW,
    "concat u64": _NARROW,
    "concat f64": _NARROW,
    "gather i64": _NARROW,
    "gather u64": _NARROW,
    "gather f64": _NARROW,
    "*split string *": _RAW_STRINGS,
    "*split f4e2m1 2x6x3 *": _BYTES,
    "*split f4e2m1 3x8 *": _BYTES,
    "*split nf4 2x6x3 *": _BYTES,
    "*split nf4 3x8 *": _BYTES,
    "*split u2 2x6x3 *": _BYTES,
    "*split u2 3x8 *": _BYTES,
    "*split u1 *": _NO_INPUT,
    "*split u3 *": _NO_INPUT,
    "*split u6 *": _NO_INPUT,
    "variadic negative remainder": "OpenVINO accepts it and reads outside the tensor; here it is an error",
    "convert i16 to bf16": _BF16,
    "convert u16 to bf16": _BF16,
    "convert f16 to bf16": _BF16,
    "convert f32 to bf16": _BF16,
    "convert f64 to bf16": _BF16,
    "convert nf4 to bf16": _BF16,
    "convert f16 to f8e5m2": _NAN,
    "convert bf16 to f8e5m2": _NAN,
    "convert i32 to f16": "the reference saturates here, and from no other type; the CPU plugin does not",
    "convert f32 to u32": "outside 32 bits, undefined; the reference itself gives another result from f64",
}
"""Cases by pattern: OpenVINO 2026.4 differs, always, for this reason."""


def disagreement(name: str) -> str | None:
    return next(
        (reason for pattern, reason in DISAGREEMENTS.items() if fnmatch.fnmatchcase(name, pattern)), None
    )


def answers(folder: Path, cases: list[Case]) -> list[dict[str, Any]]:
    jobs = []
    for index, one in enumerate(cases):
        path = folder / f"case{index}.xml"
        ir.write(one.model, path)
        tensors = [stated(array, kind) for array, kind in zip(one.inputs.values(), one.types, strict=True)]
        jobs.append({"xml": str(path), "inputs": tensors, "by": one.by})
    return run_by_openvino(folder, jobs)


def difference(one: Case, answer: dict[str, Any]) -> str | None:
    """Return how the results differ; None where they are the same."""
    if "error" in answer:
        return f"OpenVINO: {answer['error']}"
    try:
        ours = run_ir(one.model, one.inputs)
        assert list(ours) == [names[0] for names in answer["outputs"]]
        for array, tensor in zip(ours.values(), answer["tensors"], strict=True):
            assert_same(array, array_of(tensor))
    except (AssertionError, ValueError) as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return None


@pytest.mark.parametrize("make", [split_cases, mover_cases, convert_cases])
def test_same_as_openvino(make: Callable[[], Iterator[Case]], tmp_path: Path) -> None:
    cases = list(make())
    assert len(cases) > 50
    found = {
        one.name: difference(one, answer) for one, answer in zip(cases, answers(tmp_path, cases), strict=True)
    }
    assert len(found) == len(cases)
    unexpected = {name: how for name, how in found.items() if how is not None and disagreement(name) is None}
    assert not unexpected, "\n".join(f"{name}: {how}" for name, how in unexpected.items())
    agreeing = [name for name, how in found.items() if how is None and disagreement(name) is not None]
    assert not agreeing, f"OpenVINO agrees now: {agreeing}"


def test_every_disagreement_names_a_case() -> None:
    names = [one.name for make in (split_cases, mover_cases, convert_cases) for one in make()]
    assert [pattern for pattern in DISAGREEMENTS if not fnmatch.filter(names, pattern)] == []
