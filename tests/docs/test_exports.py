"""What the package exports is listed with the version that brought it, and nothing goes without notice."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from test_reference import PUBLIC

import splitops

LIST = Path(__file__).with_name("exports.txt")


def listed() -> dict[str, str]:
    """Return the version that brought each name."""
    return dict(line.split() for line in LIST.read_text().splitlines())


def exported() -> dict[str, object]:
    return {
        f"{module}.{name}": getattr(importlib.import_module(module), name)
        for module in PUBLIC
        for name in importlib.import_module(module).__all__
    }


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def unsaid(values: dict[str, object], versions: dict[str, str], first: str = "0.1.0") -> list[str]:
    """Return the classes and functions, newer than the first version, that do not say theirs."""
    return [
        name
        for name, value in values.items()
        if (inspect.isroutine(value) or inspect.isclass(value))
        and versions[name] != first
        and f"Added in {versions[name]}." not in (inspect.getdoc(value) or "")
    ]


def test_each_export_is_listed_with_its_version() -> None:
    """A name that goes must warn for a version before; a new one is listed, and says `Added in VERSION.`"""
    assert sorted(exported()) == sorted(listed())
    assert all(numbers(version) <= numbers(splitops.__version__) for version in listed().values())


def test_only_faces_list_their_names() -> None:
    """In other modules an underscore says what is not for others."""
    source = Path(splitops.__file__).parent
    listing = {
        ".".join(("splitops", *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")
        for path in source.rglob("*.py")
        if "\n__all__ = " in path.read_text() and path.name != "__init__.py"
    }
    assert listing <= set(PUBLIC)


def test_what_is_newer_than_the_first_version_says_so() -> None:
    assert unsaid(exported(), listed()) == []


def test_an_export_that_does_not_say_it_would_be_found() -> None:
    def new() -> None:
        """Do it."""

    def told() -> None:
        """Do it.

        Added in 0.2.0.
        """

    assert unsaid({"new": new, "told": told}, dict.fromkeys(("new", "told"), "0.2.0")) == ["new"]
    assert unsaid({"new": new}, {"new": "0.1.0"}) == []
