"""Finds and starts implementations: adapters of this and other packages, and other executables."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from splitops.errors import one_line, shown, shown_path
from splitops_compare import adapters, worker
from splitops_compare.data import CompareError, ImplementationInfo, State, format_name
from splitops_compare.driver.case_runner import CaseRunner, LaunchCommand, NotInstalled
from splitops_compare.driver.process import ProcessEnded, ResourceLimits, make_network_prefix

_GROUP: Final = "splitops.compare"
"""The entry point group for adapters in other packages. Each entry names its module."""


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """An implementation with a setting, ready to run."""

    info: ImplementationInfo
    launch: LaunchCommand

    @property
    def is_transformer(self) -> bool:
        """Whether it writes models, which another implementation must run."""
        return self.info.kind in ("converter", "simplifier")

    @property
    def is_runtime(self) -> bool:
        """Whether it computes values."""
        return self.info.kind in ("runtime", "compiler")


def find_adapters() -> dict[str, Path]:
    """Return the files of the adapters in this and other packages, keyed by adapter name."""
    folder = Path(next(iter(adapters.__path__)))
    files = {path.stem: path for path in sorted(folder.glob("[!_]*.*")) if path.suffix in (".py", ".mjs")}
    for point in entry_points(group=_GROUP):
        module = importlib.util.find_spec(point.value)
        if module is None or module.origin is None:
            raise CompareError(
                f"the adapter {shown(point.name)} is missing: there is no module {point.value}"
            )
        files[point.name] = Path(module.origin)
    return files


def start_implementations(
    limits: ResourceLimits,
    implementations: Sequence[str] | None = None,
    commands: Mapping[str, str] | None = None,
    pythons: Sequence[tuple[str, str]] = (),
    settings: Sequence[tuple[str, Mapping[str, str]]] = (),
    *,
    jobs: int = 1,
) -> tuple[list[Implementation], list[ImplementationInfo]]:
    """Start each implementation once, and return those that started, and those that failed with the reason.

    Those that started are returned with their default setting and with each of ``settings``. One that is not
    installed has failed if it was requested by name, and is left out otherwise. The arguments after
    ``limits`` are those of :func:`splitops_compare.compare`.

    Raises:
        CompareError: an adapter, command, Python or setting does not exist.
    """
    launches = list(_iter_launches(implementations, commands or {}, pythons))
    requested = {*(implementations or ()), *(commands or {}), *(name for name, _ in pythons)}
    with ThreadPoolExecutor(jobs) as pool:
        messages = list(pool.map(lambda launch: _start_once(launch, limits), launches))
    started: list[tuple[LaunchCommand, dict[str, Any]]] = []
    failed: list[ImplementationInfo] = []
    for launch, message in zip(launches, messages, strict=True):
        if isinstance(message, dict):
            started.append((launch, message))
        elif isinstance(message, ProcessEnded) or launch.adapter in requested:
            state = State.FAILED if isinstance(message, ProcessEnded) else State.ABSENT
            name, detail = launch.adapter, one_line(str(message), 300)
            failed.append(ImplementationInfo(name=name, adapter=name, state=state, detail=detail))
    known = {launch.adapter for launch in launches}
    for name, _ in settings:
        if name not in known:
            raise CompareError(f"a setting is for {shown(name)}, which is not compared")
    return list(_make_implementations(started, settings)), failed


def _iter_launches(
    names: Sequence[str] | None, commands: Mapping[str, str], pythons: Sequence[tuple[str, str]]
) -> Iterator[LaunchCommand]:
    files = find_adapters()
    chosen = list(files) if names is None and not commands else names or ()
    for name, python in [*((name, sys.executable) for name in chosen), *pythons]:
        if name not in files:
            raise CompareError(f"there is no adapter {shown(name)}; there are {', '.join(files)}")
        yield _make_launch(name, files[name], python)
    for name, command in commands.items():
        try:
            arguments = shlex.split(command)
        except ValueError as error:
            raise CompareError(f"the command of {shown(name)} cannot be parsed: {error}") from error
        program = shutil.which(arguments[0]) if arguments else None
        if program is None:
            raise CompareError(f"the command of {shown(name)} is missing: {shown(command)}")
        # The process runs in another folder, so paths must be absolute.
        rest = (os.path.abspath(text) if os.path.exists(text) else text for text in arguments[1:])
        yield LaunchCommand(name, [os.path.abspath(program), *rest])


def _make_launch(name: str, file: Path, python: str) -> LaunchCommand:
    if file.suffix == ".mjs":
        return LaunchCommand(name, ["node", str(file)])
    program = shutil.which(python)
    if program is None:
        raise CompareError(f"the Python of {shown(name)} is missing: {shown_path(python)}")
    # PYTHONPATH of this environment would hide the packages of another one.
    variables = {} if python == sys.executable else {"PYTHONPATH": "", "PYTHONHOME": ""}
    command = [os.path.abspath(program), "-P", worker.__file__, str(file)]
    return LaunchCommand(name, command, variables=variables, can_fork=True)


def _start_once(
    launch: LaunchCommand, limits: ResourceLimits
) -> dict[str, Any] | ProcessEnded | NotInstalled:
    with CaseRunner(launch, limits) as runner:
        try:
            return runner.start()
        except (ProcessEnded, NotInstalled) as reason:
            return reason


def _make_implementations(
    started: Sequence[tuple[LaunchCommand, dict[str, Any]]],
    settings: Sequence[tuple[str, Mapping[str, str]]],
) -> Iterator[Implementation]:
    for (launch, message), name in zip(started, _make_unique_names(started), strict=True):
        chosen = [setting for adapter, setting in settings if adapter == launch.adapter]
        for setting in ({}, *chosen):
            _check_setting(launch.adapter, setting, message["settings"])
            info = ImplementationInfo(
                name=format_name(name, setting),
                adapter=launch.adapter,
                kind=message["kind"],
                formats=tuple(message["formats"]),
                versions=message["versions"],
                setting=setting,
                network=not make_network_prefix(),
            )
            yield Implementation(info, replace(launch, setting=setting))


def _make_unique_names(started: Sequence[tuple[LaunchCommand, dict[str, Any]]]) -> Iterator[str]:
    """Yield unique names. If an adapter started twice, its release is appended, and a number if needed."""
    names = [launch.adapter for launch, _ in started]
    used: dict[str, int] = {}
    for launch, message in started:
        name = launch.adapter
        if names.count(name) > 1:
            name = f"{name}@{next(iter(message['versions'].values()))}"
        used[name] = used.get(name, 0) + 1
        yield name if used[name] == 1 else f"{name}#{used[name]}"


def _check_setting(name: str, setting: Mapping[str, str], known: Mapping[str, Iterable[str]]) -> None:
    for key, value in setting.items():
        if value not in known.get(key, ()):
            has = "; ".join(f"{key}={'|'.join(values)}" for key, values in known.items()) or "none"
            raise CompareError(f"{name} has no setting {shown(f'{key}={value}')}; it has {has}")
