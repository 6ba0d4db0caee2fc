"""What only PyTorch has: tracing with symbolic sizes, export, transforms, subclasses, sharding, layouts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import splitops
from splitops import backends, onnx, openvino
from splitops.calls import plan_cache
from splitops.errors import ArrayError, TypeUnsupportedError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

if torch is not None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    from splitops.backends.torch import copying

Function = Callable[[Any], Any]

# Each is a split of the last axis, of any size that its rule allows.
SYMBOLIC: dict[str, Function] = {
    "explicit": lambda x: onnx.split(x, [2, 10], axis=1),
    "even": lambda x: onnx.split(x, num_outputs=3, axis=1, opset=13),
    "ceil": lambda x: onnx.split(x, num_outputs=5, axis=1),
    "chunk": lambda x: onnx.split_to_sequence(x, 5, axis=1),
    "single": lambda x: onnx.split_to_sequence(x, keepdims=0),
    "openvino": lambda x: openvino.split(x, 1, 3),
    "remainder": lambda x: openvino.variadic_split(x, 1, [3, -1, 2]),
    "symbolic lengths": lambda x: onnx.split(x, [x.shape[1] // 2, x.shape[1] - x.shape[1] // 2], axis=1),
    "symbolic remainder": lambda x: openvino.variadic_split(x, 1, [x.shape[1] // 2, -1]),
    "symbolic attribute": lambda x: onnx.split(x, [x.shape[1] // 2, x.shape[1] // 2], axis=1, opset=11),
    "copies": lambda x: onnx.split(x, num_outputs=5, axis=1, copy=True),
}


@pytest.fixture(params=[copying._SMALL, 0], ids=["aten", "core"])
def threshold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small copies go to aten; without a threshold all go to the native core."""
    monkeypatch.setattr(copying, "_SMALL", request.param)
    monkeypatch.setattr(plan_cache, "_PLANS", plan_cache.PlanCache())


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_split_compiles_whole(name: str, dynamic: bool) -> None:
    function = SYMBOLIC[name]
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: function(x), fullgraph=True, backend="aot_eager", dynamic=dynamic)
    data = torch.randn(6, 12)
    torch.testing.assert_close(compiled(data), function(data))


def test_one_graph_serves_every_size() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: openvino.split(x, 1, 3), fullgraph=True, backend=counter, dynamic=True)
    for size in (12, 15, 30):
        data = torch.randn(6, size)
        torch.testing.assert_close(compiled(data), openvino.split(data, 1, 3))
    assert counter.frame_count == 1


def test_a_broken_rule_is_named_while_compiling() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: onnx.split(x, [2, 3], axis=1), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"Split-18 \[lengths\.sum\]: split = \[2, 3\] sums to 5"):
        compiled(torch.randn(6, 12))
    compiled = torch.compile(lambda x, n: onnx.split(x, n, axis=1), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="traced tensor"):
        compiled(torch.randn(6, 12), torch.tensor([2, 10]))


LENGTHS = {"NumPy": np.array([2, 10]), "torch": torch.tensor([2, 10])}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_an_array_of_lengths_breaks_the_graph(lengths: Any) -> None:
    """Its numbers are known between two graphs; a whole graph cannot know them, and says so."""
    torch._dynamo.reset()
    data = torch.randn(6, 12)
    for copy in (None, True):
        function = torch.compile(
            lambda x, n, copy=copy: onnx.split(x * 2, n, axis=1, copy=copy), backend="aot_eager"
        )
        torch.testing.assert_close(function(data, lengths), (2 * data).split([2, 10], 1))
    whole = torch.compile(lambda x, n: onnx.split(x, n, axis=1), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="traced tensor or NumPy array, so their values are unknown"):
        whole(data, lengths)


@pytest.mark.parametrize("mode", ["views", "copies", "out"])
def test_a_plan_compiles_whole(mode: str) -> None:
    plan = splitops.plan("Split", shape=(6, 12), axis=1, split=[2, 10])

    def function(x: Any) -> Any:
        if mode == "out":
            return plan(x, out=[x.new_zeros(6, 2), x.new_zeros(6, 10)])
        return plan(x, copy=mode == "copies")

    torch._dynamo.reset()
    data = torch.randn(6, 12)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(list(compiled(data)), list(data.split([2, 10], 1)))


@pytest.mark.parametrize("mode", ["views", "copies", "out"])
def test_a_plan_is_made_inside_a_whole_graph(mode: str) -> None:
    def function(x: Any) -> Any:
        plan = splitops.plan("VariadicSplit", shape=(6, 12), axis=1, split_lengths=[2, -1])
        if mode == "out":
            return plan(x, out=[x.new_zeros(6, size) for size in plan.sizes])
        return plan(x, copy=mode == "copies")

    torch._dynamo.reset()
    data = torch.randn(6, 12)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(list(compiled(data)), list(data.split([2, 10], 1)))
    with pytest.raises(Exception, match="data has shape"):
        compiled(torch.randn(6, 13))


def test_the_first_call_of_a_process_may_be_that_of_a_plan_in_a_whole_graph() -> None:
    script = (
        "import torch, splitops; plan = splitops.plan('Split', shape=(6, 4), split=[2, 4])\n"
        "whole = torch.compile(lambda x: plan(x), fullgraph=True, backend='eager')\n"
        "print([tuple(part.shape) for part in whole(torch.zeros(6, 4))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "[(2, 4), (4, 4)]\n", done.stderr


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_are_rejected_by_name(layout: Any) -> None:
    nested = torch.nested.nested_tensor([torch.randn(2, 6), torch.randn(3, 6)], layout=layout)
    plan = splitops.plan("Split", shape=(2, 6), split=[1, 1])
    for _ in range(2):
        onnx.split(torch.randn(2, 6), [1, 1])
        for call in (onnx.split, lambda x, n, **mode: plan(x, **mode)):
            for mode in ({}, {"copy": True}, {"out": [torch.empty(1, 6)] * 2}):
                with pytest.raises(ArrayError, match="data is a nested tensor"):
                    call(nested, [1, 1], **mode)
        with pytest.raises(ArrayError, match="axis or lengths are a nested tensor"):
            onnx.split(torch.randn(3, 4), nested)
    with pytest.raises(ArrayError, match="sparse_coo"):
        onnx.split(torch.randn(3, 4), torch.tensor([1, 2]).to_sparse())


def test_a_copy_that_fits_no_memory_says_how_large_it_is() -> None:
    with pytest.raises(MemoryError, match=r"\d{14}"):
        onnx.split(torch.zeros(1).expand(2**40, 4), [1, 2**40 - 1], copy=True)


class Module(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, data: Any) -> list[Any]:
        return list(self.function(data))


@pytest.mark.parametrize("name", ["explicit", "even", "ceil", "openvino", "remainder", "copies"])
def test_export_keeps_sizes_symbolic(name: str) -> None:
    axis = 0 if name == "explicit" else 1
    shapes = {"data": {axis: torch.export.Dim.AUTO}}
    # torch takes a size of 0 or 1 for one that stays, so that no part is that small.
    data, larger = (torch.randn(rows, 12) if axis == 0 else torch.randn(6, 3 * rows) for rows in (8, 9))
    program = torch.export.export(Module(SYMBOLIC[name]), (data,), dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(larger), list(SYMBOLIC[name](larger)))
    targets = {str(node.target) for node in program.graph.nodes}
    assert not any(target.startswith("splitops") for target in targets), "a program must run without splitops"


@pytest.mark.parametrize("name", ["explicit", "even", "ceil", "chunk", "single", "remainder", "copies"])
def test_onnx_export_makes_split_nodes(name: str) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    axis = 0 if name in ("explicit", "chunk") else 1
    data = torch.randn(6, 12)
    shapes = {"data": {axis: torch.export.Dim.AUTO}}
    exported = torch.onnx.export(
        Module(SYMBOLIC[name]), (data,), dynamic_shapes=shapes, dynamo=True, verbose=False
    )
    model = exported.model_proto
    assert {"Split", "SplitToSequence"} & {node.op_type for node in model.graph.node}
    assert "Slice" not in {node.op_type for node in model.graph.node}
    session = runtime.InferenceSession(model.SerializeToString())
    for part, right in zip(
        session.run(None, {session.get_inputs()[0].name: data.numpy()}), SYMBOLIC[name](data), strict=True
    ):
        np.testing.assert_array_equal(part, right.numpy())


@pytest.mark.usefixtures("threshold")
class TestDerivatives:
    def test_gradients_of_every_order(self) -> None:
        data = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
        for copy in (None, True):
            assert torch.autograd.gradcheck(lambda x, copy=copy: onnx.split(x, [1, 2], copy=copy), data)
            assert torch.autograd.gradgradcheck(lambda x, copy=copy: onnx.split(x, [1, 2], copy=copy), data)

    def test_an_unused_part_has_gradient_zero(self) -> None:
        data = torch.randn(4, 6, requires_grad=True)
        onnx.split(data, [2, 4], axis=1, copy=True)[1].sum().backward()
        assert torch.equal(data.grad, torch.tensor([0.0, 0, 1, 1, 1, 1]).expand(4, -1))

    def test_transforms_compose(self) -> None:
        def loss(x: Any) -> Any:
            first, second = onnx.split(x, [2, 10], axis=-1, copy=True)
            return (first**2).sum() + (3 * second).sum()

        data = torch.randn(5, 12)
        gradients = torch.vmap(torch.func.grad(loss))(data)
        assert torch.equal(gradients, torch.cat([2 * data[:, :2], torch.full((5, 10), 3.0)], 1))

    def test_the_parts_are_no_views(self) -> None:
        data = torch.randn(4, 6, requires_grad=True)
        for part in onnx.split(data, [2, 4], axis=1, copy=True):
            assert part._base is None
            part.mul_(2)  # a view of a leaf would reject


def test_the_operators_keep_torchs_rules() -> None:
    data = torch.randn(6, 12)
    for tensor in (data, data.clone().requires_grad_()):
        torch.library.opcheck(torch.ops.splitops.split_copy.default, (tensor, [2, 10], 1, False))
    out = [torch.empty(6, 2), torch.empty(6, 10)]
    torch.library.opcheck(torch.ops.splitops.split_into.default, (data, [0, 2], [2, 10], 1, out))


@pytest.mark.usefixtures("threshold")
class TestRememberedCalls:
    """From the second call alike on, nothing is bound; each test makes three."""

    @pytest.fixture(params=[None, True], ids=["views", "copies"])
    def copy(self, request: pytest.FixtureRequest) -> bool | None:
        copy: bool | None = request.param
        return copy

    def test_they_give_what_the_first_one_gave(self, copy: bool | None) -> None:
        calls: dict[str, Function] = {
            "whole": lambda x: onnx.split(x, [2, 4], axis=1, copy=copy),
            "lengths as a tuple": lambda x: onnx.split(x, (2, 4), axis=1, copy=copy),
            "less than the axis": lambda x: openvino.variadic_split(x, 1, [2, 4, 0], copy=copy),
            "no part": lambda x: onnx.split_to_sequence(x[:, :0], [], axis=1, copy=copy),
            "single": lambda x: onnx.split_to_sequence(x, axis=1, keepdims=0, copy=copy),
            "ceil": lambda x: onnx.split(x, num_outputs=4, axis=-1, copy=copy),
        }
        for dtype in (torch.float32, torch.bfloat16, torch.bool):
            for strided in (False, True):
                data = torch.randn(4, 12).to(dtype)[:, ::2]
                data = data if strided else data.contiguous()
                for call in calls.values():
                    first, *others = (call(data) for _ in range(4))
                    for other in others:
                        assert type(other) is type(first)
                        for one, two in zip(first, other, strict=True):
                            assert torch.equal(one, two)
                            assert one.stride() == two.stride()
                            assert (one.data_ptr() == two.data_ptr()) == (copy is None or one.numel() == 0)
                            assert one.untyped_storage().nbytes() == two.untyped_storage().nbytes()

    def test_they_end_where_another_backend_is_registered(
        self, copy: bool | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Other(type(backends.get_backend(torch.ones(1)))):  # type: ignore[misc]
            def make_views(self, plan: Any, array: Any) -> tuple[Any, ...]:
                return ("other",)

            make_copies = make_views

        data = torch.randn(5, 4)
        monkeypatch.setattr(backends, "_REGISTERED", {})
        for _ in range(3):
            assert len(onnx.split(data, [2, 3], copy=copy)) == 2
        backends.register(torch.Tensor, Other())
        try:
            assert onnx.split(data, [2, 3], copy=copy) == ("other",)
        finally:
            backends._REGISTERED.clear()
            backends._CACHE.clear()

    def test_what_equals_is_not_the_same(self, copy: bool | None) -> None:
        data = torch.randn(3, 4)
        for _ in range(3):
            onnx.split(data, [1, 2], copy=copy)
            onnx.split(data, num_outputs=1, copy=copy)
        for lengths in ([True, 2], [1.0, 2.0], [np.float64(1), 2], b"\x01\x02"):
            with pytest.raises(Exception, match=r"lengths\."):
                onnx.split(data, lengths, copy=copy)
        with pytest.raises(Exception, match=r"parts\.count"):
            onnx.split(data, num_outputs=True, copy=copy)
        with pytest.raises(ArrayError, match="sparse_coo"):
            onnx.split(data.to_sparse(), [1, 2], copy=copy)
        assert [len(part) for part in onnx.split(data, np.array([1, 2]), copy=copy)] == [1, 2]
        assert [len(part) for part in onnx.split(data, torch.tensor([2, 1]), copy=copy)] == [2, 1]
        with pytest.raises(Exception, match=r"lengths\.sum"):
            onnx.split(data[:2], [1, 2], copy=copy)
        with pytest.raises(TypeUnsupportedError):
            onnx.split(data.to(torch.float8_e5m2), [1, 2], copy=copy)

    def test_derivatives_flow_through_them(self, copy: bool | None) -> None:
        data = torch.randn(6, dtype=torch.float64)
        for _ in range(3):
            leaf = torch.nn.Parameter(data)
            for tensor in (data, leaf, data.clone().requires_grad_()):
                first, second = onnx.split(tensor, [2, 4], copy=copy)
                assert first.requires_grad == tensor.requires_grad
                if tensor.requires_grad:
                    (2 * first.sum() + second.sum()).backward()
                    assert tensor.grad.tolist() == [2, 2, 1, 1, 1, 1]
            with torch.no_grad():
                assert onnx.split(leaf, [2, 4], copy=copy)[0].grad_fn is None
            with torch.autograd.forward_ad.dual_level():
                dual = torch.autograd.forward_ad.make_dual(data, 3 * data)
                part = onnx.split(dual, [2, 4], copy=copy)[1]
                assert torch.equal(torch.autograd.forward_ad.unpack_dual(part).tangent, 3 * data[2:])

    def test_they_are_seen_by_whatever_watches(self, copy: bool | None) -> None:
        from torch._subclasses import FakeTensorMode
        from torch.utils._python_dispatch import TorchDispatchMode

        class Seen(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, function: Any, *arguments: Any) -> Any:
                names.append(str(function))
                return function(*arguments[1], **(arguments[2] if len(arguments) > 2 else {}))

        data = torch.randn(4, 6)

        def split(x: Any) -> Any:
            return onnx.split(x, [2, 4], axis=-1, copy=copy)

        right = data.split([2, 4], -1)
        for _ in range(3):
            names: list[str] = []
            with Seen():
                split(data)
            assert any("split" in name for name in names)
            assert torch.equal(torch.vmap(split)(data)[1], right[1])
            assert torch.equal(torch.func.jacrev(lambda x: split(x)[0])(data[0]), torch.eye(6)[:2])
            assert torch.equal(torch.func.functionalize(split)(data)[0], right[0])
            traced = torch.jit.trace(lambda x: split(x)[1] + 1, data, check_trace=False)
            torch.testing.assert_close(traced(data + 1), right[1] + 2)
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                assert split(mode.from_tensor(data))[0].shape == (4, 2)
            with torch.inference_mode():
                for tensor in (data, data + 0):
                    assert torch.equal(split(tensor)[1], tensor[:, 2:])
                assert split(data + 0)[0].is_inference()
            torch._dynamo.reset()
            compiled = torch.compile(split, fullgraph=True, backend="aot_eager")
            assert torch.equal(compiled(data)[1], split(data)[1])


@pytest.mark.usefixtures("threshold")
class TestTensors:
    @pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
    def test_lazy_conjugates_are_resolved(self, dtype: Any) -> None:
        data = torch.randn(4, 6, dtype=dtype).conj()
        for copy in (None, True):
            parts = onnx.split(data, [2, 4], axis=1, copy=copy)
            assert torch.equal(torch.cat(parts, 1), data)

    def test_subclasses_stay_subclasses(self) -> None:
        class Tagged(torch.Tensor):  # type: ignore[misc]
            pass

        data = torch.randn(4, 6).as_subclass(Tagged)
        for copy in (None, True):
            assert {type(part) for part in onnx.split(data, [2, 4], axis=1, copy=copy)} == {Tagged}

    def test_meta_tensors_have_meta_parts(self) -> None:
        parts = onnx.split(torch.empty(4, 6, device="meta"), [2, 4], axis=1, copy=True)
        assert [(part.device.type, tuple(part.shape)) for part in parts] == [
            ("meta", (4, 2)),
            ("meta", (4, 4)),
        ]

    def test_large_copies(self) -> None:
        data = torch.randn(1100, 1100, dtype=torch.float32).bfloat16()[:, 1:]
        parts = onnx.split(data, [99, 1000], axis=1, copy=True)
        assert torch.equal(torch.cat(parts, 1), data)
        assert all(part.is_contiguous() for part in parts)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda x: onnx.split(x, [2, 5]), "lengths.sum"),
        (lambda x: onnx.split(x, [x.shape[0] - 9, 9]), "lengths.negative"),
        (lambda x: openvino.variadic_split(x, [x.shape[0] - 5], [2, 7]), "lengths.sum"),
        (lambda x: onnx.split(x, axis=x.shape[0], num_outputs=2), "axis.range"),
    ],
)
def test_a_broken_rule_of_symbolic_sizes_is_named(call: Function, rule: str) -> None:
    with pytest.raises(splitops.RuleError, match=re.escape(rule)):
        make_fx(call, tracing_mode="symbolic")(torch.zeros(6, 8))


def test_an_axis_may_be_symbolic() -> None:
    made = make_fx(lambda x: openvino.split(x, x.shape[0] - 5, 2), tracing_mode="symbolic")(torch.zeros(6, 8))
    assert [tuple(part.shape) for part in made(torch.zeros(6, 8))] == [(6, 4), (6, 4)]


def test_lengths_that_are_traced_are_rejected() -> None:
    with FakeTensorMode(), pytest.raises(ArrayError, match="lengths are a traced tensor"):
        onnx.split(torch.zeros(6), torch.tensor([2, 4]))


def test_lengths_that_are_conjugated_are_no_lengths() -> None:
    with pytest.raises(splitops.RuleError, match=r"lengths\.dtype"):
        onnx.split(torch.zeros(6), torch.tensor([2 + 0j, 4]).conj())


@pytest.mark.parametrize(
    ("buffer", "problem"),
    [
        (torch.zeros(2, device="meta"), r"out\[0\] is on meta, but data is on cpu"),
        (torch.zeros(2).to_sparse(), r"out\[0\] has layout torch\.sparse_coo, but it must be strided"),
    ],
)
def test_buffers_elsewhere_are_rejected(buffer: Any, problem: str) -> None:
    with pytest.raises(ArrayError, match=problem):
        onnx.split(torch.zeros(6), [2, 4], out=[buffer, torch.zeros(4)])


@pytest.mark.parametrize("copy", [None, True])
def test_a_plan_may_leave_the_end_of_the_axis(copy: bool | None) -> None:
    plan = splitops.splitting.planning.Plan((6,), 0, (0, 2), (2, 3))
    assert [part.tolist() for part in plan(torch.arange(6), copy=copy)] == [[0, 1], [2, 3, 4]]


@pytest.mark.usefixtures("threshold")
def test_copies_are_made_for_a_whole_batch() -> None:
    """By the function, and by the operator as a graph has it."""

    def operator(x: Any) -> Any:
        return torch.ops.splitops.split_copy.default(x, [1, x.shape[0] - 1], 0, False)

    data = torch.arange(48.0).reshape(2, 4, 6)
    for call in (operator, lambda x: onnx.split(x, [1, x.shape[0] - 1], copy=True)):
        for dim in (0, 1, -1):
            found = torch.vmap(call, in_dims=dim)(data)
            for index, row in enumerate(data.unbind(dim)):
                for part, want in zip(found, torch.split(row, [1, row.shape[0] - 1]), strict=True):
                    assert torch.equal(part[index], want)


def test_other_layouts_and_packed_types_are_rejected() -> None:
    with pytest.raises(ArrayError, match="sparse_coo"):
        onnx.split(torch.eye(4).to_sparse(), num_outputs=2)
    packed = torch.zeros(4, 6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(TypeUnsupportedError, match="float4_e2m1fn_x2"):
        openvino.split(packed, 0, 2)


class TestOut:
    def test_a_write_is_seen_by_autograd(self) -> None:
        buffers = [torch.empty(4, 2), torch.empty(4, 4)]
        weight = torch.randn(4, 2, requires_grad=True)
        product = (weight * buffers[0]).sum()
        onnx.split(torch.randn(4, 6), [2, 4], axis=1, out=buffers)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()

    def test_derivatives_are_rejected(self) -> None:
        buffers = [torch.empty(4, 2), torch.empty(4, 4)]
        data = torch.randn(4, 6, requires_grad=True)
        with pytest.raises(ArrayError, match="no_grad"):
            onnx.split(data, [2, 4], axis=1, out=buffers)
        with torch.no_grad():
            onnx.split(data, [2, 4], axis=1, out=buffers)
        assert torch.equal(torch.cat(buffers, 1), data)

    def test_strided_buffers_are_filled_and_overlap_is_rejected(self) -> None:
        data = torch.randn(4, 6)
        buffers = [torch.empty(2, 4).t(), torch.empty(4, 8)[:, ::2]]
        onnx.split(data, [2, 4], axis=1, out=buffers)
        assert torch.equal(torch.cat(buffers, 1), data)
        slab = torch.zeros(4, 8)
        onnx.split(data, [2, 4], axis=1, out=[slab[:, :2], slab[:, 2:6]])  # interleaved, not overlapping
        assert torch.equal(slab[:, :6], data)
        for out in ([slab[:, :2], slab[:, 1:5]], [torch.empty(1, 2).expand(4, 2), slab[:, 2:6]]):
            with pytest.raises(ArrayError):
                onnx.split(data, [2, 4], axis=1, out=out)

    def test_a_fill_is_seen_by_whatever_watches(self) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        class Seen(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
            ) -> Any:
                names.append(str(function))
                return function(*arguments, **(keywords or {}))

        class Tagged(torch.Tensor):  # type: ignore[misc]
            pass

        names: list[str] = []
        data = torch.randn(4, 6)
        buffers = [torch.empty(4, 2), torch.empty(4, 4)]
        with Seen():
            onnx.split(data, [2, 4], axis=1, out=buffers)
        assert "splitops.split_into.default" in names
        assert torch.equal(torch.cat(buffers, 1), data)
        onnx.split(2 * data, [2, 4], axis=1, out=[buffer.as_subclass(Tagged) for buffer in buffers])
        assert torch.equal(torch.cat(buffers, 1), 2 * data)
        with torch.inference_mode():
            onnx.split(data, [2, 4], axis=1, out=buffers)
            inferred = onnx.split(data, [2, 4], axis=1, out=[torch.empty(4, 2), torch.empty(4, 4)])
        assert torch.equal(torch.cat(buffers, 1), data)
        assert torch.equal(torch.cat(inferred, 1), data)

    @pytest.mark.parametrize("part", [0, 1])
    def test_lazy_conjugates_are_filled(self, part: int) -> None:
        data = torch.randn(4, 6, dtype=torch.complex64).conj()
        buffers = [torch.empty(4, 2, dtype=torch.complex64), torch.empty(4, 4, dtype=torch.complex64)]
        buffers[part] = buffers[part].conj()
        for tensor in (data, data.resolve_conj()):
            onnx.split(tensor, [2, 4], axis=1, out=buffers)
            assert torch.equal(torch.cat(buffers, 1), data)

    @pytest.mark.parametrize("rows", [4, 40_000])
    def test_tangents_are_not_lost(self, rows: int) -> None:
        """Small or large, of the data or of a buffer: torch's own out= rejects, too."""
        forward_ad = torch.autograd.forward_ad
        data = torch.randn(rows, 6)
        with forward_ad.dual_level(), torch.no_grad():
            buffers = [torch.zeros(rows, 2), torch.zeros(rows, 4)]
            for tensor, first in (
                (forward_ad.make_dual(data, data), buffers[0]),
                (data, forward_ad.make_dual(buffers[0], data[:, :2])),
            ):
                with pytest.raises(ArrayError, match="tangents would be lost"):
                    onnx.split(tensor, [2, 4], axis=1, out=[first, buffers[1]])
            assert not any(buffer.any() for buffer in buffers)
            onnx.split(data, [2, 4], axis=1, out=buffers)
        assert torch.equal(torch.cat(buffers, 1), data)

    def test_buffers_inside_vmap_have_the_batch(self) -> None:
        def function(x: Any, first: Any) -> Any:
            return onnx.split(x, [2, 4], axis=1, out=[first, torch.zeros_like(x[:, 2:])])

        data, buffer = torch.randn(3, 4, 6), torch.zeros(4, 2)
        buffers = torch.zeros(4, 2, 3)
        parts = torch.vmap(function, in_dims=(0, -1))(data, buffers)
        assert torch.equal(torch.cat(parts, 2), data)
        assert torch.equal(buffers.movedim(-1, 0), data[..., :2])
        with pytest.raises(ArrayError, match=r"must be batched under torch\.vmap"):
            torch.vmap(lambda x: function(x, buffer))(data)
        assert not buffer.any()
        slab = torch.zeros(3, 4, 6)
        with pytest.raises(ArrayError, match="overlap"):
            torch.vmap(lambda x, y: onnx.split(x, [2, 4], axis=1, out=[y[:, :2], y[:, 1:5]]))(data, slab)
        same = torch.vmap(lambda x: onnx.split(data[0], [2, 4], axis=1, out=[x[:, :2], x[:, 2:]])[1])(slab)
        assert torch.equal(same, data[0, :, 2:].expand(3, 4, 4))

    def test_out_compiles(self) -> None:
        def function(x: Any) -> Any:
            return onnx.split(x, [2, 4], axis=1, out=[x.new_zeros(4, 2), x.new_zeros(4, 4)])

        torch._dynamo.reset()
        data = torch.randn(4, 6)
        torch.testing.assert_close(
            torch.compile(function, fullgraph=True, backend="aot_eager")(data), function(data)
        )


def test_a_sharded_tensor_splits_where_it_is_local() -> None:
    if not torch.distributed.is_available():
        pytest.skip("torch.distributed is not built")
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (2,))
        data = distribute_tensor(torch.randn(6, 12), mesh, [Shard(0)])
        for copy in (None, True):
            parts = onnx.split(data, [2, 10], axis=1, copy=copy)
            assert [tuple(part.to_local().shape) for part in parts] == [(3, 2), (3, 10)]
        with pytest.raises(ArrayError, match="redistribute"):
            onnx.split(data, [2, 4])
    finally:
        torch.distributed.destroy_process_group()


def test_a_symbolic_trace_holds_the_call_of_each_function() -> None:
    from torch.fx import symbolic_trace

    def function(x: Any) -> Any:
        first, second = onnx.split(x, [2, 3], axis=1)
        parts = openvino.variadic_split(data=x, axis=1, split_lengths=[1, -1])
        return first, second, openvino.split(x, 0, 2)[1], parts[1], onnx.split_to_sequence(x, 2, axis=1)[2]

    traced = symbolic_trace(function)
    data = torch.arange(20.0).reshape(4, 5)
    for got, expected in zip(traced(data), function(data), strict=True):
        assert torch.equal(got, expected)
    calls = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert [onnx.split, openvino.variadic_split, openvino.split, onnx.split_to_sequence] == [
        call for call in calls if call.__module__.split(".")[0] == "splitops"
    ]
    with pytest.raises(splitops.SplitError, match=r"lengths\.sum"):
        traced(data[:, :4])


@pytest.mark.parametrize("squeeze", [False, True])
@pytest.mark.parametrize("layout", ["contiguous", "strided", "conjugate"])
def test_other_devices_are_filled_by_torch_itself(layout: str, squeeze: bool) -> None:
    """The kernel for devices without one of ours, called on the CPU: no machine here has another device."""
    sizes = [1, 1, 1] if squeeze else [2, 0, 3]
    data = torch.arange(24.0).reshape(4, 6) * (1 + 2j)
    if layout == "conjugate":
        data = data.conj()
    wide = torch.zeros(4, 12, dtype=torch.complex64)
    begins = [0, 3, 6]
    out = [
        wide[:, begin : begin + size] if layout == "strided" else torch.zeros(4, size, dtype=torch.complex64)
        for begin, size in zip(begins, sizes, strict=True)
    ]
    versions = [buffer._version for buffer in out]
    copying._fill_anywhere(data, copying._compute_offsets(sizes), sizes, 1, out)  # a prefix of the axis
    for buffer, part in zip(out, torch.split(data[:, : sum(sizes)], sizes, 1), strict=True):
        assert torch.equal(buffer, part)
    assert all(
        buffer._version > before for buffer, before in zip(out, versions, strict=True) if buffer.numel()
    )
    with pytest.raises(splitops.ArrayError, match=r"out\[0\] overlaps data"):
        copying._fill_anywhere(
            data, (0, 2), [2, 4], 1, [data[:, 1:3], torch.zeros(4, 4, dtype=torch.complex64)]
        )
