"""merge(shard(x)) is x, file by file and byte by byte; ranks cut anew are those of the whole cut so."""

from __future__ import annotations

import pytest
from sharding_helpers import LLAMA, LLAMA_PLAN, contents, llama, save

from splitops import sharding

OF_RUNS = ("manifest.json", "rank.json")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_merged_ranks_are_the_checkpoint(tmp_path, ranks, shards):
    model = save(tmp_path / "model", llama(), LLAMA, shards)
    (model / "tokenizer.json").write_bytes(b"{}")
    sharding.plan(model, LLAMA_PLAN, ranks=ranks).run(tmp_path / "ranks", verify=True)
    sharding.merge(tmp_path / "ranks").run(tmp_path / "merged")
    assert contents(tmp_path / "merged") == contents(model)


@pytest.mark.parametrize(("first", "second"), [(1, 4), (4, 2), (2, 8), (8, 1)])
def test_ranks_cut_anew_are_those_of_the_merged_checkpoint(tmp_path, first, second):
    model = save(tmp_path / "model", llama(), LLAMA, 3)
    sharding.plan(model, LLAMA_PLAN, ranks=first).run(tmp_path / "first")
    sharding.plan(tmp_path / "first", ranks=second).run(tmp_path / "anew")
    sharding.plan(model, LLAMA_PLAN, ranks=second).run(tmp_path / "second")
    assert contents(tmp_path / "anew", but=OF_RUNS) == contents(tmp_path / "second", but=OF_RUNS)
    sharding.merge(tmp_path / "anew").run(tmp_path / "merged")
    assert contents(tmp_path / "merged") == contents(model)


def test_the_comparison_of_folders_can_fail(tmp_path):
    model = save(tmp_path / "model", llama(), LLAMA)
    other = save(tmp_path / "other", llama(), LLAMA | {"vocab_size": 1000})
    assert contents(model) != contents(other)
    assert contents(model, but=("config.json",)) == contents(other, but=("config.json",))
