"""A verdict as JUnit XML, as every CI shows it: one test case an item of the coverage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from workbench.core.result import Result
    from workbench.core.verdict import Item

# Characters that XML 1.0 does not have.
_NONE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(result: Result) -> str:
    """Return a result as JUnit XML.

    What is wrong is a failure. What is open and essential is an error: it was not checked. What is open and
    not essential is skipped.
    """
    items = result.verdict.coverage.items
    failures = [item for item in items if item.state == "wrong" and item.essential]
    errors = [item for item in items if item.state == "open" and item.essential]
    counts = {
        "tests": str(len(items)),
        "failures": str(len(failures)),
        "errors": str(len(errors)),
        "skipped": str(sum(_skipped(item) for item in items)),
    }
    suite = ElementTree.Element("testsuite", {"name": _clean(result.title), **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (
        ("schema", result.schema),
        ("ok", str(result.ok)),
        ("summary", result.summary),
    ):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for item in items:
        _case(suite, item)
    root = ElementTree.Element("testsuites", {"name": "workbench", **counts})
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _skipped(item: Item) -> bool:
    return item.state != "ok" and not item.essential


def _case(suite: ElementTree.Element, item: Item) -> None:
    names = {"classname": _clean(f"workbench.{item.kind}"), "name": _clean(item.name)}
    case = ElementTree.SubElement(suite, "testcase", names)
    if item.state == "ok":
        return
    kind = "skipped" if _skipped(item) else "failure" if item.state == "wrong" else "error"
    ElementTree.SubElement(case, kind, {"message": _clean(item.how)})


def _clean(text: str) -> str:
    return _NONE.sub("?", text)
