"""What is fuzzed: functions of bytes that raise nothing but what a user is told of.

A reader is given the bytes as a file. Whatever it makes of them is used as a user would: models are inferred,
checked, simplified, fixed, converted and run, tensors are cut in two and merged. The other targets are
tests of ours, for which the fuzzer draws instead of Hypothesis.
"""

from __future__ import annotations

import gzip
import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

import splitops
from splitops.errors import SplitError

Target = Callable[[bytes], object]

_SUITE: Final = Path(__file__).parents[2] / "tests"
_READ: Final = 1 << 20
"""Elements of a tensor that are read and merged; lies about sizes are found without it."""


_MAX_NODES: Final = 12
_QUIET: Final = frozenset({
    "Add", "Cast", "Concat", "ConcatFromSequence", "Constant", "Gather", "Identity", "If", "Mul", "Reshape",
    "SequenceAt", "SequenceConstruct", "Shape", "Slice", "Split", "SplitToSequence", "Squeeze", "Sub",
    "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators whose results are not much larger than what they are given."""


def _model(path: Path) -> dict[str, Any]:
    """Use a model as its users do; return what was made of it, by the tool."""
    model = splitops.load(path)
    uses: dict[str, Callable[[], Any]] = {
        "infer": lambda: splitops.infer(model),
        "check": lambda: splitops.check(model),
        "simplify": lambda: splitops.simplify(model),
    }
    uses |= {f"to {to}": partial(splitops.convert, model, to) for to in ("onnx:13", "onnx:18", "openvino")}
    uses |= {
        f"for {runtime}": partial(splitops.fix, model, runtime) for runtime in ("openvino", "onnxruntime")
    }
    made = {}
    for name, use in uses.items():
        try:
            made[name] = use()
        except SplitError:
            continue
    return made


def _onnx(data: bytes, folder: Path) -> None:
    path = folder / "m.onnx"
    path.write_bytes(data)
    (folder / "w").write_bytes(bytes(range(256)))  # what external data may name
    made = _model(path)
    model = splitops.load(path)
    inputs = _inputs(model)
    if inputs is None:
        return
    expected = splitops.run(model, inputs, engine="reference")
    for name in ("infer", "simplify", "to onnx:13", "to onnx:18", "for onnxruntime"):
        if name in made:
            found = splitops.run(made[name], inputs, engine="reference")
            for (key, value), other in zip(expected.items(), found.values(), strict=True):
                _assert_same(value, other, f"{key} of {name}")


def _inputs(model: Any) -> dict[str, Any] | None:
    """Return inputs of a small model that takes and gives plain tensors; None for others."""
    try:
        graph = ir.from_proto(model).graph
    except ir.serde.SerdeError:
        return None
    nodes = list(ir.traversal.RecursiveGraphIterator(graph))
    if len(nodes) > _MAX_NODES or any(node.op_type not in _QUIET or node.domain for node in nodes):
        return None
    found = {}
    for value in graph.inputs:
        if value.name in graph.initializers or value.shape is None or value.dtype is None:
            return None
        sizes = [size if isinstance(size, int) else 4 for size in value.shape.dims]
        if (
            not isinstance(value.type, ir.TensorType)
            or not all(0 <= size < 64 for size in sizes)
            or len(sizes) > 3
        ):
            return None
        if value.dtype not in (ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL):
            return None
        numbers = np.arange(np.prod(sizes, dtype=int)).reshape(sizes) % 3
        found[value.name] = numbers.astype(value.dtype.numpy())
    return found


def _assert_same(value: Any, other: Any, what: str) -> None:
    if isinstance(value, list):
        assert len(value) == len(other), what
        for one, two in zip(value, other, strict=True):
            _assert_same(one, two, what)
        return
    assert value.dtype == other.dtype, what
    assert value.shape == other.shape, what
    assert value.tobytes() == other.tobytes(), what


def _ir(data: bytes, folder: Path) -> None:
    xml, _, weights = data.partition(b"\0")
    path = folder / "m.xml"
    path.write_bytes(xml)
    path.with_suffix(".bin").write_bytes(weights)
    _model(path)


def _tensors(
    suffix: str, write: Callable[[bytes, Path], object] = lambda data, path: path.write_bytes(data)
) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        path = folder / f"t{suffix}"
        write(data, path)
        for name, tensor in splitops.files.open(path).items():
            if tensor.size > _READ:
                continue
            try:
                np.asarray(tensor)
                made = splitops.files.split(path, folder / "parts", tensor=name, num_outputs=2, sync=False)
            except SplitError:
                continue
            parts = [part for part, _ in made.files]
            merged = folder / f"merged{suffix.removesuffix('.gz')}"
            splitops.files.merge(parts, merged, sync=False, overwrite=True)
            again = splitops.files.open(merged)[name]
            assert again.shape == tensor.shape
            assert np.asarray(again).tobytes() == np.asarray(tensor).tobytes()
            for part in parts:
                shutil.rmtree(part) if part.is_dir() else part.unlink()

    return read


def _gzipped(data: bytes, path: Path) -> None:
    """Write bytes as they are, or what they are compressed to."""
    kind, rest = data[:1], data[1:]
    path.write_bytes(rest if kind == b"\1" else gzip.compress(rest, 1))


def _zarr(data: bytes, path: Path) -> None:
    metadata, _, chunk = data.partition(b"\0")
    (path / "c" / "0").mkdir(parents=True)
    (path / "zarr.json").write_bytes(metadata)
    for place in ("0/0", "0/1"):
        (path / "c" / place).write_bytes(chunk)


READERS: Final[dict[str, Callable[[bytes, Path], None]]] = {
    "onnx": _onnx,
    "ir": _ir,
    "npy": _tensors(".npy"),
    "npz": _tensors(".npz"),
    "safetensors": _tensors(".safetensors"),
    "gguf": _tensors(".gguf"),
    "hdf5": _tensors(".h5"),
    "zarr": _tensors(".zarr", _zarr),
    "stream": _tensors(".npy.gz", _gzipped),
    "weights": _tensors(".onnx"),
}
"""The readers of files: each is given bytes and an empty folder."""

TESTS: Final = {
    "calls": "core/test_properties.py::test_exactly_the_nodes_that_the_rules_allow_are_bound",
    "parts": "core/test_properties.py::test_parts_are_what_numpy_gives",
    "out": "core/test_out.py::test_whatever_their_strides_buffers_are_filled_or_rejected",
    "inference": "inference/test_one_operator.py::test_variadic_split_of_partly_known_lengths",
    "conversion": "convert/test_generated_splits.py::test_a_converted_model_gives_the_same",
    "simplification": "simplify/test_simplify_random.py::test_a_simplified_random_graph_is_equal",
    "extents": "files/test_extents.py::test_composed_copies_do_what_two_do",
    "symbols": "inference/test_one_operator.py::test_split_by_number",
    "lengths": "inference/test_one_operator.py::test_split_by_partly_known_lengths",
    "axes": "inference/test_one_operator.py::test_openvino_split_of_any_axis",
    "sequences": "inference/test_one_operator.py::test_split_to_sequence",
    "shapefold": "inference/test_folded_shapes.py::test_what_is_inferred_contains_what_a_run_computes",
    "fixes": "fix/test_random_split_nodes.py::test_onnxruntime",
    "opsets": "convert/test_round_trips.py::test_there_and_back_between_opsets",
    "failing": "simplify/test_simplify_random.py::test_what_fails_on_other_sizes_fails",
    "copies": "native/test_native_equality.py::test_copies",
    "packing": "test_packing.py::test_round_trip",
    "globs": "sharding/test_shard_plans.py::test_globs_match_as_regular_expressions_that_go_back_do",
    "arguments": "fuzz/test_hostile_calls.py::test_arguments_of_any_kind",
    "buffers": "fuzz/test_hostile_calls.py::test_buffers_of_any_kind",
    "names": "fuzz/test_hostile_calls.py::test_names_and_versions_of_any_kind",
    "commands": "fuzz/test_hostile_commands.py::test_any_command_line",
    "merges": "fuzz/test_hostile_parts.py::test_any_parts",
    "plans": "fuzz/test_hostile_ranks.py::test_an_edited_plan",
    "checkpoints": "fuzz/test_hostile_ranks.py::test_an_edited_checkpoint",
    "manifests": "fuzz/test_hostile_ranks.py::test_an_edited_manifest",
    "reports": "fuzz/test_hostile_reports.py::test_an_edited_report",
    "expectations": "fuzz/test_hostile_reports.py::test_edited_expectations",
    "replies": "fuzz/test_hostile_reports.py::test_an_edited_reply",
}
"""The tests of the suite that the fuzzer draws for, as module and name."""


def reader(read: Callable[[bytes, Path], None]) -> Target:
    """Return a target that gives a reader its bytes and an empty folder; it may reject them."""

    def target(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            try:
                read(data, Path(folder))
            except SplitError:
                return

    return target


@cache
def _drawn(test: str) -> Target:
    path, _, name = test.partition("::")
    module = _SUITE / path
    sys.path[:0] = [str(module.parent)]
    drawn: Target = getattr(importlib.import_module(module.stem), name).hypothesis.fuzz_one_input
    return drawn


def _test(test: str) -> Target:
    return lambda data: _drawn(test)(data)


TARGETS: Final[dict[str, Target]] = {name: reader(read) for name, read in READERS.items()} | {
    name: _test(test) for name, test in TESTS.items()
}
