"""From a proved request to a plan: all that a plan holds, and the most parts."""

from __future__ import annotations

import pytest

from splitops import RuleError, Where
from splitops.spec import SizeRule, schema
from splitops.spec.sizes.arithmetic import Division
from splitops.splitting import Plan, SplitRequest, plan_request, planning

ONES = Division(SizeRule.CHUNK, chunk=1)
SEQUENCE = schema("SplitToSequence", 24)


def test_the_parts_of_a_sequence_are_planned_as_one() -> None:
    assert plan_request(SplitRequest(SEQUENCE, (2, 3), 1, ONES, True)) == Plan(
        (2, 3), 1, (0, 1, 2), (1, 1, 1), True, True
    )
    assert plan_request(SplitRequest(SEQUENCE, (2, 0), 1, ONES)) == Plan((2, 0), 1, (), (), False, True)


def test_as_many_parts_as_may_be_are_planned_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_PARTS", 3)
    assert plan_request(SplitRequest(SEQUENCE, (3,), 0, ONES)).sizes == (1, 1, 1)
    where = Where(node="n")
    with pytest.raises(RuleError) as caught:
        plan_request(SplitRequest(SEQUENCE, (4,), 0, ONES, where=where))
    error = caught.value
    assert (error.operator, error.rule) == ("SplitToSequence-24", "parts.count")
    assert error.got == "axis 0 of data (4,) would be split into 4 parts"
    assert error.expected == "at most 3 parts are allowed"
    assert (dict(error.values), error.where) == ({"count": 4}, where)
