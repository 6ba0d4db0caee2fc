"""Targets of a model, such as runtimes. Each is a file with its limits, and users can write their own."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from splitops.common.documents import parse_toml
from splitops.common.untrusted_files import read_bounded
from splitops.errors import ArrayError, ModelError, count_of, nearest, shown, shown_path
from splitops.models.check.limits import FIXES, SIZE_FIELD, USUAL_REWRITES, Limit, Outcome, parse_release
from splitops.models.check.predicates import Condition, parse_condition
from splitops.models.quirks import QUIRKS, Quirk
from splitops.spec.operators import FAMILY, OperatorSchema, history

RUNTIMES: Final = ("onnxruntime", "onnx", "openvino", "opencv", "tensorrt")
"""The runtimes whose limits a check reports if none is named."""
_MAX_BYTES: Final = 1 << 20
_FORMATS: Final = ("onnx", "openvino")
CHECKS: Final = ("sizes", "lengths", "divides")
"""Checks that a runtime may perform when a model runs."""
_OUTCOMES: Final = {
    Outcome.ERROR: "rejects a split",
    Outcome.WRONG: "returns wrong parts of a split",
    Outcome.CRASH: "crashes on a split",
}


@dataclass(frozen=True, eq=False)
class Target:
    """A runtime, compiler or device that a model is for, with its limits.

    Attributes:
        name: its name, the prefix of its limits' codes.
        title: its name for people.
        limits: its limits; if ``release`` is set, those of that release.
        releases: the tested releases, the oldest first; empty if it was not tested.
        documented_in: the releases that the documentation of an untested target mentions.
        formats: the model formats that it reads: ``"onnx"``, ``"openvino"``.
        release: the requested release, or empty.
        file: the path of its file if a user wrote it, or empty.
        checks: the first release that performs each check at run time. A check that is not listed is never
            performed. ``"sizes"``: the axis must fit constant lengths or a number of parts. ``"lengths"``: it
            must fit dynamic lengths. ``"divides"``: axes of more than 2^24 positions are divided exactly.

    Examples:
        >>> Target.load("onnxruntime==1.32").label
        'onnxruntime==1.32'
        >>> len(Target.load("onnxruntime").limits) > len(Target.load("onnxruntime==1.32").limits)
        True
    """

    name: str
    title: str
    limits: tuple[Limit, ...]
    releases: tuple[str, ...] = ()
    documented_in: str = ""
    formats: tuple[str, ...] = _FORMATS
    release: str = ""
    file: str = ""
    checks: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Target({self.label}: {count_of(len(self.limits), 'limit')})"

    def __str__(self) -> str:
        return self.file or self.label

    @property
    def label(self) -> str:
        """The name of the target, with the release if one was requested: ``"onnxruntime==1.28"``."""
        return f"{self.name}=={self.release}" if self.release else self.name

    @property
    def is_tested(self) -> bool:
        """Whether the target was tested: it has tested releases, and ``release`` is not newer than those."""
        if not self.releases:
            return False
        return not self.release or parse_release(self.release) <= parse_release(self.releases[-1])

    @classmethod
    def load(cls, named: str | os.PathLike[str] | Target) -> Target:
        """Load a target.

        Args:
            named: the name of a runtime, ``"onnxruntime"``; a release of it, ``"onnxruntime==1.28"``; or the
                path of a ``.toml`` file. A target is returned unchanged.

        Raises:
            ArrayError: the runtime is unknown, or its release is invalid or older than the tested ones.
            ModelError: the file cannot be read, or is invalid; the message names the line if it is known.
        """
        if isinstance(named, Target):
            return named
        if isinstance(named, os.PathLike) or (isinstance(named, str) and named.lower().endswith(".toml")):
            path = Path(named)
            return _parse(read_bounded(path, limit=_MAX_BYTES), shown_path(path), path.stem, os.fspath(named))
        name, equals, release = named.partition("==") if isinstance(named, str) else ("", "", "")
        if name not in list_target_names():
            near = nearest(name, list_target_names())
            others = f"use {', '.join(list_target_names())} or the path of a .toml file"
            hint = f"did you mean {near!r}?" if near else others
            raise ArrayError(f"unknown runtime {shown(named)}; {hint}")
        found = _load_packaged(name)
        return found.at(release.strip()) if equals else found

    def at(self, release: str) -> Target:
        """Return the target with the limits of one release.

        Raises:
            ArrayError: ``release`` is not a version number, or is older than the tested releases.
        """
        if re.fullmatch(r"\d+(\.\d+)*\S*", release) is None:
            raise ArrayError(f"{shown(release)} is not a release of {self.name}, such as {self.name}==1.2")
        asked, first = parse_release(release), parse_release(next(iter(self.releases), ""))
        if asked < first[: len(asked)]:
            raise ArrayError(
                f"{self.name} {release} was not tested: the oldest tested release is {self.releases[0]}"
            )
        limits = tuple(limit for limit in self.limits if limit.holds_in(release))
        return replace(self, limits=limits, release=release)

    def checks_in(self, release: str, what: str) -> bool:
        """Return whether a release performs a check of :data:`CHECKS` at run time.

        Examples:
            >>> [Target.load("onnxruntime").checks_in(release, "lengths") for release in ("1.28.0", "1.29.0")]
            [False, True]
        """
        since = self.checks.get(what)
        return since is not None and parse_release(release) >= parse_release(since)

    @cached_property
    def by_quirk(self) -> Mapping[Quirk, Limit]:
        """The limits that describe errors of the target's optimiser, keyed by :class:`Quirk`."""
        return {limit.quirk: limit for limit in self.limits if limit.quirk is not None}

    @cached_property
    def _by_operator(self) -> dict[OperatorSchema, tuple[Limit, ...]]:
        return {}

    def select_limits(self, schema: OperatorSchema) -> tuple[Limit, ...]:
        """Return the limits that affect an operator, except limits of quirks, which have no conditions."""
        if schema not in self._by_operator:
            found = tuple(limit for limit in self.limits if limit.when and limit.concerns(schema))
            self._by_operator[schema] = found
        return self._by_operator[schema]


@cache
def list_target_names() -> tuple[str, ...]:
    """Return the names of the targets in the package, :data:`RUNTIMES` first."""
    found = (entry.name for entry in files(__package__).joinpath("targets").iterdir())
    others = sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))
    return (*RUNTIMES, *(name for name in others if name not in RUNTIMES))


@cache
def _load_packaged(name: str) -> Target:
    content = files(__package__).joinpath("targets", f"{name}.toml").read_bytes()
    return _parse(content, f"{name}.toml", name)


def load_targets(
    named: str | os.PathLike[str] | Target | Iterable[str | os.PathLike[str] | Target],
) -> tuple[Target, ...]:
    """Load one target or an iterable of several, each given as for :meth:`Target.load`.

    Raises:
        ArrayError: a target or release is unknown.
        ModelError: the file of a target cannot be read or is invalid.

    Examples:
        >>> [target.name for target in load_targets("onnxruntime")]
        ['onnxruntime']
    """
    if isinstance(named, str | os.PathLike | Target):
        return (Target.load(named),)
    if not isinstance(named, Iterable):
        raise ArrayError(f"{shown(named)} is not the name of a runtime; use {', '.join(list_target_names())}")
    return tuple(map(Target.load, named))


def select_targets(targets: Sequence[Target]) -> Sequence[Target]:
    """Return ``targets``, or those of :data:`RUNTIMES` if ``targets`` is empty."""
    return targets or load_targets(RUNTIMES)


def describe_untested(targets: Iterable[Target], met: Collection[str] = ()) -> str:
    """Describe the targets that were not tested, and whether none of their limits applies to a model.

    The description is empty if all were tested.

    Args:
        targets: the targets of a model.
        met: the names of the runtimes with a limit that applies to the model.

    Examples:
        >>> describe_untested(load_targets(["onnxruntime", "tensorrt"]))
        'none of the documented limits (1 in total) applies; TensorRT was not tested'
        >>> describe_untested(load_targets("tensorrt"), ["tensorrt"])
        'TensorRT was not tested'
    """
    untested = [target for target in targets if not target.is_tested]
    if not untested:
        return ""
    names = [re.sub("^The ", "the ", f"{one.title} {one.release}".rstrip()) for one in untested]
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    words = f"{listed} {'was' if len(names) == 1 else 'were'} not tested"
    count = sum(len(target.limits) for target in untested)
    if not count or any(target.name in met for target in untested):
        return words
    return f"none of the documented limits ({count} in total) applies; {words}"


def format_sentence(words: str) -> str:
    """Format words as a sentence. Only "none" and "the" are capitalised, not the name of a runtime."""
    starts = words.startswith(("none ", "the "))
    return f"{words[:1].upper() if starts else words[:1]}{words[1:]}."


@cache
def list_limits() -> tuple[Limit, ...]:
    """Return the limits of all targets in the package."""
    return tuple(limit for target in load_targets(list_target_names()) for limit in target.limits)


# Files


def _parse(content: bytes, shown_as: str, stem: str, file: str = "") -> Target:
    try:
        document = parse_toml(content)
    except ValueError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        at = f", line {found[1]}" if found else ""
        words = re.sub(r" \(at .*\)$", "", str(error))
        raise ModelError(f"{shown_as}{at}: invalid TOML: {shown(words, 120)}") from None
    try:
        return _parse_target(document, stem, file)
    except _WrongError as error:
        line = _find_line(content.decode().splitlines(), error)
        raise ModelError(f"{shown_as}, line {line}: {error}") from None


class _WrongError(Exception):
    """An invalid key of a file. ``index`` is the position of its limit, or None outside of limits."""

    def __init__(self, message: str, key: str = "", index: int | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.index = index


def _find_line(lines: list[str], error: _WrongError) -> int:
    """Return the line number of the key of an error, or of its table if the key is absent."""
    headers = [at for at, line in enumerate(lines) if re.match(r"\s*\[\[\s*limits\s*\]\]", line)]
    begin, end = 0, next(iter(headers), len(lines))
    if error.index is not None and error.index < len(headers):
        begin, end = headers[error.index], [*headers, len(lines)][error.index + 1]
    key = re.compile(rf"\s*[\"']?{re.escape(error.key)}[\"']?\s*=")
    found = (at for at in range(begin, end) if error.key and key.match(lines[at]))
    return next(found, begin) + 1


def _parse_target(document: Mapping[str, Any], stem: str, file: str) -> Target:
    _check_table(document, _TARGET_KEYS)
    name = document.get("name", stem)
    if re.fullmatch(r"[a-z][a-z0-9-]*", name) is None:
        problem = "use lowercase letters, digits and '-', such as 'npu'"
        raise _WrongError(f"name = {shown(name)}: {problem}", "name")
    if file and name in list_target_names():
        raise _WrongError(f"{shown(name)} is the name of a built-in target: use another name", "name")
    title, releases = document.get("title", name), tuple(_iter_texts(document, "releases"))
    formats = tuple(_iter_texts(document, "formats")) or _FORMATS
    if not set(formats) <= set(_FORMATS):
        raise _WrongError(f"formats = {shown(formats)}: use {', '.join(_FORMATS)}", "formats")
    tables = document.get("limits", [])
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise _WrongError("there is no table [[limits]]: a target needs at least one", "limits")
    limits: dict[str, Limit] = {}
    for index, table in enumerate(tables):
        try:
            limit = _parse_limit(table, name, title, releases)
            if limit.code in limits:
                raise _WrongError(
                    f"two limits have the code {shown(limit.code)}: use different codes", "code"
                )
        except _WrongError as error:
            error.index = index
            raise
        limits[limit.code] = limit
    documented_in = document.get("documented_in", "")
    checks = document.get("checks", {})
    for what, since in checks.items():
        if what not in CHECKS or not isinstance(since, str):
            raise _WrongError(f"checks: use the first release, in quotes, of {', '.join(CHECKS)}", what)
    return Target(name, title, tuple(limits.values()), releases, documented_in, formats, "", file, checks)


_TARGET_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "name": str,
    "title": str,
    "formats": list,
    "releases": list,
    "documented_in": str,
    "limits": list,
    "checks": dict,
}
"""The keys of a target, with the types of their values."""
_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "code": str,
    "operators": list,
    "when": (str, list),
    "quirk": str,
    "outcome": str,
    "message": str,
    "message_with_sizes": str,
    "fix": str,
    "rewrites": list,
    "evidence": str,
    "source": str,
    "since": str,
    "until": str,
}
"""The keys of a limit, with the types of their values."""
_TYPE_WORDS: Final[Mapping[Any, str]] = {
    str: "a string in quotes",
    list: "a list in brackets",
    dict: "a table",
}


def _check_table(table: Mapping[str, Any], kinds: Mapping[str, type | tuple[type, ...]]) -> None:
    """Check that a table has only known keys, with values of the right type."""
    for key, value in table.items():
        if key not in kinds:
            raise _WrongError(f"unknown key {shown(key)}: use one of {', '.join(kinds)}", key)
        kind = kinds[key]
        if not isinstance(value, kind):
            each = kind if isinstance(kind, tuple) else (kind,)
            expected = " or ".join(_TYPE_WORDS[one] for one in each)
            raise _WrongError(f"{key} = {shown(value)} is not {expected}", key)


def _iter_texts(table: Mapping[str, Any], key: str) -> Iterator[str]:
    value = table.get(key, [])
    for entry in [value] if isinstance(value, str) else value:
        if not isinstance(entry, str):
            raise _WrongError(f"{key}: {shown(entry)} is not a string in quotes", key)
        yield entry


def _parse_limit(table: Mapping[str, Any], name: str, title: str, releases: tuple[str, ...]) -> Limit:
    _check_table(table, _KEYS)
    code = table.get("code", "")
    if re.fullmatch(r"[a-z0-9][a-z0-9-]*", code) is None:
        raise _WrongError(
            f"code = {shown(code)}: use lowercase letters, digits and '-', such as 'even-only'", "code"
        )
    if ("when" in table) is ("quirk" in table):
        raise _WrongError(f"limit {code!r} must have either 'when' or 'quirk'", "when")
    when = tuple(_parse_conditions(table))
    if "when" in table and not when:
        raise _WrongError("'when' is empty: set at least one condition", "when")
    outcome = Outcome(_check_choice(Outcome, table.get("outcome", Outcome.ERROR), "outcome"))
    rewrites = tuple(FIXES[_check_choice(FIXES, form, "rewrites")] for form in _iter_texts(table, "rewrites"))
    usual = next(
        (
            USUAL_REWRITES[condition.predicate.text]
            for condition in when
            if condition.predicate.text in USUAL_REWRITES and not condition.negated
        ),
        (),
    )
    message = (
        table.get("message")
        or f"{title} {_OUTCOMES[outcome]} if {' and '.join(condition.description for condition in when)}"
    )
    return Limit(
        code=f"{name}.{code}",
        operators=tuple(_parse_operators(table)),
        when=when,
        quirk=_parse_quirk(table),
        outcome=outcome,
        message=message,
        message_with_sizes=_parse_message_with_sizes(table),
        fix=table.get("fix"),
        rewrites=rewrites if "rewrites" in table else usual,
        evidence=table.get("evidence"),
        source=table.get("source", ""),
        since=table.get("since"),
        until=table.get("until"),
        tested_releases=releases,
    )


def _parse_quirk(table: Mapping[str, Any]) -> Quirk | None:
    name = table.get("quirk")
    return None if name is None else QUIRKS[_check_choice(QUIRKS, name, "quirk")]


def _parse_conditions(table: Mapping[str, Any]) -> Iterator[Condition]:
    for written in _iter_texts(table, "when"):
        try:
            yield parse_condition(written)
        except ValueError as error:
            raise _WrongError(str(error), "when") from None


def _parse_operators(table: Mapping[str, Any]) -> Iterator[str]:
    for operator in _iter_texts(table, "operators"):
        if operator not in _list_operators():
            known = ", ".join(_list_operators())
            raise _WrongError(f"unknown operator {shown(operator)}: use {known}", "operators")
        yield operator


@cache
def _list_operators() -> tuple[str, ...]:
    """Return the operators that limits may name: ``"Split"``, ``"Split-18"``, ``"openvino.Split-1"``, ..."""
    plain = {
        f"{domain}.{name}" if domain else name: history(name, domain)
        for domain, family in FAMILY.items()
        for name in family
    }
    return tuple(
        word
        for name, schemas in plain.items()
        for word in (name, *(f"{name}-{schema.since_version}" for schema in schemas))
    )


def _check_choice(known: Iterable[str], word: str, key: str) -> str:
    if word not in (names := list(map(str, known))):
        raise _WrongError(f"{key} = {shown(word)}: use {', '.join(names)}", key)
    return word


def _parse_message_with_sizes(table: Mapping[str, Any]) -> str | None:
    message: str | None = table.get("message_with_sizes")
    if wrong := re.search(r"\{[^{}]*\}?|\}", SIZE_FIELD.sub("", message or "")):
        fields = "{count}, {size}, {axis} and {part}"
        raise _WrongError(
            f"message_with_sizes: unknown field {shown(wrong[0])}: use {fields}", "message_with_sizes"
        )
    return message
