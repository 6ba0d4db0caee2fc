"""Replay the proofs of the theories in ``proofs``, or record them again after a change.

``python dev/tools/theory.py [--record]`` needs Why3 and Z3 (Debian: why3, z3). A session, as in
``proofs/split``, has, for each goal, how it is split and which prover proved it. Recording writes one for
every goal of a theory. A replay also changes checks of the programs and expects proofs to fail.
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
THEORIES = {PROOFS / "split": ["split.mlw"], PROOFS / "sonnx" / "opsplit": ["tensor.mlw", "opsplit.mlw"]}
"""The sessions, and the files beside each whose goals it has."""
MUTANTS = {
    "explicit_sizes": ("sum_of l <> size", "sum_of l < size"),
    "remainder_sizes": ("known + 1 > size", "known > size"),
}
"""Checks in the programs of ``split.mlw``, and wrong ones in their place."""
PROVER = {"name": "Z3", "version": "4.8.12", "timelimit": "120", "steplimit": "0", "memlimit": "2000"}
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE why3session PUBLIC "-//Why3//proof session v5//EN"\n"http://why3.lri.fr/why3session.dtd">\n'
WANTED = {"why3": "why3", "z3": "z3"}
GOAL = r"(?m)^  (lemma|let(?: rec)?(?: lemma| ghost(?: function)?)?) (\w+)"
ROUNDS = 4
"""A transformation makes goals, which are known after the next replay."""


def missing() -> list[str]:
    """Return the Debian packages of the programs that are not here."""
    return [package for program, package in WANTED.items() if shutil.which(program) is None]


def _ask(folder: Path, *command: str) -> tuple[int, str]:
    done = subprocess.run(
        ["why3", command[0], "-C", "why3.conf", *command[1:]],  # noqa: S607
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).replace("\r", "\n")


def replay(session: Path, *options: str) -> tuple[bool, str]:
    """Return whether every recorded proof of a session holds, and what Why3 says in the end."""
    with tempfile.TemporaryDirectory(prefix="splitops-proofs-") as made:
        folder = Path(made)
        for theory in {*PROOFS.glob("*.mlw"), *session.parent.glob("*.mlw")}:
            shutil.copy(theory, folder)
        shutil.copytree(session, folder / session.name)
        _ask(folder, "config", "detect")
        code, said = _ask(folder, "replay", "-L", ".", *options, session.name)
        if "--force" in options:
            for name in ("why3session.xml", "why3shapes.gz"):
                shutil.copy(folder / session.name / name, session / name)
        # Why3 prints its progress too; the goals that fail and the count come last.
        lines = [line.strip() for line in said.splitlines() if line.strip() and "Progress:" not in line]
        return code == 0, "\n".join(lines[-12:])


def proves(theory: str, program: str) -> bool:
    """Return whether Z3 proves one program of a theory, given as text."""
    with tempfile.TemporaryDirectory(prefix="splitops-proofs-") as made:
        folder = Path(made)
        (folder / "split.mlw").write_text(theory)
        _ask(folder, "config", "detect")
        steps = [part for step in ("split_vc", "inline_goal", "split_vc") for part in ("-a", step)]
        prover = f"{PROVER['name']},{PROVER['version']},"
        goal = ("-T", "Executable", "-G", f"{program}'vc")
        return _ask(folder, "prove", "-P", prover, "-t", "10", *steps, "split.mlw", *goal)[0] == 0


def survivors() -> list[str]:
    """Return an error for each program that is not proved as it is, or is proved with a wrong check."""
    theory = (PROOFS / "split.mlw").read_text()
    found = []
    for program, (check, wrong) in MUTANTS.items():
        if theory.count(check) != 1 or not proves(theory, program):
            found.append(f"error: {program} is not proved, or has no single {check!r}.")
        elif proves(theory.replace(check, wrong), program):
            found.append(f"error: {program} is proved with {wrong!r} for {check!r}.")
    return found


def _begin(session: Path) -> ET.Element:
    root = ET.Element("why3session", shape_version="6")
    for name in THEORIES[session]:
        file = ET.SubElement(root, "file", format="whyml")
        ET.SubElement(file, "path", name="..")
        ET.SubElement(file, "path", name=name)
        for module in re.split(r"(?m)^(?=module )", (session.parent / name).read_text())[1:]:
            part = ET.SubElement(file, "theory", name=module.split()[1])
            for kind, goal_name in re.findall(GOAL, module):
                named = goal_name if kind == "lemma" else f"{goal_name}'vc"
                goal = ET.SubElement(part, "goal", name=named)
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


def record(session: Path) -> bool:
    """Write a session that proves every goal of its theories; return whether Z3 proves all of them."""
    shutil.rmtree(session, ignore_errors=True)
    session.mkdir()
    path = session / "why3session.xml"
    root = _begin(session)
    holds = False
    for _ in range(ROUNDS):
        path.write_text(HEAD + ET.tostring(root, encoding="unicode"))
        (session / "why3shapes.gz").unlink(missing_ok=True)  # they are those of the session before
        holds, said = replay(session, "--force")
        print(said, flush=True)
        root = ET.parse(path).getroot()  # noqa: S314
        _add_proofs(root)
    return holds


def main(arguments: list[str]) -> int:
    """Replay the sessions and try the mutants, or record the sessions; return the exit code."""
    if packages := missing():
        print(f"error: the replay needs programs that are missing. Run: apt-get install {' '.join(packages)}")
        return 2
    if arguments == ["--record"]:
        recorded = [record(session) for session in THEORIES]
        return 0 if all(recorded) else 1
    holds = True
    for session in THEORIES:
        replayed, said = replay(session, *arguments)
        print(f"{session.relative_to(PROOFS)}: {said}", flush=True)
        holds = holds and replayed
    found = survivors()
    print("\n".join(found) or f"{len(MUTANTS)} programs with a wrong check: none is proved.")
    return 0 if holds and not found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
