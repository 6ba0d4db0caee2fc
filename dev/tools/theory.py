"""Replay the proofs of ``proofs/split.mlw``, or record them again after a change.

``python dev/tools/theory.py [--record]`` needs Why3 and Z3 (Debian: why3, z3). The session in
``proofs/split`` has, for each goal, how it is split and which prover proved it. Recording writes one for
every goal of the theory.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

PROOFS = Path(__file__).resolve().parents[2] / "proofs"
PROVER = {"name": "Z3", "version": "4.8.12", "timelimit": "120", "steplimit": "0", "memlimit": "2000"}
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE why3session PUBLIC "-//Why3//proof session v5//EN"\n"http://why3.lri.fr/why3session.dtd">\n'
WANTED = {"why3": "why3", "z3": "z3"}
ROUNDS = 4
"""A transformation makes goals, which are known after the next replay."""


def missing() -> list[str]:
    """Return the Debian packages of the programs that are not here."""
    return [package for program, package in WANTED.items() if shutil.which(program) is None]


def replay(theory: Path, session: Path, *options: str) -> tuple[bool, str]:
    """Return whether every recorded proof of a theory holds, and what Why3 says in the end."""
    with tempfile.TemporaryDirectory(prefix="splitops-proofs-") as made:
        folder = Path(made)
        shutil.copy(theory, folder / "split.mlw")
        shutil.copytree(session, folder / "split")
        said = ""
        for command in ("config detect", f"replay {' '.join(options)} split"):
            program, *rest = command.split()
            done = subprocess.run(
                ["why3", program, "-C", "why3.conf", *rest],  # noqa: S607
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            said = (done.stdout + done.stderr).replace("\r", "\n")
        if "--force" in options:
            for name in ("why3session.xml", "why3shapes.gz"):
                shutil.copy(folder / "split" / name, session / name)
        # Why3 prints its progress too; the goals that fail and the count come last.
        lines = [line.strip() for line in said.splitlines() if line.strip() and "Progress:" not in line]
        return done.returncode == 0, "\n".join(lines[-12:])


def _begin(theory: str) -> ET.Element:
    root = ET.Element("why3session", shape_version="6")
    file = ET.SubElement(root, "file", format="whyml")
    ET.SubElement(file, "path", name="..")
    ET.SubElement(file, "path", name="split.mlw")
    for module in re.split(r"(?m)^(?=module )", theory)[1:]:
        part = ET.SubElement(file, "theory", name=module.split()[1])
        for kind, name in re.findall(r"(?m)^  (lemma|let(?: rec)?(?: lemma| ghost function)?) (\w+)", module):
            goal = ET.SubElement(part, "goal", name=name if kind == "lemma" else f"{name}'vc")
            ET.SubElement(goal, "transf", name="split_vc")
    return root


def _add_proofs(root: ET.Element) -> None:
    """Give each goal without a proof one by Z3; what a program of sizes promises is unfolded before."""
    if root.find("prover") is None:
        root.insert(0, ET.Element("prover", id="0", **PROVER))
    for goal in list(root.iter("goal")):
        if goal.find("transf") is not None or goal.find("proof") is not None:
            continue
        name = goal.get("name", "")
        if re.fullmatch(r"\w+_sizes'vc\.\d+", name) and goal.get("expl") == "postcondition":
            unfolded = ET.SubElement(goal, "transf", name="inline_goal")
            inner = ET.SubElement(unfolded, "goal", name=f"{name}.0")
            ET.SubElement(inner, "transf", name="split_vc")
        else:
            proof = ET.SubElement(goal, "proof", prover="0")
            ET.SubElement(proof, "result", status="valid", time="1.0")


def record(theory: Path, session: Path) -> bool:
    """Write a session that proves every goal of a theory; return whether Z3 proves all of them."""
    shutil.rmtree(session, ignore_errors=True)
    session.mkdir()
    path = session / "why3session.xml"
    root = _begin(theory.read_text())
    holds = False
    for _ in range(ROUNDS):
        path.write_text(HEAD + ET.tostring(root, encoding="unicode"))
        (session / "why3shapes.gz").unlink(missing_ok=True)  # they are those of the session before
        holds, said = replay(theory, session, "--force")
        print(said, flush=True)
        root = ET.parse(path).getroot()  # noqa: S314
        _add_proofs(root)
    return holds


def main(arguments: list[str]) -> int:
    """Replay the session, or record it; return the exit code."""
    if packages := missing():
        print(f"error: the replay needs programs that are missing. Run: apt-get install {' '.join(packages)}")
        return 2
    if arguments == ["--record"]:
        return 0 if record(PROOFS / "split.mlw", PROOFS / "split") else 1
    holds, said = replay(PROOFS / "split.mlw", PROOFS / "split", *arguments)
    print(said)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
