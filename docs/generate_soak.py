#!/usr/bin/env python3
"""Writes soak.md from what the last long soak found.

python docs/generate_soak.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FOUND: Final = Path(__file__).parents[1] / "dev/soak/last.json"
PAGE: Final = Path(__file__).with_name("soak.md")


def page() -> str:
    """Return the page."""
    found = json.loads(FOUND.read_text())
    calls = found["calls"]
    text = TEMPLATE.replace("{measures}", "\n".join(row(*item) for item in found["measures"].items()))
    for name, value in {
        "minutes": round(found["minutes"]),
        "calls": sum(calls.values()),
        "rounds": found["rounds"],
        "large": calls["large"],
        "libraries": calls["libraries"],
        "files": calls["files"] + calls["sharding"],
        "forks": calls["forks"],
    }.items():
        text = text.replace(f"{{{name}}}", f"{value:,}")
    return text


def row(name: str, measure: dict[str, Any]) -> str:
    """Write one measure as a row of the table."""
    growth, limit = measure["growth"], measure["limit"]
    return f"| {name} | {measure['last']:,.0f} | {growth:.2%} | {limit:.0%} | {measure['a call']:.2g} |"


TEMPLATE: Final = """<!-- Made by docs/generate_soak.py. -->

# Soak

`tasks.py soak` makes mixed random calls in four threads for as long as one likes: every array library,
views, copies and buffers, plans that threads share, broken calls, sessions, models, files, checkpoints,
children of forks. Each call is held against slices by NumPy, or the rule that it breaks. After each round
all threads rest, and what the process holds is measured: memory, Python objects, open files, threads and
processes. What grows fails the soak.

```console
$ python3.11 tasks.py soak                                # five minutes
$ python3.11 tasks.py soak 30 --json dev/soak/last.json   # half an hour, of which this page is made
$ python3.11 tasks.py soak 5 numpy plans                  # two kinds of calls alone, to find what grows
```

The growth is the median of the slopes between all pairs of rounds, without the first third, in which memos
and caches fill; a single step does not move it.

The last long soak made {calls} calls in {rounds} rounds and {minutes} minutes: {large} of them on arrays
large enough for the threads of the core, {libraries} on other libraries than NumPy, {files} on files and
checkpoints, {forks} in children of forks. Every call gave what it should.

| measure | at last | growth | allowed | a call |
|---|--:|--:|--:|--:|
{measures}

Calls on other libraries fill our memo, of 1024 plans at most, which is emptied when it is full: its share
of the objects comes and goes. Dask keeps the names of its last 100,000 tasks, ours or not: slices by Dask
alone leave as many. The soak empties that memo before it measures.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
