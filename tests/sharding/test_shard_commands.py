"""The commands: what they print, draw and reject; and the page that describes them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner
from sharding_helpers import LLAMA, LLAMA_PLAN, contents, llama, save

from scripts import script
from splitops.cli import cli
from splitops.sharding import merge, plan
from splitops.sharding.explaining import draw


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner(env={"COLUMNS": "120"}).invoke(
        cli, [str(argument) for argument in arguments], catch_exceptions=False
    )
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def model(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(LLAMA_PLAN))
    return save(tmp_path / "model", llama(), LLAMA, 2)


def test_the_way_round(model, tmp_path):
    said = run(
        "shard", model, "--ranks", 4, "--plan", tmp_path / "plan.json", "--out", tmp_path / "four", "--verify"
    )
    assert "each rank stores 77184 to 77568 bytes" in said
    said = run("reshard", tmp_path / "four", "--ranks", 2, "--out", tmp_path / "two", "--json")
    assert json.loads(said)["rank_bytes"] == [152576, 152448]
    assert "wrote" in run("merge", tmp_path / "two", "--out", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(model)
    dry = ["merge", tmp_path / "two", "--out", tmp_path / "again", "--dry-run"]
    assert f"{tmp_path / 'again'} already exists\n" in run(*dry)
    stated = json.loads(run(*dry, "--json"))
    assert (stated["dry_run"], stated["exists"]) == (True, [str(tmp_path / "again")])
    stated = json.loads(run("merge", tmp_path / "two", "--out", tmp_path / "more", "--json"))
    assert (stated["from"], stated["out"]) == (str(tmp_path / "two"), str(tmp_path / "more"))


def test_a_merge_that_was_killed_is_gone_on_with(model, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def stop(done: int, total: int) -> None:
        if done == total:
            raise Killed

    run("shard", model, "--ranks", 2, "--plan", tmp_path / "plan.json", "--out", tmp_path / "two")
    with monkeypatch.context() as kept:
        kept.setattr("splitops.common.atomic_write.StagedFiles.clean", lambda _: None)
        with pytest.raises(Killed):
            merge(tmp_path / "two").run(tmp_path / "again", progress=stop)
    said = run("merge", tmp_path / "two", "--out", tmp_path / "again", "--resume")
    assert re.search(r"again already has all \d+ bytes\nAll bytes had been written before\.$", said, re.M)
    assert contents(tmp_path / "again") == contents(model)


def test_explaining_writes_nothing_but_the_pictures(model, tmp_path):
    svg, page = tmp_path / "who.svg", tmp_path / "who.html"
    said = run("shard", model, "--plan", tmp_path / "plan.json", "--dry-run", "--svg", svg, "--html", page)
    lines = {line.strip().split("  ")[0]: line for line in said.splitlines()}
    assert "8 of 8 on 4" in lines["4 x *.k_proj.weight, *.v_proj.weight"]
    assert "23 padded" in lines["1 x *embed_tokens.weight"]
    assert "7 x 126 + 1 x 119" in lines["1 x lm_head.weight"]
    bars = [bar for bar in ET.parse(svg).iter("{http://www.w3.org/2000/svg}rect") if len(bar)]
    assert len(bars) == 8 * 8  # every rank holds some of the tensors of all eight lines
    assert "<td>*.k_proj.weight, *.v_proj.weight</td><td>4 x *.k_proj.weight" in page.read_text()
    assert "<th>rule</th><th>match</th>" in page.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "plan.json", "who.html", "who.svg"]
    assert said.splitlines()[-2:] == [f"Written to {svg}", f"Written to {page}"]


def test_what_ranks_hold_by_place_is_drawn_side_by_side(tmp_path):
    tensors = {f"a.{i}.w": np.zeros(2, np.float32) for i in range(3)}
    places = {"version": 1, "rule": [{"match": "a.{i}.w", "place": "i"}]}
    made = plan(save(tmp_path / "model", tensors), places, ranks=2)
    bars = [bar for bar in ET.fromstring(draw(made)).iter("{http://www.w3.org/2000/svg}rect") if len(bar)]
    assert [bar[0].text for bar in bars] == ["rank 0: 16 bytes", "rank 1: 8 bytes"]
    widths = [float(bar.get("width")) for bar in bars]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.02)


def test_the_rows_in_json(model, tmp_path):
    found = json.loads(
        run("shard", model, "--ranks", 2, "--plan", tmp_path / "plan.json", "--dry-run", "--json")
    )
    first = found["rules"][0]
    assert (first["match"], first["tensors"], first["axis"]) == ("*.k_proj.weight, *.v_proj.weight", 4, 0)
    assert first["shards"][1] == {"size": 4, "pieces": [[4, 4, 0]]}
    assert sum(row["bytes"][0] for row in found["rules"]) == found["rank_bytes"][0]


def test_a_dry_run_writes_nothing(model, tmp_path):
    arguments = ["shard", model, "--ranks", 2, "--plan", tmp_path / "plan.json", "--out", tmp_path / "out"]
    assert "nothing is written" in run(*arguments, "--dry-run")
    assert not (tmp_path / "out").exists()


def test_wrong_usage_and_what_cannot_be(model, tmp_path):
    assert "Missing option '--ranks'" in run("shard", model, "--out", tmp_path / "x", code=2)
    assert "Missing option '--out'" in run("shard", model, "--ranks", 2, code=2)
    assert "--sha256 works only for single files" in run(
        "merge", model, "--out", tmp_path / "x", "--sha256", code=2
    )
    plan = ["--plan", tmp_path / "plan.json", "--out", tmp_path / "x"]
    said = run("shard", model, "--ranks", 3, *plan, code=1)
    assert said.count("\n") == 1
    assert "tensor 'model.layers.0.self_attn.k_proj.weight', rule 1" in said
    for command in (["reshard", model, "--ranks", 2, *plan], ["merge", model, "--out", tmp_path / "x"]):
        said = run(*command, code=1)
        assert f"is not a folder of ranks. To shard a checkpoint, use splitops shard {model} ..." in said
    assert "name their files" in said
    assert not (tmp_path / "x").exists()


def test_the_table_of_the_page_is_that_of_the_schema():
    module = script("dev/pages/sharding")
    text = module.PAGE.read_text(encoding="utf-8")
    assert module.page(text) == text
    assert "| `sections` | list of integer or an expression |" in module.fields("plan")


def test_split_heads_are_told_with_the_ranks_that_keep_them_whole(tmp_path):
    model = save(tmp_path / "model", llama(), LLAMA)
    arguments = ["shard", model, "--plan", "auto", "--dry-run"]
    assert "warning:" not in run(*arguments, "--ranks", 2)
    notes = [line for line in run(*arguments, "--ranks", 4).splitlines() if line.startswith("warning:")]
    assert notes == [
        f"warning: rule {number} ('model.layers.*.self_attn.{name}.weight') splits attention heads: 8 "
        "elements over 4 ranks are 2 each, but a head has 4. Use 1 or 2 ranks to keep heads whole."
        for number, name in ((3, "k_proj"), (4, "v_proj"))
    ]
    warnings = json.loads(run(*arguments, "--ranks", 3, "--json"))["warnings"]
    assert [line.split(".")[4] for line in warnings] == ["q_proj", "k_proj", "v_proj", "o_proj"]
    # The queries alone would do on 4 and 8 too, and the keys and values of the same checkpoint would not.
    assert all("Use 1 or 2 ranks to" in line for line in warnings)
