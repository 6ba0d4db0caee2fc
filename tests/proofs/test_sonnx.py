"""The property tests that are offered to the safety-related profile pass, and a fault breaks them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import splitops

PATH = Path(__file__).parents[2] / "proofs" / "sonnx" / "tests" / "test_split.py"


def properties() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sonnx_properties", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = [name for name in vars(properties()) if name.startswith("test_")]


def run_splitops(model: Any, inputs: Mapping[str, Any]) -> list[Any]:
    return list(splitops.run(model, dict(inputs)).values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("own", [True, False], ids=["splitops", "reference"])
def test_an_implementation_has_the_properties(name: str, own: bool) -> None:
    module = properties()
    if own:
        module.run = run_splitops  # type: ignore[attr-defined]
    getattr(module, name)()


@pytest.mark.parametrize("fault", [lambda parts: parts[::-1], lambda parts: [part[::-1] for part in parts]])
def test_a_fault_breaks_the_property(fault: Callable[[list[Any]], list[Any]]) -> None:
    module, data = properties(), np.arange(12).reshape(4, 3)
    parts = [data[:2], data[2:]]
    module.check(data, 0, [2, 2], parts)
    with pytest.raises(AssertionError):
        module.check(data, 0, [2, 2], fault(parts))
