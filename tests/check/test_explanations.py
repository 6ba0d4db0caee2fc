"""``splitops rule``: every code has a meaning, an example, a fix, and what runtimes print."""

from __future__ import annotations

import json
import re
from typing import Any

import click
import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner, Result

import splitops
from scripts import script
from splitops import Rule
from splitops.cli import cli
from splitops.models.check import LIMITS
from splitops.models.check.codes import MODEL_CODES, list_codes
from splitops.models.check.explanations import explain, explain_message

UNTESTED = [limit.code for limit in LIMITS if limit.evidence is None]


NOT_ABOUT_SPLITS = {
    "onnxruntime.omitted-output",  # a copy of tensors of two types
    "onnxruntime.complex",
    "onnxruntime.size-32-bit",  # of an input of the model, in JavaScript
    "onnx.more-outputs",
    "openvino.packed-unknown",
    "openvino.unranked",
    "openvino.complex",
    "openvino.squeezed-parts",
    "openvino.convolved-beside",
    "opencv.split-1-lengths",
    "opencv.empty-output",
    "opencv.string",
    "opencv.complex",
}
"""Limits of which a runtime prints a message that other operators have too."""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["rule", *arguments])


def codes(text: str) -> list[str | None]:
    return [one.code for one in explain_message(text)]


@pytest.mark.parametrize("code", list_codes())
def test_every_code_is_explained(code: str) -> None:
    found = explain(code)
    assert not found.meaning.endswith(".")
    assert found.fix or found.command
    assert bool(found.example) is (code not in (*MODEL_CODES, *UNTESTED))
    output = run(code).output
    assert output.startswith(f"{code}: {found.meaning}.\n")
    assert f"More: {found.page}\n" in output
    assert "Fix: " in output


@pytest.mark.parametrize("rule", Rule)
def test_the_example_of_a_rule_breaks_it(rule: Rule) -> None:
    found = explain(str(rule))
    names = {"np": np, "splitops": splitops, "onnx": onnx, "x": np.zeros((4, 6), np.float32)}
    with pytest.raises(splitops.RuleError) as caught:
        eval(found.example, names)
    assert (caught.value.rule, str(caught.value)) == (rule, found.error)


def test_a_command_is_shown_where_fix_has_a_form() -> None:
    for limit in LIMITS:
        command = explain(limit.code).command
        assert command == (
            f"splitops fix {{model}} --for {limit.runtime} -o {{fixed}}" if limit.is_fixable else None
        )
    assert {str(rule) for rule in Rule if explain(str(rule)).command} == {"lengths.missing", "op.version"}


def test_the_messages_are_those_of_the_comparison() -> None:
    made = script("dev/pages/check")
    assert json.loads(made.MESSAGES.read_text()) == made.messages(), "run dev/pages/check.py"
    assert made.PAGE.read_text() == made.page(), "run dev/pages/check.py"


@pytest.mark.parametrize(
    "limit", [one for one in LIMITS if explain(one.code).messages], ids=lambda one: one.code
)
def test_a_recorded_message_finds_its_code_or_nothing(limit: Any) -> None:
    for message in explain(limit.code).messages:
        found = codes(message.text)
        if found or (
            limit.code not in NOT_ABOUT_SPLITS and re.match(r"[\w.]*(error|fail|not)", message.text.lower())
        ):
            assert limit.code in found, message.text


def test_a_message_of_another_model_finds_its_code() -> None:
    """Other numbers, other names, another place, and a part of the message alone."""
    texts = {
        "onnxruntime.ceil-negative-part": "Status Message: Invalid num_outputs value of 8. Split "
        "sizes would produce a negative final split.",
        "onnxruntime.sequence-type": "Could not find an implementation for SplitToSequence(11) with name 'q'",
        "lengths.sum": "Mismatch between the sum of 'split' (7) and the split dimension of the input (8)",
        "lengths.missing": "Neither 'split' input nor 'num_outputs' attribute has been given",
        "opencv.empty-name": "(-215:Assertion failed) noutputs == outputs.size() in function 'getOutShapes'",
    }
    for code, text in texts.items():
        assert code in codes(text), text
        assert f"{code}: {explain(code).meaning}." in run(text).output
    assert codes("Segmentation fault in another place") == []


def test_a_message_of_onnxruntime_itself_finds_its_code() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", "1.32")
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[9] x) => (float[A] a, float[B] b, float[C] c, float[D] d, float[E] e, float[F] f) {
            a, b, c, d, e, f = Split<num_outputs = 6>(x) }""")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail) as caught:
        session.run(None, {"x": np.zeros(9, np.float32)})
    assert codes(str(caught.value))[0] == "onnxruntime.ceil-negative-part"


def test_what_is_no_code_is_wrong_usage() -> None:
    done = run("lenghts.sum")
    assert done.exit_code == 2
    assert "Did you mean 'lengths.sum'?" in done.output


def test_without_a_code_all_are_listed() -> None:
    found = json.loads(run("--json").output)
    assert [one["code"] for one in found] == list(list_codes())
    assert "lengths.sum" in run().output
    (one,) = json.loads(run("onnxruntime.split-1", "--json").output)
    assert one["command"] == "splitops fix model.onnx --for onnxruntime -o fixed.onnx"
    assert one["messages"][0]["runtime"] == "onnxruntime"


def test_the_shell_completes_codes() -> None:
    command = cli.get_command(click.Context(cli), "rule")
    assert command is not None
    (argument,) = (one for one in command.params if isinstance(one, click.Argument))
    completed = argument.shell_complete(click.Context(command), "lengths.")
    assert {one.value for one in completed} == {code for code in list_codes() if code.startswith("lengths.")}
