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
            r"split 48 elements at 24, inside of a unit of 16: use \[1, 3\] ranks",
        ),
        (f"{ROWS}.scales", (3, 32), 2, AWQ, r"split 48 elements at 24, inside of a unit of 16"),
        (
            f"{COLUMNS}.qweight",
            (16, 3),
            2,
            AWQ,
            r"split 24 elements at 12, inside of a unit of 8: use \[1, 3\] ranks",
        ),
        (
            f"{COLUMNS}.scales",
            (1, 24),
            2,
            AWQ,
            r"split 24 elements at 12, inside of a unit of 8: use \[1, 3\] ranks",
        ),
        (
            f"{COLUMNS}.magic",
            (4, 4),
            2,
            AWQ,
            r"no sharding rule for tensor .*q_proj\.magic', which is not a weight",
        ),
        (f"{COLUMNS}.qweight", (4, 4), 2, {**AWQ, "bits": 3}, "unsupported bits = 3"),
        (
            f"{COLUMNS}.qweight",
            (4, 4),
            2,
            {**AWQ, "bits": "4"},
            "quantization_config has the invalid bits = '4'",
        ),
        (
            f"{COLUMNS}.qweight",
            (4, 4),
            2,
            {**AWQ, "group_size": None},
            "quantization_config has the invalid group_size = None",
        ),
        (
            f"{COLUMNS}.qweight",
            (4, 4),
            2,
            {**AWQ, "version": "gemv"},
            "unsupported version 'gemv' of AWQ",
        ),
        (
            f"{COLUMNS}.weight",
            (4, 4),
            2,
            {"quant_method": "fp8", "weight_block_size": 8},
            "has the invalid weight_block_size = 8",
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
    with pytest.raises(PlanError, match=r"inside of a unit of 2: use \[1, 2, 3, 6\] ranks"):
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
    with pytest.raises(PlanError, match="inside of a unit of 10"):
        plan(source, rules, ranks=3)


# FP4, and compressed-tensors ------------------------------------------------------------------------------

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
RNG = np.random.default_rng(3)


def fp4(name: str, group: int, scale: Any, **single: Any) -> tuple[Any, Any]:
    """Two numbers in a byte, the first one lowest, and a scale for each group of a row."""

    def make(rows: int, columns: int) -> dict[str, np.ndarray]:
        return {
            name: RNG.integers(0, 256, (rows, columns // 2)).astype(np.uint8),
            "weight_scale": RNG.integers(1, 100, (rows, columns // group)).astype(scale),
            **{key: np.asarray(value, np.float32) for key, value in single.items()},
        }

    def numbers(found: Tensors) -> np.ndarray:
        both = np.stack([found[name] & 15, found[name] >> 4], -1).reshape(len(found[name]), -1)
        made = E2M1[both] * np.repeat(found["weight_scale"].astype(np.float32), group, 1)
        return made * np.prod([found[key] for key in single])

    return make, numbers


def words(group: int, *, zeros: bool, order: bool = False, bits: int = 4) -> tuple[Any, Any]:
    """Words (out, in / pack), zeros (out / pack, in / group), a scale for each group."""

    def make(rows: int, columns: int) -> dict[str, np.ndarray]:
        groups = columns // group
        made = {
            "weight_packed": packed(RNG.integers(0, 1 << bits, (rows, columns)), 1, bits),
            "weight_scale": RNG.normal(size=(rows, groups)).astype(np.float32),
            "weight_shape": np.array([rows, columns]),
        }
        if zeros:
            made["weight_zero_point"] = packed(RNG.integers(0, 1 << bits, (rows, groups)), 0, bits)
        if order:
            made["weight_g_idx"] = RNG.permutation(np.arange(columns, dtype=np.int32) // group)
        return made

    def numbers(found: Tensors) -> np.ndarray:
        weight = unpacked(found["weight_packed"], 1, bits)
        which = found.get("weight_g_idx", np.arange(weight.shape[1]) // group)
        which = which if found["weight_scale"].shape[1] > 1 else which * 0
        if zeros:
            weight = weight - unpacked(found["weight_zero_point"], 0, bits)[:, which]
        return weight * found["weight_scale"][:, which]

    return make, numbers


def plain(kind: Any, rows_of: int, columns_of: int) -> tuple[Any, Any]:
    """A number in each element, and scales of blocks."""

    def make(rows: int, columns: int) -> dict[str, np.ndarray]:
        shape = rows // rows_of, max(1, columns // columns_of)
        return {
            "weight": RNG.integers(-8, 8, (rows, columns)).astype(kind),
            "weight_scale": RNG.random(shape).astype(np.float32),
            "input_scale": np.array([0.5], np.float32),
        }

    def numbers(found: Tensors) -> np.ndarray:
        weight = found["weight"].astype(np.float32)
        scale = np.repeat(found["weight_scale"], rows_of, 0)[: len(weight)]
        return weight * np.repeat(scale, -(-weight.shape[1] // scale.shape[1]), 1)[:, : weight.shape[1]]

    return make, numbers


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": groups,
        "ignore": ["lm_head"],
    }


F8 = ml_dtypes.float8_e4m3fn
KINDS = {
    "nvfp4": (fp4("weight", 16, F8, weight_global_scale=[0.5]), {"quant_method": "nvfp4"}),
    "modelopt": (
        fp4("weight", 16, F8, weight_scale_2=0.5, input_scale=2.0),
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    ),
    "modelopt fp8": (plain(F8, 64, 1 << 20), {"quant_method": "modelopt", "quant_algo": "FP8"}),
    "compressed nvfp4": (fp4("weight_packed", 16, F8), compressed("nvfp4-pack-quantized", num_bits=4)),
    "compressed mxfp4": (fp4("weight_packed", 32, np.uint8), compressed("mxfp4-pack-quantized", num_bits=4)),
    "groups of 4 bits": (
        words(32, zeros=True),
        compressed("pack-quantized", num_bits=4, strategy="group", group_size=32),
    ),
    "groups in an order": (
        words(32, zeros=False, order=True),
        compressed("pack-quantized", num_bits=4, strategy="group", group_size=32, actorder="group"),
    ),
    "rows of 8 bits": (
        words(128, zeros=False, bits=8),
        compressed("pack-quantized", num_bits=8, strategy="channel"),
    ),
    "fp8 rows": (plain(F8, 1, 1 << 20), compressed("float-quantized", num_bits=8, strategy="channel")),
    "fp8 blocks": (
        plain(F8, 16, 32),
        compressed("float-quantized", num_bits=8, strategy="block", block_structure=[16, 32]),
    ),
    "int8": (plain(np.int8, 64, 1 << 20), compressed("int-quantized", num_bits=8, strategy="tensor")),
}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_what_shares_a_scale_stays_together(tmp_path: Path, kind: str, ranks: int) -> None:
    (make, numbers), stated = KINDS[kind]
    columns, rows = make(64, 128), make(64, 128)
    tensors = {f"{COLUMNS}.{leaf}": array for leaf, array in columns.items()}
    tensors |= {f"{ROWS}.{leaf}": array for leaf, array in rows.items()}
    tensors["model.layers.1.self_attn.q_proj.weight"] = np.arange(16, dtype=np.float32).reshape(8, 2)
    source = save(tmp_path / "model", tensors, config(**stated))
    plan(source, "auto", ranks=ranks).run(tmp_path / "ranks", sync=False)
    found = ranks_of(tmp_path / "ranks", ranks)
    np.testing.assert_array_equal(
        np.concatenate([numbers(module(each, COLUMNS)) for each in found]), numbers(columns)
    )
    np.testing.assert_array_equal(
        np.concatenate([numbers(module(each, ROWS)) for each in found], 1), numbers(rows)
    )
    assert {each["model.layers.1.self_attn.q_proj.weight"].shape for each in found} == {(8 // ranks, 2)}
    merge(tmp_path / "ranks").run(tmp_path / "again", sync=False)
    assert contents(tmp_path / "again") == contents(source)


NVFP4 = {"quant_method": "nvfp4"}
SQUARE = {f"{COLUMNS}.weight": (4, 4)}


@pytest.mark.parametrize(
    ("shapes", "stated", "says"),
    [
        ({f"{ROWS}.weight": (4, 24), f"{ROWS}.weight_scale": (4, 3)}, NVFP4, "unit of 16"),
        ({f"{ROWS}.weight_scale": (4, 3)}, NVFP4, r"use \[1, 3\] ranks"),
        (SQUARE, {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "quant_algo 'W4A8_AWQ'"),
        (SQUARE, compressed("marlin-24"), "format 'marlin-24'"),
        (SQUARE, compressed("float-quantized", strategy="token"), "strategy 'token'"),
        ({f"{COLUMNS}.weight_packed": (4, 4)}, compressed("pack-quantized", num_bits=3), "bits = 3"),
        (SQUARE, {"quant_method": "compressed-tensors"}, "config_groups must have exactly one scheme"),
    ],
)  # fmt: skip
def test_new_methods_reject_what_they_do_not_know(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], stated: dict[str, Any], says: str
) -> None:
    tensors = {name: np.zeros(shape, np.uint8) for name, shape in shapes.items()}
    with pytest.raises(PlanError, match=says):
        plan(save(tmp_path / "model", tensors, config(**stated)), "auto", ranks=2)


@pytest.mark.parametrize("ranks", [2, 3])
def test_experts_of_gpt_oss_keep_their_blocks(tmp_path: Path, ranks: int) -> None:
    experts = "model.layers.0.mlp.experts"
    shapes = {
        "gate_up_proj_blocks": (6, 8, 2, 16),
        "gate_up_proj_scales": (6, 8, 2),
        "down_proj_bias": (6, 64),
    }
    tensors = {
        f"{experts}.{name}": RNG.integers(0, 256, shape).astype(np.uint8) for name, shape in shapes.items()
    }
    tensors["lm_head.weight"] = np.zeros((6, 2), np.float32)
    stated = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    source = save(tmp_path / "model", tensors, stated)
    plan(source, "auto", ranks=ranks).run(tmp_path / "ranks", sync=False)
    found = ranks_of(tmp_path / "ranks", ranks)
    for name, array in tensors.items():
        np.testing.assert_array_equal(np.concatenate([each[name] for each in found]), array)


def test_blocks_are_cut_between_groups_by_a_plan_of_its_own(tmp_path: Path) -> None:
    """MXFP4 (experts, out, in / 32, 16) with scales (experts, out, in / 32), along ``in``."""
    tensors = {"down_blocks": np.zeros((2, 4, 6, 16), np.uint8), "down_scales": np.zeros((2, 4, 6), np.uint8)}
    source = save(tmp_path / "model", tensors, {})
    rule = {"match": "down_*", "axis": 2, "pack": 32, "group_size": 32}
    made = plan(source, {"version": 1, "rule": [rule]}, ranks=3)
    assert {cut.shards[1].pieces for cut in made.placements.cuts} == {((2, 2, 0),)}
