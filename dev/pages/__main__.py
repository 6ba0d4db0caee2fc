"""``python -m dev.pages [NAME ...]``: writes all generated pages, or those of some modules."""

from __future__ import annotations

import importlib
import pkgutil
import sys

from dev import pages

NAMES = [module.name for module in pkgutil.iter_modules(pages.__path__) if module.name != "__main__"]


def main(names: list[str]) -> None:
    """Write the pages of the modules with these names, or of all modules."""
    for name in names or NAMES:
        module = importlib.import_module(f"dev.pages.{name}")
        if hasattr(module, "write"):
            print(name, flush=True)
            module.write()


if __name__ == "__main__":
    main(sys.argv[1:])
