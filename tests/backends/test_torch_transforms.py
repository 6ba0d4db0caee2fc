"""Every transform of PyTorch, around splits in every mode, does what it does around torch's own operators.

A case is a transform, a mode (views, copies, ``out=``) and a size: large copies take other ways than small
ones. It runs first with nothing remembered, then with the same calls remembered. Where torch's own operator
works, ours gives the same, as far as anything about a tensor can be observed; where torch's own rejects, ours
rejects or gives what a split into views gives: never something else in silence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pytest

from splitops import onnx
from splitops.errors import ArrayError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

if torch is not None:
    import torch.autograd.forward_ad as forward
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.overrides import TorchFunctionMode
    from torch.testing._internal.two_tensor import TwoTensor
    from torch.utils._python_dispatch import TorchDispatchMode

Parts = Sequence[Any]
Splitting = Callable[[Any], Parts]
Transform = Callable[[Splitting, Any], Any]

SIZES = {"small": 4, "large": 22_000}
"""Columns of float64 in six rows: large is more than the MiB from which the native core copies."""


@dataclass(frozen=True)
class Split:
    """A split of the first axis, of size 6: as a call of ours and as the sizes of torch's own."""

    ours: Callable[..., Parts]
    sizes: tuple[int, ...]
    squeeze: bool = False


SPLITS = {
    "lengths": Split(lambda x, **mode: onnx.split(x, [2, 0, 4], **mode), (2, 0, 4)),
    "single": Split(lambda x, **mode: onnx.split_to_sequence(x, keepdims=0, **mode), (1,) * 6, squeeze=True),
}


def buffers(split: Split, data: Any) -> list[Any]:
    shapes = [data.shape[1:] if split.squeeze else (size, *data.shape[1:]) for size in split.sizes]
    return [data.new_full(shape, 7) for shape in shapes]


def torchs_views(split: Split, data: Any) -> Parts:
    return data.unbind(0) if split.squeeze else torch.split(data, split.sizes)


def torchs_copies(split: Split, data: Any) -> Parts:
    return torch.unbind_copy(data) if split.squeeze else torch.split_with_sizes_copy(data, split.sizes)


def torchs_out(split: Split, data: Any) -> Parts:
    out = buffers(split, data)
    if split.squeeze:
        torch.unbind_copy(data, out=out)
    else:
        torch.split_with_sizes_copy(data, split.sizes, out=out)
    return out


MODES: dict[str, tuple[Callable[[Split, Any], Parts], Callable[[Split, Any], Parts]]] = {
    "views": (lambda split, data: split.ours(data), torchs_views),
    "copies": (lambda split, data: split.ours(data, copy=True), torchs_copies),
    "out": (lambda split, data: split.ours(data, out=buffers(split, data)), torchs_out),
}


# Transforms: from a splitting and the data to whatever can be observed


def seen(parts: Any) -> list[Any]:
    """Return everything about tensors that a caller can see."""
    tensors = parts if isinstance(parts, (list, tuple)) else [parts]
    return [(tensor.detach().clone(), *attributes(tensor)) for tensor in tensors]


def attributes(part: Any) -> tuple[Any, ...]:
    return (
        type(part),
        part.shape,
        part.dtype,
        part.stride(),
        part.requires_grad,
        part.is_leaf,
        part._is_view(),
    )


def weighed(parts: Parts) -> Any:
    """Return a number that depends on most parts, on each in another way, and not linearly."""
    return sum(((index + 1) * part**2).sum() for index, part in enumerate(parts) if index != 1)


def direction(data: Any) -> Any:
    return torch.linspace(-1, 1, data.numel(), dtype=data.dtype).reshape(data.shape)


def eager(split: Splitting, data: Any) -> Any:
    return seen(split(data))


def backward(split: Splitting, data: Any) -> Any:
    leaf = data.clone().requires_grad_()
    parts = split(leaf)
    weighed(parts).backward()
    return [*seen(parts), *seen(leaf.grad)]


def double_backward(split: Splitting, data: Any) -> Any:
    leaf = data.clone().requires_grad_()
    (first,) = torch.autograd.grad(weighed(split(leaf)), leaf, create_graph=True)
    return seen(torch.autograd.grad((first * direction(data)).sum(), leaf))


def checkpointed(split: Splitting, data: Any) -> Any:
    leaf = data.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(lambda x: weighed(split(x * 2)), leaf, use_reentrant=False).backward()
    return seen(leaf.grad)


def saved_tensor_hooks(split: Splitting, data: Any) -> Any:
    leaf = data.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x + 1, lambda x: x - 1):
        result = weighed(split(leaf))
    result.backward()
    return leaf.grad.round(decimals=6)


def no_grad(split: Splitting, data: Any) -> Any:
    leaf = data.clone().requires_grad_()
    with torch.no_grad():
        return seen(split(leaf))


def inference_mode(split: Splitting, data: Any) -> Any:
    with torch.inference_mode():
        inside, outside = split(data + 0), split(data)
        return [*seen(inside), *seen(outside), [part.is_inference() for part in (*inside, *outside)]]


def inference_tensor(split: Splitting, data: Any) -> Any:
    with torch.inference_mode():
        made = data + 0
    return seen(split(made))


def autocast(split: Splitting, data: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return seen([part + 1 for part in split(data.float())])


def dual(split: Splitting, data: Any) -> Any:
    with forward.dual_level():
        parts = split(forward.make_dual(data, direction(data)))
        return [(pair.primal.clone(), pair.tangent) for pair in map(forward.unpack_dual, parts)]


def dual_of_leaf(split: Splitting, data: Any) -> Any:
    """Forward over reverse: a tangent along a gradient."""
    leaf = data.clone().requires_grad_()
    with forward.dual_level():
        result = weighed(split(forward.make_dual(leaf, direction(data))))
        return torch.autograd.grad(forward.unpack_dual(result).tangent, leaf)


def untouched_by_a_level(split: Splitting, data: Any) -> Any:
    with forward.dual_level():
        return [forward.unpack_dual(part).tangent for part in split(data)]


def jvp(split: Splitting, data: Any) -> Any:
    return torch.func.jvp(lambda x: tuple(split(x)), (data,), (direction(data),))


def vjp(split: Splitting, data: Any) -> Any:
    parts, pull = torch.func.vjp(lambda x: tuple(split(x)), data)
    return pull(tuple(2 * part for part in parts))


def linearized(split: Splitting, data: Any) -> Any:
    parts, push = torch.func.linearize(lambda x: tuple(split(x)), data)
    return parts, push(direction(data))


def grad(split: Splitting, data: Any) -> Any:
    return torch.func.grad(lambda x: weighed(split(x)))(data)


def jvp_of_grad(split: Splitting, data: Any) -> Any:
    return torch.func.jvp(torch.func.grad(lambda x: weighed(split(x))), (data,), (direction(data),))


def grad_of_jvp(split: Splitting, data: Any) -> Any:
    def along(x: Any) -> Any:
        return torch.func.jvp(lambda y: weighed(split(y)), (x,), (direction(data),))[1]

    return torch.func.grad(along)(data)


def jacobians(split: Splitting, data: Any) -> Any:
    narrow = data[:, :2]
    forwards, backwards = (
        of(lambda x: tuple(split(x)))(narrow) for of in (torch.func.jacfwd, torch.func.jacrev)
    )
    return forwards, backwards, torch.func.hessian(lambda x: weighed(split(x)))(narrow)


def functional(split: Splitting, data: Any) -> Any:
    def function(x: Any) -> Any:
        return weighed(split(x))

    return torch.autograd.functional.jvp(function, data, direction(data)), torch.autograd.functional.vhp(
        function, data, direction(data)
    )


def vmap(split: Splitting, data: Any) -> Any:
    rows = torch.stack([data, 2 * data, -data])
    columns = torch.stack([data, 3 * data], -1)
    return (
        torch.vmap(lambda x: tuple(split(x)))(rows),
        torch.vmap(lambda x: tuple(split(x)), in_dims=-1, out_dims=-1)(columns),
    )


def vmap_of_grad(split: Splitting, data: Any) -> Any:
    return torch.vmap(torch.func.grad(lambda x: weighed(split(x))))(torch.stack([data, 2 * data]))


def vmap_of_vmap(split: Splitting, data: Any) -> Any:
    batch = torch.stack([data, 2 * data])
    return torch.vmap(torch.vmap(lambda x: tuple(split(x))))(torch.stack([batch, -batch]))


def vmap_of_jvp(split: Splitting, data: Any) -> Any:
    def along(x: Any) -> Any:
        return torch.func.jvp(lambda y: tuple(split(y)), (x,), (direction(data),))

    return torch.vmap(along)(torch.stack([data, 2 * data]))


def functionalized(split: Splitting, data: Any) -> Any:
    return torch.func.functionalize(lambda x: tuple(split(x)))(data)


def written_inside_functionalize(split: Splitting, data: Any) -> Any:
    def function(x: Any) -> Any:
        whole = x + 0
        parts = split(whole)
        parts[0].mul_(3)
        return whole, tuple(parts)

    return torch.func.functionalize(function)(data), function(data)


def written(split: Splitting, data: Any) -> Any:
    """What is written to a part is seen, or not, in the data, and derivatives know of it."""
    leaf = data.clone().requires_grad_()
    whole = leaf * 2
    parts = split(whole)
    parts[0].mul_(3) if parts[0]._is_view() and len(parts) == 6 else None
    (weighed(parts) + whole.sum()).backward()
    return seen(leaf.grad), whole._version


def compiled(split: Splitting, data: Any) -> Any:
    torch._dynamo.reset()
    function = torch.compile(lambda x: tuple(split(x)), backend="aot_eager", fullgraph=True)
    leaf = data.clone().requires_grad_()
    with torch.no_grad():
        plain = function(data)
    return plain, backward(function, data), function(leaf)[0].requires_grad


def compiled_jvp(split: Splitting, data: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(lambda x: jvp(split, x), backend="aot_eager", fullgraph=True)(data)


def compiled_vmap_of_grad(split: Splitting, data: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(lambda x: vmap_of_grad(split, x), backend="aot_eager", fullgraph=True)(data)


def exported(split: Splitting, data: Any) -> Any:
    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return tuple(split(x))

    return [torch.export.export(Module(), (data,), strict=strict).module()(data) for strict in (False, True)]


def traced_to_fx(split: Splitting, data: Any) -> Any:
    modes = ("real", "fake", "symbolic")
    return [make_fx(lambda x: tuple(split(x)), tracing_mode=mode)(data)(2 * data) for mode in modes]


def scripted_by_tracing(split: Splitting, data: Any) -> Any:
    return torch.jit.trace(lambda x: tuple(split(x)), data, check_trace=False)(2 * data)


def fake(split: Splitting, data: Any) -> Any:
    with FakeTensorMode() as mode:
        return [attributes(part)[1:] for part in split(mode.from_tensor(data))]


def meta(split: Splitting, data: Any) -> Any:
    return [(*attributes(part), part.device) for part in split(data.to("meta"))]


def default_device(split: Splitting, data: Any) -> Any:
    with torch.device("meta"):
        return seen(split(data))


def dispatch_mode(split: Splitting, data: Any) -> Any:
    class Watching(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            operators.append(str(function))
            return function(*args, **(kwargs or {}))

    operators: list[str] = []
    with Watching():
        parts = split(data)
    return seen(parts), bool(operators)


def function_mode(split: Splitting, data: Any) -> Any:
    class Watching(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen_functions.append(function)
            return function(*args, **(kwargs or {}))

    seen_functions: list[Any] = []
    with Watching():
        parts = split(data)
    return seen(parts), bool(seen_functions)


def subclass(split: Splitting, data: Any) -> Any:
    class Tagged(torch.Tensor):  # type: ignore[misc]
        pass

    return [(type(part).__name__, part.as_subclass(torch.Tensor)) for part in split(data.as_subclass(Tagged))]


def wrapper(split: Splitting, data: Any) -> Any:
    parts = split(TwoTensor(data, 2 * data))
    return [(part.a, part.b) for part in parts]


def parameter(split: Splitting, data: Any) -> Any:
    return seen(split(torch.nn.Parameter(data)))


def conjugate(split: Splitting, data: Any) -> Any:
    return [part.resolve_conj() for part in split(torch.complex(data, 2 * data).conj())]


def negative(split: Splitting, data: Any) -> Any:
    return [part.resolve_neg() for part in split(torch.complex(data, 2 * data).conj().imag)]


def transposed(split: Splitting, data: Any) -> Any:
    return [part.clone() for part in split(data.t().contiguous().t())]


def broadcast(split: Splitting, data: Any) -> Any:
    return [part.clone() for part in split(data[:1].expand(6, -1))]


def deterministic(split: Splitting, data: Any) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return seen(split(data))
    finally:
        torch.use_deterministic_algorithms(False)


EAGER = (
    *(eager, backward, double_backward, checkpointed, saved_tensor_hooks, no_grad, inference_mode),
    *(inference_tensor, autocast, dual, dual_of_leaf, untouched_by_a_level, jvp, vjp, linearized, grad),
    *(jvp_of_grad, grad_of_jvp, jacobians, functional, vmap, vmap_of_grad, vmap_of_vmap, vmap_of_jvp),
    *(functionalized, written_inside_functionalize, written, scripted_by_tracing, fake, meta),
    *(default_device, dispatch_mode, function_mode, subclass, wrapper, parameter, conjugate, negative),
    *(transposed, broadcast, deterministic),
)
TRACING = (compiled, compiled_jvp, compiled_vmap_of_grad, exported, traced_to_fx)
"""These compile, which takes seconds."""
LOST_BY_OUT = (vjp, grad, functional, written, parameter)
"""Torch's own ``out=`` takes these, and gives zeros or nothing for a derivative."""


# The check


def flat(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)) and not isinstance(result, torch.Size):
        return list(itertools.chain.from_iterable(map(flat, result)))
    return [result]


def assert_same(got: Any, right: Any) -> None:
    got, right = flat(got), flat(right)
    assert len(got) == len(right)
    for one, other in zip(got, right, strict=True):
        if isinstance(other, torch.Tensor):
            assert isinstance(one, torch.Tensor), one
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        else:
            assert one == other


def outcome(run: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return run(), None
    except Exception as error:
        return None, error


fresh = itertools.count()


def data_of(columns: int) -> Any:
    """Return data of a shape that no other case has, so that no call is remembered."""
    columns += next(fresh)
    return torch.arange(6 * columns, dtype=torch.float64).reshape(6, columns) % 97 - 40


def check(transform: Transform, mode: str, split: Split, columns: int) -> None:
    ours, torchs = MODES[mode]
    data = data_of(columns)
    right, rejected = outcome(lambda: transform(lambda x: torchs(split, x), data.clone()))
    if rejected is not None:
        right, _ = outcome(lambda: transform(lambda x: torchs_views(split, x), data.clone()))
    for _ in ("first", "remembered"):
        got, error = outcome(lambda: transform(lambda x: ours(split, x), data.clone()))
        if rejected is None:
            assert error is None, error
        if error is None:
            assert_same(got, right)
        for dtype in (torch.float64, torch.float32, torch.complex128):  # those that the transforms split
            for _ in range(2):
                ours(split, data.to(dtype))


CASES = [
    pytest.param(split, transform, mode, size, id=f"{transform.__name__}-{split}-{mode}-{size}")
    for split, size in (("lengths", "small"), ("lengths", "large"), ("single", "large"))
    for transform, mode in itertools.product(EAGER, MODES)
    if mode != "out" or transform not in LOST_BY_OUT
]


@pytest.mark.parametrize(("split", "transform", "mode", "size"), CASES)
def test_a_transform_does_what_it_does_around_torchs_own(
    split: str, transform: Transform, mode: str, size: str
) -> None:
    check(transform, mode, SPLITS[split], SIZES[size])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("transform", LOST_BY_OUT, ids=attrgetter("__name__"))
def test_derivatives_that_torch_loses_are_rejected(transform: Transform, size: str) -> None:
    """As soon as torch's own gives the derivative, ours should."""
    split, data = SPLITS["lengths"], data_of(SIZES[size])
    right = transform(lambda x: torchs_views(split, x), data)
    with pytest.raises(AssertionError):
        assert_same(transform(lambda x: torchs_out(split, x), data), right)
    for _ in ("first", "remembered"):
        with pytest.raises(ArrayError, match="gradients would be lost"):
            transform(lambda x: MODES["out"][0](split, x), data)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transform", TRACING, ids=attrgetter("__name__"))
def test_a_compiler_does_what_it_does_around_torchs_own(transform: Transform, mode: str) -> None:
    check(transform, mode, SPLITS["lengths"], SIZES["small"])
