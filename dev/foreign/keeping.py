"""Networks of other frameworks, kept in one archive with their inputs and the framework's own results."""

from __future__ import annotations

import io
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class Keeper:
    """Writes models and their data into an archive.

    Args:
        path: the archive; one that is there is replaced.
        versions: the releases that make the networks.
    """

    def __init__(self, path: Path, versions: str) -> None:
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self._archive.comment = versions.encode()
        self.made = 0
        self.missing: list[str] = []

    def keep(self, name: str, make: Callable[[], Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Keep what a function makes: a serialised ONNX model, or a model of OpenVINO.

        A network that its own exporter cannot write, or of which it makes another one, is reported and left out.
        """
        try:
            made = make()
            files = _onnx(made) if isinstance(made, bytes) else _ir(made, inputs, outputs)
        except Exception as error:
            reason = (str(error) or type(error).__name__).strip().splitlines()[-1]
            self.missing.append(f"{name}: {reason[:160]}")
            print("no", self.missing[-1], flush=True)
            if not str(error):
                traceback.print_exc()
            return
        data = io.BytesIO()
        arrays = {f"i{at}": np.asarray(array) for at, array in enumerate(inputs)}
        arrays |= {f"o{at}": np.asarray(array) for at, array in enumerate(outputs)}
        np.savez(data, **arrays)
        for suffix, content in (files | {".npz": data.getvalue()}).items():
            member = zipfile.ZipInfo(name + suffix)  # of a fixed date: the same networks, the same archive
            self._archive.writestr(member, content, zipfile.ZIP_DEFLATED, 9)
        self.made += 1

    def close(self) -> None:
        """Write the end of the archive, and say what was made."""
        self._archive.close()
        print(f"{self.made} networks, {len(self.missing)} that their exporter cannot write")


def _onnx(content: bytes) -> dict[str, bytes]:
    import onnx

    onnx.checker.check_model(content)
    return {".onnx": content}


def _ir(model: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, bytes]:
    import openvino

    compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for found, wanted in zip(compiled(list(inputs)).values(), outputs, strict=True):
        if found.dtype != wanted.dtype or not np.allclose(found, wanted, rtol=1e-4, atol=1e-4):
            raise ValueError("OpenVINO's frontend gives other values")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.xml")
        openvino.save_model(model, path, compress_to_fp16=False)
        return {suffix: path.with_suffix(suffix).read_bytes() for suffix in (".xml", ".bin")}
