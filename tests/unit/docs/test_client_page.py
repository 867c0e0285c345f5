"""docs/client.md has every public name and every call of the client."""

from __future__ import annotations

import re
from pathlib import Path

import tsdb.client
from tsdb.client import AsyncClient, Client

PAGE = (Path(__file__).parents[3] / "docs" / "client.md").read_text()
NAMED = set(re.findall(r"\w+", PAGE))


def calls(client: type) -> set[str]:
    return {name for name in vars(client) if not name.startswith("_")}


def test_every_public_name_is_on_the_page() -> None:
    assert set(tsdb.client.__all__) - NAMED - {"Series", "Step", "Time"} == set()


def test_every_call_is_on_the_page_and_both_clients_have_the_same() -> None:
    assert calls(Client) - NAMED == set()
    assert calls(Client) == calls(AsyncClient)
