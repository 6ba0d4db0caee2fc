#!/usr/bin/env python3
"""Writes fuzzing.md from what is fuzzed, what was spent and what was found.

python docs/generate_fuzzing.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = Path(__file__).with_name("fuzzing.md")
sys.path.insert(0, str(ROOT))

from dev.fuzz.targets import TARGETS  # noqa: E402

_MODEL: Final = "read, inferred, checked, simplified, legalised and converted, or refused"
_FILE: Final = "read and cut in two, and the parts merged to the same bytes, or refused"
HOLDS: Final = {
    "onnx": ("an ONNX model", f"{_MODEL}; a small one gives the same before and after"),
    "ir": ("an OpenVINO IR", _MODEL),
    "npy": ("a `.npy`", _FILE),
    "npz": ("an `.npz`", _FILE),
    "safetensors": ("a safetensors file", _FILE),
    "gguf": ("a GGUF file", _FILE),
    "hdf5": ("an HDF5 file", _FILE),
    "zarr": ("metadata and chunks of zarr", _FILE),
    "stream": ("a `.npy.gz`", _FILE),
    "weights": ("an ONNX model, as a file of tensors", _FILE),
    "calls": (
        "nodes of every operator version",
        "bound exactly where the rules, written down again, allow them",
    ),
    "parts": ("data, axis and lengths", "the parts are NumPy's slices"),
    "out": ("`out=` of any strides", "filled, or nothing is written"),
    "arguments": (
        "arguments of any kind to all functions",
        "NumPy's slices, or one line; a repeated call gives the same",
    ),
    "buffers": ("`out=` of any kind", "filled with what the call gives without it, or refused"),
    "names": ("names, versions, shapes and dtypes of any kind", "answered or refused"),
    "copies": ("copies by the native core", "those of its twin in Python"),
    "packing": ("elements of less than a byte", "the same after packing"),
    "inference": (
        "lengths that are partly known",
        "the least shapes that hold what every concrete instance gives",
    ),
    "symbols": ("numbers of parts of symbolic sizes", "the same"),
    "lengths": ("lengths with unknown entries", "the same"),
    "axes": ("axes that are not known", "the same"),
    "sequences": ("sequences of symbolic sizes", "the same"),
    "conversion": ("models with splits", "the converted model gives the same in its runtime"),
    "opsets": ("models moved between opsets and back", "they give the same"),
    "simplification": ("models with rewrites to be done", "the simplified model gives the same bits"),
    "failing": ("sizes that models reject", "simplified models reject them too"),
    "legalization": ("splits for onnxruntime", "what is legal or made so gives the decided bits there"),
    "extents": ("extents of bytes", "composed copies do what two do"),
    "merges": ("files that nobody split", "merged to NumPy's concatenation, or refused"),
    "plans": ("plans of ranks with edits", "what they cut is merged to the same bytes, or refused"),
    "checkpoints": ("configurations and indices with edits", "the same"),
    "manifests": ("manifests of ranks with edits", "what is merged is cut and merged anew to the same bytes"),
    "globs": ("patterns of names", "they match what regular expressions match"),
    "reports": (
        "reports of comparisons with edits",
        "shown as page, JUnit and SARIF, and judged, or refused",
    ),
    "expectations": ("expectations with edits", "judged, or refused"),
    "replies": ("what peers say, with edits", "read to arrays of the stated shapes and types, or refused"),
    "commands": ("command lines", "they end with a documented code, and an error is one line"),
    "core": (
        "the native core, by libFuzzer with sanitizers",
        "what it copies is what a loop over the elements copies",
    ),
}


def page() -> str:
    """Return the page."""
    spent = json.loads((ROOT / "dev/fuzz" / "spent.json").read_text())
    rows = [row(name, spent.get(name, {})) for name in (*TARGETS, "core")]
    seconds = sum(each["processor_seconds"] for each in spent.values())
    inputs = sum(each["inputs"] for each in spent.values())
    found = sorted((ROOT / "dev/fuzz" / "found").glob("*/*"))
    listed = "\n".join(f"- `{path.parent.name}`: {path.name.replace('-', ' ')}" for path in found)
    return (
        TEMPLATE.replace("{targets}", "\n".join(rows))
        .replace("{minutes}", str(seconds // 60))
        .replace("{inputs}", f"{inputs:,}")
        .replace("{found}", listed)
        .replace("{count}", str(len(found)))
    )


def row(name: str, spent: dict[str, int]) -> str:
    """Write one target as a row of the table."""
    given, holds = HOLDS[name]
    minutes, inputs = spent.get("processor_seconds", 0) / 60, spent.get("inputs", 0)
    return f"| `{name}` | {given} | {holds} | {minutes:.1f} | {inputs:,} |"


TEMPLATE: Final = """<!-- Made by docs/generate_fuzzing.py. -->

# Fuzzing

Whatever comes from outside is attacked by a fuzzer that follows the code that its inputs reach. Of Python
that is atheris, of the native core libFuzzer with the address and undefined-behaviour sanitizers. A crash, a
hang over ten seconds, memory over 2 GiB, a wrong result, and an error that is no `SplitError` are findings;
what holds instead is in the [threat model](threats.md).

```console
$ python3.11 tasks.py fuzz                 # each target for a minute
$ python3.11 tasks.py fuzz all 300         # each target for five minutes
$ python3.11 tasks.py fuzz manifests 3600  # one target for an hour
$ python3.11 tasks.py fuzz core 600        # the native core; it needs clang
$ python3.11 tasks.py fuzz keep            # the fewest inputs that cover what was learnt go into the corpus
```

A run goes on where the last one stopped: what it learns is in `.fuzz/`. What breaks a target is written to
`dev/fuzz/found/TARGET/`; its name says what it is once it is mended. `dev/fuzz/corpus/` and `dev/fuzz/found/`
are read again by the tests. `dev/fuzz/spent.json` adds up what was spent, of which this page is made.

So far {minutes} minutes of processor time were spent on {inputs} inputs.

| target | it is given | what holds | minutes | inputs |
|---|---|---|--:|--:|
{targets}

Most targets of calls and edited documents are tests of the suite for which the fuzzer draws: an edit
replaces, moves, doubles, renames or leaves out any value of a valid document, also by numbers beyond 64 bits,
names that lead elsewhere, lone surrogates and values of other types.

## What was found

The inputs of {count} findings are kept, each mended at its root:

{found}

Findings of drawn targets are kept as tests of their own, since what bytes draw is not the same in every
release of Hypothesis.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
