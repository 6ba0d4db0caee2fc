"""Builds the source distribution and the wheels into ``dist/``, checks and tries them: ``wheels.py [any]``.

``any`` makes what is for every platform: the source, and the wheel without the compiled core. Without it each
CPython that is at hand has a wheel for Linux, too. It is compiled by zig's clang against glibc 2.28, so that
systems from 2018 on load it, and is tried in an environment of its own, from wheels alone.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
GLIBC = "2.28"
VERSIONS = ("3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t")


def run(*command: str | Path, **environment: str) -> str:
    """Run a command and return what it prints; its failure is ours."""
    print("+", *command, flush=True)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed with {done.returncode}")
    return done.stdout


def compilers(folder: Path) -> dict[str, str]:
    """Return the variables by which a build finds zig's compilers."""
    target = f"{platform.machine()}-linux-gnu.{GLIBC}"
    found = {}
    for variable, tool in {"CC": f"cc -target {target}", "CXX": f"c++ -target {target}"}.items():
        script = folder / variable.lower()
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {tool} "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        found[variable] = str(script)
    return found


def pythons() -> dict[str, str]:
    """Return the CPythons that are at hand, by version."""
    found = {}
    for version in VERSIONS:
        path = shutil.which(f"python{version}")
        if path and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode:
            found[version] = path
    return found


def try_wheel(python: str, wheel: Path, core: str) -> None:
    """Install a wheel where nothing is compiled, and use it."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        tried = Path(folder) / "bin" / "python"
        nothing = {"CC": "/bin/false", "CXX": "/bin/false"}
        run(tried, "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel, **nothing)
        print(run(tried, "-I", ROOT / "tools" / "smoke.py", ROOT / "examples", core), end="")


def check_symbols(wheel: Path) -> None:
    """Prove that the core in a wheel has no debug symbols, and say its size."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        (core,) = (name for name in archive.namelist() if "/_core." in name and name.endswith(".so"))
        sections = run("readelf", "--sections", "--wide", archive.extract(core, folder))
        if ".debug_info" in sections:
            sys.exit(f"{wheel.name} has debug symbols")
        size = archive.getinfo(core).file_size
        print(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB, core {size >> 10} KiB")


def build_linux(version: str, python: str) -> None:
    """Build, name and try the wheel of one CPython."""
    with tempfile.TemporaryDirectory() as folder:
        made, environment = Path(folder) / "made", Path(folder) / "build"
        run(python, "-m", "venv", environment)
        builder = environment / "bin" / "python"
        run(builder, "-m", "pip", "install", "-q", "build")
        run(builder, "-m", "build", "--wheel", "--outdir", made, **compilers(Path(folder)))
        (wheel,) = made.glob("*.whl")
        if "none-any" in wheel.name:
            sys.exit(f"the core was not compiled for Python {version}")
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel)
    tag = f"cp{version.replace('.', '').rstrip('t')}"
    found = max(DIST.glob(f"*-{tag}-*linux*.whl"), key=lambda path: path.stat().st_mtime)
    check_symbols(found)
    try_wheel(python, found, "compiled")


def main() -> None:
    """Build what is asked for."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", DIST, "-C", "wheel.cmake=false")
    (plain,) = DIST.glob("*-none-any.whl")
    try_wheel(sys.executable, plain, "plain")
    if sys.argv[1:] != ["any"]:
        for version, python in pythons().items():
            build_linux(version, python)
    files = sorted(DIST.iterdir())
    print(run(sys.executable, "-m", "twine", "check", "--strict", *files), end="")
    wheels = [path for path in files if path.suffix == ".whl"]
    print(run(sys.executable, "-m", "check_wheel_contents", *wheels), end="")


if __name__ == "__main__":
    main()
