"""Who evaluates the operators that are not ours: one protocol, a file an engine.

An engine is given whole models or regions of them and knows nothing of splits: its callers decide what
goes to it. Its library is imported when it is asked for, never before.
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
"""Which engine evaluates what no engine is given."""
_RUNTIMES: Final = ("onnxruntime", "openvino")
ENGINES: Final = (AUTO, REFERENCE, *_RUNTIMES)
"""The names that callers give."""


def is_installed(name: str) -> bool:
    """Return whether the library of a runtime can be imported."""
    return importlib.util.find_spec(name) is not None


def make_engine(
    name: str,
    options: dict[str, Any],
    *,
    isolate: bool = False,
    profile: bool = False,
    inside: bool = False,
) -> Engine:
    """Return a runtime that is ready to compile models, in a process of its own where it is isolated.

    ``inside`` says that this process is that of an isolated engine.
    """
    if not is_installed(name):
        raise ModelError(f"engine {name!r} is not installed; pip install splitops[{name}]")
    if isolate:
        from splitops.models.engines.isolated import IsolatedEngine

        return IsolatedEngine(name, options, profile=profile)
    if name == "onnxruntime":
        from splitops.models.engines.onnxruntime import OnnxRuntime

        return OnnxRuntime(options, profile=profile)
    from splitops.models.engines.openvino import OpenVINO

    return OpenVINO(options, profile=profile, inside=inside)
