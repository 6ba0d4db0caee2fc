"""What is called: random splits, whose parts slicing by NumPy tells, and broken ones, whose rule is known.

An action is a function of a source of chance and a room that threads share; it raises where it finds a fault.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import onnx.parser

import splitops
from splitops.errors import Rule, RuleError
from splitops.files import get_format

Libraries = Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]

MODEL: Final = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 18]>
    g (float[N, 6] x) => (float[n, 6] a, float[N, 2] c, float[N, 4] d) {
        two = Constant<value_ints = [2, 4]>()
        y = Relu(x)
        a, b = Split<num_outputs = 2>(y)
        c, d = Split<axis = 1>(y, two) }""")
RULES: Final = {"version": 1, "rule": [{"match": "*.bias", "replicate": True}, {"match": "*", "axis": 0}]}


@dataclass(slots=True)
class Room:
    """What the calls of all threads share.

    Attributes:
        folder: where files may be written.
        sessions: the model, ready to run on each engine.
        libraries: how arrays of each library are made and read.
        plans: plans that were made for earlier calls, with the cuts that they are of.
    """

    folder: Path
    sessions: Mapping[str, splitops.Session] = field(default_factory=dict)
    libraries: Libraries = field(default_factory=dict)
    plans: list[tuple[splitops.Plan, Cut]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cut:
    """A random split: an operator's function, its arguments, and the sizes of the parts that they ask for."""

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    function: Callable[..., Any]
    arguments: dict[str, Any]

    def of(self, data: Any, **how: Any) -> Any:
        """Call the function."""
        return self.function(data, **self.arguments, **how)

    def parts(self, array: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """Return the parts as NumPy's slicing gives them."""
        ends = np.cumsum((0, *self.sizes)).tolist()
        before = (slice(None),) * self.axis
        return [array[(*before, slice(low, high))] for low, high in pairwise(ends)]

    def prove(self, found: Sequence[Any], array: np.ndarray[Any, Any]) -> None:
        """Prove that parts are those of the array."""
        expected = self.parts(array)
        assert len(found) == len(expected), (self, len(found))
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert one.dtype == other.dtype, (self, number, one.dtype)
            np.testing.assert_array_equal(one, other, strict=True)


def _partition(rng: Random, size: int) -> tuple[int, ...]:
    points = sorted(rng.choices(range(size + 1), k=rng.randrange(5)))
    return tuple(high - low for low, high in zip([0, *points], [*points, size], strict=True))


def _even(size: int, part: int) -> tuple[int, ...]:
    return tuple(min(part, size - low) for low in range(0, size, part))


def draw(rng: Random, shape: tuple[int, ...] | None = None) -> Cut:
    """Return a random cut of a shape."""
    shape = shape or tuple(rng.choices((1, 2, 3, 5, 8, 12, 30), k=rng.randint(1, 4)))
    axis = rng.randrange(len(shape))
    size = shape[axis]
    said = rng.choice((axis, axis - len(shape)))
    sizes = _partition(rng, size)
    match rng.randrange(6):
        case 0:
            return Cut(shape, axis, sizes, splitops.onnx.split, {"split": list(sizes), "axis": said})
        case 1:
            lengths = np.array(sizes, rng.choice((np.int32, np.int64)))
            return Cut(shape, axis, sizes, splitops.onnx.split_to_sequence, {"split": lengths, "axis": said})
        case 2:
            lengths = list(sizes)
            lengths[rng.randrange(len(lengths))] = -1
            arguments = {"axis": said, "split_lengths": lengths}
            return Cut(shape, axis, sizes, splitops.openvino.variadic_split, arguments)
        case 3:
            count = rng.randint(1, 6)
            sizes = _even(size, -(-size // count))
            sizes += (0,) * (count - len(sizes))
            return Cut(shape, axis, sizes, splitops.onnx.split, {"num_outputs": count, "axis": said})
        case 4:
            count = rng.choice([count for count in range(1, size + 1) if size % count == 0])
            sizes = _even(size, size // count)
            return Cut(shape, axis, sizes, splitops.openvino.split, {"axis": said, "num_splits": count})
        case _:
            part = rng.randint(1, size + 1)
            arguments = {"split": part, "axis": said}
            return Cut(shape, axis, _even(size, part), splitops.onnx.split_to_sequence, arguments)


def _array(rng: Random, shape: Sequence[int], dtype: str = "f4") -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    return (np.arange(count) % 120 + rng.randrange(8)).astype(dtype).reshape(shape)


def numpy(rng: Random, room: Room) -> None:
    """Split a small array: views, copies, buffers."""
    cut = draw(rng)
    array = _array(rng, cut.shape, rng.choice(("f4", "i8", "u1", "?", "U3")))
    if rng.random() < 0.3:
        array = np.asfortranarray(array)
    found = cut.of(array, copy=rng.choice((None, True)))
    cut.prove(found, array)
    cut.prove(cut.of(array, out=[np.empty_like(part) for part in found]), array)


def large(rng: Random, room: Room) -> None:
    """Copy so much that the threads and the memory of the core are used."""
    cut = draw(rng, (rng.randint(400, 900), rng.randint(400, 900)))
    array = _array(rng, cut.shape, rng.choice(("f4", "i8", "u1")))
    if rng.random() < 0.5:
        array = array.T.copy().T
    found = cut.of(array, copy=True)
    cut.prove(found, array)
    if rng.random() < 0.5:
        cut.prove(cut.of(array, out=[np.empty(part.shape, part.dtype) for part in found]), array)


def libraries(rng: Random, room: Room) -> None:
    """Split an array of another library; of JAX few forms, since it remembers each one."""
    name = rng.choice(list(room.libraries))
    make, read = room.libraries[name]
    cut = draw(Random(rng.randrange(60)) if name == "jax" else rng)
    array = _array(rng, cut.shape)
    cut.prove([read(part) for part in cut.of(make(array))], array)


def plans(rng: Random, room: Room) -> None:
    """Call a plan that another thread may be calling, or make it anew."""
    if len(room.plans) < 20 or rng.random() < 0.1:
        cut = draw(rng)
        offsets = np.cumsum((0, *cut.sizes[:-1])).tolist() if cut.sizes else []
        plan = splitops.plan("Split", shape=cut.shape, axis=cut.axis, split=list(cut.sizes))
        assert (list(plan.offsets), plan.sizes) == (offsets, cut.sizes)
        if len(room.plans) < 20:
            room.plans.append((plan, cut))
        else:
            room.plans[rng.randrange(20)] = plan, cut
    plan, cut = rng.choice(room.plans)
    array = _array(rng, cut.shape)
    cut.prove(plan(array, copy=rng.choice((None, True))), array)


def errors(rng: Random, room: Room) -> None:
    """Break a rule, which the error must name."""
    array = _array(rng, (4, 6))
    onnx_split, variadic = splitops.onnx.split, splitops.openvino.variadic_split
    function, arguments, rule = rng.choice(
        (
            (onnx_split, {"split": [1, 2]}, Rule.LENGTHS_SUM),
            (onnx_split, {"split": [5, -1]}, Rule.LENGTHS_NEGATIVE),
            (onnx_split, {"axis": rng.randint(2, 9), "num_outputs": 2}, Rule.AXIS_RANGE),
            (onnx_split, {}, Rule.LENGTHS_MISSING),
            (onnx_split, {"num_outputs": 3, "opset": 13}, Rule.PARTS_DIVISIBLE),
            (variadic, {"axis": 0, "split_lengths": [9, -1]}, Rule.REMAINDER_NEGATIVE),
            (variadic, {"axis": 0, "split_lengths": [-1, -1]}, Rule.REMAINDER_REPEATED),
        )
    )
    found = None
    try:
        function(array, **arguments)
    except RuleError as error:
        found = error.rule
    assert found is rule, (arguments, found)


def sessions(rng: Random, room: Room) -> None:
    """Run a model in a session that threads share, or in a new one."""
    name = rng.choice(list(room.sessions))
    array = _array(rng, (rng.randint(2, 30), 6))
    half = -(-len(array) // 2)
    expected = {"a": array[:half], "c": array[:, :2], "d": array[:, 2:]}
    if rng.random() < 0.95:
        found = room.sessions[name].run({"x": array})
    else:
        with splitops.session(MODEL, name, isolate=name != "reference" and rng.random() < 0.1) as fresh:
            found = fresh.run({"x": array})
    assert found.keys() == expected.keys()
    for output, part in expected.items():
        np.testing.assert_array_equal(found[output], part, strict=True)


def models(rng: Random, room: Room) -> None:
    """Infer, check, convert and simplify a model, which then gives the same."""
    splitops.infer(MODEL)
    splitops.check(MODEL)
    array = _array(rng, (8, 6))
    changed = rng.choice((splitops.simplify, lambda model: splitops.convert(model, "onnx:13")))(MODEL)
    found, expected = splitops.run(changed, {"x": array}), splitops.run(MODEL, {"x": array})
    for output, part in expected.items():
        np.testing.assert_array_equal(found[output], part, strict=True)


def _folder(rng: Random, room: Room) -> Path:
    folder = room.folder / f"{rng.getrandbits(64):x}"
    folder.mkdir()
    return folder


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def files(rng: Random, room: Room) -> None:
    """Split a file and merge the parts, which gives the file again."""
    folder = _folder(rng, room)
    cut = draw(rng)
    array = _array(rng, cut.shape, rng.choice(("f4", "u1")))
    np.save(folder / "x.npy", array)
    lengths = {"axis": cut.axis, "split": list(cut.sizes)}
    to = rng.choice((None, get_format("safetensors")))
    report = splitops.files.split(folder / "x.npy", folder / "parts", **lengths, to=to, sync=False)
    paths = [path for path, _ in report.files]
    cut.prove([np.asarray(next(iter(splitops.files.open(path).values()))) for path in paths], array)
    if to is None:
        splitops.files.merge(paths, folder / "y.npy", axis=cut.axis, sync=False)
        assert (folder / "y.npy").read_bytes() == (folder / "x.npy").read_bytes()
    _remove(folder)


def races(rng: Random, room: Room) -> None:
    """Let processes write to one folder at once; they are forked by one that has no other threads."""
    folder = _folder(rng, room)
    command = [sys.executable, "-m", "dev.soak.races", str(folder), str(rng.getrandbits(32)), "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603
    assert done.returncode == 0, done.stderr
    folder.rmdir()


def sharding(rng: Random, room: Room) -> None:
    """Cut a checkpoint into ranks and merge them, which gives the same bytes."""
    from safetensors.numpy import save_file

    folder = _folder(rng, room)
    (folder / "model").mkdir()
    weights = {f"layers.{number}.weight": _array(rng, (8, rng.randint(1, 9))) for number in range(4)}
    save_file(weights | {"layers.0.bias": _array(rng, (5,))}, folder / "model" / "model.safetensors")
    plan = splitops.sharding.plan(folder / "model", RULES, ranks=rng.choice((2, 4)))
    plan.run(folder / "ranks", sync=False)
    splitops.sharding.merge(folder / "ranks").run(folder / "merged", sync=False)
    before, after = (folder / name / "model.safetensors" for name in ("model", "merged"))
    assert before.read_bytes() == after.read_bytes()
    _remove(folder)


def forks(rng: Random, room: Room) -> None:
    """Copy in the child of a fork, whatever the other threads were doing."""
    child = os.fork()
    if child == 0:
        try:
            large(rng, room)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, "the child of a fork has failed"


def leak(rng: Random, room: Room) -> None:
    """Keep what nobody asks for: no action of a soak, but one that it must see."""
    _LEAKED.append(np.ones(rng.randint(1000, 2000)))


_LEAKED: Final[list[Any]] = []


def all_sessions() -> dict[str, splitops.Session]:
    """Make a session on each engine that runs ONNX models."""
    return {name: splitops.session(MODEL, name) for name in ("reference", "onnxruntime")}


def all_libraries() -> Libraries:
    """Import every array library."""
    import array_api_strict
    import dask.array
    import jax.numpy
    import sparse
    import torch
    import xarray

    return {
        "array_api_strict": (array_api_strict.asarray, np.asarray),
        "dask": (dask.array.from_array, lambda part: part.compute(scheduler="synchronous")),
        "jax": (jax.numpy.asarray, np.asarray),
        "sparse": (sparse.COO.from_numpy, lambda part: part.todense()),
        "torch": (torch.from_numpy, lambda part: part.numpy()),
        "xarray": (xarray.DataArray, lambda part: part.values),
    }


ACTIONS: Final[Mapping[Callable[[Random, Room], None], float]] = {
    numpy: 40,
    plans: 20,
    libraries: 10,
    errors: 10,
    large: 4,
    sessions: 4,
    files: 2,
    models: 1,
    sharding: 0.5,
    forks: 0.3,
    races: 0.1,
}
"""How often each action is done beside the others."""
