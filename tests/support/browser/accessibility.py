"""Accessibility of a page, by the rules of axe-core."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

SERIOUS = frozenset(("serious", "critical"))


def serious_findings(page: Page) -> list[str]:
    """One line for each finding of impact serious or critical: the rule, its demand and the elements."""
    violations = Axe().run(page).response["violations"]
    return [_line(found) for found in violations if found["impact"] in SERIOUS]


def _line(found: dict[str, Any]) -> str:
    elements = "; ".join(node["html"][:200] for node in found["nodes"])
    return f"{found['id']} ({found['impact']}): {found['help']}: {elements}"


def check_accessible(page: Page) -> None:
    """Raises AssertionError with the findings."""
    found = serious_findings(page)
    assert found == [], "\n".join(["not accessible:", *found])
