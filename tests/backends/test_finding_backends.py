"""How a backend is found: by the array's own type, without importing what the user has not imported."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from splitops import backends, onnx
from splitops.backends import BACKENDS, Capabilities, format_capability_table, get_backend
from splitops.backends.numpy import BACKEND as NUMPY
from splitops.errors import ArrayError, RuleError

FRAMEWORKS = ("torch", "jax", "cupy", "dask", "xarray", "sparse", "triton")


def modules_after(code: str) -> set[str]:
    text = f"import sys\n{code}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_no_framework_is_imported_for_an_array_of_another() -> None:
    call = "import numpy as np, splitops; splitops.onnx.split(np.arange(6), [2, 4], copy=True)"
    assert not modules_after(call) & set(FRAMEWORKS)
    rejected = "try:\n    splitops.onnx.split(object(), [1])\nexcept ValueError: pass"
    assert not modules_after(f"{call}\n{rejected}") & set(FRAMEWORKS)
    # The check above can fail:
    assert "json" in modules_after(f"{call}\nimport json")


def test_one_framework_imports_no_other() -> None:
    pytest.importorskip("torch")
    code = "import torch, splitops; splitops.onnx.split(torch.arange(6), [2, 4])"
    loaded = modules_after(code) & set(FRAMEWORKS)
    assert loaded <= {"torch", "triton"}


class Foreign:
    """An array type that no backend knows."""

    def __init__(self, array: Any) -> None:
        self.array, self.dtype = array, array.dtype

    def __getitem__(self, key: Any) -> Foreign:
        return Foreign(self.array[key])


class ForeignBackend:
    name = "foreign"
    capabilities = Capabilities(views=True, copies=True, out=False)
    symbols: tuple[type, ...] = ()

    def get_shape(self, array: Any) -> Any:
        return array.array.shape

    def get_element_type(self, array: Any) -> Any:
        return NUMPY.get_element_type(array.array)

    def get_dtype_name(self, array: Any) -> str:
        return str(array.dtype)

    def to_numpy(self, array: Any) -> Any:
        return array.array

    def make_views(self, plan: Any, array: Any) -> Any:
        return tuple(map(Foreign, NUMPY.make_views(plan, array.array)))

    def make_copies(self, plan: Any, array: Any) -> Any:
        return tuple(map(Foreign, NUMPY.make_copies(plan, array.array)))

    def fill(self, plan: Any, array: Any, out: Any) -> None:
        raise ArrayError("never")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_CACHE", {})
    monkeypatch.setattr(backends, "_REGISTERED", {})


def test_an_unknown_type_is_rejected_by_name() -> None:
    with pytest.raises(ArrayError, match=r"Foreign: arrays of numpy, torch, jax"):
        onnx.split(Foreign(np.arange(6)), [2, 4])


def test_a_backend_can_be_registered() -> None:
    backends.register(Foreign, ForeignBackend())
    parts = onnx.split(Foreign(np.arange(6)), [2, 4])
    assert [type(part) for part in parts] == [Foreign, Foreign]
    assert parts[1].array.tolist() == [2, 3, 4, 5]


def test_sizes_of_a_type_of_its_own_reach_numpy() -> None:
    class Size(int):
        pass

    class Sized(ForeignBackend):
        symbols = (Size,)

        def get_shape(self, array: Any) -> Any:
            return tuple(map(Size, array.array.shape))

    backends.register(Foreign, Sized())
    for copy in (False, True):
        parts = onnx.split(Foreign(np.arange(6)), num_outputs=4, copy=copy)
        assert [part.array.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5], []]


def test_an_entry_point_is_loaded_for_its_own_package_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    class Point:
        def __init__(self, name: str) -> None:
            self.name = name

        def load(self) -> Any:
            loaded.append(self.name)
            return ForeignBackend()

    names = ("elsewhere", __name__.partition(".")[0])
    monkeypatch.setattr(backends, "_find_entry_points", lambda: tuple(map(Point, names)))
    assert get_backend(Foreign(np.arange(3))).name == "foreign"
    assert loaded == [names[1]]


def test_entry_points_are_read_from_the_environment(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "foreign-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[splitops.backends]\nforeignlib = foreign_backend:BACKEND\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    backends._find_entry_points.cache_clear()
    try:
        assert "foreignlib" in {point.name for point in backends._find_entry_points()}
    finally:
        backends._find_entry_points.cache_clear()


def test_the_table_of_capabilities() -> None:
    rows = format_capability_table({entry.name: entry.capabilities for entry in BACKENDS})
    assert rows[0][:4] == ("backend", "views", "copies", "out")
    assert [row[0] for row in rows[1:]] == [entry.name for entry in BACKENDS]
    assert len({len(row) for row in rows}) == 1


class Elsewhere:
    """A producer of DLPack whose array is nothing for NumPy."""

    def __init__(self, device: int) -> None:
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("it is in use")


def test_what_dlpack_does_not_give_is_rejected() -> None:
    with pytest.raises(ArrayError, match="data is a Elsewhere on a device of DLPack type 2"):
        onnx.split(Elsewhere(2), [2, 4])
    with pytest.raises(ArrayError, match="NumPy cannot import the Elsewhere by DLPack: it is in use"):
        onnx.split(Elsewhere(1), [2, 4])


def test_lengths_of_the_standard() -> None:
    strict = pytest.importorskip("array_api_strict")
    data = strict.asarray(np.arange(6))
    with pytest.raises(RuleError, match=r"lengths\.dtype"):
        onnx.split(data, strict.asarray([True, True]))


def test_lengths_that_have_no_values_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = pytest.importorskip("array_api_strict")
    monkeypatch.setattr(type(strict.asarray(1)), "__int__", lambda _: 1 // 0)
    with pytest.raises(ArrayError, match="cannot read the values of axis or lengths: "):
        onnx.split(strict.asarray(np.arange(6)), strict.asarray([2, 4]))


class Narrow:
    """An array of the standard with a type that the standard does not have."""

    dtype = "narrow.bfloat16"

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.ndim = array, array.shape, array.ndim

    def __array_namespace__(self, **_: object) -> SimpleNamespace:
        return SimpleNamespace()

    def __getitem__(self, key: Any) -> Narrow:
        return Narrow(self.array[key])


def test_a_type_beyond_the_standard_goes_by_its_name() -> None:
    data = Narrow(np.arange(6))
    assert [part.array.tolist() for part in onnx.split(data, [2, 4])] == [[0, 1], [2, 3, 4, 5]]
    with pytest.raises(RuleError, match=r"type\.unsupported.* bfloat16"):
        onnx.split(data, [2, 4], opset=11)
