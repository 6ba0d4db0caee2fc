"""``python -m dev.neighbours [SECONDS [FIRST [FAMILY]]]``: draw models, ask, and show what is wrong."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from dev.neighbours.asking import judged, others, problems, warm
from dev.neighbours.drawing import drawn
from splitops_compare.driver.case_runner import CaseRunner

_TOOLS = 7
"""Of so many models that OpenVINO gets right, one is rewritten all the same; the families take turns."""


def main(seconds: float = 3600, first: int = 0, family: str | None = None) -> int:
    """Draw models for so many seconds, and return the number of those with a fault."""
    warm()
    with others() as askers:
        return _asked(time.monotonic() + seconds, first, family, askers)


def _asked(until: float, first: int, family: str | None, askers: Mapping[str, CaseRunner]) -> int:
    number = first
    asked: Counter[str] = Counter()
    elsewhere: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    fused: Counter[str] = Counter()
    while time.monotonic() < until:
        model = drawn(number, family)
        found = judged(model.model, model.feeds, tools=number % _TOOLS == 0, askers=askers)
        if found:
            asked[model.family] += 1
            fused[model.family] += found["openvino"] != "right"
            for name in askers:
                elsewhere[f"{name} {found[name] if found[name] in ('right', 'rejected') else 'wrong'}"] += 1
                if found[name] not in ("right", "rejected"):
                    print(f"{number} {model.family}: {name}: {found[name]}", flush=True)
            said = problems(found)
            if said:
                faults[model.family] += 1
                print(f"{number} {model.family}: {'; '.join(said)} (check: {found['check']})", flush=True)
                Path("drawn").mkdir(exist_ok=True)
                Path(f"drawn/{number}.onnx").write_bytes(model.model.SerializeToString())
        number += 1
    print(f"{'family':14} {'models':>7} {'wrong on OpenVINO':>18} {'faults':>7}")
    for name in sorted(asked):
        print(f"{name:14} {asked[name]:7} {fused[name]:18} {faults[name]:7}")
    for name, count in sorted(elsewhere.items()):
        print(f"{name}: {count}")
    print(f"{sum(asked.values())} models from {first} to {number - 1}, {sum(faults.values())} with a fault")
    return int(bool(faults))


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(float(given[0]) if given else 3600, *map(int, given[1:2]), *given[2:3]))
