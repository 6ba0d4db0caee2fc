"""``splitops report-environment``: print versions and settings for a bug report."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
from email.parser import Parser
from typing import Any

import click

from splitops import __version__, get_num_threads, native
from splitops.cli._console import json_option, make_console, make_table, print_json


@click.command(short_help="Print versions and settings for a bug report.")
@json_option
def command(as_json: bool) -> None:
    """Print versions, processor, threads and libraries, to paste into a bug report.

    The output contains no path, user or host name.

    \b
    Examples:
      splitops report-environment
      splitops report-environment --json
    """
    found = get_environment()
    if as_json:
        print_json(found)
        return
    rows = make_table("property", "value")
    for name, value in found.items():
        if name != "libraries":
            rows.add_row(name.replace("_", " "), str(value))
    for name, version in found["libraries"].items():
        rows.add_row(name, version)
    make_console().print(rows)


def get_environment() -> dict[str, Any]:
    """Return the entries of the report as JSON-serialisable values."""
    return {
        "splitops": __version__,
        "wheel": _find_wheel(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "free_threaded": not getattr(sys, "_is_gil_enabled", lambda: True)(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "native_core": native.get_instruction_set() or "not in use",
        "threads": get_num_threads(),
        "variables": {name: value for name, value in os.environ.items() if name.startswith("SPLITOPS_")},
        "libraries": _find_libraries(),
    }


def _find_wheel() -> str:
    """Return the tags of the installed wheel, and ``editable`` for an editable installation."""
    distribution = importlib.metadata.distribution("splitops")
    tags = Parser().parsestr(distribution.read_text("WHEEL") or "").get_all("Tag", ["unknown"])
    found = json.loads(distribution.read_text("direct_url.json") or "{}")
    editable = found.get("dir_info", {}).get("editable", False)
    return ", ".join([*tags, "editable"] if editable else tags)


def _find_libraries() -> dict[str, str]:
    """Return the releases of all installed dependencies by name, without importing them."""
    found = {}
    for requirement in importlib.metadata.requires("splitops") or ():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found.pop("splitops", None)  # some of its extras require splitops itself
    return dict(sorted(found.items()))
