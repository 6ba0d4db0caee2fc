"""What is fuzzed: functions of bytes that raise nothing but what a user is told of.

A reader is given the bytes as a file. Whatever it makes of them is used as a user would: models are inferred,
checked, simplified and converted, tensors are cut in two and merged. The other targets are tests of ours,
for which the fuzzer draws instead of Hypothesis.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

import splitops
from splitops.errors import SplitError

__all__ = ["READERS", "TARGETS", "TESTS", "reader"]

Target = Callable[[bytes], object]

_SUITE: Final = Path(__file__).parents[1] / "tests"
_READ: Final = 1 << 20
"""Elements of a tensor that are read and merged; lies about sizes are found without it."""


def _model(path: Path) -> None:
    model = splitops.load(path)
    for use in (splitops.infer, splitops.check, splitops.simplify):
        try:
            use(model)
        except SplitError:
            continue
    for to in ("onnx:13", "onnx:18", "openvino"):
        try:
            splitops.convert(model, to)
        except SplitError:
            continue


def _onnx(data: bytes, folder: Path) -> None:
    path = folder / "m.onnx"
    path.write_bytes(data)
    (folder / "w").write_bytes(bytes(range(256)))  # what external data may name
    _model(path)


def _ir(data: bytes, folder: Path) -> None:
    xml, _, weights = data.partition(b"\0")
    path = folder / "m.xml"
    path.write_bytes(xml)
    path.with_suffix(".bin").write_bytes(weights)
    _model(path)


def _tensors(suffix: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        path = folder / f"t{suffix}"
        path.write_bytes(data)
        for name, tensor in splitops.files.open(path).items():
            if tensor.size > _READ:
                continue
            try:
                np.asarray(tensor)
                made = splitops.files.split(path, folder / "parts", tensor=name, num_outputs=2, sync=False)
            except SplitError:
                continue
            parts = [part for part, _ in made.files]
            merged = folder / f"merged{suffix}"
            splitops.files.merge(parts, merged, sync=False, overwrite=True)
            again = splitops.files.open(merged)[name]
            assert again.shape == tensor.shape
            assert np.asarray(again).tobytes() == np.asarray(tensor).tobytes()
            for part in parts:
                part.unlink()

    return read


READERS: Final[dict[str, Callable[[bytes, Path], None]]] = {
    "onnx": _onnx,
    "ir": _ir,
    "npy": _tensors(".npy"),
    "npz": _tensors(".npz"),
    "safetensors": _tensors(".safetensors"),
    "gguf": _tensors(".gguf"),
}
"""The readers of files: each is given bytes and an empty folder."""

TESTS: Final = {
    "calls": "core/test_properties.py::test_exactly_the_nodes_that_the_rules_allow_are_bound",
    "parts": "core/test_properties.py::test_parts_are_what_numpy_gives",
    "out": "core/test_out.py::test_whatever_their_strides_buffers_are_filled_or_refused",
    "inference": "inference/test_one_operator.py::test_variadic_split_of_partly_known_lengths",
    "conversion": "convert/test_generated_splits.py::test_a_converted_model_gives_the_same",
    "simplification": "simplify/test_simplify_random.py::test_a_simplified_random_graph_is_equal",
    "extents": "files/test_extents.py::test_composed_copies_do_what_two_do",
}
"""The tests of the suite that the fuzzer draws for, as module and name."""


def reader(read: Callable[[bytes, Path], None]) -> Target:
    """Return a target that gives a reader its bytes and an empty folder; it may refuse them."""

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
