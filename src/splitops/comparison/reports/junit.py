"""A report as JUnit XML: a suite for each peer, a test for each case."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

from splitops.comparison.records import FINDINGS, Entry, Peer, Report, Verdict, Word
from splitops.comparison.reports.rule_texts import rule_text
from splitops.comparison.reports.verdicts import MEANINGS, described

_FAILURES: Final = frozenset({Word.DIFFERS, Word.REFUSES, Word.ACCEPTS})


def to_junit(report: Report) -> str:
    """Write a report as JUnit XML.

    Wrong answers are failures. Crashes, and what is no answer, are errors. Skipped is what a peer does not
    claim, and what did not repeat.

    Args:
        report: the report.

    Returns:
        The document. Characters that XML does not have are replaced.
    """
    root = ET.Element("testsuites", name="splitops compare")
    for peer in report.peers:
        _suite(root, peer, report)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, peer: Peer, report: Report) -> None:
    suite = ET.SubElement(root, "testsuite", name=_xml(peer.name))
    properties = ET.SubElement(suite, "properties")
    for name, release in peer.versions.items():
        ET.SubElement(properties, "property", name=_xml(name), value=_xml(release))
    results = [
        _test(suite, peer, entry, entry.verdicts[peer.name])
        for entry in report.entries
        if peer.name in entry.verdicts
    ]
    if peer.state != "ok":
        test = ET.SubElement(suite, "testcase", name="start", classname=_xml(peer.name))
        ET.SubElement(test, "error", message=_xml(f"{peer.state}: {peer.detail}"), type=peer.state.value)
        results.append("error")
    numbers = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.set("tests", str(len(results)))
    for name, result in numbers.items():
        suite.set(name, str(results.count(result)))


def _test(suite: ET.Element, peer: Peer, entry: Entry, verdict: Verdict) -> str:
    """Add a test; return how it ended."""
    place = f"{_xml(peer.name)}.{_xml(entry.operator)}"
    test = ET.SubElement(suite, "testcase", name=_xml(entry.id), classname=place)
    result = _result(verdict)
    message = _xml(f"{described(verdict)}: {verdict.detail or MEANINGS[verdict.word]}")
    if result == "skipped":
        ET.SubElement(test, result, message=message)
    elif result != "passed":
        element = ET.SubElement(test, result, message=message, type=verdict.word.value)
        element.text = _xml(f"{entry.title}\n{entry.rule}: {rule_text(entry.rule)}")
    return result


def _result(verdict: Verdict) -> str:
    if verdict.word is Word.AGREES:
        return "passed"
    if verdict.word is Word.NOT_APPLICABLE or (verdict.word in FINDINGS and not verdict.counts):
        return "skipped"
    return "failure" if verdict.word in _FAILURES else "error"


def _xml(text: str) -> str:
    """Replace what XML 1.0 does not have: control characters and halves of surrogate pairs."""
    return "".join(
        c if c in "\t\n" or (c.isprintable() and c not in "\ufffe\uffff") else "\ufffd" for c in text
    )
