"""ONNX's own backend tests: every case whose model has Split or SplitToSequence anywhere in it.

The cases are found by reading the models, so one that a new onnx adds is run, and one that it drops is
noticed. ``pytest -s`` prints the list.
"""

from __future__ import annotations

import functools
import re
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx.backend.test.loader import load_model_tests

from splitops.onnx.backend import SplitopsBackend

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
FAMILY = {"Split", "SplitToSequence"}

# Every case of onnx 1.23. A newer onnx may add to them; one that is missing was dropped or renamed there.
KNOWN = (
    {
        f"test_affine_grid_{dims}{corners}_expanded"
        for dims in ("2d", "3d")
        for corners in ("", "_align_corners")
    }
    | {
        f"test_rotary_embedding{variant}_expanded"
        for variant in (
            "",
            "_3d_input",
            "_interleaved",
            "_with_rotary_dim",
            "_with_interleaved_rotary_dim",
            "_no_position_ids",
            "_no_position_ids_interleaved",
            "_no_position_ids_rotary_dim",
        )
    }
    | {
        f"test_split_{case}_opset{opset}"
        for opset in (13, 18)
        for case in (
            "equal_parts_1d",
            "variable_parts_1d",
            "variable_parts_2d",
            "equal_parts_default_axis",
            "variable_parts_default_axis",
            "zero_size_splits",
        )
    }
    | {
        "test_split_equal_parts_2d_opset13",
        "test_split_equal_parts_2d",
        "test_split_1d_uneven_split_opset18",
        "test_split_2d_uneven_split_opset18",
        "test_split_to_sequence_1",
        "test_split_to_sequence_2",
        "test_split_to_sequence_nokeepdims",
        "test_sequence_model6",
        "test_sequence_model7",
        "test_sequence_model8",
        "test_GLU",
        "test_GLU_dim",
        "test_operator_chunk",
    }
)


def _operators(nodes: Any) -> Iterator[str]:
    for node in nodes:
        if node.domain in ("", "ai.onnx"):
            yield node.op_type
        for attribute in node.attribute:
            for graph in [attribute.g, *attribute.graphs]:
                yield from _operators(graph.node)


def _has_family(model: onnx.ModelProto) -> bool:
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    return any(name in FAMILY for body in bodies for name in _operators(body))


@functools.cache
def _included() -> dict[str, tuple[str, onnx.ModelProto]]:
    """Return kind and model of each case that has the family in its model, by the case's name."""
    found = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # onnx's own case generators overflow on purpose
        for kind in KINDS:
            for case in load_model_tests(kind=kind):
                model = case.model
                if model is None:
                    file = Path(case.model_dir or "") / "model.onnx"
                    model = onnx.load(file)
                if _has_family(model):
                    found[case.name] = kind, model
    return found


def _runner(backend: type[SplitopsBackend]) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return onnx.backend.test.BackendTest(backend, __name__)


def _backend_tests() -> tuple[dict[str, type[unittest.TestCase]], list[str]]:
    runner = _runner(SplitopsBackend)
    for name in _included():
        runner.include(f"^{re.escape(name)}_cpu$")
    every = runner.test_cases
    names = []
    for cls in every.values():
        for name in [name for name in vars(cls) if name.startswith("test_")]:
            if name.endswith("_cpu") and name.removesuffix("_cpu") in _included():
                names.append(name.removesuffix("_cpu"))
            else:
                delattr(cls, name)  # not ours: neither run nor reported as skipped
    return {name: cls for name, cls in every.items() if any(map(_is_test, vars(cls)))}, names


def _is_test(name: str) -> bool:
    return name.startswith("test_")


CASES, RUN = _backend_tests()
globals().update(CASES)


def test_every_included_case_is_run_once() -> None:
    assert sorted(RUN) == sorted(_included())


def test_known_cases_are_included(record_property: Any) -> None:
    included = _included()
    record_property("included", " ".join(sorted(included)))
    print(f"\n{len(included)} cases of onnx {onnx.__version__}:")
    for name, (kind, _) in included.items():
        print(f"  {kind}: {name}")
    assert KNOWN - included.keys() == set()
    assert {kind for kind, _ in included.values()} == set(KINDS)


def test_no_case_is_skipped_as_incompatible() -> None:
    assert [
        name for name, (_, model) in _included().items() if not SplitopsBackend.is_compatible(model)
    ] == []


def test_nothing_else_is_claimed() -> None:
    claimed = {name for cls in CASES.values() for name in vars(cls) if _is_test(name)}
    assert claimed == {f"{name}_cpu" for name in _included()}
    assert not any(
        getattr(getattr(cls, n), "__unittest_skip__", False) for cls in CASES.values() for n in vars(cls)
    )


def test_a_wrong_backend_fails_them() -> None:
    """The cases can fail: with the parts in the wrong order they do."""

    class Reversed(SplitopsBackend):
        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
            prepared = super().prepare(model, device, **kwargs)
            run = prepared.run
            prepared.run = lambda inputs: run(inputs)[::-1]  # type: ignore[method-assign]
            return prepared

    name = "test_split_variable_parts_1d_opset18_cpu"
    classes = _runner(Reversed).include(f"^{name}$").test_cases.values()
    (case,) = (cls(name) for cls in classes if hasattr(cls, name))
    with pytest.raises(AssertionError):
        case.debug()
