"""Writes soak.md from what the last long soak found."""

from __future__ import annotations

import json
from typing import Any, Final

from dev.pages import DOCS, ROOT

FOUND: Final = ROOT / "dev/soak/last.json"
PAGE: Final = DOCS / "soak.md"


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
    return text.replace("{date}", found["date"])


def row(name: str, measure: dict[str, Any]) -> str:
    """Write one measure as a row of the table."""
    growth, limit = measure["growth"], measure["limit"]
    return f"| {name} | {measure['last']:,.0f} | {growth:.2%} | {limit:.0%} | {measure['a call']:.2g} |"


TEMPLATE: Final = """<!-- Made by dev/pages/soak.py. -->

# How long runs are tested

`tasks.py soak` makes random calls in four threads for any time: every array library, views, copies and
buffers, plans shared between threads, invalid calls, sessions, models, files, checkpoints and forked
children. Each result is compared with NumPy's slices, or with the rule that the call breaks. After each
round all threads rest, and the soak measures the memory, Python objects, open files, threads and
processes of the process. Growth fails the soak.

```console
$ python3.11 tasks.py soak                                # five minutes
$ python3.11 tasks.py soak 30 --json dev/soak/last.json   # half an hour; this page shows it
$ python3.11 tasks.py soak 5 numpy plans                  # only two kinds of calls, to find what grows
```

The growth is the median of the slopes between all pairs of rounds, without the first third, in which caches
fill. A single step does not change it.

The last long soak, on {date}, made {calls} calls in {rounds} rounds and {minutes} minutes:
{large} of them on arrays large enough for the threads of the core, {libraries} on libraries other than
NumPy, {files} on files and checkpoints, {forks} in forked children. Every call returned the correct result.

| measure | final value | growth | allowed | per call |
|---|--:|--:|--:|--:|
{measures}

Calls on other libraries fill a cache of at most 1024 plans, which is emptied when it is full, so the
number of objects varies. Dask keeps the names of its last 100,000 tasks, and slices by Dask alone leave
as many. The soak empties that cache before it measures.
"""


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page())
