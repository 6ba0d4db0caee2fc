"""Plans, configurations and manifests of strangers: what is cut is merged to the same bytes, or rejected."""

from __future__ import annotations

import json
import tempfile
from contextlib import nullcontext
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hostile import assert_one_line, edited
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from splitops import SplitError, sharding
from splitops.sharding import manifest

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
SHAPES = {
    "model.embed_tokens.weight": (7, 8),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.self_attn.k_proj.weight": (4, 8),
    "model.layers.0.self_attn.o_proj.weight": (8, 8),
    "model.layers.0.mlp.experts.1.up_proj.weight": (12, 8),
    "model.norm.weight": (8,),
}
PLAN = {
    "version": 1,
    "layout": "hf",
    "vars": {"q": "num_attention_heads * head_dim", "two": 2},
    "rule": [
        {"match": ["*.k_proj.weight"], "axis": 0, "unit": "head_dim", "replicate": True},
        {"match": "*.q_proj.weight", "hf": "colwise", "unit": "two", "even": False},
        {"match": "*.o_proj.weight", "axis": -1, "sections": [4, "q - 4"], "groups": 4},
        {"match": "*.experts.{e}.*", "place": "e"},
        {"match": "*embed_tokens.weight", "axis": 0, "pad_to": 4, "pack": 1},
        {"match": "*", "replicate": True},
    ],
}
RANKS = 2


@cache
def home() -> Path:
    """A folder with a checkpoint and its ranks in each layout, made once; it is removed with the process."""
    folder = tempfile.TemporaryDirectory(prefix="splitops-fuzz-")
    home.kept = folder
    root = Path(folder.name)
    model = root / "model"
    model.mkdir()
    numbers = iter(range(100))
    tensors = {name: np.full(shape, next(numbers), np.float32) for name, shape in SHAPES.items()}
    for name in tensors:
        tensors[name] += np.arange(tensors[name].size, dtype=np.float32).reshape(tensors[name].shape) / 256
    where = {}
    for number in range(2):
        file = f"model-{number + 1:05}-of-00002.safetensors"
        own = list(tensors)[number::2]
        save_file({name: tensors[name] for name in own}, model / file, metadata={"format": "pt"})
        where |= dict.fromkeys(own, file)
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    (model / "config.json").write_text(json.dumps(CONFIG))
    for layout in ("hf", "dcp", "vllm"):
        plan = {"version": 1, "rule": [{"match": "*norm*", "replicate": True}, {"match": "*", "axis": 0}]}
        sharding.plan(model, plan, ranks=RANKS, layout=layout).run(root / layout, sync=False)
    return root


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def assert_cut_and_merged(model: Path, plan: Any, **arguments: Any) -> None:
    """What a plan cuts gives the same files when it is merged."""
    with tempfile.TemporaryDirectory() as folder:
        ranks, merged = Path(folder, "ranks"), Path(folder, "merged")
        found = sharding.plan(model, plan, **arguments)
        found.dry_run(ranks)
        found.run(ranks, sync=False)
        sharding.merge(ranks).run(merged, sync=False)
        assert contents(merged) == contents(model)


@settings(max_examples=60, deadline=None)
@given(edited(PLAN), st.integers(1, 9), st.sampled_from([None, "hf", "dcp", "vllm"]))
def test_an_edited_plan(plan: Any, ranks: int, layout: str | None) -> None:
    try:
        assert_cut_and_merged(home() / "model", plan, ranks=ranks, layout=layout)
    except SplitError as error:
        assert_one_line(error)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["config.json", "model.safetensors.index.json"]),
    st.data(),
    st.sampled_from(["auto", PLAN]),
)
def test_an_edited_checkpoint(name: str, data: Any, plan: Any) -> None:
    path = home() / "model" / name
    text = path.read_text()
    try:
        path.write_text(json.dumps(data.draw(edited(json.loads(text)))), errors="surrogatepass")
        assert_cut_and_merged(home() / "model", plan, ranks=2)
    except SplitError as error:
        assert_one_line(error)
    finally:
        path.write_text(text)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["hf", "dcp", "vllm"]), st.booleans(), st.data())
def test_an_edited_manifest(layout: str, sealed: bool, data: Any) -> None:
    """What is merged of it is cut and merged again to the same files; ``sealed`` hides the edit."""
    ranks = home() / layout
    path = ranks / "manifest.json"
    text = path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        merged = Path(folder, "merged")
        try:
            path.write_text(json.dumps(data.draw(edited(json.loads(text)))))
            with mock.patch.object(manifest, "_compute_run", itemgetter("run")) if sealed else nullcontext():
                sharding.merge(ranks).run(merged, sync=False)
        except SplitError as error:
            assert_one_line(error)
            assert not merged.exists()
            return
        finally:
            path.write_text(text)
        before = contents(merged)
        again, whole = Path(folder, "again"), Path(folder, "whole")
        try:
            sharding.plan(merged, {"version": 1, "rule": [{"match": "*", "replicate": True}]}, ranks=3).run(
                again, sync=False
            )
        except SplitError as error:  # an index that an edited manifest leaves out
            assert_one_line(error)
            return
        sharding.merge(again).run(whole, sync=False)
        assert contents(whole) == before


def test_a_cut_that_is_not_merged_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_hostile_ranks.contents", lambda folder: {folder.name: b""})
    with pytest.raises(AssertionError):
        assert_cut_and_merged(home() / "model", PLAN, ranks=2)
