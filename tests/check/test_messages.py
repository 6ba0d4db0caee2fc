"""``splitops rule MESSAGE``: messages of runtimes, converters and frameworks, and others."""

from __future__ import annotations

import json
import re
import time
import tomllib
from pathlib import Path

import pytest
from click.testing import Result

from command_line import printed, runner
from splitops.cli import cli
from splitops.models.check.codes import list_codes
from splitops.models.check.explanations import explain_message
from splitops.models.check.messages import Message, find_messages, list_messages
from splitops.models.check.targets import list_target_names

TEXTS = tomllib.loads(Path(__file__).with_name("messages.toml").read_text())
SURROUNDINGS = {
    program: text.replace("FRAMES", TEXTS["frames"]) for program, text in TEXTS["surroundings"].items()
}
"""What is around a message of a program; of the others, a traceback."""


def run(*arguments: str) -> Result:
    return runner().invoke(cli, ["rule", *arguments])


def of_another_model(message: Message) -> list[str]:
    """The message with other numbers, lists, shapes and names, one text for each of its alternatives."""

    def other(hole: str, choice: int) -> str:
        if "|" in hole:
            words = hole.split("|")
            return words[choice % len(words)]
        if re.fullmatch(r"-?[\d.]+", hole):
            return "7001"
        if hole[0] in "[({":
            return f"{hole[0]}12, 12, 24, 1204, batch_size{hole[-1]}"
        return (
            "/model.10/m.0/Split_14" if re.search(r"split(_\d)?$", hole, re.IGNORECASE) else "/a/b.3/Gemm_7"
        )

    holes = re.findall("«([^»]*)»", message.pattern)
    choices = max((hole.count("|") + 1 for hole in holes), default=1)
    parts = re.split("«([^»]*)»", message.pattern)
    return [
        "".join(other(part, choice) if index % 2 else part for index, part in enumerate(parts))
        for choice in range(choices)
    ]


@pytest.mark.parametrize("message", list_messages(), ids=lambda one: one.anchor)
def test_a_message_is_found_in_its_surroundings(message: Message) -> None:
    around = SURROUNDINGS.get(message.program, TEXTS["frames"] + "ValueError: {}\n\nThe above")
    for text in (message.text, *of_another_model(message)):
        assert message in find_messages(text), text
        found = find_messages(around.replace("{}", text))
        assert message in found, around.replace("{}", text)
        assert all(other.codes == message.codes for other in found)


def test_messages_are_of_many_programs_and_say_what_to_do() -> None:
    messages = list_messages()
    assert len(messages) > 180
    assert len({message.program for message in messages}) > 25
    assert len({message.anchor for message in messages}) == len(messages)
    assert len({message.text for message in messages}) == len(messages)
    for message in messages:
        assert set(message.codes) <= set(list_codes()), message.text
        assert message.seen, message.text
        assert message.codes or (message.meaning and (message.fix or message.command)), message.text
        assert not message.meaning.endswith("."), message.text
        assert set(re.findall(r"--for ([\w-]+)", f"{message.command} {message.fix}")) <= set(
            list_target_names()
        )
        found = explain_message(message.text)
        assert any(one.fix or one.command for one in found), message.text
        assert all(one.meaning and one.page for one in found), message.text


@pytest.mark.parametrize("row", TEXTS["real"], ids=lambda row: row["text"][:60])
def test_a_real_text_is_answered(row: dict[str, str]) -> None:
    done = run(row["text"])
    assert done.exit_code == 0, printed(done)
    assert row["answer"] in printed(done)


@pytest.mark.parametrize("row", TEXTS["others"], ids=lambda row: row["text"][:60])
def test_what_is_not_about_a_split_is_said(row: dict[str, str]) -> None:
    done = run(row["text"].replace("FRAMES", TEXTS["frames"]))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "not a message about a split: " in printed(done)


def test_a_beginning_that_all_messages_of_a_program_have_is_answered_with_the_general_one() -> None:
    text = "Non-zero status code returned while running Split node. Name:'a/Split_1' Status Message:"
    (found,) = find_messages(text)
    assert found.general
    (found,) = find_messages(f"{text} Failed to run JSEP kernel")
    assert not found.general


def test_quotes_case_and_line_breaks_do_not_count() -> None:
    text = "mismatch between the sum of \\'split\\' (7)\n   and the SPLIT dimension of the input “8”"
    assert [one.codes[0] for one in find_messages(text)] == ["lengths.sum"]


def test_a_message_without_a_code_is_data_too() -> None:
    (one,) = json.loads(run("--json", "No Adapter From Version $18 for Split").stdout)
    assert one["code"] is None
    assert one["command"] == "splitops convert model.onnx --to onnx:13 -o fixed.onnx"
    assert one["page"] == "runtime-errors.html#message-no-adapter-from-version-18-for-split"
    assert one["messages"][0]["runtime"] == "onnx"


@pytest.mark.parametrize(
    "text",
    [
        "split " * 30_000,
        "Split op only accepts an array of integers as the indices. However, the given indices " * 3_000,
        "split_with_sizes expects split_sizes to sum exactly to 1 (input tensor's size at dimension " * 3_000,
        "... " * 50_000,
        "a/" * 50_000 + "split.py",
        "Node (" + "a " * 40_000,
    ],
)
def test_a_long_text_is_answered_soon(text: str) -> None:
    started = time.process_time()
    find_messages(text)
    assert time.process_time() - started < 10
