"""Turns the arguments of a call into what a node would state: attributes, inputs and declared outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from marshal import dumps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from splitops import native
from splitops.backends import PREPARED, Backend, PreparedCalls, Preparing, backend_of, find_backend
from splitops.binding import Binding, Fact, bind, fact_of, foreign_type
from splitops.binding.rows import compile_row
from splitops.elements.types import ELEMENT_TYPES, ElementType
from splitops.errors import ArrayError, Rule, rule_error, shown
from splitops.execute import Plan, as_array, data_fact, execute, make_plan
from splitops.operators import schema as find_schema
from splitops.operators.schema import OperatorSchema
from splitops.planning import SplitPlan
from splitops.sizes.dims import exact_integer
from splitops.tracing import Symbols, is_exact, plan_symbolic

__all__ = ["Function", "bind_call", "call", "call_array", "plan", "remembering"]

_INT64: Final = ELEMENT_TYPES["int64"]
_BOOL: Final = ELEMENT_TYPES["bool"]

# What earlier calls on other libraries' arrays were proved to mean; those on NumPy's have `CallCache`.
_PLANS: Final[dict[tuple[Any, ...], Plan]] = {}
_MAX_PLANS: Final = 1024
_EXACT: Final = 2
"""The version of marshal's format in which equal values have equal bytes; True, 1 and 1.0 never have."""
_ONLY_INT: Final = frozenset({int})
# Tuples, as every call asks, and `a | b` is made anew each time.
_LISTS: Final = (list, tuple)
_NUMBERS: Final = (int, float, np.generic)
_READABLE: Final = (int, float, str, list, tuple, range, np.ndarray, np.generic, Fact)
_MAX_REMEMBERED: Final = 256
"""Calls with more arguments or parts than this are not remembered."""


class Function(native.Called):
    """A function of a dialect, of which remembered calls on NumPy arrays do not enter Python.

    Its own ``__call__`` does the same, for whoever traces or has no compiled core.

    Attributes:
        __wrapped__: the function itself, which remembers its calls by :func:`call`.
    """

    def __init__(self, function: FunctionType, calls: native.CallCache) -> None:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        keywords = function.__kwdefaults__ or {}
        defaults = (*(function.__defaults__ or ()), *(keywords[name] for name in names[code.co_argcount :]))
        self._call = native.Recall(function, calls, names, defaults, code.co_argcount)
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or do what an equal call before did."""
        if args and type(args[0]) is np.ndarray:
            return self._call(*args, **kwargs)
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.__qualname__}>"

    def __reduce__(self) -> str:
        name: str = self.__qualname__
        return name

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


_F = TypeVar("_F", bound=Callable[..., Any])


def remembering(calls: native.CallCache) -> Callable[[_F], _F]:
    """Make a :class:`Function` of a function of the data, what is remembered, ``copy`` and ``out``."""

    def decorated(function: _F) -> _F:
        return cast("_F", Function(cast("FunctionType", function), calls))

    return decorated


def call(
    schema: OperatorSchema,
    data: Any,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[Any] | None,
    calls: native.CallCache,
    *selectors: Any,
) -> tuple[Any, ...]:
    """Split an array as one operator version does with these arguments; None is an absent argument.

    Args:
        schema: the operator version.
        data: array of any library.
        arguments: the operator's arguments by name, in the order of the function's parameters.
        copy: as in the function.
        out: as in the function.
        calls: remembers what this call was proved to mean, for the very same arguments.
        *selectors: the function's parameters behind ``arguments``, such as the opset.
    """
    key = None
    if type(data) is not np.ndarray:
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling() and isinstance(data, torch.Tensor):
            # An import statement: it runs while torch.compile traces, whatever was loaded before.
            from splitops.compiling import call_apart, call_whole

            if any(isinstance(value, np.ndarray | torch.Tensor) for value in arguments.values()):
                return tuple(call_apart(schema, data, arguments, copy, out))
            name, version, domain = schema.name, schema.since_version, schema.domain
            return tuple(call_whole(name, version, domain, data, arguments, copy, out))
        known = PREPARED.get(type(data))
        if known is not None and out is None:
            prepared = None
            try:
                key = known.identity(data), dumps((*arguments.values(),), _EXACT), id(schema)
                prepared = (known.copies if copy else known.views).get(key)
            except (TypeError, ValueError, RuntimeError):  # no or symbolic sizes, or no plain arguments
                key = None
            if prepared is not None:
                return prepared(data)
        elif known is None:
            data = as_array(data)
    if type(data) is np.ndarray:
        plan = make_plan(bind_call(schema, data_fact(data), arguments).request())
        parts = execute(plan, data, copy=copy, out=out)
        if data.dtype != object:  # of which the values tell the element type
            calls.store(plan.splitter(), data, *arguments.values(), *selectors)
        return parts
    backend = backend_of(data)
    plan, exact = _plan_of(schema, backend, data, arguments)
    if exact and out is None:
        _prepare(backend, plan, data, bool(copy), key)
    return _run(plan, backend, data, copy, out)


def _prepare(backend: Backend, plan: SplitPlan, data: Any, copy: bool, key: tuple[Any, ...] | None) -> None:
    """Remember a call whole, where its backend prepares calls: from the second of an array type on."""
    if not hasattr(backend, "prepare"):
        return
    preparing = cast("Preparing", backend)
    prepared = preparing.prepare(plan, data, copy)
    if prepared is None:
        return
    known = PREPARED.setdefault(type(data), PreparedCalls(preparing.identity, {}, {}))
    if key is not None and len(plan.sizes) <= _MAX_REMEMBERED:
        calls = known.copies if copy else known.views
        if len(calls) >= _MAX_PLANS:
            calls.clear()
        calls[key] = prepared


def call_array(
    schema: OperatorSchema,
    data: Any,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[Any] | None,
) -> tuple[Any, ...]:
    """Split an array of any library, sizes that are symbolic while it traces included.

    Args:
        schema: the operator version.
        data: array of any library.
        arguments: the operator's arguments by name; None is an absent one.
        copy: as in the function.
        out: as in the function.
    """
    backend = backend_of(data)
    plan, _ = _plan_of(schema, backend, data, arguments)
    return _run(plan, backend, data, copy, out)


def _run(
    plan: Plan, backend: Backend, data: Any, copy: bool | None, out: Sequence[Any] | None
) -> tuple[Any, ...]:
    if out is None:
        return backend.copies(plan, data) if copy else backend.views(plan, data)
    return execute(plan, data, copy=copy, out=out, backend=backend)


def _plan_of(
    schema: OperatorSchema, backend: Backend, data: Any, arguments: dict[str, Any]
) -> tuple[Plan, bool]:
    """Return the plan of a call, and whether it depends on nothing but what calls are remembered by."""
    shape = backend.shape(data)
    key = _call_key(schema, data, shape, arguments)
    plan = _PLANS.get(key) if key is not None else None
    if plan is None:
        plan = _plan_call(schema, backend, data, shape, arguments)
        if key is not None and len(plan.sizes) <= _MAX_REMEMBERED:
            if len(_PLANS) >= _MAX_PLANS:
                _PLANS.clear()
            _PLANS[key] = plan
    return plan, key is not None


def _call_key(
    schema: OperatorSchema, data: Any, shape: tuple[Any, ...], arguments: dict[str, Any]
) -> tuple[Any, ...] | None:
    """Return what a call is remembered by; None where an argument is anything but exact integers."""
    dtype = getattr(data, "dtype", None)
    if type(dtype).__hash__ is None or dtype is None:
        return None
    key: list[Any] = [id(schema), type(data), dtype]  # rows live as long as the process
    for value in (shape, *arguments.values()):
        if value is None or type(value) is int:
            key.append(value)
        elif isinstance(value, list | tuple) and len(value) <= _MAX_REMEMBERED:
            if not _ONLY_INT.issuperset(map(type, value)):  # True == 1 == 1.0, and all hash alike
                return None
            key.append(tuple(value))
        else:
            return None
    return tuple(key)


def _plan_call(
    schema: OperatorSchema,
    backend: Backend,
    data: Any,
    shape: tuple[Any, ...],
    arguments: dict[str, Any],
) -> Plan:
    symbols = Symbols(backend.symbols)
    binding = bind_call(schema, data_fact(data), symbols.hide(schema, arguments))
    if is_exact(shape) and binding.division is not None:
        return make_plan(binding.request())
    try:
        plan = plan_symbolic(binding, shape, symbols.lengths)
    except getattr(backend, "undecided", ()) as error:
        text = (
            f"{schema}: {backend.name} cannot tell the sizes of the parts of the symbolic shape "
            f"{shown(shape)}: state constraints or a size such as 3*n that decide them, or give lengths"
        )
        raise ArrayError(text) from error
    if plan is None:  # a rule is broken: binding exact sizes says which
        try:
            sizes = tuple(size if size is None else int(size) for size in shape)
            exact = symbols.specialise(arguments)
        except Exception as error:  # the library has no size at hand
            text = (
                f"{schema}: not every size that the symbolic shape {shown(shape)} stands for can be split so"
            )
            raise ArrayError(text) from error
        bind_call(schema, data_fact(data, sizes), exact)
        raise AssertionError(f"{schema}: symbolic and exact sizes disagree")
    return Plan(plan.shape, plan.axis, plan.offsets, plan.sizes, plan.squeeze, schema.gives_sequence)


def plan(
    name: str,
    /,
    *,
    shape: Sequence[int],
    dtype: Any = None,
    opset: int | None = None,
    domain: str | None = None,
    **arguments: Any,
) -> Plan:
    """Bind the arguments of a split once, for arrays of one shape.

    Args:
        name: the operator: ``"Split"``, ``"SplitToSequence"`` or ``"VariadicSplit"``.
        shape: shape of the data.
        dtype: NumPy dtype of the data, checked against the types that the version takes; None leaves
            it open.
        opset: the opset that selects the version; None is the newest.
        domain: ``""`` for ONNX, ``"openvino"``; None is the first of them that has the operator.
        **arguments: those of the operator's function, for example ``axis``, ``split``, ``num_outputs``.

    Returns:
        The plan: ``axis``, ``sizes``, ``offsets`` and ``shapes``; call it to split an array.

    Raises:
        RuleError: a rule is broken, as in the operator's function.

    Examples:
        >>> plan("VariadicSplit", shape=(6, 4), axis=0, split_lengths=[1, -1]).sizes
        (1, 5)
    """
    schema = find_schema(name, opset, domain)
    element_type = None
    if dtype is not None:
        try:
            element_type = fact_of(np.empty(0, dtype), value=False).type
        except TypeError as error:
            raise ArrayError(f"dtype = {shown(dtype)}, but it must be a dtype of NumPy") from error
    fact = Fact(element_type, _shape(shape))
    return make_plan(bind_call(schema, fact, arguments).request())


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    sizes: tuple[int | None, ...] = (None,)
    if isinstance(shape, Sequence | np.ndarray) and not isinstance(shape, str | bytes):
        sizes = tuple(map(exact_integer, shape))
    known = tuple(size for size in sizes if size is not None and 0 <= size < 1 << 63)
    if len(known) < len(sizes):
        raise ArrayError(f"shape = {shown(shape)}, but it must be a sequence of 64-bit integers >= 0")
    return known


def bind_call(
    schema: OperatorSchema, data: Fact, arguments: Mapping[str, Any], unknown: Sequence[str] = ()
) -> Binding:
    """Bind one call: each argument becomes the attribute or input that the version has for it.

    Args:
        schema: the operator version.
        data: what is known of the data.
        arguments: by name; None is an absent one, and an entry None in lengths one that is not known.
        unknown: the arguments of which None says that they are given, but not known.
    """
    row = compile_row(schema)
    attributes: dict[str, Any] = {}
    inputs: list[Fact | None] = [data, *[None] * len(row.inputs)]
    outputs: int | None = None
    for name, value in arguments.items():
        if value is None and name not in unknown:
            continue
        value = _known(value)
        place = row.inputs.get(name)
        if name == row.outputs:
            outputs = _declared_outputs(schema, name, value)
        elif place is None or (name in row.attributes and not _is_floating(value)):
            # Of a name that the version does not have, binding says so.
            attributes[name] = _attribute(value) if name in row.attributes else value
        else:
            assert place.index is not None
            inputs[place.index] = _input(value, data.type if place.as_data else None)
    return bind(schema, attributes, inputs, outputs=outputs)


def _known(value: Any) -> Any:
    """Return an argument as Python or NumPy has it; arrays of other libraries are read once."""
    if not isinstance(value, _READABLE):
        backend = find_backend(type(value))
        value = as_array(value, "axis or lengths") if backend is None else backend.numbers(value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    if isinstance(value, _LISTS) and not (
        _ONLY_INT.issuperset(map(type, value)) or all(isinstance(entry, _NUMBERS) for entry in value)
    ):
        return [_scalar(_known(entry)) for entry in value]
    return value


def _scalar(value: Any) -> Any:
    """Return an entry of a list as a number, where it is an array of rank 0."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _declared_outputs(schema: OperatorSchema, name: str, value: Any) -> int:
    count = exact_integer(value)
    if count is not None and count >= 1:
        return count
    got = f"{name} = {shown(value)}"
    raise rule_error(str(schema), Rule.PARTS_COUNT, got, "it must be a 64-bit integer >= 1", count=value)


def _numbers(entries: Sequence[Any], kind: type[int] | type[float]) -> tuple[int | float | None, ...]:
    return tuple(None if entry is None else kind(entry) for entry in entries)


def _is_floating(value: Any) -> bool:
    """Return whether lengths are floating-point, as the input of Split-1 wants them."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind == "f")
    return isinstance(value, _LISTS) and any(isinstance(entry, float | np.floating) for entry in value)


def _attribute(value: Any) -> Any:
    if value is None or (isinstance(value, _LISTS) and any(entry is None for entry in value)):
        return _input(value, None)  # given, but not all of it is known
    return value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else value


def _input(value: Any, floats: ElementType | None) -> Fact:
    """Return what an argument says of an input: integers are int64, floats of the type given for them."""
    if value is None:
        return Fact()
    if isinstance(value, Fact):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Fact(_INT64, (), value)
    if isinstance(value, _LISTS) and _ONLY_INT.issuperset(map(type, value)):
        return Fact(_INT64, (len(value),), tuple(value))
    if isinstance(value, list | tuple | range):
        known = [entry for entry in value if entry is not None]
        if any(isinstance(entry, bool | np.bool_) for entry in known):
            return Fact(_BOOL, (len(value),))
        if all(isinstance(entry, int | np.integer) for entry in known):
            return Fact(_INT64, (len(value),), _numbers(value, int))
        if all(isinstance(entry, int | float | np.integer | np.floating) for entry in known):
            return Fact(floats or ELEMENT_TYPES["float64"], (len(value),), _numbers(value, float))
    try:
        array = as_array(value)
    except ArrayError:
        return Fact(foreign_type("mixed"), (len(value),))
    if not isinstance(array, np.ndarray):
        return Fact(foreign_type(type(array).__name__), None)
    return fact_of(array, value=True)
