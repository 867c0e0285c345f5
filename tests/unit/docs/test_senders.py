"""The page of senders: its snippets parse, and the ports, paths, settings, reasons and versions on it exist."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ingest.http.protocol import Decoded, MediaType, Outcome, WriteCall
from ingest.influx.lines import REASONS, LineRules
from ingest.influx.protocol import WRITE_V2, influx_protocols
from ingest.pipeline import AcceptedWrite
from support.documents import Block, blocks
from support.senders.go_senders import COLLECTOR, TELEGRAF, VMAGENT, GoSender
from tsdb.config import ROLES
from tsdb.config.gateway import GatewayFields
from tsdb.model.clock import ManualClock
from tsdb.ops.http.bodies import HttpHead
from tsdb.roles.gateway import otlp_decoder, write_protocols

PAGE = Path(__file__).resolve().parents[3] / "docs" / "senders.md"
TEXT = PAGE.read_text()
BLOCKS = {block.section: block for block in blocks(PAGE)}
SETTINGS = ROLES["gateway"].model_fields
URL = re.compile(r"https?://gateway\.example(?::(\d+))?(/[\w/]*)?")
LANGUAGES: dict[str, Callable[[str], object]] = {"yaml": yaml.safe_load, "toml": tomllib.loads, "json": json.loads}


def served() -> set[str]:
    """Paths of all write routes."""
    fields = GatewayFields.model_validate({})
    return {path for protocol in write_protocols(fields, otlp_decoder(fields)) for path in protocol.paths}


@pytest.mark.parametrize("block", [block for block in blocks(PAGE) if block.language in LANGUAGES], ids=str)
def test_a_snippet_parses(block: Block) -> None:
    assert LANGUAGES[block.language](block.text)


def test_braces_and_quotes_of_the_snippet_for_alloy_are_balanced() -> None:
    text = BLOCKS["Grafana Alloy"].text
    assert text.count("{") == text.count("}") > 0
    assert text.count('"') % 2 == 0


def test_addresses_have_the_default_port_and_a_path_that_is_served() -> None:
    port = str(SETTINGS["http"].default).rpartition(":")[2]
    found = URL.findall(TEXT)
    assert len(found) > 5
    assert {given for given, _ in found} == {port}
    assert {path for _, path in found if path} <= served()


def test_the_table_of_paths_is_that_of_the_routes() -> None:
    table = TEXT.partition("\n## ")[0]
    named = {path for row in table.splitlines() if row.startswith("|") for path in re.findall(r"`(/[\w/]+)`", row)}
    assert named == served()


def test_settings_on_the_page_exist() -> None:
    named = set(re.findall(r"`((?:influx|source|request|labels|placement|tls|token)_[a-z_]+)`", TEXT))
    reasons = {reason for reason, _ in REASONS.values()}
    assert named - reasons - {"labels_too_long"} <= SETTINGS.keys()
    assert {name for name in SETTINGS if name.startswith("influx_")} <= set(re.findall(r"influx_[a-z_]+", TEXT))


def test_each_reason_for_a_refused_line_is_explained() -> None:
    table = TEXT.partition("### Bad lines")[2].partition("###")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")][1:]
    assert sorted(",".join(rows).replace(" ", "").split(",")) == sorted(reason for reason, _ in REASONS.values())


def test_the_answer_on_the_page_is_the_one_that_is_given() -> None:
    write, _ = influx_protocols(LineRules(), ManualClock(0))
    call = WriteCall(HttpHead("POST", WRITE_V2, "", {}), MediaType(""), "", b"m f=1,g=2\nm f=x", 1 << 20)
    decoded = write.decode(call)
    assert isinstance(decoded, Decoded)
    given = write.answer(call, Outcome(AcceptedWrite([], 2, {}, 0, []), None, decoded))
    shown = next(block for block in blocks(PAGE) if block.language == "json")
    assert json.loads(shown.text) == json.loads(given.body)


@pytest.mark.parametrize(
    ("name", "sender"), [("Telegraf", TELEGRAF), ("vmagent", VMAGENT), ("OpenTelemetry Collector", COLLECTOR)]
)
def test_the_versions_of_senders_are_the_ones_that_are_built(name: str, sender: GoSender) -> None:
    assert f"| {name} | {sender.version.removeprefix('v')} |" in TEXT
