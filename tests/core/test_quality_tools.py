"""The tools that judge the tests: what they have to refuse is refused."""

from __future__ import annotations

import pytest

from scripts import script

mutants, covered = script("tools/mutants"), script("tools/covered")

CHANGE = mutants.Change("sizes.ranges.hull", "return 1", "return 2")
OTHER = mutants.Change("sizes.ranges.hull", "return 1", "return None")
KILLED = mutants.Change("sizes.ranges.hull", "", "")


def test_a_mutant_that_survives_has_to_be_argued() -> None:
    found = {"sizes.ranges": {"killed": [KILLED], "survived": [CHANGE]}}
    assert mutants.judge(found, {CHANGE: "nobody can tell"}) == []
    (message,) = mutants.judge(found, {})
    assert message.startswith("survives")
    assert "'''return 2'''" in message


@pytest.mark.parametrize("status", ["survived", "no tests", "suspicious", "segfault"])
def test_what_is_not_killed_survives(status: str) -> None:
    assert len(mutants.judge({"sizes.ranges": {status: [CHANGE]}}, {})) == 1


@pytest.mark.parametrize("status", ["killed", "caught by type check", "timeout"])
def test_what_is_argued_has_to_survive(status: str) -> None:
    found = {"sizes.ranges": {status: [KILLED]}}
    (message,) = mutants.judge(found, {CHANGE: "nobody can tell"})
    assert message.startswith("is argued, but does not survive")
    assert (
        mutants.judge({"sizes.names": {status: [KILLED]}}, {CHANGE: "of a module that was not tried"}) == []
    )


def test_every_mutant_is_counted_once() -> None:
    found = {"sizes.ranges": {"killed": [KILLED, KILLED], "timeout": [KILLED], "survived": [CHANGE, OTHER]}}
    rows = mutants.table(found, {CHANGE: "nobody can tell"}).splitlines()
    assert rows[-1] == "| all | 5 | 2 | 0 | 1 | 1 | 1 |"
    assert rows[-2] == rows[-1].replace("all", "`splitops.sizes.ranges`")


def test_a_change_is_known_by_its_lines() -> None:
    diff = "--- a\n+++ a\n@@ -1,3 +1,3 @@\n def f(x):\n-    return x\n+    return None\n"
    assert mutants._sides(diff) == ("return x", "return None")


def test_the_argued_mutants_have_reasons() -> None:
    assert all(reason.strip() for reason in mutants.read_argued().values())


def test_lines_that_no_reason_explains_are_left_over() -> None:
    path = "tools/covered.py"
    count = covered.Count(10, 8, missing={1, 3})
    reason = covered.Reason("it is the first line", ["tools/*.py"], text='^"""')
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
        "src/splitops/planning.py": covered.Count(3, 2),
        "src/splitops/sizes/names.py": covered.Count(5, 5, 2, 1),
        "src/splitops/sizes/deep/er.py": covered.Count(1, 0, 2, 2),
    }
    packages = covered.by_package(counts)
    assert packages == {"splitops": covered.Count(3, 2), "splitops.sizes": covered.Count(6, 5, 4, 3)}
    assert covered.table("package", packages)[-2] == "| all | 9 | 77.7 % | 4 | 75.0 % |"
