"""``splitops run``: a model on real input, and what was split into what."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from splitops.calls.node import observing
from splitops.cli._console import (
    console,
    format_shapes,
    json_option,
    one_line,
    place,
    print_json,
    say_written,
    table,
)
from splitops.cli._models import MODEL_FILE, add_weights, links_option
from splitops.cli._paths import NEW_FILE, NEW_FOLDER
from splitops.cli._trace import Split, Trace
from splitops.errors import Where, brief
from splitops.ground.records import select_json_values
from splitops.models.engines import AUTO, ENGINES
from splitops.models.sites import Site
from splitops.spec.operators import display_name

if TYPE_CHECKING:
    from rich.console import Console


_MAX_ROWS: Final = 40
_FEW: Final = 6


@click.command(short_help="Run an ONNX model or OpenVINO IR and write its outputs.")
@click.argument("model", type=MODEL_FILE)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=VALUE",
    help="One input, see above. Repeat it for the elements of a sequence.",
)
@click.option(
    "-o",
    "--out",
    type=NEW_FOLDER,
    help="Folder for the outputs; it is created if needed. Without it, they are only shown.",
)
@click.option(
    "--max-body-runs",
    type=click.IntRange(min=0),
    metavar="COUNT",
    help="How often the bodies of loops and functions may run, in total.  [default: 4194304]",
)
@click.option(
    "--for",
    "engine",
    type=click.Choice(ENGINES),
    default=AUTO,
    help="Runtime that runs the operators other than splits. auto is onnxruntime for ONNX and OpenVINO for "
    "IR if installed, otherwise reference, which is onnx's own evaluator.",
)
@click.option("--repeat", type=click.IntRange(min=1), metavar="COUNT", help="Time this many further runs.")
@click.option(
    "--profile",
    is_flag=True,
    help="Show where the time goes: by operator, in splits and data movers, and what simplify would save.",
)
@click.option(
    "--trace",
    type=NEW_FILE,
    help="Write the operators of the runs as a Chrome trace (JSON), which Perfetto shows.",
)
@click.option("--isolate", is_flag=True, help="Run the engine in a process of its own.")
@links_option
@json_option
def command(
    model: Path,
    inputs: tuple[str, ...],
    out: Path | None,
    max_body_runs: int | None,
    engine: str,
    isolate: bool,
    repeat: int | None,
    profile: bool,
    trace: Path | None,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Run MODEL, a .onnx file or the .xml of an OpenVINO IR, and show what each of its splits did.

    \b
    An input is NAME=VALUE, where VALUE is one of
      FILE.npy                  an array
      FILE.npz:KEY              an array of an .npz file
      FILE.pb                   an ONNX TensorProto, for a sequence a SequenceProto
      ramp:SHAPE:TYPE           0, 1, 2, ... such as ramp:6,4:float32
      random:SHAPE:TYPE[:SEED]  random numbers, of seed 0 where none is given

    SHAPE and TYPE may be left out where the model declares them. Without inputs, those that the model takes
    are listed.

    Where the model wants an element type that NumPy lacks, such as bfloat16, a .npy of raw or unsigned items
    of its width is taken bit for bit. Outputs of such types are written so: as unsigned integers, to be
    viewed as, say, ml_dtypes.bfloat16. The file outputs.json beside them names the type, the shape and the
    file of every output. An output y is written as y.npy, a sequence s as s.0.npy, s.1.npy and so on; in file
    names, what is not letter, digit or one of ._-+ becomes _. Files of the same names are replaced.

    \b
    Examples:
      splitops run model.onnx --input x=data.npy --out results
      splitops run model.xml --input data=ramp:6,12,10,24:float32
      splitops run model.onnx --input x=batch.npz:images --input mask=random --json
      splitops run model.onnx --input x=random --repeat 100 --profile --trace trace.json
    """
    from splitops.cli._inputs import read_inputs
    from splitops.cli._outputs import describe, is_output, write
    from splitops.cli._profile import measure
    from splitops.models.sessions import session

    add_weights(model)
    if trace is not None and out is not None and trace.parent == out and is_output(trace.name):
        raise click.UsageError(
            f"--trace would replace an output in {one_line(str(out))}. Choose another name."
        )
    made = Trace()
    options: dict[str, Any] = {
        "engine": engine,
        "isolate": isolate,
        "max_body_runs": max_body_runs,
        "allow_links": allow_links,
    }
    with session(model, **options) as ready, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as a division by zero, which the report of values shows
        feeds = read_inputs(inputs, ready.inputs)
        with observing(made.record):
            outputs = ready.run(feeds)
        sites, runtime, who = ready.sites, ready.engine, ready.describe()
        splits = made.splits(ready.infer_splits(feeds), sites, runtime)
        times = measure(model, feeds, ready, options, repeat, profile=profile, trace=trace)
    described = describe(outputs) if out is None else write(outputs, model.name, out)["outputs"]
    if as_json:
        report = {
            "model": str(model),
            "out": None if out is None else str(out),
            "engine": runtime,
            "evaluated": who,
            "splits": [_split_json(split) for split in splits],
            "splits_unlisted": made.unlisted,
            "outputs": _outputs_json(described, outputs),
        } | times.as_dict()
        print_json(report)
        return
    console(stderr=True).print(one_line(who), soft_wrap=True)
    terminal = console()
    _print_splits(terminal, splits, sites, made.unlisted)
    _print_outputs(terminal, described, outputs)
    times.print(terminal)
    say_written(out, trace)


def _split_json(split: Split) -> dict[str, Any]:
    made = (
        {}
        if split.plan is None
        else select_json_values(split.plan, "shape", "axis", "sizes", "offsets", "shapes")
    )
    by = {"by": split.by, "times": split.times} if split.by else {"times": 0}
    site = {"operator": str(split.schema), "domain": split.schema.domain}
    return site | select_json_values(split.where, "node", "graph") | by | made


def _outputs_json(described: list[dict[str, Any]], outputs: dict[str, Any]) -> list[dict[str, Any]]:
    from splitops.cli._outputs import statistics

    for item in described:
        value = outputs[item["name"]]
        elements = item.get("elements", [item])
        for element, array in zip(elements, value if item["kind"] == "sequence" else [value], strict=True):
            if array is not None:
                element |= statistics(np.asarray(array))
    return described


def _print_splits(out: Console, splits: list[Split], sites: tuple[Site, ...], unlisted: int) -> None:
    if not sites:
        out.print("The model has no split operator.\n")
        return
    columns = ("split", "operator", "by", "axis", "data", "sizes", "parts")
    rows = table(*columns, right=("axis",), title="What was split")
    for split in splits[:_MAX_ROWS]:
        often = {0: "", 1: "", None: " (where it runs)"}.get(split.times, f" ({split.times} times)")
        cells = ("", "known to the run alone" if split.by else "not run", "", "")
        if (plan := split.plan) is not None:
            cells = (str(plan.axis), str(plan.shape), brief(plan.sizes), format_shapes(plan.shapes))
        rows.add_row(_place(split.where) + often, display_name(split.schema), split.by, *cells)
    out.print(rows)
    left = len(splits) + unlisted - rows.row_count
    if left:
        out.print(f"... and {left} more")


def _place(where: Where) -> str:
    return place(where) or "?"


def _print_outputs(out: Console, described: list[dict[str, Any]], outputs: dict[str, Any]) -> None:
    written = any("file" in element for item in described for element in item.get("elements", [item]))
    columns = ("output", "type", "shape", "values") + (("file",) if written else ())
    rows = table(*columns, title="Outputs")
    for item in described:
        value, name = outputs[item["name"]], one_line(item["name"], 80)
        if item["kind"] == "absent":
            rows.add_row(name, "", "", "absent")
        elif item["kind"] == "tensor":
            rows.add_row(name, *_cells(item, value))
        else:
            rows.add_row(name, "sequence", f"{len(value)} elements")
            for index, (element, array) in enumerate(zip(item["elements"], value, strict=True)):
                if index == _MAX_ROWS:
                    rows.add_row("  ...")
                    break
                rows.add_row(f"  {index}", *_cells(element, array))
    out.print(rows)


def _cells(item: dict[str, Any], value: Any) -> list[str]:
    file = [item["file"]] if "file" in item else []
    return [item["dtype"], str(tuple(item["shape"])), _values(np.asarray(value)), *file]


def _values(array: np.ndarray[Any, Any]) -> str:
    """Write the values of a small array, of a larger one their range."""
    from splitops.cli._outputs import statistics

    if array.size <= _FEW:
        return one_line(", ".join(_value(value) for value in array.reshape(-1)), 120)
    if array.dtype.kind in "OUSTc":
        return one_line(f"{_value(array.flat[0])} ... {_value(array.flat[-1])}", 120)
    found = statistics(array)
    words = []
    if "true" in found:
        words.append(f"{found['true']} of {array.size} true")
    if "min" in found:
        words.append(f"{found['min']:g} ... {found['max']:g}")
    if "not_finite" in found:
        words.append(f"{found['not_finite']} not finite")
    return ", ".join(words)


def _value(value: Any) -> str:
    if isinstance(value, str | bytes):
        return repr(value[:40])
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
