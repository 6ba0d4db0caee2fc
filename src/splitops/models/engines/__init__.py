"""Engines: run models on onnxruntime or OpenVINO through one protocol, one file per engine.

An engine runs complete models and does not rewrite splits: its callers decide which models it gets. The
library of an engine is imported when the engine is made, in its own process if it is isolated.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final

from splitops.errors import ModelError

if TYPE_CHECKING:
    from splitops.models.engines.engine import Engine

AUTO: Final = "auto"
REFERENCE: Final = "reference"
OWN: Final = "splitops"
"""Name of the engine in the profile events of operators that splitops evaluates itself."""
_RUNTIMES: Final = ("onnxruntime", "openvino")
ENGINES: Final = (AUTO, REFERENCE, *_RUNTIMES)
"""The engine names that callers may use."""


def is_installed(name: str) -> bool:
    """Return whether Python finds the library of a runtime. It is not imported."""
    return importlib.util.find_spec(name) is not None


def make_engine(
    name: str,
    options: dict[str, Any],
    *,
    isolate: bool = False,
    profile: bool = False,
    inside: bool = False,
) -> Engine:
    """Make an engine.

    Args:
        name: the runtime, ``"onnxruntime"`` or ``"openvino"``.
        options: options of the runtime.
        isolate: whether to run it in a separate process.
        profile: whether to record the time of each operator.
        inside: whether this process is already the separate process of an isolated engine.

    Raises:
        ModelError: the runtime is not installed, or does not accept an option.
    """
    if not is_installed(name):
        raise ModelError(f"engine {name!r} is not installed: pip install splitops[{name}]")
    if isolate:
        from splitops.models.engines.isolated import IsolatedEngine

        return IsolatedEngine(name, options, profile=profile)
    if name == "onnxruntime":
        from splitops.models.engines.onnxruntime import OnnxRuntime

        return OnnxRuntime(options, profile=profile)
    from splitops.models.engines.openvino import OpenVINO

    return OpenVINO(options, profile=profile, inside=inside)
