"""Writes fuzzing.md from what is fuzzed, what was spent and what was found."""

from __future__ import annotations

import json
from typing import Final

from dev.fuzz.targets import TARGETS
from dev.pages import DOCS, ROOT

PAGE: Final = DOCS / "fuzzing.md"

_MODEL: Final = "read, inferred, checked, simplified, fixed and converted, or rejected"
_FILE: Final = "read and split in two, and the parts merged to the same bytes, or rejected"
HOLDS: Final = {
    "onnx": ("an ONNX model", f"{_MODEL}; a small model returns the same before and after"),
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
        "accepted exactly where an independent copy of the rules accepts them",
    ),
    "parts": ("data, axis and lengths", "the parts are NumPy's slices"),
    "out": ("`out=` of any strides", "filled, or nothing is written"),
    "arguments": (
        "arguments of any kind to all functions",
        "NumPy's slices, or an error of one line; a repeated call returns the same",
    ),
    "buffers": ("`out=` of any kind", "filled with what the call returns without it, or rejected"),
    "names": ("names, versions, shapes and dtypes of any kind", "answered or rejected"),
    "copies": ("copies by the native core", "those of the reference in Python"),
    "packing": ("elements of less than a byte", "the same after packing"),
    "inference": (
        "lengths that are partly known",
        "the smallest shapes that contain the result of every concrete instance",
    ),
    "symbols": ("numbers of parts of symbolic sizes", "the same"),
    "lengths": ("lengths with unknown entries", "the same"),
    "shapefold": (
        "models that compute sizes from shapes",
        "what is inferred contains what a run computes; simplified and converted models compute the same",
    ),
    "axes": ("axes that are not known", "the same"),
    "sequences": ("sequences of symbolic sizes", "the same"),
    "conversion": ("models with splits", "the converted model returns the same in its runtime"),
    "opsets": ("models moved between opsets and back", "they return the same"),
    "simplification": ("models that can be simplified", "the simplified model returns the same bits"),
    "failing": ("sizes that models reject", "simplified models reject them too"),
    "fixes": (
        "splits for onnxruntime",
        "what is accepted or rewritten returns the specified bits",
    ),
    "extents": ("extents of bytes", "composed copies do what two do"),
    "merges": ("files that nobody split", "merged to NumPy's concatenation, or rejected"),
    "plans": ("plans of ranks with edits", "what they cut is merged to the same bytes, or rejected"),
    "checkpoints": ("configurations and indices with edits", "the same"),
    "manifests": (
        "manifests of ranks with edits",
        "what is merged can be cut and merged again to the same bytes",
    ),
    "globs": ("patterns of names", "they match what regular expressions match"),
    "reports": (
        "reports of comparisons with edits",
        "shown as page and SARIF, and judged, or rejected",
    ),
    "expectations": ("expectations with edits", "applied, or rejected"),
    "replies": (
        "answers of implementations, with edits",
        "read as arrays of declared shape and type, or rejected",
    ),
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


TEMPLATE: Final = """<!-- Made by dev/pages/fuzzing.py. -->

# How splitops is fuzzed

A coverage-guided fuzzer attacks everything that comes from outside: atheris for Python, and libFuzzer with
the address and undefined-behaviour sanitizers for the native core. Findings are crashes, hangs of more than
ten seconds, memory over 2 GiB, wrong results, and errors that are not a `SplitError`. The
[threat model](threats.md) lists the guarantees.

```console
$ python3.11 tasks.py fuzz                 # each target for a minute
$ python3.11 tasks.py fuzz all 300         # each target for five minutes
$ python3.11 tasks.py fuzz manifests 3600  # one target for an hour
$ python3.11 tasks.py fuzz core 600        # the native core; it needs clang
$ python3.11 tasks.py fuzz keep            # keep the fewest inputs that cover what was learned
```

A run continues the last one: what it learns is in `.fuzz/`. An input that breaks a target is written to
`dev/fuzz/found/TARGET/`. Once the fault is fixed, the file gets a name that describes it. The tests read
`dev/fuzz/corpus/` and `dev/fuzz/found/` again. `dev/fuzz/spent.json` sums up the time, which this page shows.

So far the fuzzers used {minutes} minutes of processor time for {inputs} inputs.

| target | input | expected result | minutes | inputs |
|---|---|---|--:|--:|
{targets}

Most targets of calls and edited documents are tests of the suite, for which the fuzzer draws the input.
An edit replaces, moves, duplicates, renames or removes any value of a valid document. It also uses
numbers beyond 64 bits, names that lead elsewhere, lone surrogates and values of other types.

## Findings

The inputs of {count} findings are kept. Each fault is fixed:

{found}

Findings of drawn targets are kept as separate tests, because the same bytes draw different values in
different releases of Hypothesis.
"""


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page())
