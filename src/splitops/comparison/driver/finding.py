"""Find implementations: the adapters here and in other packages, other environments, any executable."""

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

from splitops.comparison import adapters, worker
from splitops.comparison.driver.asking import Absent, Asker, Launch
from splitops.comparison.driver.process import Allowance, Ended, without_network
from splitops.comparison.records import CompareError, Peer, State, column
from splitops.errors import one_line, shown, shown_path

_GROUP: Final = "splitops.compare"
"""The entry point group of adapters in other packages; each names its module."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """An implementation with a setting, ready to be asked."""

    peer: Peer
    launch: Launch

    @property
    def transforms(self) -> bool:
        """Whether it makes models, which another implementation must run."""
        return self.peer.kind in ("converter", "simplifier")

    @property
    def runs(self) -> bool:
        """Whether it gives values."""
        return self.peer.kind in ("runtime", "compiler")


def adapter_files() -> dict[str, Path]:
    """Return the file of each adapter by name: ours, and those of other packages."""
    folder = Path(next(iter(adapters.__path__)))
    found = {path.stem: path for path in sorted(folder.glob("[!_]*.*")) if path.suffix in (".py", ".mjs")}
    for point in entry_points(group=_GROUP):
        spec = importlib.util.find_spec(point.value)
        if spec is None or spec.origin is None:
            raise CompareError(
                f"the adapter {shown(point.name)} is missing: there is no module {point.value}"
            )
        found[point.name] = Path(spec.origin)
    return found


def columns(
    allowance: Allowance,
    implementations: Sequence[str] | None = None,
    commands: Mapping[str, str] | None = None,
    pythons: Sequence[tuple[str, str]] = (),
    settings: Sequence[tuple[str, Mapping[str, str]]] = (),
    *,
    jobs: int = 1,
) -> tuple[list[Column], list[Peer]]:
    """Start every implementation once; return those that started, and why the others did not."""
    launches = list(_launches(implementations, commands or {}, pythons))
    with ThreadPoolExecutor(jobs) as pool:
        answers = list(pool.map(lambda launch: _hello(launch, allowance), launches))
    ready: list[tuple[Launch, dict[str, Any]]] = []
    failed: list[Peer] = []
    for launch, found in zip(launches, answers, strict=True):
        if isinstance(found, dict):
            ready.append((launch, found))
        elif isinstance(found, Ended) or implementations is not None or launch.variables:
            state = State.FAILED if isinstance(found, Ended) else State.ABSENT
            name, detail = launch.adapter, one_line(str(found), 300)
            failed.append(Peer(name=name, adapter=name, state=state, detail=detail))
    known = {launch.adapter for launch in launches}
    for name, _ in settings:
        if name not in known:
            raise CompareError(f"a setting is for {shown(name)}, which is not asked")
    return list(_named(ready, settings)), failed


def _launches(
    wanted: Sequence[str] | None, commands: Mapping[str, str], pythons: Sequence[tuple[str, str]]
) -> Iterator[Launch]:
    files = adapter_files()
    names = list(files) if wanted is None and not commands else wanted or ()
    for name, python in [*((name, sys.executable) for name in names), *pythons]:
        if name not in files:
            raise CompareError(f"there is no adapter {shown(name)}; there are {', '.join(files)}")
        yield _launch(name, files[name], python)
    for name, command in commands.items():
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise CompareError(f"the command of {shown(name)} cannot be read: {error}") from error
        program = shutil.which(words[0]) if words else None
        if program is None:
            raise CompareError(f"the command of {shown(name)} is missing: {shown(command)}")
        # It runs in a folder of its own.
        rest = (os.path.abspath(word) if os.path.exists(word) else word for word in words[1:])
        yield Launch(name, [os.path.abspath(program), *rest])


def _launch(name: str, file: Path, python: str) -> Launch:
    if file.suffix == ".mjs":
        return Launch(name, ["node", str(file)])
    program = shutil.which(python)
    if program is None:
        raise CompareError(f"the Python of {shown(name)} is missing: {shown_path(python)}")
    # Of other environments, the paths of ours would hide what they have.
    variables = {} if python == sys.executable else {"PYTHONPATH": "", "PYTHONHOME": ""}
    command = [os.path.abspath(program), "-P", worker.__file__, str(file)]
    return Launch(name, command, variables=variables, forks=True)


def _hello(launch: Launch, allowance: Allowance) -> dict[str, Any] | Ended | Absent:
    with Asker(launch, allowance) as asker:
        try:
            return asker.start()
        except (Ended, Absent) as answer:
            return answer


def _named(
    ready: Sequence[tuple[Launch, dict[str, Any]]], settings: Sequence[tuple[str, Mapping[str, str]]]
) -> Iterator[Column]:
    for (launch, found), name in zip(ready, _names(ready), strict=True):
        wanted = [setting for adapter, setting in settings if adapter == launch.adapter]
        for setting in ({}, *wanted):
            _prove_setting(launch.adapter, setting, found["settings"])
            peer = Peer(
                name=column(name, setting),
                adapter=launch.adapter,
                kind=found["kind"],
                formats=tuple(found["formats"]),
                versions=found["versions"],
                setting=setting,
                network=not without_network(),
            )
            yield Column(peer, replace(launch, setting=setting))


def _names(ready: Sequence[tuple[Launch, dict[str, Any]]]) -> Iterator[str]:
    """Yield the name of each; where an adapter is there twice, with the release, and with a number."""
    adapters = [launch.adapter for launch, _ in ready]
    used: dict[str, int] = {}
    for launch, found in ready:
        name = launch.adapter
        if adapters.count(name) > 1:
            name = f"{name}@{next(iter(found['versions'].values()))}"
        used[name] = used.get(name, 0) + 1
        yield name if used[name] == 1 else f"{name}#{used[name]}"


def _prove_setting(name: str, setting: Mapping[str, str], known: Mapping[str, Iterable[str]]) -> None:
    for key, value in setting.items():
        if value not in known.get(key, ()):
            has = "; ".join(f"{key}={'|'.join(values)}" for key, values in known.items()) or "none"
            raise CompareError(f"{name} has no setting {shown(f'{key}={value}')}; it has {has}")
