"""The CuPy backend unchanged, on a CuPy whose memory and kernels are NumPy's: no machine here has a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from backend_libraries import CuPy

import splitops
from splitops import backends, onnx
from splitops.testing import BackendSuite, Library


def make_cupy() -> ModuleType:
    """Return what the backend uses of CuPy; ``entered`` counts how often the device was made current."""
    module: Any = ModuleType("cupy")
    module.entered = 0

    class Device:
        id = 0

        def __enter__(self) -> None:
            module.entered += 1

        def __exit__(self, *error: object) -> None: ...

    device = Device()

    class ndarray(np.ndarray[Any, Any]):
        @property
        def data(self) -> Any:
            return SimpleNamespace(ptr=self.ctypes.data)

        @property
        def device(self) -> Any:
            return device

    module.ndarray = ndarray
    module.asarray = lambda array: np.asarray(array).view(ndarray)
    module.asnumpy = lambda array: np.array(array)
    module.shares_memory = np.shares_memory
    module.cuda = SimpleNamespace(
        runtime=SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=RuntimeError)
    )
    return module


class TestCuPyOnTheCpu(BackendSuite):
    @pytest.fixture
    def library(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
        monkeypatch.setitem(sys.modules, "cupy", make_cupy())
        monkeypatch.delitem(sys.modules, "splitops.backends.cupy", raising=False)
        # NumPy's backend would be asked first, and this CuPy's array is a subclass of NumPy's.
        rows = sorted(backends.BACKENDS, key=lambda entry: entry.name != "cupy")
        monkeypatch.setattr(backends, "BACKENDS", tuple(rows))
        monkeypatch.setattr(backends, "_CACHE", {})
        yield CuPy()
        sys.modules.pop("splitops.backends.cupy", None)

    def test_copies_and_fills_run_on_the_device_of_the_data(self, library: Library) -> None:
        cupy: Any = sys.modules["cupy"]
        data = library.make(np.arange(12.0).reshape(3, 4))
        onnx.split(data, [1, 3], axis=1)
        assert cupy.entered == 0
        parts = onnx.split(data, [1, 3], axis=1, copy=True)
        assert cupy.entered == 1
        onnx.split(data, [1, 3], axis=1, out=parts)
        assert cupy.entered == 2

    def test_buffers_that_overlap_are_rejected_before_anything_is_written(self, library: Library) -> None:
        data, wide = library.make(np.ones((3, 4))), library.make(np.zeros((3, 6)))
        with pytest.raises(splitops.ArrayError, match=r"out\[0\] overlaps out\[1\]"):
            onnx.split(data, [2, 2], axis=1, out=[wide[:, :2], wide[:, 1:3]])
        assert not wide.any()
        onnx.split(data, [2, 2], axis=1, out=[wide[:, :2], wide[:, 3:5]])
        assert wide[0].tolist() == [1, 1, 0, 1, 1, 0]
