"""The tools that judge the tests: what they have to reject is rejected."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import script
from splitops.spec.sizes.dims import Range
from splitops.spec.sizes.ranges import hull

mutants, covered = script("dev/tools/mutants"), script("dev/tools/covered")

CHANGE = mutants.Change("spec.sizes.ranges.hull", "return 1", "return 2")
OTHER = mutants.Change("spec.sizes.ranges.hull", "return 1", "return None")
KILLED = mutants.Change("spec.sizes.ranges.hull", "", "")


def test_a_mutant_that_survives_has_to_be_argued() -> None:
    found = {"spec.sizes.ranges": {"killed": [KILLED], "survived": [CHANGE]}}
    assert mutants.judge(found, {CHANGE: "nobody can tell"}) == []
    (message,) = mutants.judge(found, {})
    assert message.startswith("survives")
    assert "'''return 2'''" in message


@pytest.mark.parametrize("status", ["survived", "no tests", "error"])
def test_what_is_not_killed_survives(status: str) -> None:
    assert len(mutants.judge({"spec.sizes.ranges": {status: [CHANGE]}}, {})) == 1


@pytest.mark.parametrize("status", ["killed", "out of time"])
def test_what_is_argued_has_to_survive(status: str) -> None:
    found = {"spec.sizes.ranges": {status: [KILLED]}}
    (message,) = mutants.judge(found, {CHANGE: "nobody can tell"})
    assert message.startswith("is argued, but does not survive")
    assert (
        mutants.judge({"spec.sizes.names": {status: [KILLED]}}, {CHANGE: "of one that was not tried"}) == []
    )


def test_every_mutant_is_counted_once() -> None:
    statuses = {"killed": [KILLED, KILLED], "out of time": [KILLED], "survived": [CHANGE], "error": [OTHER]}
    found = {"spec.sizes.ranges": statuses}
    rows = mutants.table(found, {CHANGE: "nobody can tell"}).splitlines()
    assert rows[-1] == "| all | 5 | 2 | 1 | 1 | 1 |"
    assert rows[-2] == rows[-1].replace("all", "`splitops.spec.sizes.ranges`")


def test_a_change_is_known_by_its_lines() -> None:
    before = "def f_orig(x):\n    y = x\n    return y"
    after = "def f_1(x):\n    y = None\n    return y"
    assert mutants._sides(before, after, "f_orig", "f_1") == ("y = x", "y = None")


forks = pytest.mark.skipif(sys.platform != "linux", reason="mutants are tried where processes fork")


def endless() -> bool:
    while True:
        pass


def more_memory_than_there_is() -> bool:
    return bool(bytearray(mutants.MEMORY))


@forks
@pytest.mark.parametrize(
    ("passes", "status"),
    [
        (lambda: True, "survived"),
        (lambda: False, "killed"),
        (lambda: 1 / 0, "error"),
        (more_memory_than_there_is, "error"),
        (endless, "out of time"),
    ],
)
def test_what_becomes_of_a_process(passes: Callable[[], bool], status: str) -> None:
    assert mutants.outcome(passes, seconds=1) == status


@forks
def test_a_mutant_takes_the_place_of_a_function_that_others_have_already() -> None:
    source = "def g(*dims: Dim | None, least: int = 3) -> Dim | None:\n    return make_dim(least, None)"
    mutant = mutants.Mutant("spec.sizes.ranges", "hull", "g", source, CHANGE)

    def passes() -> bool:
        mutant.put_in()
        return hull(1, 2) == Range(3, None)

    assert mutants.outcome(passes, seconds=60) == "survived"
    assert hull(1, 2) == Range(1, 2)


def test_what_was_found_is_kept_until_the_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "ranges.py"
    code.write_text("one")
    monkeypatch.setattr(mutants, "KEPT", tmp_path / "kept" / "mutants.json")
    monkeypatch.setattr(mutants, "files", lambda: {"spec.sizes.ranges": code})
    found = {"spec.sizes.ranges": {"killed": [KILLED], "survived": [CHANGE]}}
    mutants.keep(found, mutants.digests())
    assert mutants.kept() == found
    code.write_text("other")
    assert mutants.kept() == {}


def test_the_page_lists_what_is_argued() -> None:
    dropped = mutants.Change("spec.sizes.ranges.hull", "pass", "")
    argued = {CHANGE: "nobody can tell", dropped: "nobody can tell"}
    text = mutants.page({"spec.sizes.ranges": {"survived": [CHANGE, dropped]}}, argued)
    assert text.count("- nobody can tell") == 1
    assert "    - `spec.sizes.ranges.hull`: `return 1` to `return 2`" in text
    assert "    - `spec.sizes.ranges.hull`: `pass` left out" in text


def test_the_argued_mutants_have_reasons() -> None:
    assert all(reason.strip() for reason in mutants.read_argued().values())


def test_lines_that_no_reason_explains_are_left_over() -> None:
    path = "dev/tools/covered.py"
    count = covered.Count(10, 8, missing={1, 3})
    reason = covered.Reason("it is the first line", ["dev/tools/*.py"], text='^"""')
    assert covered.explain({path: count}, [reason]) == {path: {3}}
    assert reason.found == {path: {1}}
    elsewhere = covered.Reason("it is another file", ["src/*"])
    assert covered.explain({path: count}, [elsewhere]) == {path: {1, 3}}
    assert elsewhere.found == {}


def test_nothing_is_whole_that_is_not() -> None:
    assert covered._share(9999, 10000) == "99.9 %"
    assert covered._share(10000, 10000) == "100.0 %"
    assert covered._share(0, 0) == ""
    assert covered.spans({1, 2, 3, 7, 9, 10}) == "1-3, 7, 9-10"


def test_packages_have_the_sums_of_their_files() -> None:
    counts = {
        "src/splitops/errors.py": covered.Count(3, 2),
        "src/splitops/spec/sizes/names.py": covered.Count(5, 5, 2, 1),
        "src/splitops/spec/sizes/deep/er.py": covered.Count(1, 0, 2, 2),
    }
    packages = covered.by_package(counts)
    assert packages == {"splitops": covered.Count(3, 2), "splitops.spec": covered.Count(6, 5, 4, 3)}
    assert covered.table("package", packages)[-2] == "| all | 9 | 77.7 % | 4 | 75.0 % |"
