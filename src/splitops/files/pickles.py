"""Advice about pickle files of PyTorch: they are not read, because loading a pickle can run any code."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Final

from splitops.errors import shown

_ENDINGS: Final = (".bin", ".pth", ".pt", ".ckpt", ".pkl", ".pickle")
"""Extensions of files that ``torch.save`` writes. A .bin file may also be raw bytes or OpenVINO weights."""


def advise_on_pickles(names: Sequence[str]) -> str:
    """Return advice about the first file that may be a pickle, or an empty string.

    Examples:
        >>> advise_on_pickles(["model.bin", "model.xml"])  # of OpenVINO
        ''
        >>> print(advise_on_pickles(["a.pth"]).partition(",")[0])
        A file such as 'a.pth' is a pickle of PyTorch
    """
    models = {name.lower() for name in names}
    found = [each for each in sorted(names) if each.lower().endswith(_ENDINGS)]
    name = next((each for each in found if each.lower().removesuffix(".bin") + ".xml" not in models), None)
    if name is None:
        return ""
    target, more = _name_converted(name, alone=len(found) == 1), ""
    if len(found) > 1:
        more = ". Convert other files of the model in the same way, each to a file of its own name"
    load, some = f'torch.load({json.dumps(name)}, map_location="cpu", weights_only=True)', ""
    if (of_rank := re.search(r"(?:^|[/._-])mp_rank_\d+(_model_states)?[./]", name)) is not None:
        load += '["module"]' if of_rank[1] else '["model"]'  # next to optimizer states and arguments
        some = " if torch.is_tensor(v)"
    tensors = f"{{k: v.contiguous().clone() for k, v in {load}.items(){some}}}"
    code = f"import torch, safetensors.torch as s; s.save_file({tensors}, {json.dumps(target)})"
    raw = ". If it holds raw bytes instead, pass --raw" if name.lower().endswith(".bin") else ""
    return (
        f"A file such as {shown(name)} is a pickle of PyTorch, which can run any code, so it is not read. "
        f"Convert it to safetensors: python -c {shlex.quote(code)}{more}{raw}"
    )


def _name_converted(name: str, *, alone: bool) -> str:
    """Return the name of a converted file: ``model`` if it is ``alone`` and has no number, such as a rank.

    Examples:
        >>> _name_converted("consolidated.01.pth", alone=True), _name_converted("last.ckpt", alone=True)
        ('consolidated.01.safetensors', 'model.safetensors')
    """
    stem = re.sub(r"^pytorch_model(?=$|-)", "model", name.rpartition(".")[0])
    return f"{'model' if alone and re.search('[0-9]', stem) is None else stem}.safetensors"
