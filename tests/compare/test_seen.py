"""What the profiles of ``check`` say of releases, held against reports of several releases."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

from splitops.comparison import Report
from splitops.comparison.records import Entry, Peer, Verdict, Word
from splitops.models.check import LIMITS

sys.path.insert(0, str(Path(__file__).parents[2] / "dev/tools"))
import seen

OURS = [limit for limit in LIMITS if limit.runtime == "onnxruntime"]
MENDED = next(limit for limit in OURS if limit.code == "onnxruntime.empty-name")


def report(release: str, words: Mapping[str, Word], adapter: str = "onnxruntime") -> Report:
    peer = Peer(name="one", adapter=adapter, versions={adapter: release})
    return Report(
        environment={},
        peers=(peer,),
        entries=tuple(
            Entry(
                id=case,
                operator="Split-18",
                format="onnx",
                rule="ceil",
                title="",
                valid=True,
                record=None,
                expected=(),
                baseline=None,
                verdicts={"one": Verdict(word=word, confirmed=2 if word is not Word.AGREES else 0)},
            )
            for case, word in words.items()
        ),
    )


def as_stated(release: str) -> dict[str, Word]:
    """What a release does if the profile is right."""
    return {str(own.case): Word.REJECTS if own.holds_in(release) else Word.AGREES for own in OURS}


def said(folder: Path, *reports: Report) -> tuple[int, str]:
    paths = [folder / f"{index}.json" for index in range(len(reports))]
    for path, own in zip(paths, reports, strict=True):
        path.write_text(json.dumps(own.to_json()))
    with redirect_stdout(io.StringIO()) as printed:
        code = seen.main(paths)
    return code, printed.getvalue()


def test_two_releases_that_do_as_the_profile_says(tmp_path: Path) -> None:
    code, text = said(tmp_path, *(report(own, as_stated(own)) for own in ("1.32.0", "1.31.1")))
    assert code == 0, text
    assert "onnxruntime.empty-name: seen in 1.31.1, not in 1.32.0\n" in text


def test_a_release_that_does_not_is_said(tmp_path: Path) -> None:
    case = str(MENDED.case)
    old, new = report("1.31.1", as_stated("1.31.1")), {**as_stated("1.32.0"), case: Word.REJECTS}
    code, text = said(tmp_path, old, report("1.32.0", new))
    assert code == 1, text
    assert "to change: onnxruntime.empty-name: until=None, not '1.31.1'\n" in text
    assert text.count("to change") == 1
    mended = next(str(own.case) for own in OURS if own.until is None)
    code, text = said(tmp_path, old, report("1.32.0", {**as_stated("1.32.0"), mended: Word.AGREES}))
    assert code == 1, text
    assert "until='1.31.1', not None\n" in text


def test_a_release_that_the_profiles_do_not_name_is_said(tmp_path: Path) -> None:
    code, text = said(tmp_path, report("1.99.0", as_stated("1.99.0")))
    assert code == 1, text
    assert "to change: releases: onnxruntime 1.99.0 is not among" in text


def test_what_says_nothing_is_not_taken_for_agreement(tmp_path: Path) -> None:
    words = {str(own.case): Word.NO_RESULT for own in OURS}
    code, text = said(tmp_path, report("1.32.0", words), report("1.32.0", words, "onnxruntime-web"))
    assert code == 0, text
    assert "onnxruntime.empty-name: nobody answered\n" in text


def test_a_file_that_is_no_report_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    script = Path(seen.__file__)
    done = subprocess.run([sys.executable, script, tmp_path / "x.json"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
