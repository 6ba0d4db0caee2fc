"""How long the page of ``splitops compare`` takes to load beside a plain table of the same size.

    python -m dev.benchmarks.compare_page [--cases 500] [--peers 20] [--rounds 15] [--browser CHROMIUM]

Both are opened in turns in one browser, each in a new tab, and timed from the start of the navigation to
the second frame after the load event. It needs playwright and a Chromium, and asks no network.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from html import escape
from pathlib import Path

from splitops.comparison import Report
from splitops.comparison.reports.html import to_html

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
SHOWN = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
    () => done(performance.now()))))"""
GOAL = 2.0


def plain(report: Report) -> str:
    """The same words in a table without style, script or details."""
    head = "".join(f"<th>{escape(peer.name)}</th>" for peer in report.peers)
    rows = "".join(
        f"<tr><th>{escape(entry.id)}</th>"
        + "".join(f"<td>{entry.verdicts[peer.name].word}</td>" for peer in report.peers)
        + "</tr>"
        for entry in report.entries
    )
    return f"<!doctype html><title>table</title><table><tr><th>case</th>{head}</tr>{rows}</table>"


def main() -> int:
    """Print the medians and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m dev.benchmarks.compare_page", description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--peers", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    chosen = parser.parse_args()
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "compare"))
    from synthetic import report

    made = report(chosen.cases, chosen.peers)
    times: dict[str, list[float]] = {"plain table": [], "page": []}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        paths = {name: Path(folder, f"{name}.html") for name in times}
        paths["plain table"].write_text(plain(made))
        paths["page"].write_text(to_html(made, "benchmark"))
        browser = playwright.chromium.launch(executable_path=chosen.browser, args=ARGUMENTS)
        context = browser.new_context(offline=True, viewport={"width": 1440, "height": 900})
        for _ in range(chosen.rounds + 1):  # the first round warms the browser
            for name, path in paths.items():
                page = context.new_page()
                page.goto(path.as_uri(), wait_until="load")
                times[name].append(page.evaluate(SHOWN))
                page.close()
        browser.close()
        sizes = {name: path.stat().st_size for name, path in paths.items()}
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    for name, median in medians.items():
        print(f"{name:12} {median:7.1f} ms, {sizes[name] / 1000:,.0f} kB")
    ratio = medians["page"] / medians["plain table"]
    print(f"ratio {ratio:.2f}" + (f" (> {GOAL})" if ratio > GOAL else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
