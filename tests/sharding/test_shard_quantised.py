"""Quantised checkpoints: a rank's tensors, made numbers again, are the piece of the whole's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sharding_helpers import contents, save

from splitops import files
from splitops.errors import PlanError
from splitops.sharding import merge, plan

COLUMNS, ROWS = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.o_proj"
Tensors = Mapping[str, np.ndarray]


def packed(numbers: np.ndarray, axis: int, bits: int) -> np.ndarray:
    """Numbers of a few bits in words of 32, the first one lowest."""
    pack = 32 // bits
    shape = list(numbers.shape)
    shape[axis : axis + 1] = [shape[axis] // pack, pack]
    shifts = (np.arange(pack, dtype=np.uint64) * bits).reshape([-1 if i == axis + 1 else 1 for i in range(3)])
    return (numbers.reshape(shape).astype(np.uint64) << shifts).sum(axis + 1).astype(np.uint32).view(np.int32)


def unpacked(words: np.ndarray, axis: int, bits: int) -> np.ndarray:
    pack = 32 // bits
    parts = [(words.view(np.uint32) >> (bits * i)) & ((1 << bits) - 1) for i in range(pack)]
    stacked = np.stack(parts, axis + 1)
    shape = list(words.shape)
    shape[axis] *= pack
    return stacked.reshape(shape).astype(np.float32)


class Awq:
    """(in, out / pack), zeros (in / group, out / pack), scales (in / group, out)."""

    method = "awq"
    weight_axis = 1

    def make(self, rows: int, columns: int, group: int, bits: int) -> Tensors:
        rng = np.random.default_rng(rows + columns)
        groups = rows // group
        numbers = rng.integers(0, 1 << bits, (rows, columns))
        zeros = rng.integers(0, 1 << bits, (groups, columns))
        return {
            "qweight": packed(numbers, self.weight_axis, bits),
            "qzeros": packed(zeros, 1, bits),
            "scales": rng.normal(size=(groups, columns)).astype(np.float16),
        }

    def numbers(self, found: Tensors, group: int, bits: int) -> np.ndarray:
        weight = unpacked(found["qweight"], self.weight_axis, bits)
        which = self.groups(found, len(weight), group)
        zeros, scales = unpacked(found["qzeros"], 1, bits), found["scales"].astype(np.float32)
        return (weight - zeros[which]) * scales[which]

    def groups(self, found: Tensors, rows: int, group: int) -> np.ndarray:
        return np.arange(rows) // group


class Gptq(Awq):
    """(in / pack, out), the rest as above, and the group of each row."""

    method = "gptq"
    weight_axis = 0

    def make(self, rows: int, columns: int, group: int, bits: int) -> Tensors:
        index = np.arange(rows, dtype=np.int32) // group
        return {**super().make(rows, columns, group, bits), "g_idx": index}


class ActOrder(Gptq):
    """The rows in an order of their own: their groups are anywhere."""

    def make(self, rows: int, columns: int, group: int, bits: int) -> Tensors:
        found = dict(super().make(rows, columns, group, bits))
        found["g_idx"] = np.random.default_rng(1).permutation(found["g_idx"])
        return found

    def groups(self, found: Tensors, rows: int, group: int) -> np.ndarray:
        return found["g_idx"]


def config(**stated: Any) -> dict[str, Any]:
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "quantization_config": stated}


def ranks_of(folder: Path, ranks: int) -> list[Tensors]:
    names = [folder / f"rank-{r:05}-of-{ranks:05}" / "model.safetensors" for r in range(ranks)]
    return [{name: np.asarray(tensor) for name, tensor in files.open(path).items()} for path in names]


def module(found: Tensors, name: str) -> Tensors:
    return {key.removeprefix(f"{name}."): array for key, array in found.items() if key.startswith(f"{name}.")}


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("kind", [Awq(), Gptq(), ActOrder()])
def test_packed_weights_zeros_and_scales_are_cut_together(
    tmp_path: Path, kind: Awq, ranks: int, bits: int
) -> None:
    rows, columns, group = 64, 96, 16
    one = kind.make(rows, columns, group, bits)
    tensors = {f"{COLUMNS}.{leaf}": array for leaf, array in one.items()}
    tensors |= {f"{ROWS}.{leaf}": array for leaf, array in kind.make(rows, columns, group, bits).items()}
    stated = config(
        quant_method=kind.method, bits=bits, group_size=group, desc_act=isinstance(kind, ActOrder)
    )
    source = save(tmp_path / "model", tensors, stated)
    plan(source, "auto", ranks=ranks).run(tmp_path / "ranks")
    whole = kind.numbers(one, group, bits)
    found = ranks_of(tmp_path / "ranks", ranks)
    columns_of = [kind.numbers(module(each, COLUMNS), group, bits) for each in found]
    rows_of = [kind.numbers(module(each, ROWS), group, bits) for each in found]
    np.testing.assert_array_equal(np.concatenate(columns_of, 1), whole)
    np.testing.assert_array_equal(np.concatenate(rows_of, 0), whole)
    assert {array.shape for array in columns_of} == {(rows, columns // ranks)}
    assert {array.shape for array in rows_of} == {(rows // ranks, columns)}
    merge(tmp_path / "ranks").run(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(source)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_blocks_of_eight_bits_are_cut_with_their_scales(tmp_path: Path, ranks: int) -> None:
    rng = np.random.default_rng(0)

    def make() -> dict[str, np.ndarray]:
        return {
            "weight": rng.normal(size=(64, 96)).astype(ml_dtypes.float8_e4m3fn),
            "weight_scale_inv": rng.random(size=(8, 6)).astype(np.float32),
        }

    def numbers(found: Tensors) -> np.ndarray:
        scales = np.repeat(np.repeat(found["weight_scale_inv"], 8, 0), 16, 1)
        return found["weight"].astype(np.float32) * scales

    columns, rows = make(), {**make()}
    rows = {
        "weight": rows["weight"].T.copy(),
        "weight_scale_inv": rng.random(size=(12, 4)).astype(np.float32),
    }
    plain = "model.layers.1.self_attn.q_proj.weight"  # not converted: no block binds it
    tensors = {f"{COLUMNS}.{leaf}": array for leaf, array in columns.items()}
    tensors |= {f"{ROWS}.{leaf}": array for leaf, array in rows.items()}
    tensors[plain] = np.arange(12, dtype=np.float32).reshape(12, 1)
    source = save(tmp_path / "model", tensors, config(quant_method="fp8", weight_block_size=[8, 16]))
    plan(source, "auto", ranks=ranks).run(tmp_path / "ranks")
    found = ranks_of(tmp_path / "ranks", ranks)
    np.testing.assert_array_equal(
        np.concatenate([numbers(module(each, COLUMNS)) for each in found]), numbers(columns)
    )
    np.testing.assert_array_equal(
        np.concatenate([numbers(module(each, ROWS)) for each in found], 1), numbers(rows)
    )
    np.testing.assert_array_equal(np.concatenate([each[plain] for each in found]), tensors[plain])


def test_one_scale_of_a_weight_is_on_every_rank(tmp_path: Path) -> None:
    tensors = {
        f"{COLUMNS}.weight": np.arange(12, dtype=np.int8).reshape(6, 2),
        f"{COLUMNS}.weight_scale": np.array([0.5], np.float32),
        f"{COLUMNS}.input_scale": np.array(0.25, np.float32),
    }
    source = save(tmp_path / "model", tensors, config(quant_method="fp8"))
    plan(source, "auto", ranks=3).run(tmp_path / "ranks")
    for rank, found in enumerate(ranks_of(tmp_path / "ranks", 3)):
        np.testing.assert_array_equal(
            found[f"{COLUMNS}.weight"], tensors[f"{COLUMNS}.weight"][2 * rank : 2 * rank + 2]
        )
        assert found[f"{COLUMNS}.weight_scale"] == 0.5
        assert found[f"{COLUMNS}.input_scale"] == 0.25


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 16}


@pytest.mark.parametrize(
    ("name", "shape", "ranks", "stated", "message"),
    [
        (
            f"{ROWS}.qweight",
            (48, 4),
            2,
            AWQ,
            r"cut 48 elements at 24, inside a unit of 16: \[1, 3\] ranks would do",
        ),
        (f"{ROWS}.scales", (3, 32), 2, AWQ, r"cut 48 elements at 24, inside a unit of 16"),
        (f"{COLUMNS}.qweight", (16, 3), 2, AWQ, r"cut 24 elements at 12, inside a unit of 8: \[1, 3\] ranks"),
        (f"{COLUMNS}.scales", (1, 24), 2, AWQ, r"cut 24 elements at 12, inside a unit of 8: \[1, 3\] ranks"),
        (
            f"{COLUMNS}.magic",
            (4, 4),
            2,
            AWQ,
            r"q_proj\.magic' is not a weight, and how it is cut is not known",
        ),
        (f"{COLUMNS}.qweight", (4, 4), 2, {**AWQ, "bits": 3}, "3 bits are not a whole part of a word of 32"),
        (f"{COLUMNS}.qweight", (4, 4), 2, {**AWQ, "bits": "4"}, "quantization_config declares bits = '4'"),
        (
            f"{COLUMNS}.qweight",
            (4, 4),
            2,
            {**AWQ, "group_size": None},
            "quantization_config declares group_size = None",
        ),
        (
            f"{COLUMNS}.qweight",
            (4, 4),
            2,
            {**AWQ, "version": "gemv"},
            "nothing is known of version 'gemv' of AWQ",
        ),
        (
            f"{COLUMNS}.weight",
            (4, 4),
            2,
            {"quant_method": "fp8", "weight_block_size": 8},
            "declares weight_block_size = 8",
        ),
        (f"{COLUMNS}.weight", (4, 4), 2, {"quant_method": ["fp8"]}, r"quant_method \['fp8'\]"),
    ],
)
def test_what_cannot_be_cut_is_rejected_with_what_could(
    tmp_path: Path, name: str, shape: tuple[int, ...], ranks: int, stated: dict[str, Any], message: str
) -> None:
    source = save(tmp_path / "model", {name: np.zeros(shape, np.float32)}, config(**stated))
    with pytest.raises(PlanError, match=message):
        plan(source, "auto", ranks=ranks)


def test_gates_that_alternate_stay_beside_each_other(tmp_path: Path) -> None:
    rows = np.arange(24, dtype=np.int32).reshape(12, 2)  # gate, up, gate, up ...
    source = save(tmp_path / "model", {"experts.gate_up_proj": rows})
    rules = {"version": 1, "rule": [{"match": "*", "axis": 0, "unit": 2}]}
    plan(source, rules, ranks=3).run(tmp_path / "ranks")
    for rank, found in enumerate(ranks_of(tmp_path / "ranks", 3)):
        np.testing.assert_array_equal(found["experts.gate_up_proj"], rows[4 * rank : 4 * rank + 4])
    with pytest.raises(PlanError, match=r"inside a unit of 2: \[1, 2, 3, 6\] ranks would do"):
        plan(source, rules, ranks=4)


def test_queries_stay_with_their_keys_and_values_in_groups(tmp_path: Path) -> None:
    # 4 groups of keys and values, each with 3 heads of queries, one of keys, one of values, of 2 rows each
    rows = np.arange(4 * 5 * 2, dtype=np.int32).reshape(-1, 1)
    source = save(tmp_path / "model", {"wqkv.weight": rows}, {"num_key_value_heads": 4})
    rules = {"version": 1, "rule": [{"match": "*", "axis": 0, "groups": "num_key_value_heads"}]}
    plan(source, rules, ranks=2).run(tmp_path / "ranks")
    for rank, found in enumerate(ranks_of(tmp_path / "ranks", 2)):
        np.testing.assert_array_equal(
            found["wqkv.weight"], rows.reshape(4, -1)[2 * rank : 2 * rank + 2].reshape(-1, 1)
        )
    with pytest.raises(PlanError, match="inside a unit of 10"):
        plan(source, rules, ranks=3)
