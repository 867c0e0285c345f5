"""Links: what is written comes back, and what cannot be read is named."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from support.times import DAY_MS, HOUR_MS, NOW_MS, TODAY_MS
from tsdb.api.prometheus.parameters import Form
from tsdb.ops.http.bodies import HttpHead
from tsdb.ui.link import PANELS_MAX, QUERY_CHARS_MAX, SERIES_CHARS_MAX, Panel, View, range_ms, view_of


def view(**parameters: str) -> tuple[View, list[str]]:
    query = urlencode(
        {name.replace("_", ".", 1) if name[1:2].isdigit() else name: text for name, text in parameters.items()}
    )
    found, problems = view_of(Form.of(HttpHead("GET", "/", query, {}), b""), NOW_MS)
    return found, list(problems)


def test_a_link_without_parameters_is_one_empty_panel() -> None:
    assert view() == (View([Panel()]), [])


def test_all_of_a_view_is_in_its_link() -> None:
    found, problems = view(
        v="1",
        start="1000",
        end="61000",
        refresh="5",
        p0_q='sum(rate(x{a="b&c"}[5m]))',
        p0_view="graph",
        p0_unit="bytes",
        p0_axis="log",
        p0_stack="1",
        p0_losses="1",
        p0_symbols="1",
        p0_step="30s",
        p0_low="-1.5",
        p0_high="1e6",
        p0_title="Requests & errors",
        p0_alerts="High",
        title="Shop",
        board="1",
        p0_hide='{"job":"a"}',
        p1_q="up",
        p1_view="samples",
        p1_only='{"job":"b"}',
    )
    first = Panel(
        'sum(rate(x{a="b&c"}[5m]))',
        "graph",
        "bytes",
        "log",
        True,
        True,
        ('{"job":"a"}',),
        symbols=True,
        step="30s",
        low="-1.5",
        high="1e6",
        title="Requests & errors",
        alerts="High",
    )
    panels = [first, Panel("up", "samples", only=('{"job":"b"}',))]
    assert found == View(panels, "", 1000, 61_000, 5, "Shop", board=True)
    assert problems == []


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"v": "2"}, "version '2'; this server reads version 1"),
        ({"range": "soon"}, "range='soon'"),
        ({"range": "1000000y"}, "range='1000000y'"),
        ({"title": "x" * 201}, "a title of at most 200 characters"),
        ({"p0_q": "up", "p0_alerts": "x" * 201}, "the name of an alert of at most 200 characters, or *"),
        ({"p0_q": "up", "p0_low": "inf"}, "p0.low='inf'; allowed is a number"),
        ({"p0_q": "up", "p0_high": "x"}, "p0.high='x'; allowed is a number"),
        ({"refresh": "3"}, "refresh='3'; allowed is 0, 1, 2, 5"),
        ({"start": "x", "end": "2"}, "start='x'; allowed is milliseconds since 1970, or a time such as"),
        ({"start": "2000", "end": "1000"}, "start=2000 and end=1000: the range ends before it begins"),
        ({"start": "0", "end": "4000000000000"}, "the range is longer than 100 years"),
        ({"p0_q": "up", "p0_step": "0s"}, "p0.step='0s'; allowed is a duration such as 15s"),
        ({"p0_q": "up", "p0_view": "pie"}, "p0.view='pie'; allowed is graph, table, samples"),
        ({"p0_q": "up", "p0_axis": "<script>"}, "p0.axis='<script>'"),
        ({"p0_q": "up", "p0_hide": "x" * (SERIES_CHARS_MAX + 1)}, "1 times p0.hide; allowed are 20 series"),
        ({"p0_q": "x" * (QUERY_CHARS_MAX + 1)}, "p0.q='xxxx"),
    ],
)
def test_a_part_that_cannot_be_read_is_named_and_has_its_default(parameters: dict[str, str], named: str) -> None:
    found, problems = view(**parameters)
    assert [named in problem for problem in problems] == [True], problems
    assert found == View([Panel(parameters.get("p0_q", "")[:QUERY_CHARS_MAX] if len(parameters) > 1 else "")])


def test_a_link_that_a_person_wrote_has_times_as_in_commands() -> None:
    found, problems = view(start="yesterday", end="2015-07-04T08:00Z", p0_q="up")
    assert (found.start_ms, found.end_ms, found.range) == (TODAY_MS - DAY_MS, TODAY_MS + 8 * HOUR_MS, "")
    assert problems == []


def test_more_panels_than_allowed_are_named() -> None:
    found, problems = view(**{f"p{index}_q": "up" for index in range(PANELS_MAX + 1)})
    assert len(found.panels) == PANELS_MAX
    assert problems == [f"The link has more than {PANELS_MAX} panels; those after the first {PANELS_MAX} are left out."]


def test_a_link_of_prometheus_opens() -> None:
    found, problems = view(g0_expr="up == 0", g0_tab="1", g0_range_input="2h", g1_expr="up", g1_tab="graph")
    assert found == View([Panel("up == 0", "table"), Panel("up")], "2h")
    assert problems == []


@pytest.mark.parametrize(
    ("text", "want"), [("1s", 1000), ("5", 5000), ("1.5h", 5_400_000), ("100y", 3_153_600_000_000)]
)
def test_ranges_are_durations(text: str, want: int) -> None:
    assert range_ms(text) == want


@pytest.mark.parametrize("text", ["", "0s", "1ms", "0.5", "-5m", "१m", "1m; drop", "101y"])
def test_other_texts_are_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        range_ms(text)
