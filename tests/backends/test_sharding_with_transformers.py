"""The tensors of each rank beside those of transformers, loaded with the plan that a model declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import transformers_processes
from safetensors.numpy import load_file

from splitops.sharding import plan, rank

Tensors = dict[str, np.ndarray]
RANKS = {2: tuple(transformers_processes.MODELS), 4: ("llama",)}


@pytest.fixture(scope="module", params=RANKS, ids=lambda ranks: f"{ranks} ranks")
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder in which each rank of transformers has saved what it holds of each model."""
    folder: Path = tmp_path_factory.mktemp("transformers")
    transformers_processes.run(folder, request.param, *RANKS[request.param])
    return folder, request.param


def as_loaded(held: Mapping[str, np.ndarray]) -> Tensors:
    """Name and join a rank's tensors as transformers does where it loads them: experts lie in one tensor."""
    found: Tensors = {}
    experts: dict[str, dict[tuple[int, str], np.ndarray]] = {}
    for name, array in held.items():
        part = re.fullmatch(r"(.*)\.(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(\w+)\.weight", name)
        if part is None:
            found[name.replace("block_sparse_moe", "mlp").replace("embed_out", "lm_head")] = array
        else:
            experts.setdefault(part[1], {})[int(part[2]), part[3]] = array
    for layer, parts in experts.items():
        gate, up, down = ("w1", "w3", "w2") if (0, "w1") in parts else ("gate_proj", "up_proj", "down_proj")
        numbers = range(len(parts) // 3)
        both = [np.concatenate([parts[n, gate], parts[n, up]]) for n in numbers]
        found[f"{layer}.mlp.experts.gate_up_proj"] = np.stack(both)
        found[f"{layer}.mlp.experts.down_proj"] = np.stack([parts[n, down] for n in numbers])
    return found


def different(found: Tensors, wanted: Tensors) -> list[str]:
    """Return the names of the tensors that one side lacks, or that are not equal byte by byte."""
    return sorted(
        name
        for name in found.keys() | wanted.keys()
        if name not in found
        or name not in wanted
        or (found[name].dtype, found[name].shape) != (wanted[name].dtype, wanted[name].shape)
        or found[name].tobytes() != wanted[name].tobytes()
    )


def test_the_comparison_sees_a_byte_and_a_name() -> None:
    tensors = {"a": np.zeros((2, 3), np.float32), "b": np.ones(4, np.float32)}
    assert different(dict(tensors), tensors) == []
    other = {"a": tensors["a"].copy(), "b": tensors["b"].reshape(2, 2), "c": tensors["b"]}
    other["a"][1, 2] = -0.0
    assert different(other, tensors) == ["a", "b", "c"]


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_each_rank_holds_what_transformers_holds(loaded: tuple[Path, int], tmp_path: Path) -> None:
    folder, ranks = loaded
    for model in RANKS[ranks]:
        plan(folder / model, "auto", ranks=ranks).run(tmp_path / model, sync=False)
        held = 0
        for number in range(ranks):
            wanted = load_file(folder / f"{model}-local" / f"{number}.safetensors")
            ours = {name: tensor.numpy() for name, tensor in rank(tmp_path / model, number).items()}
            assert different(as_loaded(ours), wanted) == [], (model, number)
            held += sum(array.size for array in wanted.values())
        files = (folder / model).glob("*.safetensors")
        whole = sum(array.size for path in files for array in load_file(path).values())
        assert held < 1.5 * whole, model  # it was cut at all
