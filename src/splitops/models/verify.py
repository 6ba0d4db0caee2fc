"""Verification of a fixed model: its source runs here, it runs in a runtime, and the bits are compared.

The inputs are generated: for each size that the model leaves open, those at which divisions change (0, 1, one
less and one more than a number of parts, the sum of lengths, the end of the chunks that are read). These are
samples, not all sizes. The runtime runs in a process of its own, so that a crash is a result too. A sample
with an empty axis has another one, since runtimes end on empty tensors in operators other than splits.
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
from splitops.models.check.checking import walk_model
from splitops.models.engines import make_engine
from splitops.models.engines.engine import EngineError, Program
from splitops.models.formats.files import is_openvino, save
from splitops.models.formats.model import CheckedModel
from splitops.models.graph.onnx_sequences import find_consumers, position_of
from splitops.models.running.input_specs import InputSpec
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
"""The runtimes that can be run here, if they are installed."""
_MAX_TRIALS: Final = 32
_MAX_SIZE: Final = 1 << 12
_MAX_ELEMENTS: Final = 1 << 24
_ROUNDING: Final = 1e-3


class TrialVerdict(StrEnum):
    """What one trial has shown."""

    SAME = "same bits"
    """The runtime returns the same bits."""
    ROUNDED = "rounded"
    """Floats differ in their last bits, as other operators round them differently."""
    REJECTED = "rejected"
    """The source rejects these sizes, so that there is nothing to compare."""
    UNSAMPLED = "not compared"
    """The runtime fails on an empty axis in the same way without the fix, so that nothing is compared."""
    DIFFERENT = "different"
    """The runtime returns something else."""
    FAILED = "failed"
    """The runtime rejects the model or the input, or its process ends."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run on made inputs.

    Attributes:
        sizes: the sizes that the model leaves open, by their names.
        verdict: what it has shown.
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
    """What all trials in one runtime have shown.

    Attributes:
        runtime: its name.
        release: its release.
        trials: the trials.
        source_error: why the source cannot run: the fixed model was run here in its place, as it means what
            was repaired; empty if the source ran.
    """

    runtime: str
    release: str
    trials: tuple[Trial, ...]
    source_error: str = ""

    @property
    def failures(self) -> tuple[Trial, ...]:
        """The trials in which the runtime fails or returns something else."""
        return tuple(t for t in self.trials if t.verdict in (TrialVerdict.DIFFERENT, TrialVerdict.FAILED))

    @property
    def holds(self) -> bool:
        """Whether something was compared, and no trial failed."""
        compared = any(trial.verdict in (TrialVerdict.SAME, TrialVerdict.ROUNDED) for trial in self.trials)
        return compared and not self.failures

    def as_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return to_json_values(self)

    def __str__(self) -> str:
        counts = {verdict: sum(trial.verdict is verdict for trial in self.trials) for verdict in TrialVerdict}
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        text = (
            f"Verified on {self.runtime} {self.release} with {count_of(len(self.trials), 'sample')}: {words}"
        )
        if not self.source_error:
            return text
        return f"{text}; the source cannot run ({self.source_error}), so the fixed model was run here too"

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
    """Run a model here and its fixed form in a runtime, on generated inputs, and compare the bits.

    If a split of the source breaks a rule, which the fix has repaired, no run of it has a result. The fixed
    model is run here in its place then.

    Args:
        source: the model that was fixed.
        fixed: what :func:`splitops.fix` made of it.
        runtime: ``"onnxruntime"`` or ``"openvino"``.
        inputs: the inputs by name, as :meth:`~splitops.models.sessions.Session.run` takes them: the only
            sample. None generates samples.
        opened: whether the fixed model accepts sizes that the source rejects, as with ``open=`` of
            :func:`splitops.fix`: there it is compared with its own results here.
        seed: of the random numbers.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.

    Returns:
        One trial for each combination of sizes that was tried. Results that differ only in the last bits of
        floats, as other operators round them, are told apart from equal bits.

    Raises:
        ModelError: the runtime is not installed or cannot be run here, an input is not a tensor of a declared
            type and rank, or the source and the fixed model reject every input.
        RuleError: no run can make a split of the fixed model valid.

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
        raise ModelError(f"{runtime} cannot be run here; {' and '.join(VERIFIABLE)} can")
    with ExitStack() as stack:
        trials, base, source_error = _meaning(stack, source, fixed, inputs, seed, allow_links)
        trials.wider = stack.enter_context(session(fixed, "reference")) if opened else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="splitops-verify-")))
        path = folder / ("m.xml" if is_openvino(fixed) else "m.onnx")
        save(fixed, path)
        outputs = tuple(trials.ours.outputs)
        program = Program(path, outputs, Where(), as_it_is=True)
        engine = stack.enter_context(_engine(runtime))

        def runs_source(feeds: Mapping[str, Any]) -> str:
            return _failure_of(source, outputs, runtime, feeds, folder)

        found = tuple(trials.run(engine, program, base, runs_source))
        return Verification(runtime, engine.version, found, source_error)


def _meaning(
    stack: ExitStack,
    source: AnyModel,
    fixed: AnyModel,
    inputs: Mapping[str, Any] | None,
    seed: int,
    allow_links: bool,
) -> tuple[_Trials, dict[str, int], str]:
    """Return the runs to compare with, the sizes of the first, and why they are not those of the source."""

    def opened(model: AnyModel, *, allow_links: bool) -> tuple[_Trials, dict[str, int]]:
        ours = stack.enter_context(session(model, "reference", allow_links=allow_links))
        trials = _Trials(ours, seed, inputs)
        trials.ends = _chunk_ends(ours, model, allow_links=allow_links)
        return trials, trials.base()

    try:
        return *opened(source, allow_links=allow_links), ""
    except SplitError as error:
        # If no input could make a split valid, a fix has repaired it. Else other inputs are needed.
        model = CheckedModel.read(source, weights=False, allow_links=allow_links)
        faults = (split_node.error for split_node in walk_model(model.nodes, model.where).splits)
        broken = next((fault for fault in faults if isinstance(fault, RuleError)), None)
        if broken is None or not (isinstance(error, RuleError) or isinstance(error.__cause__, RuleError)):
            raise
    return *opened(fixed, allow_links=False), broken.message


@contextmanager
def _engine(runtime: str) -> Iterator[Engine]:
    """Run a runtime in a process of its own."""
    engine = make_engine(runtime, {}, isolate=True)
    try:
        yield engine
    finally:
        engine.close()


def _failure_of(
    source: AnyModel, outputs: tuple[str, ...], runtime: str, feeds: Mapping[str, Any], folder: Path
) -> str:
    """Return how a runtime fails on the source as it is, in a process of its own; empty if it does not."""
    path = folder / ("source.xml" if is_openvino(source) else "source.onnx")
    try:
        if isinstance(source, str | os.PathLike):
            path = Path(source)
        elif not path.exists():
            save(source, path)
        with _engine(runtime) as engine:
            program = Program(path, outputs, Where(), as_it_is=True)
            engine.compile(program).run(feeds)
    except SplitError as error:  # the runtime's, or that no file can hold the source
        return error.message
    return ""


def generate_inputs(reference: Session, *, seed: int = 0) -> dict[str, Any]:
    """Make inputs that a model takes, by name; ``reference`` is a session of it on the reference."""
    trials = _Trials(reference, seed)
    return trials.feeds(trials.base())


def difference(
    reference: Any, theirs: Any, reference_type: str | None = None, their_type: str | None = None
) -> str | None:
    """Return how an output, a list for a sequence, differs from ours bit for bit; None where it does not.

    The names of element types are those of the arrays where they are not given.
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
    reference_type, their_type = reference_type or _kind(a), their_type or _kind(b)
    if (their_type, b.shape) != (reference_type, a.shape):
        return f"{their_type}{list(b.shape)}, not {reference_type}{list(a.shape)}"
    if not a.size:
        return None
    wrong = np.flatnonzero((_bits(a) != _bits(b)).any(axis=1))
    if not len(wrong):
        return None
    place = [int(i) for i in np.unravel_index(int(wrong[0]), a.shape)]
    first, other = a.ravel()[wrong[0]], b.ravel()[wrong[0]]
    return f"{len(wrong)} of {a.size} values differ, first at {place}: {other}, not {first}"


def differ_by_rounding(reference: Any, theirs: Any) -> bool:
    """Whether two outputs, arrays or lists of arrays, are equal but for the rounding of floats."""
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


def _kind(array: npt.NDArray[Any]) -> str:
    return "string" if array.dtype.kind in "OUST" else array.dtype.name


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return what is compared, a row an element: strings themselves, of all else the bytes."""
    if array.dtype.kind in "OUST":
        return array.reshape(-1, 1)
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return little.reshape(-1).view(np.uint8).reshape(array.size, -1)


class _Trials:
    """The runs of one model, of whose inputs some sizes are open and have names."""

    def __init__(self, ours: Session, seed: int, inputs: Mapping[str, Any] | None = None) -> None:
        self.ours = ours
        self.inputs = inputs
        self.wider: Session | None = None
        """The fixed model, where it accepts what the source rejects."""
        self.ends: Collection[int] = ()
        """Where chunks end that are read."""
        self._first: dict[str, Any] = {}
        self.random = np.random.default_rng(seed)
        self.small = False
        self.bounds: dict[str, Range] = {}
        for one in ours.inputs if inputs is None else ():
            if one.kind != "tensor" or one.element_type is None or one.shape is None:
                raise ModelError(f"no input can be made for {one.name!r}, which is {one}")
            named = ((_name_of(one, axis), size) for axis, size in enumerate(one.shape))
            self.bounds |= {name: size for name, size in named if isinstance(size, Range)}

    def run(
        self,
        engine: Engine,
        program: Program,
        base: Mapping[str, int],
        source_failure: Callable[[Mapping[str, Any]], str],
    ) -> Iterator[Trial]:
        """Run every sample; ``source_failure`` says how the runtime fails on the source, if it does."""
        try:
            compiled = engine.compile(program)
        except EngineError as error:
            yield Trial(base, TrialVerdict.FAILED, error.message)
            return
        for sizes in self._variants(base):
            try:
                # Other numbers might be rejected, if lengths are an input.
                feeds = self._first if sizes == base else self.feeds(sizes)
                expected = self._expected(feeds)
            except SplitError:
                yield Trial(sizes, TrialVerdict.REJECTED)
                continue
            if 0 in sizes.values():
                yield _empty_trial(engine.name, program, sizes, feeds, expected, source_failure)
                continue
            try:
                found = compiled.run(feeds)
            except EngineError as error:
                yield Trial(sizes, TrialVerdict.FAILED, error.message)
                return  # its process may have ended
            yield Trial(sizes, *_compared(expected, dict(zip(program.outputs, found, strict=True))))

    def _expected(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.ours.run(feeds)
        except SplitError:
            if self.wider is None:
                raise
            return self.wider.run(feeds)

    def feeds(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Return inputs of some sizes."""
        return {one.name: self._made(one, sizes) for one in self.ours.inputs}

    def _made(self, declared: InputSpec, sizes: Mapping[str, int]) -> Any:
        """Return an array: small whole numbers where the type is none of integers, so that sums are exact."""
        kind, dims = declared.element_type, declared.shape
        assert kind is not None
        assert dims is not None
        shape = tuple(
            sizes[_name_of(declared, axis)] if isinstance(size, Range) else size
            for axis, size in enumerate(dims)
        )
        if int(np.prod(shape, dtype=object)) > _MAX_ELEMENTS:
            raise ModelError(f"input {declared.name!r} of shape {shape} is too large to be made")
        if kind.bits == 0:
            array = np.empty(shape, object)
            array.reshape(-1)[:] = [f"s{number}" for number in self.random.integers(0, 1 << 20, array.size)]
            return array
        if kind.numpy.kind in "iu" and not self.small and not kind.packed:
            info = np.iinfo(kind.numpy)
            return self.random.integers(info.min, info.max, shape, kind.numpy, endpoint=True)
        most = 2 if kind.name == "bool" or self.small else 8
        return self.random.integers(0, most, shape).astype(kind.numpy)

    def base(self) -> dict[str, int]:
        """Return sizes, the same for all names, that the source takes.

        Raises:
            ModelError: it takes none; the cause is the first rejection.
        """
        if self.inputs is not None:
            self._first = dict(self.inputs)
            self.ours.run(self._first)
            return {}
        candidates = [size for size in self._sizes() if size > 0] or [1]
        rejected: SplitError | None = None
        for self.small in (False, True):
            for size in sorted(candidates, reverse=True):
                sizes = {name: _within(size, bounds) for name, bounds in self.bounds.items()}
                try:
                    feeds = self.feeds(sizes)
                    self.ours.run(feeds)
                except SplitError as error:
                    rejected = rejected or error
                    continue
                self._first = feeds
                return sizes
        told = f"no input was made that the model takes: {rejected}"
        raise ModelError(f"{told}; set inputs (--input, in Python inputs=)") from rejected

    def _variants(self, base: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield the base, and the base with one size at each boundary."""
        seen = [dict(base)]
        for name, bounds in self.bounds.items():
            for size in self._sizes():
                sizes = {**base, name: _within(size, bounds)}
                if sizes not in seen and len(seen) < _MAX_TRIALS:
                    seen.append(sizes)
        yield from seen

    def _sizes(self) -> list[int]:
        """Return the sizes at which the divisions of the model change."""
        found = {0, 1, 2, 3}
        for split_node in self.ours.splits:
            division = None if split_node.binding is None else split_node.binding.division
            if division is None:
                continue
            steps: Iterable[int] = (division.count, division.chunk)
            if division.rule in (SizeRule.EXPLICIT, SizeRule.REMAINDER):
                total = sum(length for length in division.lengths if length > 0)
                # Of a size that only the fixed model takes, its number of parts may be the next one.
                steps = (total,) if self.wider is None else (total, total + len(division.lengths))
            for step in steps:
                found |= {step - 1, step, step + 1, 2 * step}
        for end in self.ends:
            found |= {end - 1, end, end + 1}
        return sorted(size for size in found if 0 <= size <= _MAX_SIZE)


def _chunk_ends(reference: Session, model: AnyModel, *, allow_links: bool) -> set[int]:
    """Return where the last chunks end that nodes read by constant positions, from the front or the end."""
    if all(split_node.binding is None or not _chunk_of(split_node) for split_node in reference.splits):
        return set()
    opened, found = CheckedModel.read(model, weights=False, allow_links=allow_links), set()
    for split_node in walk_model(opened.nodes, opened.where).splits:
        readers = (reader for value in split_node.node.outputs for reader in find_consumers(value))
        positions = [position_of(reader) for reader in readers]
        found |= {_chunk_of(split_node) * (at + 1 if at >= 0 else -at) for at in positions if at is not None}
    return found


def _chunk_of(split_node: SplitNode) -> int:
    division = None if split_node.binding is None else split_node.binding.division
    return 0 if division is None else division.chunk


def _empty_trial(
    runtime: str,
    program: Program,
    sizes: Mapping[str, int],
    feeds: Mapping[str, Any],
    expected: Mapping[str, Any],
    source_failure: Callable[[Mapping[str, Any]], str],
) -> Trial:
    """Run a sample with an empty axis in a process that nothing else needs.

    Operators other than splits end a runtime on empty tensors. What it does to the source in the same way, or
    in a process that ended before the source was known to run, says nothing about a fix.
    """
    try:
        with _engine(runtime) as engine:
            found = engine.compile(program).run(feeds)
    except EngineError as error:
        before = source_failure(feeds)
        same = "has ended its process" in error.message or _words(before) == _words(error.message)
        if before and same:
            return Trial(sizes, TrialVerdict.UNSAMPLED, error.message)
        return Trial(sizes, TrialVerdict.FAILED, error.message)
    return Trial(sizes, *_compared(expected, dict(zip(program.outputs, found, strict=True))))


def _words(message: str) -> str:
    """Return a message of a runtime without the names of nodes and files, which differ between models."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*", "", message)


def _name_of(declared: InputSpec, axis: int) -> str:
    size = declared.shape[axis] if declared.shape is not None else None
    return (size.name if isinstance(size, Range) else None) or f"{declared.name}[{axis}]"


def _within(size: int, bounds: Range) -> int:
    return min(max(size, bounds.lo), size if bounds.hi is None else bounds.hi)


def _compared(expected: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[TrialVerdict, str]:
    verdict = TrialVerdict.SAME
    for name, ours in expected.items():
        text = difference(ours, found[name])
        if text is not None:
            if not differ_by_rounding(ours, found[name]):
                return TrialVerdict.DIFFERENT, f"output {name!r}: {text}"
            verdict = TrialVerdict.ROUNDED
    return verdict, ""
