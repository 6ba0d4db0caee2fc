"""Verify a fixed model: run its source on the reference and the model on a runtime, and compare outputs.

The inputs are generated unless they are set. Each dynamic size gets values at which divisions can change,
such as 0, 1, one less and one more than a number of parts, the sum of the lengths, and the ends of the chunks
that are read. These are at most 32 samples, not all sizes. The runtime runs in a separate process, so that a
crash is recorded as a result. Each sample with an empty axis runs in its own process, since operators other
than splits may crash on it.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from splitops.common.json_values import to_json_values
from splitops.common.notebooks import format_html_table
from splitops.errors import ModelError, RuleError, SplitError, Where, count_of
from splitops.models.engines import make_engine
from splitops.models.engines.engine import EngineError, Program
from splitops.models.formats.files import is_openvino, save
from splitops.models.formats.model import CheckedModel
from splitops.models.graph.onnx_sequences import find_consumers, find_position
from splitops.models.infer.interpreter import infer_model
from splitops.models.running.input_specs import InputSpec
from splitops.models.running.inputs import Inputs
from splitops.models.sessions import Session, session
from splitops.models.split_nodes import SplitNode
from splitops.spec.sizes.dims import Range
from splitops.spec.sizes.rules import SizeRule

if TYPE_CHECKING:
    from splitops.models.engines.engine import Engine
    from splitops.models.formats.files import AnyModel, ModelInMemory

__all__ = [
    "VERIFIABLE",
    "Trial",
    "TrialVerdict",
    "Verification",
    "differ_by_rounding",
    "difference",
    "generate_inputs",
    "verify",
]

VERIFIABLE: Final = ("onnxruntime", "openvino")
"""The runtimes on which models can be verified, if they are installed."""
_MAX_TRIALS: Final = 32
_MAX_SIZE: Final = 1 << 12
_MAX_ELEMENTS: Final = 1 << 24
_ROUNDING: Final = 1e-3


class TrialVerdict(StrEnum):
    """Whether the outputs of a runtime agree with those of the source in a trial."""

    SAME = "identical"
    """The runtime returns the same bits."""
    ROUNDED = "rounded"
    """Floats differ slightly, because other operators round differently."""
    REJECTED = "rejected"
    """The source rejects these sizes, or their inputs are too large to generate."""
    UNSAMPLED = "not compared"
    """The runtime fails on an empty axis, and it does so without the fix, too."""
    DIFFERENT = "different"
    """The runtime returns other values."""
    FAILED = "failed"
    """The runtime rejects the model or the input, or crashes."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run on generated inputs.

    Attributes:
        sizes: the dynamic sizes of the inputs, by name.
        verdict: the result.
        text: the difference, or the runtime's message.
    """

    sizes: Mapping[str, int]
    verdict: TrialVerdict
    text: str = ""

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items()) or "the declared sizes"
        return f"{sizes}: {self.verdict}{f': {self.text}' if self.text else ''}"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of all trials on one runtime.

    Attributes:
        runtime: name of the runtime.
        release: release of the runtime.
        trials: the trials.
        source_error: the rule that the source model breaks, if it cannot run. The results were then compared
            with those of the fixed model on the reference. Empty otherwise.
    """

    runtime: str
    release: str
    trials: tuple[Trial, ...]
    source_error: str = ""

    @property
    def failures(self) -> tuple[Trial, ...]:
        """The trials with the verdict ``FAILED`` or ``DIFFERENT``."""
        return tuple(t for t in self.trials if t.verdict in (TrialVerdict.DIFFERENT, TrialVerdict.FAILED))

    @property
    def holds(self) -> bool:
        """Whether at least one trial was compared, and none failed."""
        compared = any(trial.verdict in (TrialVerdict.SAME, TrialVerdict.ROUNDED) for trial in self.trials)
        return compared and not self.failures

    def as_dict(self) -> dict[str, Any]:
        """Convert the verification to JSON-serialisable values."""
        return to_json_values(self)

    def __str__(self) -> str:
        counts = {verdict: sum(trial.verdict is verdict for trial in self.trials) for verdict in TrialVerdict}
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        text = (
            f"Verified on {self.runtime} {self.release} with {count_of(len(self.trials), 'sample')}: {words}"
        )
        if not self.source_error:
            return text
        return (
            f"{text}; the source cannot run ({self.source_error}), so the reference ran the fixed model, too"
        )

    def __repr__(self) -> str:
        return f"Verification({self})"

    def _repr_html_(self) -> str:
        rows = [(dict(trial.sizes), str(trial.verdict), trial.text) for trial in self.trials]
        return format_html_table(str(self), ("sizes", "result", "difference or message"), rows)


def verify(
    source: AnyModel,
    fixed: ModelInMemory,
    runtime: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    opened: bool = False,
    seed: int = 0,
    allow_links: bool = False,
) -> Verification:
    """Run a model on the reference and its fixed model on a runtime, and compare the bits.

    If a split of the source breaks a rule that the fix has repaired, the source cannot run. In this case, the
    reference runs the fixed model, too.

    Args:
        source: the model that was fixed.
        fixed: the result of :func:`splitops.fix`.
        runtime: ``"onnxruntime"`` or ``"openvino"``.
        inputs: the inputs of the only sample, as in :meth:`~splitops.models.sessions.Session.run`; None
            generates samples.
        opened: whether the fixed model accepts sizes that the source rejects, as with ``open=`` of
            :func:`splitops.fix`. For these sizes, the reference runs the fixed model, too.
        seed: seed of the random numbers.
        allow_links: whether links to the files of a model at a path may leave its folder, as in
            :func:`splitops.load`.

    Returns:
        The verification, with one trial for each sample of the sizes. The runtime's first failure on inputs
        without an empty axis ends the trials. Results that differ only by the rounding of floats have a
        verdict of their own.

    Raises:
        ModelError: the runtime is not installed or not supported, an input is not a tensor with a declared
            type and rank, or the source (or the fixed model, if it runs in its place) rejects every input.
        RuleError: a split of the fixed model is invalid in every run, or ``inputs`` are set and break a rule.

    Examples:
        >>> import onnx.parser, splitops
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[N] x) => (float[n] a, float[m] b, float[k] c) {
        ...         a, b, c = Split<num_outputs = 3>(x) }''')
        >>> fixed = splitops.fix(model, "onnxruntime")
        >>> trials = verify(model, fixed, "onnxruntime").trials  # doctest: +SKIP
        >>> sorted(trial.sizes["N"] for trial in trials)  # doctest: +SKIP
        [0, 1, 2, 3, 4, 6]
    """
    if runtime not in VERIFIABLE:
        raise ModelError(f"cannot verify models on {runtime}: use {' or '.join(VERIFIABLE)}")
    with ExitStack() as stack:
        trials, base, source_error = _prepare_trials(stack, source, fixed, inputs, seed, allow_links)
        trials.wider = stack.enter_context(session(fixed, "reference")) if opened else None
        declared = trials.ours.inputs
        keyed = enumerate(declared) if is_openvino(fixed) else ((one.name, one) for one in declared)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="splitops-verify-")))
        path = folder / ("m.xml" if is_openvino(fixed) else "m.onnx")
        save(fixed, path)
        outputs = tuple(trials.ours.outputs)
        program = Program(path, outputs, Where(), as_it_is=True)
        engine = stack.enter_context(_start_engine(runtime))

        def run_source(feeds: Mapping[Any, Any]) -> str:
            return _run_source(source, outputs, runtime, feeds, folder)

        found = tuple(trials.run(engine, program, Inputs([*keyed]), base, run_source))
        return Verification(runtime, engine.version, found, source_error)


def _prepare_trials(
    stack: ExitStack,
    source: AnyModel,
    fixed: AnyModel,
    inputs: Mapping[str, Any] | None,
    seed: int,
    allow_links: bool,
) -> tuple[_Trials, dict[str, int], str]:
    """Prepare the reference runs.

    Returns:
        The trials, the sizes of the first one, and the rule that the source breaks, or '' if it can run.
    """

    def prepare(model: AnyModel, *, allow_links: bool) -> tuple[_Trials, dict[str, int]]:
        ours = stack.enter_context(session(model, "reference", allow_links=allow_links))
        trials = _Trials(ours, seed, inputs)
        trials.ends = _find_chunk_ends(ours, model, allow_links=allow_links)
        return trials, trials.find_base()

    try:
        return *prepare(source, allow_links=allow_links), ""
    except SplitError as error:
        # A split that no input makes valid was repaired by the fix. Otherwise, other inputs are needed.
        model = CheckedModel.read(source, weights=False, allow_links=allow_links)
        faults = (split_node.error for split_node in infer_model(model.nodes, model.where).splits)
        broken = next((fault for fault in faults if isinstance(fault, RuleError)), None)
        if broken is None or not (isinstance(error, RuleError) or isinstance(error.__cause__, RuleError)):
            raise
    return *prepare(fixed, allow_links=False), broken.message


@contextmanager
def _start_engine(runtime: str) -> Iterator[Engine]:
    """Start a runtime in a separate process for the block."""
    engine = make_engine(runtime, {}, isolate=True)
    try:
        yield engine
    finally:
        engine.close()


def _run_source(
    source: AnyModel, outputs: tuple[str, ...], runtime: str, feeds: Mapping[Any, Any], folder: Path
) -> str:
    """Run the source on a runtime in a new process. Return the error message, or '' if it runs."""
    path = folder / ("source.xml" if is_openvino(source) else "source.onnx")
    try:
        if isinstance(source, str | os.PathLike):
            path = Path(source)
        elif not path.exists():
            save(source, path)
        with _start_engine(runtime) as engine:
            program = Program(path, outputs, Where(), as_it_is=True)
            engine.compile(program).run(feeds)
    except SplitError as error:  # an error of the runtime, or the source cannot be saved
        return error.message
    return ""


def generate_inputs(reference: Session, *, seed: int = 0) -> dict[str, Any]:
    """Generate valid inputs by name for the model of ``reference``, a session on the reference."""
    trials = _Trials(reference, seed)
    return trials.generate(trials.find_base())


def difference(
    reference: Any, theirs: Any, reference_type: str | None = None, their_type: str | None = None
) -> str | None:
    """Describe how an output, which may be a list, differs from the reference. Return None if it does not.

    Bits are compared. ``reference_type`` and ``their_type`` are the names of the element types, by default
    those of the dtypes.
    """
    if isinstance(reference, list) != isinstance(theirs, list):
        return "a tensor, not a sequence" if isinstance(reference, list) else "a sequence, not a tensor"
    if isinstance(reference, list):
        if len(reference) != len(theirs):
            return f"{len(theirs)} elements, not {len(reference)}"
        problems = (
            difference(*pair, reference_type, their_type) for pair in zip(reference, theirs, strict=True)
        )
        found = ((index, problem) for index, problem in enumerate(problems) if problem is not None)
        return next((f"element {index}: {problem}" for index, problem in found), None)
    a, b = np.asarray(reference), np.asarray(theirs)
    reference_type, their_type = reference_type or _name_type(a), their_type or _name_type(b)
    if (their_type, b.shape) != (reference_type, a.shape):
        return f"{their_type}{list(b.shape)}, not {reference_type}{list(a.shape)}"
    if not a.size:
        return None
    wrong = np.flatnonzero((_to_rows(a) != _to_rows(b)).any(axis=1))
    if not len(wrong):
        return None
    place = [int(i) for i in np.unravel_index(int(wrong[0]), a.shape)]
    first, other = a.ravel()[wrong[0]], b.ravel()[wrong[0]]
    return f"{len(wrong)} of {a.size} values differ, first at {place}: {other}, not {first}"


def differ_by_rounding(reference: Any, theirs: Any) -> bool:
    """Return whether two outputs, arrays or lists of arrays, are equal except for the rounding of floats.

    The tolerance is 0.1 % of each element plus 0.1 % of the largest finite one.
    """
    if isinstance(reference, list) and isinstance(theirs, list):
        return len(reference) == len(theirs) and all(map(differ_by_rounding, reference, theirs))
    a, b = np.asarray(reference), np.asarray(theirs)
    if difference(a, b) is None:
        return True
    if a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind not in "fcV":
        return False
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    scale = float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))
    return bool(np.allclose(x, y, rtol=_ROUNDING, atol=_ROUNDING * scale, equal_nan=True))


def _name_type(array: npt.NDArray[Any]) -> str:
    return "string" if array.dtype.kind in "OUST" else array.dtype.name


def _to_rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array with one row per element: its bytes, or the string itself."""
    if array.dtype.kind in "OUST":
        return array.reshape(-1, 1)
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return little.reshape(-1).view(np.uint8).reshape(array.size, -1)


class _Trials:
    """Generates inputs for samples of the dynamic sizes of a model, and runs the trials."""

    def __init__(self, ours: Session, seed: int, inputs: Mapping[str, Any] | None = None) -> None:
        self.ours = ours
        self.inputs = inputs
        self.wider: Session | None = None
        """The fixed model, if it accepts sizes that the source rejects."""
        self.ends: Collection[int] = ()
        """End positions, on the split axis, of the chunks that nodes read."""
        self._first: dict[str, Any] = {}
        self.random = np.random.default_rng(seed)
        self.small = False
        self.bounds: dict[str, Range] = {}
        for one in ours.inputs if inputs is None else ():
            if one.kind != "tensor" or one.element_type is None or one.shape is None:
                raise ModelError(f"cannot generate input {one.name!r} ({one})")
            named = ((_name_axis(one, axis), size) for axis, size in enumerate(one.shape))
            self.bounds |= {name: size for name, size in named if isinstance(size, Range)}

    def run(
        self,
        engine: Engine,
        program: Program,
        inputs: Inputs[Any],
        base: Mapping[str, int],
        source_failure: Callable[[Mapping[Any, Any]], str],
    ) -> Iterator[Trial]:
        """Run the samples, and yield a trial for each. A failure ends the trials, unless an axis is empty.

        ``inputs`` are those of the program, keyed by name or, for OpenVINO IR, by position.
        ``source_failure`` returns the error of the runtime on the source, or ''.
        """
        try:
            compiled = engine.compile(program)
        except EngineError as error:
            yield Trial(base, TrialVerdict.FAILED, error.message)
            return
        for sizes in self._iter_sizes(base):
            try:
                # If lengths are an input, other numbers may be invalid.
                feeds = self._first if sizes == base else self.generate(sizes)
                expected = self._run_reference(feeds)
            except SplitError:
                yield Trial(sizes, TrialVerdict.REJECTED)
                continue
            # The session has converted names, byte order and strings; the runtime needs the same values.
            given = inputs.check(feeds, Where())
            if 0 in sizes.values():
                yield _run_empty(engine.name, program, sizes, given, expected, source_failure)
                continue
            try:
                found = compiled.run(given)
            except EngineError as error:
                yield Trial(sizes, TrialVerdict.FAILED, error.message)
                return  # its process may have crashed
            yield Trial(sizes, *_compare(expected, dict(zip(program.outputs, found, strict=True))))

    def _run_reference(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.ours.run(feeds)
        except SplitError:
            if self.wider is None:
                raise
            return self.wider.run(feeds)

    def generate(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Generate an array for each input, keyed by name, with ``sizes`` as the dynamic sizes."""
        return {one.name: self._generate(one, sizes) for one in self.ours.inputs}

    def _generate(self, declared: InputSpec, sizes: Mapping[str, int]) -> Any:
        """Generate an array. Floats are small whole numbers, so that sums are exact."""
        kind, dims = declared.element_type, declared.shape
        assert kind is not None
        assert dims is not None
        shape = tuple(
            sizes[_name_axis(declared, axis)] if isinstance(size, Range) else size
            for axis, size in enumerate(dims)
        )
        if int(np.prod(shape, dtype=object)) > _MAX_ELEMENTS:
            raise ModelError(f"input {declared.name!r} of shape {shape} is too large to generate")
        if kind.bits == 0:
            array = np.empty(shape, object)
            array.reshape(-1)[:] = [f"s{number}" for number in self.random.integers(0, 1 << 20, array.size)]
            return array
        if kind.numpy.kind in "iu" and not self.small and not kind.packed:
            info = np.iinfo(kind.numpy)
            return self.random.integers(info.min, info.max, shape, kind.numpy, endpoint=True)
        end = 2 if kind.name == "bool" or self.small else 8
        return self.random.integers(0, end, shape).astype(kind.numpy)

    def find_base(self) -> dict[str, int]:
        """Find sizes that the source accepts: one value for all names, within their bounds.

        If inputs were given, run the source on these instead, and return no sizes.

        Raises:
            ModelError: the source rejects all generated inputs; the cause is the first rejection.
        """
        if self.inputs is not None:
            self._first = dict(self.inputs)
            self.ours.run(self._first)
            return {}
        candidates = [size for size in self._list_boundaries() if size > 0] or [1]
        rejected: SplitError | None = None
        for self.small in (False, True):
            for size in sorted(candidates, reverse=True):
                sizes = {name: _clamp(size, bounds) for name, bounds in self.bounds.items()}
                try:
                    feeds = self.generate(sizes)
                    self.ours.run(feeds)
                except SplitError as error:
                    rejected = rejected or error
                    continue
                self._first = feeds
                return sizes
        problem = f"the model rejects all generated inputs: {rejected}"
        raise ModelError(f"{problem}; set inputs (--input, in Python inputs=)") from rejected

    def _iter_sizes(self, base: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield ``base``, and ``base`` with each size replaced by each boundary, up to 32 in all."""
        seen = [dict(base)]
        for name, bounds in self.bounds.items():
            for size in self._list_boundaries():
                sizes = {**base, name: _clamp(size, bounds)}
                if sizes not in seen and len(seen) < _MAX_TRIALS:
                    seen.append(sizes)
        yield from seen

    def _list_boundaries(self) -> list[int]:
        """Return the sizes at which the divisions of the model change."""
        found = {0, 1, 2, 3}
        for split_node in self.ours.splits:
            division = split_node.division
            if division is None:
                continue
            steps: Iterable[int] = (division.count, division.chunk)
            if division.rule in (SizeRule.EXPLICIT, SizeRule.REMAINDER):
                total = sum(length for length in division.lengths if length > 0)
                # At sizes that only the fixed model accepts, the number of parts may be larger.
                steps = (total,) if self.wider is None else (total, total + len(division.lengths))
            for step in steps:
                found |= {step - 1, step, step + 1, 2 * step}
        for end in self.ends:
            found |= {end - 1, end, end + 1}
        return sorted(size for size in found if 0 <= size <= _MAX_SIZE)


def _find_chunk_ends(ours: Session, model: AnyModel, *, allow_links: bool) -> set[int]:
    """Return the ends of the chunks that nodes read at constant positions, including negative positions."""
    if not any(map(_get_chunk, ours.splits)):
        return set()
    opened, found = CheckedModel.read(model, weights=False, allow_links=allow_links), set()
    for split_node in infer_model(opened.nodes, opened.where).splits:
        readers = (reader for value in split_node.node.outputs for reader in find_consumers(value))
        positions = [find_position(reader) for reader in readers]
        found |= {_get_chunk(split_node) * (at + 1 if at >= 0 else -at) for at in positions if at is not None}
    return found


def _get_chunk(split_node: SplitNode) -> int:
    return 0 if split_node.division is None else split_node.division.chunk


def _run_empty(
    runtime: str,
    program: Program,
    sizes: Mapping[str, int],
    feeds: Mapping[Any, Any],
    expected: Mapping[str, Any],
    source_failure: Callable[[Mapping[Any, Any]], str],
) -> Trial:
    """Run a sample with an empty axis in a new process.

    Runtimes crash on empty tensors in operators other than splits. The fix is not to blame if the
    source fails in the same way, or if the process crashes and the source fails, too.
    """
    try:
        with _start_engine(runtime) as engine:
            found = engine.compile(program).run(feeds)
    except EngineError as error:
        before = source_failure(feeds)
        same = error.process_ended or _strip_names(before) == _strip_names(error.message)
        if before and same:
            return Trial(sizes, TrialVerdict.UNSAMPLED, error.message)
        return Trial(sizes, TrialVerdict.FAILED, error.message)
    return Trial(sizes, *_compare(expected, dict(zip(program.outputs, found, strict=True))))


def _strip_names(message: str) -> str:
    """Remove the names of nodes and files from a message: they differ between models."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*", "", message)


def _name_axis(declared: InputSpec, axis: int) -> str:
    size = declared.shape[axis] if declared.shape is not None else None
    return (size.name if isinstance(size, Range) else None) or f"{declared.name}[{axis}]"


def _clamp(size: int, bounds: Range) -> int:
    return min(max(size, bounds.lo), size if bounds.hi is None else bounds.hi)


def _compare(expected: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[TrialVerdict, str]:
    verdict = TrialVerdict.SAME
    for name, ours in expected.items():
        text = difference(ours, found[name])
        if text is not None:
            if not differ_by_rounding(ours, found[name]):
                return TrialVerdict.DIFFERENT, f"output {name!r}: {text}"
            verdict = TrialVerdict.ROUNDED
    return verdict, ""
