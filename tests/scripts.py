"""The scripts of the repository, as modules: those that make pages and pictures, and the tools."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"


def script(name: str) -> ModuleType:
    """Return a script as a module: ``dev/pages/reference``."""
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), ROOT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # which dataclasses ask for
    spec.loader.exec_module(module)
    return module
