"""Writes inference.md: what inference says, beside what onnx and OpenVINO say of the same models.

    python dev/pages/inference.py

Needs openvino. A test holds the page against this script where the same releases are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx
import onnx.parser

from dev.pages import DOCS
from splitops.errors import SplitError
from splitops.models.formats.openvino import Builder, OpenVINOModel, to_bytes
from splitops.models.infer import infer
from splitops.spec.sizes.dims import Range

PAGE: Final = DOCS / "inference.md"


def onnx_model(body: str, opset: int = 18) -> Callable[[], onnx.ModelProto]:
    """Return what makes a model from its text."""
    return lambda: onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> g {body}')


ONNX_CASES: Final[tuple[tuple[str, str, Callable[[], onnx.ModelProto]], ...]] = (
    (
        "a symbol split in two",
        "a",
        onnx_model("(float[N, 6] x) => (float[A, B] y) { a, b = Split(x)  y = Relu(a) }", 13),
    ),
    (
        "a symbol split by `num_outputs`, the second part",
        "b",
        onnx_model("(float[N, 6] x) => (float[A, B] y) { a, b = Split<num_outputs = 2>(x)  y = Relu(b) }"),
    ),
    (
        "the parts of a symbol joined again",
        "j",
        onnx_model(
            "(float[N, 6] x) => (float[A, B] y) { a, b = Split<num_outputs = 2>(x)"
            "  j = Concat<axis = 0>(a, b)  y = Relu(j) }"
        ),
    ),
    (
        "a reshape to what Shape, Split and Concat compute",
        "r",
        onnx_model(
            "(float[2, 12] w) => (float[A, B] y) { s = Shape(w)  d, e = Split<num_outputs = 2>(s)"
            "  t = Concat<axis = 0>(e, d)  r = Reshape(w, t)  y = Relu(r) }"
        ),
    ),
    (
        "attention heads: a reshape with symbols and -1",
        "r",
        onnx_model(
            "(float[B, S, 768] x) => (float[a, b, c, d] y) <int64[2] tail = {12, -1}> { s = Shape(x)"
            "  b, q, c = Split<num_outputs = 3>(s)  t = Concat<axis = 0>(b, q, tail)  r = Reshape(x, t)"
            "  y = Relu(r) }"
        ),
    ),
    (
        "lengths as an input of the model",
        "a",
        onnx_model("(float[6, 4] x, int64[2] k) => (float[A, B] y) { a, b = Split(x, k)  y = Relu(a) }"),
    ),
    (
        "known lengths of an unknown axis, the axis itself",
        "x",
        onnx_model(
            "(float[N, 4] x) => (float[A, B] y) <int64[2] k = {2, 3}> { a, b = Split(x, k)  y = Relu(a) }"
        ),
    ),
    (
        "parts of 5 into 4, the last one",
        "d",
        onnx_model("(float[5] x) => (float[A] y) { a, b, c, d = Split<num_outputs = 4>(x)  y = Relu(a) }"),
    ),
    (
        "2^32 + 4 split in two",
        "a",
        onnx_model("(float[4294967300] x) => (float[A] y) { a, b = Split<num_outputs = 2>(x)  y = Relu(a) }"),
    ),
    (
        "a sequence of chunks",
        "s",
        onnx_model("(float[7, 4] x) => (seq(float) s) <int64 k = {2}> { s = SplitToSequence(x, k) }"),
    ),
    (
        "a split in both branches of an If",
        "y",
        onnx_model(
            "(float[N, 6] x, bool c) => (float[A, B] z) { y = If(c) <"
            "then_branch = t () => (float[P, Q] a) { a, b = Split<axis = 1, num_outputs = 2>(x) }, "
            "else_branch = e () => (float[R, T] d) { d, f, g = Split<axis = 1, num_outputs = 3>(x) }>"
            "  z = Relu(y) }"
        ),
    ),
)


def ir(
    shape: str | None, build: Callable[[Builder, Any], Any], *, axis: int | None = 0
) -> Callable[[], OpenVINOModel]:
    """Return what makes a model of one input, of which one value is looked at."""

    def make() -> OpenVINOModel:
        builder = Builder("m")
        x = builder.parameter("x", "f32", shape)
        at = builder.parameter("axis", "i64", "") if axis is None else builder.const(np.array(axis))
        builder.result(build(builder, (x, at)), "y")
        return builder.model()

    return make


def even(count: int) -> Callable[[Builder, Any], Any]:
    """Split in equal parts."""
    return lambda builder, ports: builder.layer("Split", list(ports), {"num_splits": count}, outputs=count)[0]


def lengths(*values: int, part: int = 0) -> Callable[[Builder, Any], Any]:
    """Split by lengths."""
    return lambda builder, ports: builder.layer(
        "VariadicSplit", [*ports, builder.const(np.array(values))], outputs=len(values)
    )[part]


def joined(builder: Builder, ports: Any) -> Any:
    """Split in two and join the parts."""
    parts = builder.layer("VariadicSplit", [*ports, builder.const(np.array([2, -1]))], outputs=2)
    return builder.layer("Concat", list(parts), {"axis": 0})[0]


OPENVINO_CASES: Final[tuple[tuple[str, Callable[[], OpenVINOModel]], ...]] = (
    ("`2..7,4` split in 3", ir("2..7,4", even(3))),
    ("`4..5,4` split in 3", ir("4..5,4", even(3))),
    ("`7,6` split in 3 on an unknown axis", ir("7,6", even(3), axis=None)),
    ("`5..9,4` by `[-1, 2]`, what -1 takes", ir("5..9,4", lengths(-1, 2))),
    ("`1..9,4` by `[-1, 2]`, what -1 takes", ir("1..9,4", lengths(-1, 2))),
    ("`2..3` by `[-1, 8]`", ir("2..3", lengths(-1, 8))),
    ("`6` by `[-1, 8]`", ir("6", lengths(-1, 8))),
    ("`2..4` by `[2, 3]`", ir("2..4", lengths(2, 3))),
    ("`6,7` by `[2, 4]` on an unknown axis", ir("6,7", lengths(2, 4), axis=None)),
    ("`?,4` by `[2, -1]`, joined again", ir("?,4", joined)),
)


def ours(model: Any, name: str) -> str:
    """Write what splitops knows of a value."""
    try:
        return str(infer(model)[name])
    except SplitError as error:
        return f"error `{getattr(error, 'rule', 'model')}`"


def of_onnx(model: onnx.ModelProto, name: str) -> str:
    """Write what onnx's ``infer_shapes`` knows of a value."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = inferred.graph
    found = {value.name: value.type for value in (*graph.input, *graph.output, *graph.value_info)}.get(name)
    if found is None:
        return "nothing"
    kind = found.WhichOneof("value")
    tensor = found.tensor_type if kind == "tensor_type" else found.sequence_type.elem_type.tensor_type
    dims = [str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim]
    known = ", ".join("?" if not dim or dim.startswith("unk__") else dim for dim in dims)
    shape = f"float32[{known if tensor.HasField('shape') else '...'}]"
    return shape if kind == "tensor_type" else f"? x {shape}"


def of_openvino(model: OpenVINOModel) -> str:
    """Write what OpenVINO knows of the model's output."""
    import openvino

    xml, weights = to_bytes(model)
    try:
        loaded = openvino.Core().read_model(xml, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    except RuntimeError:
        return "error"
    shape = loaded.outputs[0].get_partial_shape()
    if shape.rank.is_dynamic:
        return "float32[...]"
    dims = []
    for dim in shape:
        least, most = dim.get_min_length(), dim.get_max_length()
        dims.append(str(least) if dim.is_static else str(Range(least, None if most == -1 else most)))
    return f"float32[{', '.join(dims)}]"


def table(*rows: tuple[str, ...]) -> str:
    """Write a Markdown table."""
    lines = [rows[0], ("---",) * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def quoted(text: str) -> str:
    """Write a type as code, words as they are."""
    return f"`{text}`" if "[" in text else text


def releases() -> str:
    """Name the releases that the tables were made with."""
    import openvino

    return f"onnx {onnx.__version__} and OpenVINO {openvino.__version__.split('-')[0]}"


def page() -> str:
    """Return the page."""
    onnx_rows = [
        (text, quoted(ours(make(), name)), quoted(of_onnx(make(), name))) for text, name, make in ONNX_CASES
    ]
    openvino_rows = [
        (text, quoted(ours(make(), "y")), quoted(of_openvino(make()))) for text, make in OPENVINO_CASES
    ]
    return TEMPLATE.format(
        releases=releases(),
        onnx=table(("model and value", "splitops", "onnx `infer_shapes`"), *onnx_rows),
        openvino=table(("input and split", "splitops", "OpenVINO"), *openvino_rows),
    )


TEMPLATE: Final = """<!-- Made by dev/pages/inference.py. -->

# Infer shapes

`splitops.infer` finds the types and shapes of a model's values, through its splits. `splitops infer
MODEL` shows them before and after, and `-o` writes a model that declares them and passes the ONNX
checker.

A size is an exact integer of any magnitude, a symbol or an expression in symbols, a range, or unknown.
The rules are those of execution, evaluated at the ends of the ranges. Every possible outcome lies inside the
inferred range, and the range for one split cannot be narrower.

```python
>>> import splitops
>>> splitops.onnx.infer_split(["N", 4], num_outputs=2)
[('ceil(N/2)', 4), ('N - ceil(N/2)', 4)]
>>> splitops.onnx.infer_split([(4, 6)], num_outputs=3)
[(2,), (2,), ((0, 2),)]
>>> splitops.onnx.infer_split_to_sequence([(5, 9), 3], 4)
InferredSequence(shape=((1, 4), 3), length=(2, 3))
>>> splitops.openvino.infer_split([7, 6], None, 3)
[(7, 2), (7, 2), (7, 2)]
>>> splitops.openvino.infer_variadic_split([(5, 9)], 0, [-1, 2])
[((3, 7),), (2,)]

```

A shape is a sequence of dimensions, or None if the rank is unknown. A dimension is an integer, a name, an
interval `(lo, hi)` with `hi` None for unbounded, or None for unknown. Results have the same forms. An axis of
None, and None among the lengths, are unknown.

## Expressions

The parts of a symbol are expressions in it: `N/2` for an even split, `ceil(N/2)` if `num_outputs` rounds
up, `N - 3` if a -1 takes the rest. Expressions are sums in one canonical form, so equal expressions have
equal names, and joining all parts of a symbol returns the symbol. A `dim_param` of a model that has the form
of such an expression is read as one.

## Through the rest of a model

- ONNX: nodes are visited in order, with the bodies of If, Loop and Scan, and with each called model-local
  function once per call. Other operators are inferred one node at a time, by onnx and by the rules of
  splitops, so a split cannot end the process inside onnx. Outputs that neither can infer are unknown. Nodes
  that differ only in names are inferred once.
- Values computed from shapes are followed, including partly known ones: Shape, Size, Split, Concat,
  Gather, Slice, Squeeze, Unsqueeze, Transpose, Reshape, Cast, Add, Sub, Mul, Div, Min, Max, Equal, Where. In
  every opset they are used as sizes by ConstantOfShape, Expand, OneHot, Pad, Range, Reshape, Resize, Slice,
  Tile and TopK. A Reshape uses such a symbol as that size, even where a 0 would mean another size.
- A sequence split from a tensor has that tensor's size when it is joined again.
- OpenVINO IR: the sizes of Parameters, including intervals, are propagated through splits and most other
  layers. The rest keep the shapes that the file declares.
- A split also tells about its input: known lengths prove the size of the axis, and of every other dimension
  with the same symbol. Inside a branch or loop it proves nothing about values outside.
- Names that subgraphs and functions declare are not trusted: in a loop, one name may be another size in each
  iteration.

## Compare with onnx and OpenVINO

Made with {releases}.

{onnx}

{openvino}

`infer(model, as_openvino=True)` returns OpenVINO's answers where its rule is looser.

`python3.11 tasks.py bench scaling` measures the growth with the number of splits. `python3.11
tasks.py bench exported_inference FOLDER` counts the known values of exported models, and measures the
time for a node.
"""


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page())
