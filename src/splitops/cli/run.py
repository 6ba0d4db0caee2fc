"""``splitops run``: run a model, write its outputs, and show its splits."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from splitops.calls.node import observe_splits
from splitops.cli._console import (
    escape,
    format_place,
    format_shapes,
    json_option,
    make_console,
    make_table,
    print_json,
    print_written,
)
from splitops.cli._models import MODEL_FILE, add_weights, links_option
from splitops.cli._paths import NEW_FILE, NEW_FOLDER
from splitops.cli._trace import Split, Trace
from splitops.common.json_values import select_json_values
from splitops.errors import Where, brief
from splitops.models.engines import AUTO, ENGINES
from splitops.models.split_nodes import SplitNode
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
    help="An input, see above. Repeat it for each input, and for each element of a sequence.",
)
@click.option(
    "-o",
    "--out",
    type=NEW_FOLDER,
    help="Folder for the outputs; it is created if needed. Without it, they are only shown.",
)
@click.option(
    "--max-iterations",
    type=click.IntRange(min=0),
    metavar="COUNT",
    help="Maximum number of loop iterations and function calls in total, on the reference.  "
    "[default: 4194304]",
)
@click.option(
    "--for",
    "engine",
    type=click.Choice(ENGINES),
    default=AUTO,
    help="Runtime that runs the model. auto is onnxruntime for ONNX and OpenVINO for IR, if it is installed "
    "and runs the model as specified; otherwise reference, the evaluator of onnx.",
)
@click.option("--repeat", type=click.IntRange(min=1), metavar="COUNT", help="Time this many further runs.")
@click.option(
    "--profile",
    is_flag=True,
    help="Show the time of each operator, of splits and other data movement, and what simplify would save.",
)
@click.option(
    "--trace",
    type=NEW_FILE,
    help="Write a Chrome trace (JSON) of the operators, for example for Perfetto.",
)
@click.option("--isolate", is_flag=True, help="Run the runtime in a separate process.")
@links_option
@json_option
def command(
    model: Path,
    inputs: tuple[str, ...],
    out: Path | None,
    max_iterations: int | None,
    engine: str,
    isolate: bool,
    repeat: int | None,
    profile: bool,
    trace: Path | None,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Run MODEL, a .onnx file or the .xml of an OpenVINO IR, and show each of its splits.

    \b
    An input is NAME=VALUE. VALUE is one of
      FILE.npy                  an array
      FILE.npz:KEY              an array of an .npz file
      FILE.pb                   an ONNX TensorProto, or a SequenceProto for a sequence
      ramp:SHAPE:TYPE           0, 1, 2, ... such as ramp:6,4:float32
      random:SHAPE:TYPE[:SEED]  random numbers; the default seed is 0

    SHAPE and TYPE may be omitted if the model declares them. Without inputs, the inputs of the model are
    listed.

    An input whose element type NumPy lacks, such as bfloat16, is read bit for bit from a .npy of raw or
    unsigned items of the same width. Outputs of such types are written as unsigned integers: view them as,
    for example, ml_dtypes.bfloat16. The file outputs.json lists the type, shape and file of every
    output. An output y is written to y.npy, and a sequence s to s.0.npy, s.1.npy and so on. In file names,
    characters other than letters, digits and ._-+ become _. Existing files are replaced.

    \b
    Examples:
      splitops run model.onnx --input x=data.npy --out results
      splitops run model.xml --input data=ramp:6,12,10,24:float32
      splitops run model.onnx --input x=batch.npz:images --input mask=random --json
      splitops run model.onnx --input x=random --repeat 100 --profile --trace trace.json
    """
    from splitops.cli._inputs import read_inputs
    from splitops.cli._outputs import describe_outputs, may_be_output, write_outputs
    from splitops.cli._profile import measure
    from splitops.models.sessions import session

    add_weights(model)
    if trace is not None and out is not None and trace.parent == out and may_be_output(trace.name):
        raise click.UsageError(f"--trace would replace an output in {escape(str(out))}. Choose another name.")
    executed = Trace()
    options: dict[str, Any] = {
        "engine": engine,
        "isolate": isolate,
        "max_iterations": max_iterations,
        "allow_links": allow_links,
    }
    with session(model, **options) as ready, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report shows values such as inf after a division by zero
        feeds = read_inputs(inputs, ready.inputs)
        with observe_splits(executed.record):
            outputs = ready.run(feeds)
        split_nodes, runtime, who = ready.splits, ready.engine, ready.describe()
        splits = executed.list_splits(ready.infer_splits(feeds), split_nodes, runtime)
        times = measure(model, feeds, ready, options, repeat, profile=profile, trace=trace)
    written = None if out is None else write_outputs(outputs, model.name, out)
    described = describe_outputs(outputs) if written is None else written["outputs"]
    if as_json:
        report = {
            "model": str(model),
            "out": None if out is None else str(out),
            "engine": runtime,
            "evaluated": who,
            "splits": [_split_to_json(split) for split in splits],
            "splits_unlisted": executed.unlisted,
            "outputs": _convert_outputs(described, outputs),
        } | times.as_dict()
        print_json(report)
        return
    make_console(stderr=True).print(escape(who), soft_wrap=True)
    terminal = make_console()
    _print_splits(terminal, splits, split_nodes, executed.unlisted)
    _print_outputs(terminal, described, outputs)
    times.print(terminal)
    print_written(out, trace)


def _split_to_json(split: Split) -> dict[str, Any]:
    layout = (
        {}
        if split.plan is None
        else select_json_values(split.plan, "shape", "axis", "sizes", "offsets", "shapes")
    )
    by = {"by": split.by, "times": split.times} if split.by else {"times": 0}
    facts = {"operator": str(split.schema), "domain": split.schema.domain}
    return facts | select_json_values(split.where, "node", "graph") | by | layout


def _convert_outputs(described: list[dict[str, Any]], outputs: dict[str, Any]) -> list[dict[str, Any]]:
    from splitops.cli._outputs import compute_statistics

    for item in described:
        value = outputs[item["name"]]
        elements = item.get("elements", [item])
        for element, array in zip(elements, value if item["kind"] == "sequence" else [value], strict=True):
            if array is not None:
                element |= compute_statistics(np.asarray(array))
    return described


def _print_splits(
    out: Console, splits: list[Split], split_nodes: tuple[SplitNode, ...], unlisted: int
) -> None:
    if not split_nodes:
        out.print("The model has no split operator.\n")
        return
    columns = ("split", "operator", "by", "axis", "data", "sizes", "parts")
    rows = make_table(*columns, right=("axis",), title="Splits")
    for split in splits[:_MAX_ROWS]:
        often = {0: "", 1: "", None: " (in a branch or loop)"}.get(split.times, f" ({split.times} times)")
        cells = ("", "not known before the run" if split.by else "not run", "", "")
        if (plan := split.plan) is not None:
            cells = (str(plan.axis), str(plan.shape), brief(plan.sizes), format_shapes(plan.shapes))
        rows.add_row(_format_place(split.where) + often, display_name(split.schema), split.by, *cells)
    out.print(rows)
    left = len(splits) + unlisted - rows.row_count
    if left:
        out.print(f"... and {left} more")


def _format_place(where: Where) -> str:
    return format_place(where) or "?"


def _print_outputs(out: Console, described: list[dict[str, Any]], outputs: dict[str, Any]) -> None:
    written = any("file" in element for item in described for element in item.get("elements", [item]))
    columns = ("output", "type", "shape", "values") + (("file",) if written else ())
    rows = make_table(*columns, title="Outputs")
    for item in described:
        value, name = outputs[item["name"]], escape(item["name"], 80)
        if item["kind"] == "absent":
            rows.add_row(name, "", "", "absent")
        elif item["kind"] == "tensor":
            rows.add_row(name, *_format_cells(item, value))
        else:
            rows.add_row(name, "sequence", f"{len(value)} elements")
            for index, (element, array) in enumerate(zip(item["elements"], value, strict=True)):
                if index == _MAX_ROWS:
                    rows.add_row("  ...")
                    break
                rows.add_row(f"  {index}", *_format_cells(element, array))
    out.print(rows)


def _format_cells(item: dict[str, Any], value: Any) -> list[str]:
    file = [item["file"]] if "file" in item else []
    return [item["dtype"], str(tuple(item["shape"])), _format_values(np.asarray(value)), *file]


def _format_values(array: np.ndarray[Any, Any]) -> str:
    """Format the elements of a small array, or the statistics or the ends of a larger one."""
    from splitops.cli._outputs import compute_statistics

    if array.size <= _FEW:
        return escape(", ".join(_format_value(value) for value in array.reshape(-1)), 120)
    if array.dtype.kind in "OUSTc":
        return escape(f"{_format_value(array.flat[0])} ... {_format_value(array.flat[-1])}", 120)
    found = compute_statistics(array)
    words = []
    if "true" in found:
        words.append(f"{found['true']} of {array.size} true")
    if "min" in found:
        words.append(f"{found['min']:g} ... {found['max']:g}")
    if "not_finite" in found:
        words.append(f"{found['not_finite']} not finite")
    return ", ".join(words)


def _format_value(value: Any) -> str:
    if isinstance(value, str | bytes):
        return repr(value[:40])
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
