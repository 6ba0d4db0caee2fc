"""Every kind of weights comes back byte by byte, and each rank has what slices of the whole give."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper
from safetensors.numpy import load_file
from sharding_helpers import LLAMA, contents, save

from splitops import SplitError, sharding
from splitops.errors import FileError, PlanError
from splitops.files import open as open_file

OF_RUNS = ("manifest.json", "rank.json")


def numbered(*shape: int, dtype: type = np.int32) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape).astype(dtype)


def cut(tmp_path, tensors, rules, ranks, config=None, shards=1):
    """Cut, prove that the merge gives the files back, and return the tensors of each rank."""
    model = save(tmp_path / "model", tensors, config or {}, shards)
    document = {"version": 1, "rule": [*rules, {"match": "*", "replicate": True}]}
    sharding.plan(model, document, ranks=ranks).run(tmp_path / "ranks", sync=False)
    sharding.merge(tmp_path / "ranks").run(tmp_path / "merged", sync=False)
    assert contents(tmp_path / "merged") == contents(model)
    folders = sorted((tmp_path / "ranks").glob("rank-*"))
    assert len(folders) == ranks
    return [
        {name: array for file in folder.glob("*.safetensors") for name, array in load_file(file).items()}
        for folder in folders
    ]


def same(found, wanted) -> None:
    assert [{n: (a.shape, a.tobytes()) for n, a in rank.items()} for rank in found] == [
        {n: (a.shape, a.tobytes()) for n, a in rank.items()} for rank in wanted
    ]


def test_fused_sections_with_heads_that_repeat(tmp_path):
    qkv = numbered(8 * 4 + 2 * 4 + 2 * 4, 3)
    rule = {"match": "*qkv*", "axis": 0, "unit": "head_dim", "replicate": [1, 2]}
    rule["sections"] = ["num_attention_heads * head_dim", *["num_key_value_heads * head_dim"] * 2]
    found = cut(tmp_path, {"qkv.weight": qkv}, [rule], 4, LLAMA)
    q, k, v = qkv[:32], qkv[32:40], qkv[40:]
    parts = [
        np.concatenate([q[r * 8 : r * 8 + 8], k[r // 2 * 4 :][:4], v[r // 2 * 4 :][:4]]) for r in range(4)
    ]
    same(found, [{"qkv.weight": part} for part in parts])


def test_sections_along_the_last_axis_are_joined_in_each_row(tmp_path):
    gate_up = numbered(5, 12)
    found = cut(tmp_path, {"w": gate_up}, [{"match": "w", "hf": "packed_rowwise"}], 2)
    wanted = [
        np.concatenate([gate_up[:, r * 3 : r * 3 + 3], gate_up[:, 6 + r * 3 :][:, :3]], 1) for r in (0, 1)
    ]
    same(found, [{"w": part} for part in wanted])


def test_interleaved_and_grouped_axes_are_cut_between_groups(tmp_path):
    tensors = {"gate_up": numbered(4, 12), "qkv": numbered(3 * 6, 2)}
    rules = [{"match": "gate_up", "axis": -1, "unit": 2}, {"match": "qkv", "axis": 0, "groups": 3}]
    found = cut(tmp_path, tensors, rules, 3)
    parts = {"gate_up": np.split(tensors["gate_up"], 3, axis=1), "qkv": np.split(tensors["qkv"], 3)}
    same(found, [{name: parts[name][rank] for name in parts} for rank in range(3)])


def test_experts_by_axis_and_by_name(tmp_path):
    tensors = {f"l.{x}.experts.{e}.up": numbered(2, 2) + 10 * e + 100 * x for x in range(2) for e in range(5)}
    tensors["l.0.stacked"] = numbered(5, 2, 3)
    rules = [{"match": "*.experts.{e}.*", "place": "e"}, {"match": "*.stacked", "hf": "grouped_gemm"}]
    found = cut(tmp_path, tensors, rules, 2, shards=3)
    holder = {0: 0, 1: 0, 2: 0, 3: 1, 4: 1}
    wanted = []
    for rank in range(2):
        own = {n: a for n, a in tensors.items() if "experts" in n and holder[int(n.split(".")[3])] == rank}
        wanted.append(own | {"l.0.stacked": tensors["l.0.stacked"][rank * 3 : rank * 3 + 3]})
    same([dict(sorted(rank.items())) for rank in found], [dict(sorted(rank.items())) for rank in wanted])


def test_awq_and_gptq_words_groups_and_scales_are_cut_together(tmp_path):
    n, k, group = 32, 64, 16
    tensors = {
        "awq.qweight": numbered(k, n // 8),
        "awq.qzeros": numbered(k // group, n // 8),
        "awq.scales": numbered(k // group, n, dtype=np.float16),
        "gptq.qweight": numbered(k // 8, n),
        "gptq.scales": numbered(k // group, n, dtype=np.float16),
    }
    rules = [
        {"match": "awq.qweight", "axis": 0, "group_size": group},
        {"match": ["awq.qzeros", "*.scales"], "axis": 0, "pack": group},
        {"match": "gptq.qweight", "axis": 0, "pack": 8, "group_size": group},
    ]
    same(
        cut(tmp_path, tensors, rules, 4),
        [{n: np.split(a, 4)[r] for n, a in tensors.items()} for r in range(4)],
    )


def test_padding_is_zeros_and_is_dropped_again(tmp_path):
    table = numbered(11, 3) + 1
    found = cut(tmp_path, {"w": table, "t": table.T.copy()}, [
        {"match": "w", "axis": 0, "pad_to": 8}, {"match": "t", "axis": 1, "pad_to": 8}], 4)  # fmt: skip
    padded = np.concatenate([table, np.zeros((5, 3), np.int32)])
    same(found, [{"t": np.split(padded, 4)[r].T.copy(), "w": np.split(padded, 4)[r]} for r in range(4)])


def test_empty_parts_empty_tensors_and_scalars(tmp_path):
    tensors = {"w": numbered(5, 2), "none": numbered(0, 3), "s": np.array(3, np.int64)}
    found = cut(tmp_path, tensors, [{"match": ["w", "none"], "axis": 0}], 4)
    assert [rank["w"].shape for rank in found] == [(2, 2), (2, 2), (1, 2), (0, 2)]
    assert all(rank["s"] == 3 for rank in found)
    assert all(rank["none"].shape == (0, 3) for rank in found)


def onnx_model(folder):
    folder.mkdir()
    arrays = {"w": numbered(6, 4, dtype=np.float32), "v": numbered(2, 3, dtype=np.float32)}
    data = bytearray(b"head")
    protos = []
    for name, array in arrays.items():
        data += b"\0" * 60
        proto = helper.make_tensor(name, onnx.TensorProto.FLOAT, array.shape, array.tobytes(), raw=True)
        proto.ClearField("raw_data")
        proto.data_location = proto.EXTERNAL
        for key, value in (("location", "m.data"), ("offset", len(data)), ("length", array.nbytes)):
            proto.external_data.add(key=key, value=str(value))
        protos.append(proto)
        data += array.tobytes()
    tied = onnx.TensorProto()
    tied.CopyFrom(protos[0])
    tied.name = "w2"
    small = helper.make_tensor("c", onnx.TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph([], "g", [], [], initializer=[*protos, tied, small])
    (folder / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    (folder / "m.data").write_bytes(data)
    return folder, arrays


@pytest.mark.parametrize("name", ["", "m.onnx"])
def test_an_onnx_model_with_external_data_and_tied_tensors(tmp_path, name):
    folder, arrays = onnx_model(tmp_path / "model")
    document = {"version": 1, "rule": [{"match": "w*", "axis": 0}, {"match": "*", "replicate": True}]}
    plan = sharding.plan(folder / name, document, ranks=4)
    assert plan.checkpoint.tied == {"w2": "w"}
    whole = 'replicated on all ranks, since only the closing rule "*" matches: v'
    assert plan.warnings == ("splitops does not shard 1 tensor inside of 'm.onnx'", whole)
    plan.run(tmp_path / "ranks")
    found = load_file(tmp_path / "ranks/rank-00002-of-00004/m.data.safetensors")
    same([found], [{"v": arrays["v"], "w": arrays["w"][4:6]}])
    assert json.loads((tmp_path / "ranks/manifest.json").read_text())["tied"] == {"w2": "w"}
    sharding.plan(tmp_path / "ranks", ranks=3).run(tmp_path / "anew")
    sharding.merge(tmp_path / "anew").run(tmp_path / "merged")
    assert contents(tmp_path / "merged") == contents(folder)


def test_onnx_models_that_are_no_checkpoint(tmp_path):
    model, _ = onnx_model(tmp_path / "model")
    content = (model / "m.onnx").read_bytes()

    def rejected():
        with pytest.raises(SplitError) as found:
            sharding.plan(model, {"version": 1, "rule": [{"match": "*", "replicate": True}]}, ranks=2)
        return type(found.value), found.value.message

    (model / "m.onnx").write_bytes(b"no protobuf")
    assert rejected()[0] is FileError
    proto = onnx.ModelProto.FromString(content)
    proto.graph.initializer[2].dims[:] = [4, 6]  # the tied one
    (model / "m.onnx").write_bytes(proto.SerializeToString())
    assert rejected() == (
        PlanError,
        "tensor 'w2' and tensor 'w' share bytes, but differ in type or shape",
    )
    del proto.graph.initializer[:3]
    (model / "m.onnx").write_bytes(proto.SerializeToString())
    assert "has no external tensors" in rejected()[1]
    (model / "m.onnx").write_bytes(content)
    os.truncate(model / "m.data", 300 << 20)
    assert "bytes outside of its tensors" in rejected()[1]


@pytest.mark.parametrize(
    ("shape", "rule", "says"),
    [
        ([4, 2], {"axis": 1}, "tensor 'w', F4: a shard would end inside of a group of 2 packed elements"),
        (
            [2, 6],
            {"axis": 1, "sections": [3, 3]},
            "tensor 'w', F4: the array: a split at 3 of axis 1 is inside a unit of 2 packed elements in 1 "
            "bytes: split at multiples of 2",
        ),
        ([3, 2], {"axis": 1}, "tensor 'w': 3 F4 elements of rank 0 do not fill complete bytes"),
    ],
)
def test_cuts_through_packed_elements_are_rejected(tmp_path, shape, rule, says):
    packed(tmp_path / "model" / "model.safetensors", {"w": ("F4", shape)})
    plan = {"version": 1, "rule": [{"match": "w", **rule}]}
    with pytest.raises(PlanError) as found:
        sharding.plan(tmp_path / "model", plan, ranks=2).run(tmp_path / "out", sync=False)
    assert found.value.message == says


def test_packed_tensors_of_equal_shapes_are_fitted_separately(tmp_path):
    packed(tmp_path / "model" / "model.safetensors", {"a": ("F4", [8]), "b": ("F6_E2M3", [8])})
    plan = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    found = sharding.find_ranks(tmp_path / "model", plan, ranks=[2, 4])
    assert [each.works for each in found] == [True, False]
    assert "tensor 'b', F6_E2M3: a shard would end inside" in found[1].note


def packed(path, tensors, **metadata):
    """Write a file of tensors of types that NumPy does not have."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (code, shape) in tensors.items():
        size = math.prod(shape) * {"F4": 4, "F6_E2M3": 6}[code] // 8
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(at)))


def test_the_metadata_of_files_keep_their_order(tmp_path):
    packed(tmp_path / "model" / "model.safetensors", {"w": ("F4", (4, 2))}, z="1", format="pt", a="2")
    plan = {"version": 1, "rule": [{"match": "w", "axis": 0}]}
    sharding.plan(tmp_path / "model", plan, ranks=2).run(tmp_path / "ranks", sync=False)
    sharding.merge(tmp_path / "ranks").run(tmp_path / "merged", sync=False)
    assert contents(tmp_path / "merged") == contents(tmp_path / "model")


def test_pieces_of_packed_elements_end_between_bytes(tmp_path):
    def write(shape, begins):
        for rank, begin in enumerate(begins):
            info = json.dumps({"w": {"saved_offsets": begin}})
            path = tmp_path / "pieces" / f"shard-{rank + 1:05}-model-00001-of-00001.safetensors"
            packed(path, {"w": ("F4", shape)}, format="pt", DCP_VERSION="1.0", DCP_SHARDING_INFO=info)

    write([1, 2], [[0, 0], [1, 0]])
    sharding.merge(tmp_path / "pieces").run(tmp_path / "out", sync=False)
    assert (tmp_path / "out" / "model.safetensors").read_bytes()[-2:] == bytes([0, 0])
    write([2, 1], [[0, 0], [0, 1]])
    with pytest.raises(PlanError, match="a shard would end inside of a group of 2 packed elements"):
        sharding.merge(tmp_path / "pieces").run(tmp_path / "again", sync=False)


@pytest.mark.parametrize("layout", ["hf", "vllm"])
def test_a_rank_that_holds_nothing(tmp_path, layout):
    tensors = {"w": numbered(5, 2), "v": numbered(3)}
    plan = {"version": 1, "rule": [{"match": "*", "place": 0}]}
    model = save(tmp_path / "model", tensors, {"architectures": ["LlamaForCausalLM"]}, shards=2)
    sharding.plan(model, plan, ranks=2, layout=layout).run(tmp_path / "out", sync=False)
    held = [sorted(load_file(path)) for path in sorted((tmp_path / "out").rglob("*.safetensors"))]
    assert held == ([["w"], ["v"]] if layout == "hf" else [["v", "w"], []])
    sharding.merge(tmp_path / "out").run(tmp_path / "again", sync=False)
    assert contents(tmp_path / "again") == contents(model)


@pytest.mark.parametrize("present", [(0, 1, 2), (0, 2)])
def test_experts_are_fused_for_vllm_only_if_none_is_missing(tmp_path, present):
    """Otherwise, the parameters of expert 2 would be those of expert 1."""
    name = "model.layers.0.block_sparse_moe.experts"
    tensors = {f"{name}.{e}.{w}.weight": numbered(4, 4) for e in present for w in ("w1", "w2", "w3")}
    model = save(tmp_path / "model", tensors, {"architectures": ["MixtralForCausalLM"]})
    plan = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    sharding.plan(model, plan, ranks=2, layout="vllm").run(tmp_path / "out", sync=False)
    [path] = (tmp_path / "out").glob("model-rank-0-*.safetensors")
    found = load_file(path)
    if present == (0, 2):
        assert sorted(found) == sorted(tensors)
    else:
        shapes = {key.removeprefix(f"{name}.routed_experts."): part.shape for key, part in found.items()}
        assert shapes == {"w13_weight": (3, 4, 4), "w2_weight": (3, 2, 4)}
    sharding.merge(tmp_path / "out").run(tmp_path / "again", sync=False)
    assert contents(tmp_path / "again") == contents(model)


@pytest.mark.parametrize("layout", ["hf", "dcp"])
def test_a_dry_run_lists_what_the_run_writes(tmp_path, layout):
    plan = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    model = save(tmp_path / "model", {"w": numbered(5, 2), "v": numbered(3)}, {}, shards=2)
    cut = sharding.plan(model, plan, ranks=2, layout=layout)
    dry = cut.dry_run(tmp_path / "out")
    assert dry.files == cut.run(tmp_path / "out", sync=False).files
    assert dry.files[0][1] == sum(
        path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()
    )
    whole = sharding.merge(tmp_path / "out")
    assert whole.dry_run(tmp_path / "again").files == whole.run(tmp_path / "again", sync=False).files


def test_what_is_too_large_or_a_folder_is_left_behind_and_said(tmp_path, monkeypatch):
    from splitops.files import folders

    monkeypatch.setattr(folders, "MAX_SMALL", 100)
    model = save(tmp_path / "model", {"w": numbered(4)}, {})
    (model / "pytorch_model.bin").write_bytes(b"x" * 101)
    (model / "onnx").mkdir()
    plan = sharding.plan(model, {"version": 1, "rule": [{"match": "*", "axis": 0}]}, ranks=2)
    assert [w.split(" is not copied")[0] for w in plan.warnings] == [
        "the folder 'onnx'",
        "'pytorch_model.bin'",
    ]


WIDTHS = {"F4": 0.5, "U8": 1, "F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4, "I64": 8, "C64": 8}


@st.composite
def checkpoints(draw):
    """Files of random tensors, with headers as no library writes them, and a plan that fits."""
    files, rules, number = [], [], 0
    for _ in range(draw(st.integers(1, 3))):
        header, data = {}, b""
        for _ in range(draw(st.integers(0, 4))):
            shape = draw(st.lists(st.integers(0, 9), min_size=0, max_size=3))
            code = draw(st.sampled_from([c for c in WIDTHS if c != "F4" or math.prod(shape) % 2 == 0]))
            size = int(math.prod(shape) * WIDTHS[code])
            name = f"t.{number}"
            entry = {"shape": shape, "data_offsets": [len(data), len(data) + size], "dtype": code}
            header[name] = entry
            data += np.random.default_rng(number).bytes(size)
            number += 1
            rules.append({"match": name, **draw(rules_for(shape, code))})
        text = json.dumps(header, indent=draw(st.sampled_from([None, 1]))).encode() + b" " * draw(
            st.integers(0, 3)
        )
        files.append(len(text).to_bytes(8, "little") + text + data)
    return files, rules


def rules_for(shape, code):
    choices = [st.just({"replicate": True}), st.builds(lambda p: {"place": p}, st.just(0))]
    axes = [axis for axis in range(len(shape)) if code != "F4"]
    if axes:
        axis = st.sampled_from(axes)
        choices += [
            st.builds(lambda a: {"axis": a}, axis),
            st.builds(lambda a, n: {"axis": a - len(shape), "pad_to": n}, axis, st.integers(1, 7)),
            st.builds(lambda a, n: {"axis": a, "sections": [min(n, shape[a]), -1]}, axis, st.integers(0, 5)),
            st.builds(lambda a: {"axis": a, "unit": max(1, shape[a]), "replicate": shape[a] > 0}, axis),
        ]
    return st.one_of(choices)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(checkpoints(), st.integers(1, 5), st.integers(1, 5))
def test_any_checkpoint_comes_back_and_is_cut_anew(tmp_path_factory, made, first, second):
    files, rules = made
    folder = tmp_path_factory.mktemp("any")
    model = folder / "model"
    model.mkdir()
    names = [f"part-{i}.safetensors" for i in range(len(files))] if len(files) > 1 else ["model.safetensors"]
    for name, content in zip(names, files, strict=True):
        (model / name).write_bytes(content)
    if len(files) > 1:
        where = {t: name for name in names for t in open_file(model / name)}
        if set(where.values()) != set(names):
            return  # an index speaks of files with tensors only
        (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    document = {"version": 1, "rule": rules}
    sharding.plan(model, document, ranks=first).run(folder / "first", sync=False)
    sharding.merge(folder / "first").run(folder / "merged", sync=False)
    assert contents(folder / "merged") == contents(model)
    sharding.plan(folder / "first", ranks=second).run(folder / "anew", sync=False)
    sharding.plan(folder / "merged", document, ranks=second).run(folder / "second", sync=False)
    assert contents(folder / "anew", but=OF_RUNS) == contents(folder / "second", but=OF_RUNS)
