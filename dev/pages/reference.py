"""Writes the pages that are made from the code: operators.md, errors.md and backends.md.

Run it after a change of a schema, a message or a backend; a test holds the pages against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import splitops
from dev.pages import DOCS
from splitops import Rule, RuleError
from splitops.backends import ARRAY_API, BACKENDS, DLPACK, format_capability_table
from splitops.models.check.codes import MODEL_CODES
from splitops.models.check.explanations import explain, get_rule_examples
from splitops.spec import (
    FAMILY,
    SCHEMAS,
    Attribute,
    OperatorSchema,
    Option,
    Parameter,
    SizeRule,
    VersionChange,
)
from splitops.spec.operators.differences import compare

HEADER: Final = "<!-- Made by dev/pages/reference.py from the code. -->\n\n"

DESCRIPTIONS: Final = {
    SizeRule.EXPLICIT: "the sizes are given; they sum to D",
    SizeRule.EVEN: "n parts of D / n; n divides D",
    SizeRule.CEIL: "n parts of ceil(D / n), the last ones smaller or empty",
    SizeRule.CHUNK: "parts of s, the last one smaller",
    SizeRule.REMAINDER: "the sizes are given but one, -1, which takes the rest",
}


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return (
        "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines) + "\n"
    )


def domain_of(row: OperatorSchema) -> str:
    """Return the domain as models and readers write it."""
    return "OpenVINO" if row.domain == "openvino" else "ai.onnx"


def types_of(row: OperatorSchema) -> str:
    """Write the element types of the data."""
    names = sorted(element_type.name for element_type in row.types_of(row.inputs[0]))
    return ", ".join(f"`{name}`" for name in names)


# operators.md


def operators() -> str:
    """Return the page of the operator versions."""
    heading = (
        "operator",
        "domain",
        "since",
        "lengths from",
        "number of parts from",
        "axis from",
        "size rules",
    )
    rows = [
        (
            f"[{row}](#{anchor(row)})",
            domain_of(row),
            f"opset {row.since_version}",
            " or ".join(map(str, row.lengths)) or "-",
            str(row.count or "-"),
            f"{row.axis}{'' if row.default_axis is None else f', default {row.default_axis}'}",
            ", ".join(rule.value for rule in row.size_rules),
        )
        for row in SCHEMAS
    ]
    text = "# Look up operators\n\n" + HEADER
    text += "Every version of every operator that splitops runs, as its schema has it. "
    text += "`splitops.schema`, `splitops.history` and `splitops.difference` give the same as data.\n\n"
    text += "![The versions of each operator by opset, with the size rules of each](pictures/history.svg)\n\n"
    text += table(heading, rows)
    text += "\n## Size rules\n\nD is the size of the split axis, n the number of parts, s the chunk.\n\n"
    text += table(("rule", "sizes"), [(rule.value, DESCRIPTIONS[rule]) for rule in SizeRule])
    text += "\n" + "\n".join(_operator(row) for row in SCHEMAS)
    return text + "\n" + _differences()


def anchor(row: OperatorSchema) -> str:
    """Return the link target of a version's section."""
    return f"{domain_of(row)}-{row}".lower().replace(".", "")


def _operator(row: OperatorSchema) -> str:
    text = f"## {domain_of(row)} {row} {{ #{anchor(row)} }}\n\n"
    parameters = [(f"input {i}", p) for i, p in enumerate(row.inputs)]
    parameters += [(f"output {i}", p) for i, p in enumerate(row.outputs)]
    cells = [(place, f"`{item.name}`", _parameter(item)) for place, item in parameters]
    cells += [("attribute", f"`{item.name}`", _attribute(item)) for item in row.attributes]
    text += table(("place", "name", "is"), cells)
    text += f"\nElement types: {types_of(row)}.\n\n"
    text += "".join(f"- {note}\n" for note in row.notes)
    return text + ("\n" if row.notes else "") + f"Source: [{row}]({row.source}).\n"


def _attribute(item: Attribute) -> str:
    words = [
        "integer" if item.type.value == "INT" else "integers",
        "required" if item.required else "optional",
    ]
    if item.default is not None:
        words.append(f"default {item.default}")
    if item.minimum is not None:
        words.append(f"at least {item.minimum}")
    return ", ".join(words)


def _parameter(item: Parameter) -> str:
    words = [f"type `{item.type}`"]
    if item.option is not Option.SINGLE:
        words.append(item.option.value.lower())
    if item.ranks is not None:
        words.append("rank " + " or ".join(map(str, item.ranks)))
    if item.minimum is not None:
        words.append(f"values at least {item.minimum}")
    return ", ".join(words)


def _differences() -> str:
    text = "## What changed\n"
    for domain, name in ((domain, name) for domain, names in FAMILY.items() for name in names):
        for old, new in pairwise(splitops.history(name, domain)):
            difference = compare(old, new)
            text += f"\n### {'OpenVINO ' if domain else ''}{old} to {new}\n\n"
            text += table(("kind", "what", "change"), map(_change, difference.changes))
    return text


def _change(change: VersionChange) -> tuple[str, str, str]:
    return change.kind, change.name, change.text


# errors.md

_NEEDED: Final = {
    "import numpy as np": ("np", "x"),
    "import splitops": ("splitops",),
    "import onnx": ("helper",),
    "x = np.zeros((4, 6), np.float32)": ("x",),
}
"""What goes before an example that has one of these names in it."""

_EXAMPLES: Final = get_rule_examples()


def errors() -> str:
    """Return the page of the rule codes, each with an error that is raised while the page is made."""
    text = "# Look up errors\n\n" + HEADER
    text += (
        "Every error that splitops raises on purpose is a `SplitError`, which is a `ValueError`. A broken "
        "rule of an operator raises a `RuleError` of the class in the table. It prints one line, and has "
        "the fields `operator`, `rule`, `got`, `expected`, `values` and `where`. `ArrayError` is about "
        "arrays: `out=` buffers that do not fit or overlap, or an array of an unknown library. "
        "`ModelError` is about files and models.\n\n"
        "[What each operator means](semantics.md) has the reasons for the rules. Each example runs by "
        "itself.\n\n"
    )
    text += table(("rule", "class"), [(f"[`{rule}`](#{_rule_anchor(rule)})", _family(rule)) for rule in Rule])
    for rule in Rule:
        error = example(rule)
        text += f"\n## {rule} {{ #{_rule_anchor(rule)} }}\n\n"
        text += f"`{type(error).__name__}`: {_summary(error)}\n\n"
        prompt = "".join(f">>> {line}\n" for line in _session(rule))
        text += f"```python\n{prompt}Traceback (most recent call last):\n...\n{_named(error)}\n```\n\n"
        names = ", ".join(f"`{name}`" for name in error.values)
        text += f"`values` holds {names}.\n" if names else "`values` is empty.\n"
        text += f"\nFix: {explain(str(rule)).fix}.\n"
    text += (
        "\n# Findings of a check alone\n\n`splitops check` also reports what is wrong around the splits.\n"
    )
    for code in MODEL_CODES:
        text += f"\n## {code} {{ #{code.replace('.', '-')} }}\n\n{explain(code).meaning}.\n"
        text += f"\nFix: {explain(code).fix}.\n"
    return text


def example(rule: Rule) -> RuleError:
    """Break a rule, and return the error.

    Raises:
        AssertionError: the example breaks another rule, or none.
    """
    try:
        exec("\n".join(_session(rule)), {})  # noqa: S102
    except RuleError as error:
        if error.rule is rule:
            return error
        raise AssertionError(f"{_EXAMPLES[rule]} breaks {error.rule}, not {rule}") from error
    raise AssertionError(f"{_EXAMPLES[rule]} breaks no rule")


def _session(rule: Rule) -> list[str]:
    """Return the lines to be typed into a new interpreter; the last one breaks the rule."""
    example = _EXAMPLES[rule]
    names = set(re.findall(r"\w+", example))
    return [*(line for line, needing in _NEEDED.items() if names.intersection(needing)), example]


def _named(error: RuleError) -> str:
    """Write an error as a traceback ends."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}"


def _summary(error: RuleError) -> str:
    summary = (type(error).__doc__ or "").partition(": ")[2].replace("``", "`").strip()
    return summary[:1].upper() + summary[1:]


def _family(rule: Rule) -> str:
    return f"`{type(example(rule)).__name__}`"


def _rule_anchor(rule: Rule) -> str:
    return str(rule).replace(".", "-")


# backends.md


def backends() -> str:
    """Return the page of the array libraries."""
    entries = (*BACKENDS, ARRAY_API, DLPACK)
    heading, *rows = format_capability_table({entry.name: entry.capabilities for entry in entries})
    text = "# Use array libraries\n\n" + HEADER
    text += (
        "A split takes an array of any library below and gives parts of the same library, on the same "
        "device. The library is found by the type of the array; none is imported for being looked for.\n\n"
    )
    text += table(heading, rows)
    text += (
        "\n- **views**: `copy=None` gives parts that share memory with the data.\n"
        "- **copies**: `copy=True` gives independent parts.\n"
        "- **out**: `out=` fills the caller's buffers. PyTorch follows no derivative through buffers (its "
        "own `split_with_sizes_copy(out=...)` gives gradients of zero under `torch.func.grad`), so that it "
        "is rejected where one is recorded: use `copy=True`, or `torch.no_grad()` where none is wanted. "
        "Inside `torch.vmap` buffers must have the batch, too.\n"
        "- **lazy**: nothing is computed before it is asked for.\n"
        "- **read only**: read-only data give read-only views.\n"
        "- **gradients**: derivatives flow through the parts.\n"
        "- **compiled**: the tracers and compilers that a split works inside. `torch.compile` makes one "
        "graph of a split whose axis and lengths are integers, and breaks it at an array of lengths; plans "
        "may be made in it, for a shape of integers; compiled copies are the compiler's own. `jax.export` "
        "needs sizes that JAX can decide: `num_outputs=3` of a "
        "symbolic axis `3*n`, not of `n`, and a remainder where constraints show that it is not negative.\n"
    )
    text += (
        "\n## Copies on a GPU\n\n"
        "Tensors and arrays on a GPU are copied by the kernels of their own library: `copy=True` is "
        "`torch.split_with_sizes_copy` in PyTorch (CUDA and ROCm) and a copy of each slice in CuPy. `out=` "
        "is `torch.split_with_sizes_copy(out=...)` and an assignment to each buffer. The checks of `out=` "
        "read addresses only. Nothing is uploaded, and nothing waits for the device.\n"
    )
    return text


PAGES: Final = {"operators.md": operators, "errors.md": errors, "backends.md": backends}


def write() -> None:
    """Write the pages and pictures of this module."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
