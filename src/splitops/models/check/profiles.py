"""What runtimes do with split operators that are valid, or that they do not reject: one row for each limit.

Every row of a runtime that can be installed names the case of a comparison that proves it; a test drives that
runtime in a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from splitops.errors import ArrayError, shown
from splitops.models.check import conditions
from splitops.models.check.conditions import Condition
from splitops.models.graph.fusions import Fusion
from splitops.models.sites.site import UNBIND_REPAIRS, Site


class Outcome(StrEnum):
    """What a runtime does."""

    ERROR = "error"
    """It rejects the model or fails when it runs."""
    WRONG = "wrong result"
    """It runs, and gives something else than the operator's definition says."""
    CRASH = "crash"
    """The process ends, or memory outside the data is read."""


class FixForm(StrEnum):
    """The forms that a split can be rewritten to for a runtime, the smallest change first."""

    AXIS = "axis"
    """The axis, where it is the default one."""
    IN_FULL = "in full"
    """All outputs declared and named, no absent input that is named '', no keepdims beside 'split'."""
    VERSION = "version"
    """As the version of the opset has it, of a node with the attributes of another version."""
    NUMBER = "number"
    """The number of parts that the declared outputs say."""
    MEANING = "meaning"
    """The one of two readings that the user means."""
    LENGTHS = "lengths"
    """The length of each part: constants, or computed by the graph where only a run knows the size."""
    PARTS = "parts"
    """A Split, whose parts are read in the place of a sequence."""
    SEQUENCE = "sequence"
    """A Split, of whose parts SequenceConstruct makes the sequence; SequenceEmpty where there are none."""
    SLICES = "slices"
    """A Slice for each part."""
    GATHERS = "gathers"
    """A Gather for each part."""
    CASTS = "casts"
    """A sequence of another element type, that holds every value, cast back where it is read."""
    CONSTANTS = "constants"
    """A constant for each part of a constant."""
    EMPTY = "empty"
    """What a Transpose gives of an empty part is made anew: there is nothing in it."""
    JOIN = "join"
    """The axis of the Concat behind it, counted from the front."""
    BOUNDS = "bounds"
    """A Slice that ends where it starts, in the place of one that ends before."""
    GATHER = "gather"
    """A Gather of the channels that the first convolution reads, in the place of the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of one runtime.

    Attributes:
        code: its name, which begins with the runtime's.
        case: the case of :func:`splitops.compare` that proves it; None where the runtime cannot be installed.
        until: the last release that does so; None where the newest one that was looked at does.
        since: the first release that does so; None where the oldest one that was looked at does.
        outcome: what happens.
        message: the same in one sentence.
        exact: the same with the numbers of a split, which are fields of the text: ``{count}`` parts, the
            ``{size}`` of the ``{axis}``, and ``{part}``, the size of the first part.
        condition: where it is met: at a split, or where a split is fused with its neighbours.
        source: where it is documented or visible.
        fix: what to do about it.
        forms: the forms that the runtime executes correctly, tried in this order; a split that has none is
            unfixable, see :mod:`splitops.models.fix`.
    """

    code: str
    case: str | None
    until: str | None = None
    since: str | None = None
    outcome: Outcome
    message: str
    exact: str | None = None
    condition: Condition | Fusion
    source: str
    fix: str | None = None
    forms: tuple[FixForm, ...] = ()

    @property
    def runtime(self) -> str:
        """``"onnx"``, ``"onnxruntime"``, ``"openvino"``, ``"opencv"`` or ``"tensorrt"``."""
        return self.code.partition(".")[0]

    def holds_in(self, release: str) -> bool:
        """Return whether a release of the runtime does so, as far as is known.

        Examples:
            >>> fixed = next(limit for limit in LIMITS if limit.code == "onnxruntime.empty-name")
            >>> fixed.holds_in("1.31.1"), fixed.holds_in("1.32.0")
            (True, False)
        """
        asked = release_numbers(release)
        if self.since is not None and asked < release_numbers(self.since):
            return False
        return self.until is None or asked <= release_numbers(self.until)

    @property
    def seen(self) -> str:
        """The releases in which it was seen, in words; empty where none could be looked at."""
        looked_at = LOOKED_AT.get(self.runtime)
        if looked_at is None:
            return ""
        first, last = self.since or looked_at[0], self.until or looked_at[-1]
        return first if first == last else f"{first} to {last}"

    def words(self, site: Site | None = None) -> str:
        """Return the message, with the numbers of a split and the releases that do so, where not all do."""
        numbers = None if self.exact is None or site is None else conditions.ceil_numbers(site)
        text = self.message if self.exact is None or numbers is None else self.exact.format(**numbers)
        text = text if self.since is None else f"{text} (from {self.since} on)"
        return text if self.until is None else f"{text} (up to {self.until})"


def release_numbers(release: str) -> tuple[int, ...]:
    """Return what releases are ordered by: the first three numbers of one."""
    return tuple(int(part) for part in re.findall(r"\d+", release)[:3])


LOOKED_AT: Final = {
    "onnxruntime": ("1.24.1", "1.31.1", "1.32.0"),
    "onnx": ("1.19.0", "1.23.2"),
    "openvino": ("2025.4.0", "2026.4.1"),
    "opencv": ("5.0.0",),
}
"""The releases of each runtime that were asked the case of each limit, the oldest first."""

_ORT_SPLIT: Final = (
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/providers/cpu/tensor/split.h"
)
_ORT_SEQUENCE: Final = "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/providers/cpu/sequence/sequence_ops.cc"
_ORT_MERGING: Final = (
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/optimizer/"
    "common_subexpression_elimination.cc"
)
_ORT_KERNELS: Final = "https://github.com/microsoft/onnxruntime/blob/main/docs/OperatorKernels.md"
_ONNX_SLICE: Final = "https://github.com/onnx/onnx/blob/main/onnx/defs/tensor/defs.cc"
_ONNX_SPLIT: Final = "https://github.com/onnx/onnx/blob/main/onnx/defs/tensor/utils.cc"
_ONNX_SEQUENCE: Final = "https://github.com/onnx/onnx/blob/main/onnx/defs/sequence/defs.cc"
_OPENVINO_VARIADIC: Final = (
    "https://github.com/openvinotoolkit/openvino/blob/master/src/core/shape_inference/include/"
    "variadic_split_shape_inference.hpp"
)
_OPENVINO_CPU: Final = "https://docs.openvino.ai/2025/openvino-workflow/running-inference/inference-devices-and-modes/cpu-device.html"
_OPENVINO_FRONTEND: Final = (
    "https://github.com/openvinotoolkit/openvino/blob/master/src/frontends/onnx/frontend/src/op/split.cpp"
)
_OPENVINO_FRONTEND_SEQUENCE: Final = (
    "https://github.com/openvinotoolkit/openvino/blob/master/src/frontends/onnx/frontend/src/op/"
    "split_to_sequence.cpp"
)
_OPENVINO_PASSES: Final = (
    "https://github.com/openvinotoolkit/openvino/blob/master/src/common/transformations/src/transformations/"
    "common_optimizations"
)
_OPENCV_SPLIT: Final = "https://github.com/opencv/opencv/blob/5.x/modules/dnn/src/layers/split2_layer.cpp"
_OPENCV_IMPORTER: Final = "https://github.com/opencv/opencv/blob/5.x/modules/dnn/src/onnx/onnx_importer2.cpp"
_SET_LENGTHS: Final = "set the length of each part"
_USE_LENGTHS: Final = "set the length of each part in the input 'split', instead of num_outputs"

LIMITS: Final[tuple[Limit, ...]] = (
    Limit(
        code="onnxruntime.split-1",
        case="split-1/even/6-into-2/float32/static",
        outcome=Outcome.ERROR,
        message="onnxruntime has no implementation of Split below opset 2",
        condition=conditions.split_1,
        source=_ORT_KERNELS,
        fix="convert the model to opset 2 or later",
        forms=(FixForm.SLICES,),
    ),
    Limit(
        code="onnxruntime.ceil-empty-part",
        case="split-18/ceil/2x6-into-4/float32/static/axis=1",
        until="1.31.1",
        outcome=Outcome.ERROR,
        message="onnxruntime rejects num_outputs if the last part is empty",
        exact="onnxruntime rejects num_outputs = {count} on an axis of size {size}: parts of "
        "ceil({size}/{count}) = {part} leave the last part empty",
        condition=conditions.exactly_empty_part,
        source=_ORT_SPLIT,
        fix=_USE_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="onnxruntime.ceil-negative-part",
        case="split-18/ceil/5-into-4/float32/static",
        outcome=Outcome.ERROR,
        message="onnxruntime rejects num_outputs if a part would start past the end of the axis",
        exact="onnxruntime rejects num_outputs = {count} on an axis of size {size}: parts of "
        "ceil({size}/{count}) = {part} would run past the end of the axis",
        condition=conditions.overshoots,
        source=_ORT_SPLIT,
        fix=_USE_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="onnxruntime.sliced-negative-part",
        case="split-18/ceil/5-into-4/float32/static/reversed",
        since="1.25.0",
        outcome=Outcome.CRASH,
        message="onnxruntime ends the process when it loads a Slice of a part of num_outputs that would "
        "start past the end of the axis",
        exact="onnxruntime ends the process when it loads a Slice of the last part of num_outputs = {count} "
        "on an axis of size {size}: parts of ceil({size}/{count}) = {part} would run past its end",
        condition=conditions.sliced_overshoot,
        source=_ONNX_SLICE,
        fix=_USE_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="onnxruntime.open-axis",
        case="split-18/ceil/5-into-4/float32/dynamic",
        outcome=Outcome.ERROR,
        message="onnxruntime rejects num_outputs on an axis of unknown size if, in a run, a part would "
        "start past the end of the axis",
        condition=conditions.open_overshoot,
        source=_ORT_SPLIT,
        fix="compute the lengths from the size of the axis, and pass them in the input 'split'",
        forms=(FixForm.LENGTHS, FixForm.SLICES),
    ),
    Limit(
        code="onnxruntime.open-halves",
        case="split-18/ceil/1-into-2/float32/dynamic",
        until="1.31.1",
        outcome=Outcome.ERROR,
        message="onnxruntime rejects num_outputs of 1 or 2 on an axis of unknown size if, in a run, a part "
        "is empty",
        condition=conditions.open_halves,
        source=_ORT_SPLIT,
        fix="compute the lengths from the size of the axis, and pass them in the input 'split'",
        forms=(FixForm.LENGTHS, FixForm.SLICES),
    ),
    Limit(
        code="onnxruntime.merged",
        case="split-13/even/6-into-2/float32/dynamic/twin",
        outcome=Outcome.WRONG,
        message="onnxruntime's optimizer merges this split with another one of the same data that has "
        "another number of outputs",
        condition=conditions.merged,
        source=_ORT_MERGING,
        fix="set the length of each part",
        forms=(FixForm.LENGTHS, FixForm.SLICES),
    ),
    Limit(
        code="onnxruntime.empty-name",
        case="split-18/ceil/6-into-2/float32/static/absent",
        until="1.31.1",
        outcome=Outcome.ERROR,
        message="onnxruntime counts an absent input named '' as given, and rejects it beside num_outputs",
        condition=conditions.empty_name,
        source=_ORT_SPLIT,
        fix="remove the input",
        forms=(FixForm.IN_FULL,),
    ),
    Limit(
        code="onnxruntime.omitted-output",
        case="split-18/ceil/6-into-2/float32/static/without-0",
        outcome=Outcome.CRASH,
        message="onnxruntime writes an output named '' through a null pointer",
        condition=conditions.omitted_output,
        source=_ORT_SPLIT,
        fix="name the output, even if nothing reads it",
        forms=(FixForm.IN_FULL,),
    ),
    Limit(
        code="onnxruntime.fewer-outputs",
        case="split-18/ceil/6-into-2/float32/static/1-outputs",
        outcome=Outcome.WRONG,
        message="onnxruntime divides the axis by the number of declared outputs, not by num_outputs (it "
        "rejects the model from 1.32.0 on)",
        condition=conditions.fewer_outputs,
        source=_ORT_SPLIT,
        fix="declare num_outputs outputs, even if nothing reads them",
        forms=(FixForm.IN_FULL, FixForm.LENGTHS, FixForm.SLICES),
    ),
    Limit(
        code="onnxruntime.sequence-type",
        case="splittosequence-11/chunk/6-by-3/int8/static",
        outcome=Outcome.ERROR,
        message="onnxruntime has no implementation of SplitToSequence for this element type",
        condition=conditions.sequence_type,
        source=_ORT_KERNELS,
        fix="cast to int32 or float before the split, and back after it",
        forms=(FixForm.PARTS, FixForm.SEQUENCE, FixForm.CASTS),
    ),
    Limit(
        code="onnxruntime.complex",
        case="split-18/ceil/6-into-2/complex64/static",
        outcome=Outcome.ERROR,
        message="onnxruntime does not support complex tensors",
        condition=conditions.complex,
        source=_ORT_KERNELS,
    ),
    Limit(
        code="onnxruntime.size-32-bit",
        case="split-18/ceil/4294967300x0-into-2/float32/static",
        outcome=Outcome.ERROR,
        message="onnxruntime rejects sizes of 2^31 and more",
        condition=conditions.large,
        source=_ORT_SPLIT,
        forms=(FixForm.SLICES, FixForm.PARTS, FixForm.SEQUENCE),
    ),
    Limit(
        code="onnxruntime.unbind",
        case="splittosequence-11/chunk/2x3-by-1/float32/static/axis=1/keepdims=0",
        outcome=Outcome.WRONG,
        message="onnxruntime drops the axis for chunks of 1 with keepdims = 0, as PyTorch does; the "
        "specification ignores keepdims here",
        condition=conditions.unbind,
        source=_ORT_SEQUENCE,
        fix=f"choose its meaning; {UNBIND_REPAIRS}",
        forms=(FixForm.MEANING,),
    ),
    Limit(
        code="onnxruntime.scalar-keepdims",
        case="splittosequence-11/chunk/2x3-by-2/float32/static/axis=1/keepdims=0",
        outcome=Outcome.ERROR,
        message="onnxruntime fails in the run on chunks of more than 1 with keepdims = 0",
        condition=conditions.scalar_keepdims,
        source=_ORT_SEQUENCE,
        fix="remove keepdims: it has no meaning beside 'split'",
        forms=(FixForm.IN_FULL,),
    ),
    Limit(
        code="onnxruntime.empty-lengths",
        case="splittosequence-11/explicit/0-as-nothing/float32/static",
        outcome=Outcome.ERROR,
        message="onnxruntime rejects constant lengths without entries",
        condition=conditions.empty_lengths,
        source=_ONNX_SEQUENCE,
        forms=(FixForm.PARTS, FixForm.SEQUENCE),
    ),
    Limit(
        code="onnx.more-outputs",
        case="split-18/outputs.count/6-into-2/float32/static/3-outputs",
        outcome=Outcome.CRASH,
        message="onnx's shape inference and version conversion write outside of a vector, and abort from "
        "1.21 on",
        condition=conditions.more_outputs,
        source=_ONNX_SPLIT,
        fix="declare at most num_outputs outputs",
    ),
    Limit(
        code="onnx.size-32-bit",
        case="split-18/ceil/4294967300x0-into-2/float32/static",
        outcome=Outcome.WRONG,
        message="onnx's shape inference divides sizes of 2^31 and more in 32 bits",
        condition=conditions.large_even,
        source=_ONNX_SPLIT,
        forms=(FixForm.SLICES,),
    ),
    Limit(
        code="onnx.sliced-negative-part",
        case="split-18/ceil/5-into-4/float32/static/reversed",
        since="1.21.0",
        outcome=Outcome.CRASH,
        message="onnx's shape inference ends the process at a Slice of a part that it gives a negative size",
        exact="onnx's shape inference ends the process at a Slice of the last part of num_outputs = {count} "
        "on an axis of size {size}: parts of ceil({size}/{count}) = {part} leave it a negative size",
        condition=conditions.sliced_overshoot,
        source=_ONNX_SLICE,
        fix=_USE_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="onnx.ceil-negative-part",
        case="split-18/ceil/5-into-4/float32/static",
        outcome=Outcome.WRONG,
        message="onnx's shape inference gives the last part a negative size",
        exact="onnx's shape inference gives the last part a negative size: num_outputs = {count} on an axis "
        "of size {size} has parts of ceil({size}/{count}) = {part}",
        condition=conditions.overshoots,
        source=_ONNX_SPLIT,
        fix=_USE_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="onnx.lengths-32-bit",
        case="split-18/explicit/4294967300x0-as-4294967298+2/float32/static",
        outcome=Outcome.ERROR,
        message="onnx's shape inference rejects lengths on an axis of 2^31 elements and more",
        condition=conditions.large_lengths,
        source=_ONNX_SPLIT,
        forms=(FixForm.SLICES,),
    ),
    Limit(
        code="onnx.empty-lengths",
        case="splittosequence-11/explicit/0-as-nothing/float32/static",
        outcome=Outcome.ERROR,
        message="onnx's shape inference rejects constant lengths without entries",
        condition=conditions.empty_lengths,
        source=_ONNX_SEQUENCE,
        forms=(FixForm.PARTS, FixForm.SEQUENCE),
    ),
    Limit(
        code="openvino.negative-remainder",
        case="openvino-variadicsplit-1/remainder.negative/6-as--1+8/float32/static/axis=0",
        outcome=Outcome.CRASH,
        message="OpenVINO reads memory past the end of the tensor if less than 0 is left for the -1",
        condition=conditions.negative_remainder,
        source=_OPENVINO_VARIADIC,
    ),
    Limit(
        code="openvino.narrowed-values",
        case="split-18/ceil/6-into-2/int64/static/wide",
        outcome=Outcome.WRONG,
        message="OpenVINO's CPU device computes 64-bit numbers in 32 bits: it loses large integers and fine "
        "fractions",
        condition=conditions.narrowed_values,
        source=_OPENVINO_CPU,
    ),
    Limit(
        code="openvino.string",
        case="split-18/ceil/6-into-2/string/static",
        outcome=Outcome.WRONG,
        message="OpenVINO returns the first strings in every part of a string tensor",
        condition=conditions.strings,
        source=_OPENVINO_CPU,
        forms=(FixForm.GATHERS, FixForm.PARTS),
    ),
    Limit(
        code="openvino.packed-constant",
        case="openvino-split-1/even/6-into-2/uint4/static/axis=0/packed",
        outcome=Outcome.WRONG,
        message="OpenVINO returns wrong parts of a constant whose elements are smaller than a byte",
        condition=conditions.packed_constant,
        source=_OPENVINO_CPU,
        fix="convert the constant to i8 or u8 before the split",
        forms=(FixForm.CONSTANTS,),
    ),
    Limit(
        code="openvino.packed-parts",
        case="openvino-split-1/even/6-into-2/nf4/static/axis=0",
        outcome=Outcome.WRONG,
        message="OpenVINO moves nf4, f4e2m1 and u2 by whole bytes: a part that begins inside a byte, or is "
        "not one run, is wrong",
        condition=conditions.packed_parts,
        source=_OPENVINO_CPU,
        fix="convert the data to i8 or u8 before the split",
    ),
    Limit(
        code="openvino.packed-unknown",
        case="openvino-split-1/even/6-into-2/uint3/static/axis=0",
        outcome=Outcome.ERROR,
        message="OpenVINO's CPU device does not support data of u1, u3 and u6",
        condition=conditions.packed_unknown,
        source=_OPENVINO_CPU,
    ),
    Limit(
        code="openvino.unranked",
        case="openvino-split-1/even/6-into-2/float32/static/axis=0/unranked",
        outcome=Outcome.ERROR,
        message="OpenVINO rejects data of unknown rank",
        condition=conditions.unranked,
        source=_OPENVINO_CPU,
        fix="declare the rank of the data",
    ),
    Limit(
        code="openvino.uneven-open-axis",
        case="split-18/ceil/5-into-2/float32/dynamic",
        outcome=Outcome.ERROR,
        message="OpenVINO fails in the run if num_outputs does not divide an axis of unknown size",
        condition=conditions.uneven_open_axis,
        source=_OPENVINO_FRONTEND,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="openvino.uneven-negative-axis",
        case="split-18/ceil/5-into-2/float32/static/axis=-1",
        outcome=Outcome.ERROR,
        message="OpenVINO rejects num_outputs that does not divide a negative axis",
        exact="OpenVINO rejects num_outputs = {count} on an axis of size {size}: {count} does not divide "
        "{size}, and axis = {axis} is negative",
        condition=conditions.uneven_negative_axis,
        source=_OPENVINO_FRONTEND,
        fix=_USE_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="openvino.ceil-empty-part",
        case="split-18/ceil/5-into-4/float32/static",
        outcome=Outcome.ERROR,
        message="OpenVINO rejects num_outputs if the last part is empty",
        exact="OpenVINO rejects num_outputs = {count} on an axis of size {size}: parts of "
        "ceil({size}/{count}) = {part} leave the last part empty",
        condition=conditions.empty_divided_part,
        source=_OPENVINO_FRONTEND,
        fix=_USE_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="openvino.split-1-lengths",
        case="split-1/explicit/6-as-2+4/float32/static/float32-lengths",
        outcome=Outcome.WRONG,
        message="OpenVINO ignores lengths that are an input, and returns equal parts",
        condition=conditions.split_1_lengths,
        source=_OPENVINO_FRONTEND,
        fix="set the lengths in the attribute 'split'",
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="openvino.complex",
        case="split-18/ceil/6-into-2/complex64/static",
        outcome=Outcome.ERROR,
        message="OpenVINO does not support complex tensors",
        condition=conditions.complex,
        source=_OPENVINO_FRONTEND,
    ),
    Limit(
        code="openvino.sequence-output",
        case="splittosequence-11/chunk/6-by-3/float32/static",
        outcome=Outcome.ERROR,
        message="OpenVINO does not support a sequence as an output of the model",
        condition=conditions.sequence_output,
        source=_OPENVINO_FRONTEND,
        fix="return its elements, taken with SequenceAt or joined with ConcatFromSequence",
    ),
    Limit(
        code="openvino.empty-transposed",
        case="openvino-variadicsplit-1/explicit/6x1x1-as-0+6/float32/static/axis=0/transposed",
        outcome=Outcome.WRONG,
        message="OpenVINO gives a part of size 0 another size if a Transpose moves it past axes of size 1 "
        "alone",
        condition=conditions.empty_transposed,
        source=_OPENVINO_CPU,
        fix="remove the part: it has no elements",
        forms=(FixForm.EMPTY,),
    ),
    Limit(
        code="openvino.sequence-open-axis",
        case="splittosequence-11/chunk/6-by-2/float32/dynamic/2-outputs/elements",
        outcome=Outcome.ERROR,
        message="OpenVINO rejects chunks of an axis of unknown size",
        condition=conditions.open_chunks,
        source=_OPENVINO_FRONTEND_SEQUENCE,
        fix="declare the size of the axis, or use Split if the number of parts is known",
        forms=(FixForm.PARTS, FixForm.SLICES),
    ),
    Limit(
        code="openvino.sequence-runtime-lengths",
        case="splittosequence-11/chunk/6-by-2/float32/static/run-time/2-outputs/elements",
        outcome=Outcome.ERROR,
        message="OpenVINO rejects a chunk size, or a number of lengths, that is only known in the run",
        condition=conditions.runtime_lengths,
        source=_OPENVINO_FRONTEND_SEQUENCE,
        fix="make 'split' a constant",
        forms=(FixForm.PARTS, FixForm.SLICES),
    ),
    Limit(
        code="openvino.squeezed-parts",
        case="split-18/ceil/2x3x4-into-3/float32/static/axis=1/heads-from-the-end",
        outcome=Outcome.CRASH,
        message="OpenVINO ends the process on equal parts of size 1 that lose their axis and are joined on a "
        "negative axis",
        condition=Fusion.SQUEEZED,
        source=f"{_OPENVINO_PASSES}/split_squeeze_concat_fusion.cpp",
        fix="count the axis of the Concat from the front",
        forms=(FixForm.JOIN,),
    ),
    Limit(
        code="openvino.squeezed-open-parts",
        case="split-18/ceil/2x3x4-into-3/float32/static/axis=1/heads-of-unknown-size",
        outcome=Outcome.ERROR,
        message="OpenVINO rejects equal parts of size 1 that lose their axis and are joined, if two sizes of "
        "the result are unknown",
        condition=Fusion.SQUEEZED_OPEN,
        source=f"{_OPENVINO_PASSES}/split_squeeze_concat_fusion.cpp",
        fix=_SET_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="openvino.repeated-parts",
        case="split-18/ceil/1x2x3x2-into-3/float32/static/axis=-2/upsampled-from-the-end",
        outcome=Outcome.ERROR,
        message="OpenVINO replaces equal parts that are each joined with themselves by an Interpolate, which "
        "fails or is wrong on a negative or open axis of the split, and on another axis of the Concat",
        condition=Fusion.REPEATED,
        source=f"{_OPENVINO_PASSES}/split_concat_pair_to_interpolate_fusion.cpp",
        fix=_SET_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="openvino.convolved-parts",
        case="split-18/ceil/1x4x3x3-into-2/float32/static/axis=1/convolved-backwards",
        outcome=Outcome.WRONG,
        message="OpenVINO replaces joined convolutions of parts by a grouped one, even if they are not all "
        "the parts in their order on the axis of the channels",
        condition=Fusion.CONVOLVED,
        source=f"{_OPENVINO_PASSES}/convolution_to_group_convolution_fusion.cpp",
        fix="let the first convolution read a Gather of its channels",
        forms=(FixForm.GATHER,),
    ),
    Limit(
        code="openvino.convolved-beside",
        case="split-18/ceil/1x4x3x3-into-2/float32/static/axis=1/convolved-beside",
        outcome=Outcome.ERROR,
        message="OpenVINO rejects a convolution of a part that is joined with an input or a constant",
        condition=Fusion.CONVOLVED_BESIDE,
        source=f"{_OPENVINO_PASSES}/convolution_to_group_convolution_fusion.cpp",
        fix="let the convolution read a Gather of its channels",
        forms=(FixForm.GATHER,),
    ),
    Limit(
        code="openvino.rotated-halves",
        case="split-18/explicit/1x2x3x4-as-2+2/float32/static/axis=3/rotary-by-one",
        outcome=Outcome.WRONG,
        message="OpenVINO reads whole rows of the tables of a rotary embedding, even if they are not as wide "
        "as the data, and takes its halves to be equal",
        condition=Fusion.ROTATED,
        source=f"{_OPENVINO_PASSES}/fuse_rotary_positional_embeddings.cpp",
        fix="count the axis of the Concat from the front",
        forms=(FixForm.JOIN,),
    ),
    Limit(
        code="openvino.backward-slices",
        case="split-18/ceil/6x2-into-2/float32/static/axis=0/sliced-backwards",
        outcome=Outcome.WRONG,
        message="OpenVINO gives a Slice that ends one position before it starts what the Slices beside it "
        "leave of the axis, and not nothing",
        condition=Fusion.BACKWARDS,
        source=f"{_OPENVINO_PASSES}/optimize_strided_slice.cpp",
        fix="let the Slice end where it starts",
        forms=(FixForm.BOUNDS,),
    ),
    Limit(
        code="openvino.gated-parts",
        case="split-18/ceil/2x3-into-4/float32/static/axis=1/gated-otherwise",
        outcome=Outcome.ERROR,
        message="OpenVINO rejects the gates of an LSTM cell as equal parts in another order than i, c, f, o, "
        "or takes one for another, if a constant is added to one of them",
        condition=Fusion.GATED,
        source=f"{_OPENVINO_PASSES}/lstm_cell_fusion.cpp",
        fix=_SET_LENGTHS,
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="opencv.default-axis",
        case="split-18/ceil/2x6-into-2/float32/static",
        outcome=Outcome.WRONG,
        message="OpenCV splits axis 1, not 0, if the attribute axis is missing",
        condition=conditions.default_axis,
        source=_OPENCV_IMPORTER,
        fix="set the attribute axis",
        forms=(FixForm.AXIS,),
    ),
    Limit(
        code="opencv.fewer-outputs",
        case="split-18/ceil/2x6-into-2/float32/static/axis=1/1-outputs",
        outcome=Outcome.WRONG,
        message="OpenCV divides the axis by the number of declared outputs, not by num_outputs",
        condition=conditions.fewer_outputs,
        source=_OPENCV_SPLIT,
        fix="declare num_outputs outputs, even if nothing reads them",
        forms=(FixForm.IN_FULL, FixForm.LENGTHS, FixForm.SLICES),
    ),
    Limit(
        code="opencv.empty-name",
        case="split-18/ceil/6-into-2/float32/static/absent",
        outcome=Outcome.ERROR,
        message="OpenCV counts an absent input named '' as given",
        condition=conditions.named_nothing,
        source=_OPENCV_SPLIT,
        fix="remove the input",
        forms=(FixForm.IN_FULL,),
    ),
    Limit(
        code="opencv.split-1-lengths",
        case="split-1/explicit/6-as-2+4/float32/static/float32-lengths",
        outcome=Outcome.ERROR,
        message="OpenCV rejects lengths that are an input of floating-point numbers",
        condition=conditions.split_1_input,
        source=_OPENCV_SPLIT,
        fix="set the lengths in the attribute 'split'",
        forms=(FixForm.LENGTHS,),
    ),
    Limit(
        code="opencv.empty-output",
        case="split-18/explicit/6-as-0+6/float32/static",
        outcome=Outcome.WRONG,
        message="OpenCV returns no array for an output of the model without elements",
        condition=conditions.empty_output,
        source=_OPENCV_SPLIT,
        fix="remove the part: it has no elements",
    ),
    Limit(
        code="opencv.narrowed-values",
        case="split-18/ceil/6-into-2/int64/static/wide",
        outcome=Outcome.WRONG,
        message="OpenCV keeps the low 32 bits of 64-bit integers",
        condition=conditions.narrowed_integers,
        source=_OPENCV_IMPORTER,
    ),
    Limit(
        code="opencv.float16",
        case="split-18/ceil/6-into-2/float16/static",
        outcome=Outcome.WRONG,
        message="OpenCV returns float32 for float16",
        condition=conditions.half,
        source=_OPENCV_IMPORTER,
    ),
    Limit(
        code="opencv.string",
        case="split-18/ceil/6-into-2/string/static",
        outcome=Outcome.ERROR,
        message="OpenCV does not support strings",
        condition=conditions.strings,
        source=_OPENCV_IMPORTER,
    ),
    Limit(
        code="opencv.complex",
        case="split-18/ceil/6-into-2/complex64/static",
        outcome=Outcome.ERROR,
        message="OpenCV does not support complex tensors",
        condition=conditions.complex,
        source=_OPENCV_IMPORTER,
    ),
    Limit(
        code="opencv.sequence",
        case="splittosequence-11/chunk/6-by-3/float32/static/2-outputs/elements",
        outcome=Outcome.ERROR,
        message="OpenCV does not support sequences",
        condition=conditions.any_sequence,
        source=_OPENCV_IMPORTER,
        fix="use Split instead of SplitToSequence",
        forms=(FixForm.PARTS, FixForm.SLICES),
    ),
    Limit(
        code="openvino.empty-lengths",
        case="splittosequence-11/explicit/0-as-nothing/float32/static/length",
        outcome=Outcome.ERROR,
        message="OpenVINO rejects constant lengths without entries",
        condition=conditions.empty_lengths,
        source=_OPENVINO_FRONTEND_SEQUENCE,
        forms=(FixForm.PARTS,),
    ),
    Limit(
        code="openvino.size-32-bit",
        case="split-18/explicit/4294967300x0-as-4294967298+2/float32/static",
        outcome=Outcome.ERROR,
        message="OpenVINO reads lengths of 2^31 and more as 2^31 - 1",
        condition=conditions.large_stated,
        source=_OPENVINO_VARIADIC,
    ),
    Limit(
        code="tensorrt.sequence",
        case=None,
        outcome=Outcome.ERROR,
        message="TensorRT does not support sequences",
        condition=conditions.any_sequence,
        source="https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md",
        fix="use Split instead of SplitToSequence",
        forms=(FixForm.PARTS, FixForm.SLICES),
    ),
)
"""Every known limit of a runtime."""

RUNTIMES: Final = tuple(dict.fromkeys(limit.runtime for limit in LIMITS))
"""The runtimes that have a profile."""


def known_runtimes(runtimes: str | Iterable[str]) -> tuple[str, ...]:
    """Return the runtimes that a caller names; a single string is one of them.

    Raises:
        ArrayError: one has no profile.

    Examples:
        >>> known_runtimes("onnxruntime")
        ('onnxruntime',)
    """
    if not isinstance(runtimes, Iterable):
        raise ArrayError(f"{shown(runtimes)} is not the name of a runtime; use {', '.join(RUNTIMES)}")
    named = (runtimes,) if isinstance(runtimes, str) else tuple(runtimes)
    for runtime in named:
        if runtime not in RUNTIMES:
            raise ArrayError(f"runtime {shown(runtime)} has no profile; use {', '.join(RUNTIMES)}")
    return named
