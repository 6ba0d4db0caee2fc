"""What only JAX and Dask have: traced values, symbolic shapes, chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from splitops import onnx, openvino
from splitops.errors import ArrayError, RuleError


class TestJax:
    @pytest.fixture
    def jax(self) -> Any:
        return pytest.importorskip("jax")

    def test_a_split_is_one_primitive(self, jax: Any) -> None:
        data = jax.numpy.zeros((4, 6))
        jaxpr = jax.make_jaxpr(lambda x: onnx.split(x, [2, 4], axis=1))(data)
        assert [equation.primitive.name for equation in jaxpr.eqns] == ["split"]

    def test_traced_lengths_and_axes_are_rejected_in_words(self, jax: Any) -> None:
        data, lengths = jax.numpy.zeros((4, 6)), jax.numpy.array([2, 4])
        for function in (
            lambda x, n: onnx.split(x, n, axis=1),
            lambda x, n: onnx.split(x, [n[0], n[1]], axis=1),
            lambda x, n: openvino.split(x, n[0], 2),
        ):
            with pytest.raises(ArrayError, match="static_argnames"):
                jax.jit(function)(data, lengths)

    def test_static_lengths_are_taken(self, jax: Any) -> None:
        split = jax.jit(lambda x, n: onnx.split(x, n, axis=1), static_argnums=1)
        assert [part.shape for part in split(jax.numpy.zeros((4, 6)), (2, 4))] == [(4, 2), (4, 4)]

    @pytest.mark.parametrize(
        ("shape", "function", "expected"),
        [
            ("b, 12", lambda x: onnx.split(x, [2, 10], axis=1), ["b, 2", "b, 10"]),
            ("b, 3*n", lambda x: openvino.split(x, 1, 3), ["b, n"] * 3),
            ("b, n + 5", lambda x: openvino.variadic_split(x, 1, [2, -1, 3]), ["b, 2", "b, n", "b, 3"]),
            (
                "b, n",
                lambda x: onnx.split(x, [x.shape[1] // 2, x.shape[1] - x.shape[1] // 2], axis=1),
                ["b, floordiv(n, 2)", "b, n - floordiv(n, 2)"],
            ),
        ],
    )
    def test_shapes_stay_symbolic(self, jax: Any, shape: str, function: Any, expected: list[str]) -> None:
        from jax import export

        symbols = export.symbolic_shape(shape)
        scope = symbols[0].scope
        exported = export.export(jax.jit(function))(jax.ShapeDtypeStruct(symbols, np.float32))
        right = [export.symbolic_shape(text, scope=scope) for text in expected]
        assert [part.shape for part in exported.out_avals] == right
        data = np.arange(72, dtype=np.float32).reshape(6, 12)
        for part, whole in zip(exported.call(data), function(data), strict=True):
            np.testing.assert_array_equal(part, whole)

    def test_a_symbolic_shape_that_may_not_fit_is_rejected(self, jax: Any) -> None:
        from jax import export

        shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, n"), np.float32)
        with pytest.raises(ArrayError, match="symbolic shape"):
            export.export(jax.jit(lambda x: onnx.split(x, [2, 10], axis=1)))(shape)

    @pytest.mark.parametrize(
        ("function", "decided", "constraints"),
        [
            (lambda x: onnx.split(x, num_outputs=3), "3*n, 4", ()),
            (lambda x: openvino.variadic_split(x, 0, [2, -1]), "n, 4", ("n >= 2",)),
            (lambda x: onnx.split_to_sequence(x, 2), "6, 4", ()),
        ],
        ids=["num_outputs", "remainder", "chunk"],
    )
    def test_sizes_that_jax_cannot_decide_are_rejected_in_words(
        self, jax: Any, function: Any, decided: str, constraints: Any
    ) -> None:
        from jax import export

        def exported(dimensions: str, constraints: Any) -> Any:
            shape = export.symbolic_shape(dimensions, constraints=constraints)
            return export.export(jax.jit(lambda x: function(x)))(jax.ShapeDtypeStruct(shape, np.float32))

        with pytest.raises(ArrayError, match=r"jax cannot infer .* shape \(n, 4\): add constraints"):
            exported("n, 4", ())
        data = np.arange(24, dtype=np.float32).reshape(6, 4)
        for part, right in zip(exported(decided, constraints).call(data), function(data), strict=True):
            np.testing.assert_array_equal(part, right)


class TestDask:
    @pytest.fixture
    def array(self) -> Any:
        return pytest.importorskip("dask.array")

    def test_whole_chunks_are_kept(self, array: Any) -> None:
        data = array.zeros((12, 4), chunks=(3, 4))
        first, second = onnx.split(data, [6, 6])
        assert (first.chunks, second.chunks) == (((3, 3), (4,)), ((3, 3), (4,)))
        assert [part.chunks[0] for part in onnx.split(data, [4, 8])] == [(3, 1), (2, 3, 3)]
        # A chunk that is kept whole is named again, not copied by a task.
        graph = dict(first.__dask_graph__())
        for key in first.__dask_keys__():
            assert type(graph[key[0]]).__name__ == "Alias"

    def test_unknown_chunks(self, array: Any) -> None:
        values = np.arange(12.0).reshape(6, 2)
        data = array.from_array(values, chunks=(2, 2))
        unknown = data[data[:, 0] > 3]
        left, right = onnx.split(unknown, [1, 1], axis=1)
        np.testing.assert_array_equal(left.compute(scheduler="synchronous"), values[2:, :1])
        np.testing.assert_array_equal(right.compute(scheduler="synchronous"), values[2:, 1:])
        for call in (
            lambda: onnx.split(unknown, [2, 2]),
            lambda: onnx.split_to_sequence(unknown, 2),
            lambda: openvino.variadic_split(unknown, 0, [2, -1]),
        ):
            with pytest.raises(ArrayError, match="axis 0 of data is unknown until it is computed"):
                call()

    def test_copies_outlive_the_data(self, array: Any) -> None:
        values = np.arange(12.0).reshape(6, 2)
        parts = onnx.split(array.from_array(values, chunks=3), [2, 4], copy=True)
        computed = [part.compute(scheduler="synchronous") for part in parts]
        assert not any(np.shares_memory(part, values) for part in computed)

    def test_an_xarray_of_chunks_stays_lazy(self, array: Any) -> None:
        xarray = pytest.importorskip("xarray")
        data = xarray.Variable(("x", "y"), array.zeros((6, 4), chunks=2))
        for copy in (None, True):
            for part in onnx.split(data, [2, 4], copy=copy):
                assert isinstance(part.data, array.Array)


def test_sparse_formats_stay_sparse() -> None:
    sparse = pytest.importorskip("sparse")
    values = np.arange(24.0).reshape(4, 6) % 5
    for form in (sparse.COO, sparse.DOK):
        data = form.from_numpy(values)
        for copy in (None, True):
            parts = onnx.split(data, [2, 4], axis=1, copy=copy)
            assert {type(part) for part in parts} == {form}
            np.testing.assert_array_equal(np.concatenate([part.todense() for part in parts], 1), values)


def test_types_that_no_operator_takes_are_named() -> None:
    dates = np.arange(6).astype("M8[s]")
    dask, xarray = pytest.importorskip("dask.array"), pytest.importorskip("xarray")
    sparse, jax = pytest.importorskip("sparse"), pytest.importorskip("jax")
    for data, name in (
        (dask.from_array(dates), "datetime64"),
        (xarray.Variable(("x",), dates.astype("m8[s]")), "timedelta64"),
        (sparse.COO.from_numpy(dates.astype("m8[s]")), "timedelta64"),
        (jax.random.split(jax.random.key(0), 6), "key<"),
    ):
        with pytest.raises(RuleError, match=rf"type\.unsupported.*{name}"):
            onnx.split(data, [2, 4])
