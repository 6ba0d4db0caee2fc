#!/usr/bin/env python3
"""Writes check.md from the profiles of the runtimes.

python docs/generate_check.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from splitops.models.check import LIMITS, Limit

PAGE: Final = Path(__file__).with_name("check.md")


def page() -> str:
    """Return the page."""
    heading = "| code | outcome | what happens | fix | seen in |\n|---|---|---|---|---|\n"
    return TEMPLATE.replace("{limits}", heading + "\n".join(map(row, LIMITS)))


def row(limit: Limit) -> str:
    """Write one limit as a row of the table."""
    seen = limit.seen or f"[documented]({limit.source})"
    fix = (limit.fix or "") + (
        f" ({' or '.join(f'`{form}`' for form in limit.forms)})" if limit.forms else ""
    )
    return f"| `{limit.code}` | {limit.outcome} | {limit.message} | {fix} | {seen} |"


TEMPLATE: Final = """<!-- Made by docs/generate_check.py. -->

# Checking models

`splitops check MODEL` finds everything that is wrong with the splits of a model, and what runtimes will
mind. It never stops at the first finding.

```python
>>> import onnx.parser, splitops
>>> model = onnx.parser.parse_model('''
...     <ir_version: 9, opset_import: ["": 18]>
...     g (float[5] x) => (float[n] a, float[m] b, float[k] c, float[l] d) {
...         a, b, c, d = Split<num_outputs = 4>(x) }''')
>>> for finding in splitops.check(model, ["onnxruntime"]):
...     print(finding)
error: Split-18 [onnxruntime.ceil-negative-part]: num_outputs whose parts reach beyond the axis is refused \
(node 'Split -> a'); fix: state the lengths in the input 'split' instead of num_outputs

```

- Every rule of the [operators](semantics.md) is decided as far as types, shapes and values are known:
  inference goes through the whole model first, see [inference](inference.md). Codes are those of the
  [errors](errors.md).
- `stated.shape` and `stated.type`: the model states another shape or type of a split's output than it
  has.
- `model.invalid`: the model cannot be read, states an IR version or a size that cannot be or an opset that
  the installed onnx does not have, or reads a sequence of parts as a tensor.
- A rule that depends on sizes is a warning inside a branch or loop: the model may guard against it.
- A lone OpenVINO `<layer>`, as text or in an `.xml` file, is checked as far as it goes: its attributes,
  and its ports against one another, for every axis that it may split.

`--target` names the runtimes that a model is for: what one of them surely does not take is an error
then. Without targets, the limits of all runtimes are warnings. The exit code is 1 where there are
errors. `--json` prints the findings as JSON, `--sarif FILE` writes them as SARIF 2.1.0.

## Limits of runtimes

One row of data each, with its condition; a test drives the runtime itself in a process of its own, so
that a release that behaves otherwise is noticed.

{limits}

The words in brackets behind a fix are the forms in which [`splitops legalize`](legalize.md) states such a
site so that the runtime gives the decided result.

## Repairs

`splitops check MODEL --fix -o OUT` legalises the model for each `--target` in turn, as far as it can, says
what was restated, and checks the result. Without a target it does so for all, and a split stays one split:
Slices, sequences of parts and the like are for who names a runtime. A Split-18 without lengths gets
`num_outputs`, the number of outputs that it declares; a split with attributes of another version is stated as
its own version has it, or as Slices where that version has no lengths that a run computes (below 13).
`--unbind` says what a scripted `unbind` means, see [legal models](legalize.md).
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
