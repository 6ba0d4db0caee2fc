"""``splitops report-environment``: what a report of a problem needs to say."""

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
from splitops.cli._console import console, json_option, print_json, table


@click.command(short_help="Print versions, native core, threads and libraries for a report.")
@json_option
def command(as_json: bool) -> None:
    """Print what a report of a problem should say: paste it as it is.

    It names versions and the machine, and no path, user or host.

    \b
    Examples:
      splitops report-environment
      splitops report-environment --json
    """
    found = environment()
    if as_json:
        print_json(found)
        return
    rows = table("what", "value")
    for name, value in found.items():
        if name != "libraries":
            rows.add_row(name.replace("_", " "), str(value))
    for name, version in found["libraries"].items():
        rows.add_row(name, version)
    console().print(rows)


def environment() -> dict[str, Any]:
    """Return the same as data."""
    return {
        "splitops": __version__,
        "wheel": _wheel(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "free_threaded": not getattr(sys, "_is_gil_enabled", lambda: True)(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "native_core": native.get_instruction_set() or "not in use",
        "threads": get_num_threads(),
        "variables": {name: value for name, value in os.environ.items() if name.startswith("SPLITOPS_")},
        "libraries": _libraries(),
    }


def _wheel() -> str:
    """Return what the package was installed as, such as ``cp313-cp313-manylinux_2_28_x86_64``."""
    distribution = importlib.metadata.distribution("splitops")
    tags = Parser().parsestr(distribution.read_text("WHEEL") or "").get_all("Tag", ["unknown"])
    found = json.loads(distribution.read_text("direct_url.json") or "{}")
    editable = found.get("dir_info", {}).get("editable", False)
    return ", ".join([*tags, "editable"] if editable else tags)


def _libraries() -> dict[str, str]:
    """Return the releases of what splitops can use, as far as it is installed; nothing is imported."""
    found = {}
    for requirement in importlib.metadata.requires("splitops") or ():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found.pop("splitops", None)  # its extras name it
    return dict(sorted(found.items()))
