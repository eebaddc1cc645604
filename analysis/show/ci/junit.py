"""JUnit XML: a test case for each scenario, its figures as properties, losses and replay lines in the failure text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import asdict

from rig.analysis.show.ci.cases import Case, CaseEnd

# What a case that did not pass contains; viewers show an error as red as a failure.
_ELEMENTS = {CaseEnd.FAILED: "failure", CaseEnd.UNANSWERED: "error", CaseEnd.SKIPPED: "skipped"}
# What XML 1.0 cannot hold, even escape_markdown. Words of engines may be any bytes.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(cases: Sequence[Case], name: str) -> bytes:
    """Return one suite of this name as UTF-8; the same cases give the same bytes."""
    counts = {
        "tests": len(cases),
        **{
            f"{element}s" if element != "skipped" else element: sum(case.answer is answer for case in cases)
            for answer, element in _ELEMENTS.items()
        },
    }
    attributes = {key: str(count) for key, count in counts.items()}
    root = ET.Element("testsuites", attributes)
    suite = ET.SubElement(root, "testsuite", {"name": _text(name), **attributes})
    for case in cases:
        _add(suite, case)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _add(suite: ET.Element, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", {"classname": _text(case.group), "name": _text(case.name)})
    if case.figures:
        properties = ET.SubElement(element, "properties")
        for name, value in (asdict(case.figures) | {"retries": case.retry_count}).items():
            ET.SubElement(properties, "property", {"name": name, "value": "" if value is None else _text(str(value))})
    if case.answer is not CaseEnd.PASSED:
        ended = ET.SubElement(element, _ELEMENTS[case.answer], {"message": _text(case.reason)})
        ended.text = _text("\n".join(case.lines))


def _text(text: str) -> str:
    return _FORBIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)
