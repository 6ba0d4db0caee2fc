"""The libraries that splitops has backends for, as the suite sees them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from splitops.spec import ELEMENT_TYPES
from splitops.testing import Library

Array = np.ndarray[Any, Any]

STANDARD = (
    *("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
)
COMPLEX = ("complex64", "complex128")
NUMPY_TYPES = tuple(name for name, row in ELEMENT_TYPES.items() if not row.storage)
FLOAT8 = tuple(name for name in ELEMENT_TYPES if name.startswith("float8"))


class NumPy(Library):
    name = "numpy"
    element_types = (*STANDARD, *(set(NUMPY_TYPES) - set(STANDARD)))

    def make(self, array: Array) -> Any:
        return array.copy()

    def read(self, array: Any) -> Array:
        return np.asarray(array)

    def make_layouts(self, array: Array) -> Sequence[Any]:
        return (
            np.asfortranarray(array),
            array[::-1, ::-1].copy()[::-1, ::-1],
            np.repeat(array, 2, 1)[:, ::2],
        )

    def may_share_memory(self, one: Any, other: Any) -> bool:
        return np.shares_memory(one, other)

    def is_contiguous(self, array: Any) -> bool:
        return bool(array.flags.c_contiguous)

    def make_read_only(self, array: Array) -> Any:
        data = array.copy()
        data.flags.writeable = False
        return data

    def is_writeable(self, array: Any) -> bool:
        return bool(array.flags.writeable)


class OnlyDLPack:
    """A producer that has nothing but DLPack."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class DLPack(NumPy):
    name = "DLPack"
    element_types = (*STANDARD, "float16", *COMPLEX)

    def make(self, array: Array) -> Any:
        return OnlyDLPack(array.copy())

    def read(self, array: Any) -> Array:
        return np.asarray(array.array if isinstance(array, OnlyDLPack) else array)

    def get_part_type(self, data: Any) -> type:
        return np.ndarray

    def make_layouts(self, array: Array) -> Sequence[Any]:
        return [OnlyDLPack(layout) for layout in super().make_layouts(array)]

    def may_share_memory(self, one: Any, other: Any) -> bool:
        return np.shares_memory(self.read(one), self.read(other))

    def make_buffer(self, array: Array) -> Any:
        return array.copy()

    def make_read_only(self, array: Array) -> Any:
        data = array.copy()
        data.flags.writeable = False
        return OnlyDLPack(data)


class Torch(Library):
    name = "torch"
    element_types = (*STANDARD, "float16", "bfloat16", *FLOAT8, *COMPLEX)

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")

    def make(self, array: Array) -> Any:
        dtype = getattr(self.torch, array.dtype.name)
        if array.dtype.isbuiltin != 1:  # ml_dtypes: NumPy hands it over as integers of the same width
            return self.torch.from_numpy(array.view(f"i{array.itemsize}").copy()).view(dtype)
        return self.torch.from_numpy(array.copy())

    def read(self, array: Any) -> Array:
        name = str(array.dtype).removeprefix("torch.")
        dtype = ELEMENT_TYPES[name].numpy
        if dtype.isbuiltin != 1:
            codes = {1: self.torch.uint8, 2: self.torch.int16}[array.itemsize]
            return array.detach().contiguous().view(codes).numpy().view(dtype)
        return array.detach().numpy()

    def make_layouts(self, array: Array) -> Sequence[Any]:
        tensor = self.make(array)
        wide = self.torch.zeros(array.shape[0], array.shape[1] * 2, dtype=tensor.dtype)
        wide[:, ::2] = tensor
        return tensor.t().contiguous().t(), wide[:, ::2], tensor[None].expand(3, -1, -1)[1]

    def may_share_memory(self, one: Any, other: Any) -> bool:
        return np.shares_memory(self.read(one), self.read(other))

    def is_contiguous(self, array: Any) -> bool:
        return bool(array.is_contiguous())

    def compute_gradient(self, function: Callable[[Any], Any], data: Any) -> Array:
        (gradient,) = self.torch.autograd.grad(function(data.requires_grad_()), data)
        return gradient.numpy()

    def get_compilers(self) -> Mapping[str, Callable[[Any, Any], Sequence[Any]]]:
        torch = self.torch

        class Module(torch.nn.Module):
            def __init__(self, function: Any) -> None:
                super().__init__()
                self.function = function

            def forward(self, data: Any) -> Any:
                return list(self.function(data))

        def compiled(function: Any, data: Any) -> Any:
            torch._dynamo.reset()
            return torch.compile(lambda x: function(x), fullgraph=True, backend="aot_eager")(data)

        def exported(function: Any, data: Any) -> Any:
            return torch.export.export(Module(function), (data,)).module()(data)

        def mapped(function: Any, data: Any) -> Any:
            return [part[1] for part in torch.vmap(lambda x: function(x))(torch.stack([data, data]))]

        def differentiated(function: Any, data: Any) -> Any:
            return torch.func.jvp(lambda x: function(x), (data,), (data,))[1]

        def to_onnx(function: Any, data: Any) -> Any:
            pytest.importorskip("onnxscript")
            session = pytest.importorskip("onnxruntime")
            file = io.BytesIO()
            program = torch.onnx.export(Module(function), (data,), dynamo=True, verbose=False)
            program.save(file)
            run = session.InferenceSession(file.getvalue())
            operators = [node.op_type for node in program.model_proto.graph.node]
            assert operators == ["Split"]
            return [self.make(part) for part in run.run(None, {run.get_inputs()[0].name: data.numpy()})]

        return {
            "torch.compile": compiled,
            "torch.export": exported,
            "torch.vmap": mapped,
            "torch.func": differentiated,
            "torch.onnx.export": to_onnx,
        }


class Jax(Library):
    name = "jax"
    element_types = ("float32", "int8", "int32", "uint8", "bool", "float16", "bfloat16", *FLOAT8, "complex64")

    def __init__(self) -> None:
        self.jax = pytest.importorskip("jax")

    def make(self, array: Array) -> Any:
        return self.jax.numpy.asarray(array.copy())

    def read(self, array: Any) -> Array:
        return np.asarray(array)

    def compute_gradient(self, function: Callable[[Any], Any], data: Any) -> Array:
        return np.asarray(self.jax.grad(function)(data))

    def get_compilers(self) -> Mapping[str, Callable[[Any, Any], Sequence[Any]]]:
        jax = self.jax

        def exported(function: Any, data: Any) -> Any:
            rows = jax.export.symbolic_shape(f"rows, {data.shape[1]}")
            shape = jax.ShapeDtypeStruct(rows, data.dtype)
            return jax.export.export(jax.jit(lambda x: function(x)))(shape).call(data)

        return {
            "jax.jit": lambda function, data: jax.jit(lambda x: function(x))(data),
            "jax.grad": lambda function, data: jax.jvp(lambda x: function(x), (data,), (data,))[1],
            "jax.vmap": lambda function, data: [
                part[1] for part in jax.vmap(lambda x: function(x))(jax.numpy.stack([data, data]))
            ],
            "jax.export": exported,
        }


class Dask(Library):
    name = "dask"
    element_types = (*STANDARD, "float16", "bfloat16", *COMPLEX, "string")

    def __init__(self) -> None:
        self.dask = pytest.importorskip("dask")
        self.array = pytest.importorskip("dask.array")

    def make(self, array: Array) -> Any:
        return self.array.from_array(
            array.copy(), chunks=tuple(max(1, (size + 1) // 2) for size in array.shape)
        )

    def read(self, array: Any) -> Array:
        return np.asarray(array.compute(scheduler="synchronous"))

    def make_layouts(self, array: Array) -> Sequence[Any]:
        return self.array.from_array(array, chunks=(1, 4)), self.array.from_array(array.T.copy()).T

    def is_contiguous(self, array: Any) -> bool:
        blocks = self.dask.compute(*array.to_delayed().ravel(), scheduler="synchronous")
        return all(block.flags.c_contiguous for block in blocks)

    def forbid_computing(self) -> AbstractContextManager[Any]:
        def reject(*arguments: Any, **keywords: Any) -> Any:
            raise AssertionError("a lazy array was computed")

        return self.dask.config.set(scheduler=reject)

    def get_compilers(self) -> Mapping[str, Callable[[Any, Any], Sequence[Any]]]:
        distributed = pytest.importorskip("distributed")

        def scheduled(function: Any, data: Any) -> Any:
            options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
            with distributed.Client(**options) as client:
                parts = client.compute(list(function(data)), sync=True)
            return [self.array.from_array(part) for part in parts]

        return {"dask schedulers": scheduled}


class ArrayApi(Library):
    name = "array API"
    element_types = (*STANDARD, *COMPLEX)

    def __init__(self) -> None:
        self.namespace = pytest.importorskip("array_api_strict")

    def make(self, array: Array) -> Any:
        return self.namespace.asarray(array.copy())

    def read(self, array: Any) -> Array:
        return np.asarray(array._array)

    def make_layouts(self, array: Array) -> Sequence[Any]:
        return (self.namespace.asarray(array.T.copy()).T,)

    def may_share_memory(self, one: Any, other: Any) -> bool:
        return np.shares_memory(one._array, other._array)


class Xarray(Library):
    name = "xarray"
    element_types = (*STANDARD, "float16", *COMPLEX, "string")

    def __init__(self) -> None:
        self.xarray = pytest.importorskip("xarray")

    def make(self, array: Array) -> Any:
        return self.xarray.Variable([f"axis{i}" for i in range(array.ndim)], array.copy(), {"unit": "m"})

    def read(self, array: Any) -> Array:
        assert array.attrs == {"unit": "m"}
        return np.asarray(array.data)

    def may_share_memory(self, one: Any, other: Any) -> bool:
        return np.shares_memory(one.data, other.data)

    def is_contiguous(self, array: Any) -> bool:
        return bool(array.data.flags.c_contiguous)


class XarrayWithCoordinates(Xarray):
    name = "xarray.DataArray"

    def make(self, array: Array) -> Any:
        return self.xarray.DataArray(super().make(array))


class Sparse(Library):
    name = "sparse"
    element_types = ("float32", "float64", "int32", "int64")
    form = "COO"

    def __init__(self) -> None:
        self.sparse = pytest.importorskip("sparse")

    def make(self, array: Array) -> Any:
        return getattr(self.sparse, self.form).from_numpy(array)

    def read(self, array: Any) -> Array:
        return np.asarray(array.todense())


class CuPy(Library):
    """Runs only where a GPU does."""

    name = "cupy"
    element_types = (*STANDARD, "float16", *COMPLEX)

    def __init__(self) -> None:
        self.cupy = pytest.importorskip("cupy")
        try:
            self.cupy.cuda.runtime.getDeviceCount()
        except self.cupy.cuda.runtime.CUDARuntimeError:
            pytest.skip("cupy finds no GPU")

    def make(self, array: Array) -> Any:
        return self.cupy.asarray(array.copy())

    def read(self, array: Any) -> Array:
        return self.cupy.asnumpy(array)

    def make_layouts(self, array: Array) -> Sequence[Any]:
        return self.cupy.asarray(array.T.copy()).T, self.cupy.asarray(np.repeat(array, 2, 1))[:, ::2]

    def may_share_memory(self, one: Any, other: Any) -> bool:
        return bool(self.cupy.shares_memory(one, other))

    def is_contiguous(self, array: Any) -> bool:
        return bool(array.flags.c_contiguous)


LIBRARIES: Mapping[str, Callable[[], Library]] = {
    "numpy": NumPy,
    "torch": Torch,
    "jax": Jax,
    "cupy": CuPy,
    "dask": Dask,
    "xarray": Xarray,
    "xarray.DataArray": XarrayWithCoordinates,
    "sparse": Sparse,
    "array API": ArrayApi,
    "DLPack": DLPack,
}
