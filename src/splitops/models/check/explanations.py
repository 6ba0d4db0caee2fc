"""What each code means: a sentence, an example that breaks it, what runtimes print, and the fix."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from splitops.errors import Rule
from splitops.models.check.codes import CODES, page_of
from splitops.models.check.profiles import LIMITS, Limit


@dataclass(frozen=True, slots=True)
class RuntimeMessage:
    """What one runtime prints.

    Attributes:
        runtime: its name.
        release: its release.
        text: the message, word for word.
    """

    runtime: str
    release: str
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one code.

    Attributes:
        code: the code.
        meaning: what it means, in one sentence.
        example: of a rule, a line of Python that breaks it; of a limit, a split that meets it.
        error: what the line of Python prints.
        fix: what to do.
        command: the command that fixes it, where one does; ``{model}`` stands for the file.
        messages: what runtimes print.
        limit: the limit of a runtime; None for a rule of the operators.
    """

    code: str
    meaning: str
    example: str
    error: str
    fix: str
    command: str | None
    messages: tuple[RuntimeMessage, ...] = ()
    limit: Limit | None = None

    @property
    def page(self) -> str:
        """The place in the documentation, relative to the site."""
        return page_of(self.code)


_RULES: Final[Mapping[str, tuple[str, str, str]]] = {
    Rule.AXIS_RANGE: (
        "The axis is not an axis of the data",
        "splitops.onnx.split(x, [4], axis=2)",
        "use an axis from -rank to rank - 1",
    ),
    Rule.AXIS_RANK: (
        "The axis input has the wrong number of dimensions",
        "splitops.openvino.split(x, [0], 2)",
        "pass the axis as a scalar; VariadicSplit also accepts the shape [1]",
    ),
    Rule.AXIS_DTYPE: (
        "The axis input is missing, or is not an integer",
        "splitops.openvino.split(x, 0.0, 2)",
        "pass the axis with an integer element type",
    ),
    Rule.LENGTHS_SUM: (
        "The lengths do not add up to the size of the axis",
        "splitops.onnx.split(x, [2, 3], axis=1)",
        "change the lengths so that their sum is the size of the axis, or split another axis",
    ),
    Rule.LENGTHS_NEGATIVE: (
        "A length is negative",
        "splitops.onnx.split(x, [6, -2])",
        "use lengths of 0 and more; only VariadicSplit accepts one -1, for the rest of the axis",
    ),
    Rule.LENGTHS_RANK: (
        "The lengths input has the wrong number of dimensions",
        "splitops.onnx.split(x, [[2, 2]])",
        "pass the lengths as a 1-D tensor; SplitToSequence also accepts a scalar, the size of all parts",
    ),
    Rule.LENGTHS_DTYPE: (
        "The lengths input has the wrong element type",
        "splitops.onnx.split(x, np.array([2.0, 2.0]))",
        "pass the lengths as int64",
    ),
    Rule.LENGTHS_COUNT: (
        "The number of lengths is not the number of outputs",
        "splitops.onnx.split(x, [2, 2], num_outputs=3, opset=13)",
        "declare one output for each length",
    ),
    Rule.LENGTHS_VALUE: (
        "A length is not a whole number",
        "splitops.onnx.split(x, [2.5, 1.5], opset=1)",
        "use whole numbers: the lengths of Split-1 are floating-point numbers, but must be integral",
    ),
    Rule.LENGTHS_CONFLICT: (
        "The lengths are given twice, and it is not specified which of them count",
        "splitops.onnx.split(x, [2, 2], num_outputs=2)",
        "remove one of the two: either the lengths or num_outputs",
    ),
    Rule.LENGTHS_MISSING: (
        "Neither lengths nor a number of parts is given",
        "splitops.onnx.split(x)",
        "set num_outputs to the number of outputs, or pass the lengths",
    ),
    Rule.PARTS_DIVISIBLE: (
        "The number of parts does not divide the size of the axis",
        "splitops.openvino.split(x, 1, 4)",
        "set the length of each part, or use ONNX Split-18 with num_outputs, whose last part may be smaller",
    ),
    Rule.PARTS_COUNT: (
        "The number of parts is below 1, or above 16777216",
        "splitops.onnx.split(x, num_outputs=0)",
        "use a number of parts from 1 to 16777216",
    ),
    Rule.CHUNK_POSITIVE: (
        "The chunk size of SplitToSequence is not positive",
        "splitops.onnx.split_to_sequence(x, 0)",
        "use a chunk size of at least 1; the last part is smaller if the chunk size does not divide the axis",
    ),
    Rule.REMAINDER_NEGATIVE: (
        "The other lengths leave less than 0 for the -1",
        "splitops.openvino.variadic_split(x, 1, [4, -1, 3])",
        "use lengths whose sum is at most the size of the axis",
    ),
    Rule.REMAINDER_REPEATED: (
        "More than one length is -1",
        "splitops.openvino.variadic_split(x, 1, [-1, 3, -1])",
        "use -1 for one part, and set the lengths of the others",
    ),
    Rule.KEEPDIMS_VALUE: (
        "keepdims is neither 0 nor 1",
        "splitops.onnx.split_to_sequence(x, keepdims=2)",
        "use 0 or 1",
    ),
    Rule.TYPE_UNSUPPORTED: (
        "The operator version does not accept this element type",
        "splitops.onnx.split(x.astype('int32'), [4], opset=1)",
        "use a newer opset that accepts it, or cast the data before the split and the parts after it",
    ),
    Rule.OUTPUTS_COUNT: (
        "More outputs are declared than the split has parts",
        "evaluate(splitops.schema('Split', 18), {'num_outputs': 2}, [x], outputs=3)",
        "declare as many outputs as there are parts, or fewer",
    ),
    Rule.OPERATOR_UNKNOWN: (
        "The operator is not one of the split family",
        "splitops.schema('Squeeze')",
        "use Split, SplitToSequence or VariadicSplit",
    ),
    Rule.OPERATOR_VERSION: (
        "The opset has no such operator, attribute or input",
        "splitops.onnx.split_to_sequence(x, opset=10)",
        "use the attributes of the opset that the model imports: num_outputs from 18 on, lengths as an input "
        "from 13 on, as an attribute below",
    ),
}
_MODEL: Final[Mapping[str, tuple[str, str]]] = {
    "model.invalid": (
        "The model cannot be read, or contains a value that cannot be",
        "export the model again",
    ),
    "stated.shape": (
        "The model declares a shape for an output of a split that it does not have",
        "run splitops infer MODEL -o FILE, which writes the shapes that follow from the split",
    ),
    "stated.type": (
        "The model declares an element type for an output of a split that it does not have",
        "declare the element type of the data",
    ),
    "onnxruntime.empty-tensor": (
        "A run gives a tensor without elements to an operator on which onnxruntime ends its process",
        "nothing: splitops runs these operators itself",
    ),
    "openvino.empty-tensor": (
        "A run gives a tensor without elements to a layer that OpenVINO gets wrong, or ends its process on",
        "use inputs, and lengths of splits, that leave no size of 0 in front of this layer",
    ),
}
_REPAIRED: Final = frozenset({Rule.LENGTHS_MISSING, Rule.OPERATOR_VERSION})
"""The rules that ``splitops fix`` can repair."""
_LIMITS: Final = {limit.code: limit for limit in LIMITS}


def explain(code: str) -> Explanation:
    """Explain a code.

    Args:
        code: one of :data:`~splitops.models.check.codes.CODES`.

    Examples:
        >>> explain("lengths.sum").meaning
        'The lengths do not add up to the size of the axis'
        >>> explain("opencv.default-axis").command
        'splitops fix {model} --for opencv -o {fixed}'
    """
    messages, example, error = _messages().get(code, ()), *_examples().get(code, ("", ""))
    if code in _LIMITS:
        limit = _LIMITS[code]
        command = f"splitops fix {{model}} --for {limit.runtime} -o {{fixed}}" if limit.forms else None
        fix = limit.fix or ("" if command else "no form of this split is known that the runtime executes")
        return Explanation(code, limit.words(), example, "", fix, command, messages, limit)
    if code in _MODEL:
        meaning, fix = _MODEL[code]
        return Explanation(code, meaning, "", "", fix, None, messages)
    meaning, example, fix = _RULES[Rule(code)]
    command = "splitops fix {model} -o {fixed}" if code in _REPAIRED else None
    return Explanation(code, meaning, example, error, fix, command, messages)


def rule_examples() -> dict[Rule, str]:
    """Return a line of Python for each rule that breaks it; ``x`` is an array of (4, 6)."""
    return {Rule(code): example for code, (_, example, _) in _RULES.items()}


def find(text: str) -> list[str]:
    """Return the codes that a message of a runtime is about, the likeliest ones.

    Examples:
        >>> find("[ONNXRuntimeError] : 1 : FAIL : Invalid num_outputs value of 3. Split sizes would ...")
        ['onnxruntime.ceil-negative-part', 'onnxruntime.open-axis']
    """
    wanted = _words(text)
    scores: dict[str, float] = {}
    for code in CODES:
        for message in _messages().get(code, ()):
            common = wanted & _words(message.text)
            score = len(common) / len(wanted) if wanted else 0.0
            scores[code] = max(scores.get(code, 0.0), score)
    best = max(scores.values(), default=0.0)
    return [code for code, score in scores.items() if score == best] if best >= _LIKELY else []


_LIKELY: Final = 0.6
"""The share of the words of a text that a message has at least in common with it."""


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]{3,}", text.lower()))


@cache
def _recorded() -> Mapping[str, Mapping[str, Any]]:
    """Return what docs/generate_check.py has recorded of each code."""
    content = files(__package__).joinpath("messages.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(content)
    return found


@cache
def _messages() -> Mapping[str, tuple[RuntimeMessage, ...]]:
    """Return what runtimes print by code, as the comparison has seen it."""
    return {
        code: tuple(RuntimeMessage(**row) for row in one["messages"]) for code, one in _recorded().items()
    }


def _examples() -> Mapping[str, tuple[str, str]]:
    """Return the example of each code that has one, and what it prints here."""
    return {code: (one["example"], one["error"]) for code, one in _recorded().items()}
