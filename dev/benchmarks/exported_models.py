"""Models as PyTorch exports them, and how many nodes splitops and other optimizers leave of each.

    tasks.py bench exported_models --out DIR          # only write the models
    tasks.py bench exported_models --write docs/simplify.md

Needs torch==2.13.0 (CPU) and onnxscript, for the table onnxruntime; onnxoptimizer, onnxslim and onnxsim
are compared where they are installed. Each result is run by onnxruntime against the exported model.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from dev.benchmarks.quiet import quiet

VERSIONS = ((11, False), (13, False), (18, False), (18, True), (23, True))
"""Opsets, and whether the exporter is the one by torch.export (True) or by tracing."""

SPLIT_LIKE = frozenset(
    {"Split", "SplitToSequence", "SequenceAt", "SequenceLength"}
    | {"ConcatFromSequence", "Concat", "Slice", "Gather"}
)


# Models


class Chunk(nn.Module):
    """Two halves that are used."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=1)
        return a * b


class SplitSizes(nn.Module):
    """Parts of given sizes, of which one is not used."""

    def forward(self, x: Tensor) -> Tensor:
        a, _, c = x.split([3, 4, 5], dim=1)
        return torch.cat([c, a], dim=1).relu()


class Shuffle(nn.Module):
    """One half through a layer, and both together again, as in ShuffleNet and CSP blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            a, b = x.chunk(2, dim=1)
            x = torch.cat([a, self.layer(b)], dim=1)
        return x


class Glu(nn.Module):
    """Gated linear unit."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 24)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.glu(self.layer(x), dim=-1)


class Qkv(nn.Module):
    """Self-attention with one projection for q, k and v."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).chunk(3, dim=-1)
        weights = (q @ k.transpose(-2, -1) / 12**0.5).softmax(-1)
        return self.out(weights @ v)


class FusedWeights(nn.Module):
    """Fused weights that are split in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(36, 12))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.weight.chunk(3, dim=0)
        return (x @ q.T) * (x @ k.T) + x @ v.T


class Unbind(nn.Module):
    """Self-attention whose q, k and v are positions of an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(12, 36)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).reshape(1, 12, 3, 12).permute(2, 0, 1, 3).unbind(0)
        return (q @ k.transpose(-2, -1)).softmax(-1) @ v


class LstmCell(nn.Module):
    """The gates of an LSTM, two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(24, 48)

    def forward(self, x: Tensor) -> Tensor:
        h, c = x[:, :12].reshape(1, 12, 12)[0], x[:, :12].reshape(1, 12, 12)[0] * 0
        for _ in range(2):
            i, f, g, o = self.gates(torch.cat([h, c], dim=1)).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


class Rotary(nn.Module):
    """The two halves of a rotary embedding, by slices."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = x[..., :6], x[..., 6:]
        return x + torch.cat([-b, a], dim=-1)


class Nested(nn.Module):
    """Parts of parts, and a concatenation that takes some of it back."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.split([4, 8], dim=1)
        c, d = b.split([4, 4], dim=1)
        e, f = d.chunk(2, dim=1)
        return torch.cat([a.relu(), c, e, f.relu()], dim=1)


class There(nn.Module):
    """Split and concatenated for nothing, as adapters between libraries do."""

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = x.chunk(3, dim=1)
        y = torch.cat([a, b, c], dim=1)
        d, e = torch.cat([y.relu(), x], dim=1).chunk(2, dim=1)
        return d + e


MODELS: dict[str, Callable[[], nn.Module]] = {
    "chunk": Chunk,
    "split": SplitSizes,
    "shuffle": Shuffle,
    "GLU": Glu,
    "QKV attention": Qkv,
    "QKV weights": FusedWeights,
    "unbind": Unbind,
    "LSTM gates": LstmCell,
    "rotary slices": Rotary,
    "nested": Nested,
    "there and back": There,
}


def export(name: str, opset: int, dynamo: bool, folder: Path) -> Path:
    """Export one model with static shapes."""
    torch.manual_seed(0)
    path = folder / f"{name.replace(' ', '_')}_{opset}{'_dynamo' if dynamo else ''}.onnx"
    options: dict[str, Any] = {"dynamo": dynamo, "opset_version": opset}
    # The exporter's own optimizer is a row of its own here.
    options |= {"optimize": False, "external_data": False} if dynamo else {"do_constant_folding": False}
    with quiet():
        model = MODELS[name]().eval()
        torch.onnx.export(
            model, (torch.randn(12, 12),), str(path), input_names=["x"], output_names=["y"], **options
        )
    return path


# Optimizers


def by_splitops(path: Path) -> onnx.ModelProto:
    from splitops.models.simplify import simplify

    found = simplify(path)
    assert isinstance(found, onnx.ModelProto)
    return found


def by_onnxscript(path: Path) -> onnx.ModelProto:
    import onnxscript.optimizer

    return onnxscript.optimizer.optimize(onnx.load(path))


def by_onnxoptimizer(path: Path) -> onnx.ModelProto:
    import onnxoptimizer

    passes = onnxoptimizer.get_fuse_and_elimination_passes()
    return onnxoptimizer.optimize(onnx.load(path), passes, fixed_point=True)


def by_onnxslim(path: Path) -> onnx.ModelProto:
    import onnxslim

    return onnxslim.slim(onnx.load(path))


def by_onnxsim(path: Path) -> onnx.ModelProto:
    import onnxsim

    return onnxsim.simplify(onnx.load(path))[0]


def by_both(path: Path) -> onnx.ModelProto:
    from splitops.models.simplify import simplify

    found = simplify(by_onnxscript(path))
    assert isinstance(found, onnx.ModelProto)
    return found


TOOLS: dict[str, Callable[[Path], onnx.ModelProto]] = {
    "splitops": by_splitops,
    "onnxscript": by_onnxscript,
    "onnxscript, then splitops": by_both,
    "onnxoptimizer": by_onnxoptimizer,
    "onnxslim": by_onnxslim,
    "onnxsim": by_onnxsim,
}


def count(model: onnx.ModelProto) -> str:
    """Return the number of nodes but constants, and of those that split and join."""

    def nodes(found: Any) -> Iterator[Any]:
        for node in found:
            if node.op_type != "Constant":
                yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from nodes(attribute.g.node)

    every = [*nodes(model.graph.node), *(node for f in model.functions for node in nodes(f.node))]
    return f"{len(every)} ({sum(node.op_type in SPLIT_LIKE for node in every)})"


def outputs(model: onnx.ModelProto) -> np.ndarray[Any, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    x = np.random.default_rng(0).random((12, 12), dtype=np.float32)
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def measure(tool: str, path: Path) -> str:
    """Return the counts that a tool leaves, or what went wrong; ours must give the same bits."""
    before = onnx.load(path)
    try:
        with quiet():
            after = TOOLS[tool](path)
        left, right = outputs(before), outputs(after)
    except Exception as error:
        if tool == "splitops":
            raise
        return type(error).__name__
    if tool == "splitops":
        assert left.tobytes() == right.tobytes(), path
        onnx.checker.check_model(after, full_check=True)
    elif left.shape != right.shape or not np.allclose(left, right, atol=1e-5):
        return "differs"
    return count(after)


def isolated(tool: str, paths: list[Path]) -> dict[Path, str]:
    """Measure in a process of its own, and go on behind a model that ended it."""
    cells: dict[Path, str] = {}
    while len(cells) < len(paths):
        left = [str(path) for path in paths if path not in cells]
        done = subprocess.run(
            [sys.executable, __file__, "--measure", tool, *left], capture_output=True, text=True, check=False
        )
        marked = [line for line in done.stdout.splitlines() if line.startswith("measured ")]
        cells |= dict(zip(map(Path, left), (line.removeprefix("measured ") for line in marked), strict=False))
        if done.returncode:
            if tool == "splitops":
                raise RuntimeError(done.stderr)
            cells[Path(left[len(marked)])] = "crash"
    return cells


def table(folder: Path) -> str:
    """Return the table of all models, versions and tools."""
    packages = {"onnxscript, then splitops": "onnxscript"}
    found = {tool: _version(packages.get(tool, tool)) for tool in TOOLS}
    tools = [tool for tool in TOOLS if tool == "splitops" or found[tool]]
    names = [tool if tool in ("splitops", *packages) else f"{tool} {found[tool]}" for tool in tools]
    rows = [
        (name, f"{opset}{' (torch.export)' if dynamo else ''}", export(name, opset, dynamo, folder))
        for name in MODELS
        for opset, dynamo in VERSIONS
    ]
    cells = {tool: isolated(tool, [path for _, _, path in rows]) for tool in tools}
    lines = [
        f"| model | opset | exported | {' | '.join(names)} |",
        f"| --- | --- | --- |{' --- |' * len(names)}",
        *(
            f"| {name} | {opset} | {count(onnx.load(path))} | {' | '.join(cells[t][path] for t in tools)} |"
            for name, opset, path in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the models into this folder, and nothing else")
    parser.add_argument("--write", type=Path, help="put the table into this page")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        for path in arguments.measure[1:]:
            print("measured", measure(arguments.measure[0], Path(path)), flush=True)
        return
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        for name in MODELS:
            for opset, dynamo in VERSIONS:
                print(export(name, opset, dynamo, arguments.out))
        return
    with tempfile.TemporaryDirectory() as folder:
        made = table(Path(folder))
    if arguments.write is None:
        print(made)
        return
    page = arguments.write.read_text(encoding="utf-8")
    marked = re.compile(r"(<!-- counts -->\n).*?(<!-- /counts -->)", re.DOTALL)
    arguments.write.write_text(marked.sub(lambda m: f"{m[1]}\n{made}\n{m[2]}", page), encoding="utf-8")


if __name__ == "__main__":
    main()
