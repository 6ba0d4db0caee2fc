"""Adds rows that nobody has published, before anything of splitops reads the tables.

``python inventing.py DOMAIN ROW SCRIPT`` adds the row, imports the script, and takes its steps one by one.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

_IMPORTS = "from dataclasses import replace\nfrom splitops.spec.operators.schemas import *\n"


def add(domain: str, row: str) -> None:
    """Let the table of a domain have one row more, as if its file ended in it."""
    name = f"splitops.spec.operators.{domain}"

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: object = None) -> object:
            if fullname != name:
                return None
            spec = importlib.machinery.PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
            assert spec is not None
            assert spec.loader is not None
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                exec(_IMPORTS + f"ROWS = (*ROWS, {row})", module.__dict__)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec

    assert "splitops" not in sys.modules
    sys.meta_path.insert(0, Finder())


def run(steps: Mapping[str, object]) -> None:
    """Take every step of a module, and print the result of each as JSON: None, or its traceback."""
    done: dict[str, str | None] = {}
    for name, step in list(steps.items()):  # a warning adds its registry to the module
        if name.startswith("step_") and isinstance(step, Callable):
            try:
                step()
                done[name] = None
            except Exception:
                done[name] = traceback.format_exc()
    print(json.dumps(done))


if __name__ == "__main__":
    domain, row, script = sys.argv[1:]
    sys.path.append(str(Path(__file__).parents[2]))  # for dev.pages
    add(domain, row)
    run(vars(importlib.import_module(script)))
