"""Code shared by the functions in :mod:`splitops.onnx` and :mod:`splitops.openvino`, and :func:`plan`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, TypeVar, cast

import numpy as np

from splitops import native
from splitops.calls.arguments import resolve_array
from splitops.calls.execution import Parts, call_plan, run
from splitops.calls.hints import add_hints
from splitops.calls.plan import plan_arguments, plan_array
from splitops.calls.plan_cache import cache_calls, find_plan
from splitops.native import Plan
from splitops.spec.operators import schema as find_schema
from splitops.spec.operators.schemas import OperatorSchema

_F = TypeVar("_F", bound=Callable[..., Any])


def define_function(name: str, domain: str) -> Callable[[_F], _F]:
    """Return a decorator that caches the plans of an operator's function.

    The function's parameters are the data, the operator's arguments, optionally ``opset``, then ``copy`` and
    ``out``. With the compiled core, cached calls on NumPy arrays do not run Python code, unless ``out`` has
    buffers that Python must check. Calls on other arrays are cached by
    :func:`splitops.calls.plan_cache.cache_calls`. All other calls run the function itself.

    Args:
        name: name of the operator.
        domain: its domain, ``""`` or ``"openvino"``.
    """

    def decorate(body: _F) -> _F:
        code, keywords = body.__code__, body.__kwdefaults__ or {}
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        defaults = (*(body.__defaults__ or ()), *(keywords[name] for name in names[code.co_argcount :]))
        by_name = dict(zip(names[-len(defaults) : -2], defaults, strict=False))
        hinted = add_hints(body)

        def enter(*args: Any, **named: Any) -> Any:
            data = args[0] if args else named.get(names[0])
            fx = sys.modules.get("torch.fx.proxy")
            if fx is None or not isinstance(data, fx.Proxy):
                return hinted(*args, **named)
            # Under torch.fx.symbolic_trace, the call itself becomes a node of the graph.
            stated = {key: value for key, value in named.items() if value is not None}
            return data.tracer.create_proxy("call_function", wrapper, args, stated)

        cached = cache_calls(name, domain, enter, names, by_name)
        if native.Function is None:

            def call_function(*args: Any, **named: Any) -> Any:
                torch = sys.modules.get("torch")
                traced = torch is not None and torch.compiler.is_compiling()
                return body(*args, **named) if traced else cached(*args, **named)

            wrapper: Any = update_wrapper(call_function, body)
            return cast("_F", wrapper)

        def make_plan(data: Any, *values: Any) -> Plan:
            arguments = dict(zip(names[1:-2], values, strict=True))
            opset = arguments.pop("opset", None)
            return plan_array(find_schema(name, opset, domain), data, arguments)

        wrapper = update_wrapper(native.Function(cached, make_plan, names, defaults, code.co_argcount), body)
        return cast("_F", wrapper)

    return decorate


def call(
    schema: OperatorSchema,
    data: Any,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[Any] | None,
) -> Any:
    """Split an array as the operator version ``schema`` does with these arguments.

    ``copy``, ``out`` and the result, a tuple or a list, are as in the operator's function.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling() and isinstance(data, torch.Tensor):
        # torch.compile executes this import while it traces.
        from splitops.calls.torch_compile import call_in_graph, call_with_graph_break

        if any(isinstance(value, np.ndarray | torch.Tensor) for value in arguments.values()):
            parts = call_with_graph_break(schema, data, arguments, copy, out)
        else:
            name, version, domain = schema.name, schema.since_version, schema.domain
            parts = call_in_graph(name, version, domain, data, arguments, copy, out)
        return list(parts) if schema.gives_sequence else tuple(parts)
    data, backend = resolve_array(data)
    return run(find_plan(schema, backend, data, arguments), backend, data, copy, out)


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
        dtype: NumPy dtype of the data, checked against the types of the operator version; None to skip the
            check.
        opset: opset that selects the version; None for the newest.
        domain: ``""`` for ONNX, or ``"openvino"``; None for the first of them that has the operator.
        **arguments: arguments of the operator's function, such as ``axis``, ``split`` and ``num_outputs``.

    Returns:
        The plan, with ``axis``, ``sizes``, ``offsets`` and ``shapes``. Call it to split an array.

    Raises:
        RuleError: a rule is broken, as in the operator's function.
        ArrayError: ``shape`` or ``dtype`` is invalid.

    Examples:
        >>> plan("VariadicSplit", shape=(6, 4), axis=0, split_lengths=[1, -1]).sizes
        (1, 5)
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        from splitops.calls.torch_compile import plan_in_graph

        return cast("Plan", plan_in_graph(name, tuple(shape), dtype, opset, domain, arguments))
    return plan_arguments(name, shape, dtype, opset, domain, arguments)


def _call_function(self: Any, /, *args: Any, **kwargs: Any) -> Parts:
    """Call the wrapped function. Only tracers and ``inspect`` find this: the native core does not call it."""
    parts: Parts = self.__wrapped__(*args, **kwargs)
    return parts


native.set_calls(call_plan, _call_function)
