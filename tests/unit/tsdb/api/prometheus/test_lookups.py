"""Lookups of series, labels and metadata over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.api.prometheus_server import ApiServer, api_server
from tsdb.api.prometheus.pages.lookups import unescaped_name
from tsdb.api.prometheus.pages.metadata import remembered_families
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable
from tsdb.model.family import Family

UP = {"__name__": "up", "job": "a"}
DOWN = {"__name__": "down", "job": "b", "a.b": "dotted"}
FAMILIES = {
    "up": Family("up", "gauge", "Whether it is up.", ""),
    "down_total": Family("down_total", "counter", "", "seconds"),
    "other": Family("other", "", "A help.", ""),
}


@pytest.fixture(scope="module")
def served() -> Iterator[ApiServer]:
    with api_server(families=FAMILIES) as server:
        server.samples.add(UP, [(1_000, 1.0)])
        server.samples.add(DOWN, [(9_000, 1.0)])
        yield server


@pytest.fixture(autouse=True)
def _restore(served: ApiServer) -> Iterator[None]:
    yield
    served.samples.warnings = ()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"match": "up"}, [UP]),
        ({"match": ["up", "down", 'up{job="a"}']}, [DOWN, UP]),
        ({"match": '{job=~".+"}'}, [DOWN, UP]),
        ({"match": '{"a.b"="dotted"}'}, [DOWN]),
        ({"match": "nothing"}, []),
        ({"match": '{job=~".+"}', "start": 2}, [DOWN]),
        ({"match": '{job=~".+"}', "end": 8.999}, [UP]),
        ({"match": '{job=~".+"}', "start": 1, "end": 1}, [UP]),
        ({"match": "up", "start": 2, "end": 1}, []),
    ],
)
def test_series(served: ApiServer, asked: dict[str, Any], found: list[dict[str, str]]) -> None:
    wanted = sorted(found, key=lambda labels: sorted(labels.items()))
    for got in (served.get("series", **asked), served.post("series", **asked)):
        assert sorted(got.data, key=lambda labels: sorted(labels.items())) == wanted


@pytest.mark.parametrize(
    ("path", "asked", "problem"),
    [
        ("series", {}, "no match[] parameter provided"),
        ("series", {"match": "{}"}, 'invalid parameter "match[]": match[] must contain at least one non-empty matcher'),
        (
            "series",
            {"match": '{a=""}'},
            'invalid parameter "match[]": match[] must contain at least one non-empty matcher',
        ),
        (
            "series",
            {"match": "up", "start": "x"},
            'invalid parameter "start": invalid time value for \'start\': cannot parse "x" to a valid timestamp',
        ),
        (
            "series",
            {"match": "up", "limit": "x"},
            'invalid parameter "limit": strconv.Atoi: parsing "x": invalid syntax',
        ),
        ("labels", {"match": '{a=~".*"}'}, "match[] must contain at least one non-empty matcher"),
        (
            "labels",
            {"end": "y"},
            'invalid parameter "end": invalid time value for \'end\': cannot parse "y" to a valid timestamp',
        ),
        ("label/job/values", {"limit": "-1"}, 'invalid parameter "limit": limit must be non-negative'),
        ("label/U___d800_/values", {}, 'invalid label name: "\ufffd"'),
        ("metadata", {"limit": "x"}, "limit must be a number"),
        ("metadata", {"limit_per_metric": "x"}, "limit_per_metric must be a number"),
        ("rules", {"type": "x"}, 'invalid parameter "type": not supported value "x"'),
        ("query_exemplars", {"query": "up", "start": 3, "end": 1}, "end timestamp must not be before start timestamp"),
        ("status/tsdb", {"limit": "0"}, 'invalid parameter "limit": must be from 1 to 10000'),
    ],
)
def test_bad_data_is_400_with_the_words_of_prometheus(
    served: ApiServer, path: str, asked: dict[str, Any], problem: str
) -> None:
    assert served.get(path, **asked).failure == (400, "bad_data", problem)


@pytest.mark.parametrize("text", ["{", "up{", "up[5m]", "up offset 5m", "rate(up[5m])", "up up", '{a="\\xff"'])
@pytest.mark.parametrize("path", ["series", "labels", "label/job/values"])
def test_a_match_that_is_no_selector_is_bad_data(served: ApiServer, path: str, text: str) -> None:
    status, kind, problem = served.get(path, match=text).failure
    assert (status, kind) == (400, "bad_data")
    assert "parse error: " in problem


def test_a_form_that_cannot_be_read_is_bad_data_for_series(served: ApiServer) -> None:
    got = served.get("series?match[]=up&x=%zz")
    assert got.failure == (400, "bad_data", 'error parsing form values: invalid URL escape "%zz"')
    assert served.get("labels?x=%zz").status == 200


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["__name__", "a.b", "job"]),
        ({"match": "up"}, ["__name__", "job"]),
        ({"match": ["up", "down"]}, ["__name__", "a.b", "job"]),
        ({"end": 2}, ["__name__", "job"]),
        ({"start": 5, "end": 2}, []),
    ],
)
def test_label_names(served: ApiServer, asked: dict[str, Any], found: list[str]) -> None:
    assert served.get("labels", **asked).data == served.post("labels", **asked).data == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("job", ["a", "b"]),
        ("__name__", ["down", "up"]),
        ("nothing", []),
        ("a.b", ["dotted"]),
        ("U__a_2e_b", ["dotted"]),
        ("a%2Eb", ["dotted"]),
        ("a%2Fb", []),
    ],
)
def test_label_values(served: ApiServer, name: str, found: list[str]) -> None:
    assert served.get(f"label/{name}/values").data == found


@pytest.mark.parametrize(
    ("escaped", "name"),
    [
        ("U__a_2e_b", "a.b"),
        ("U__a__b", "a_b"),
        ("U___1f600_", "\U0001f600"),
        ("U__a_b", "a_b"),
        ("U__x_ffffff_", "U__x_ffffff_"),
        ("plain", "plain"),
    ],
)
def test_names_in_a_path_may_be_escaped(escaped: str, name: str) -> None:
    assert unescaped_name(escaped) == name


@pytest.mark.parametrize(("path", "all_of"), [("series", 2), ("labels", 3), ("label/job/values", 2)])
def test_the_limit_cuts_and_warns(served: ApiServer, path: str, all_of: int) -> None:
    for limit in range(all_of + 2):
        got = served.get(path, match='{job=~".+"}', limit=limit).json
        cut = 0 < limit < all_of
        assert len(got["data"]) == (limit if cut else all_of)
        assert got.get("warnings") == (["results truncated due to limit"] if cut else None)


@pytest.mark.parametrize("path", ["series", "labels", "label/job/values"])
def test_what_may_be_missing_is_a_warning(served: ApiServer, path: str) -> None:
    served.samples.warnings = ("partition 3 lags",)
    got = served.get(path, match="up", allow_stale=1)
    assert got.json["warnings"] == ["partition 3 lags"]
    assert served.samples.options[-1].allow_stale


def test_many_series_are_one_array(served: ApiServer) -> None:
    with api_server() as many:
        for number in range(2500):
            many.samples.add({"__name__": "x", "n": str(number)}, [(0, 1.0)])
        got = many.get("series", match="x").data
        assert sorted(int(labels["n"]) for labels in got) == list(range(2500))


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, ["down_total", "other", "up"]),
        ({"metric": "up"}, ["up"]),
        ({"metric": "nothing"}, []),
        ({"limit": 2}, ["down_total", "other"]),
        ({"limit": 0}, []),
        ({"limit": -1}, ["down_total", "other", "up"]),
    ],
)
def test_metadata(served: ApiServer, asked: dict[str, Any], names: list[str]) -> None:
    data = served.get("metadata", **asked).data
    assert list(data) == names
    shown = {
        "up": {"type": "gauge", "help": "Whether it is up.", "unit": ""},
        "down_total": {"type": "counter", "help": "", "unit": "seconds"},
        "other": {"type": "unknown", "help": "A help.", "unit": ""},
    }
    assert data == {name: [shown[name]] for name in names}


def test_metadata_that_could_not_be_read_again_is_stated() -> None:
    with api_server(families=FAMILIES, families_age_s=42.4) as server:
        got = server.get("metadata").json
    assert got["warnings"] == ["the log does not answer; metadata is 42 s old, and newer families may be missing"]


def test_families_are_read_again_after_a_while() -> None:
    clock = ManualClock()
    reads: list[int] = []

    def read() -> dict[str, Family]:
        reads.append(len(reads))
        if len(reads) == 2:
            raise Unavailable("the log is away")
        return {"up": Family("up", "gauge", str(len(reads)))}

    families = remembered_families(read, clock, refresh_s=30.0)
    assert [families().by_name["up"].help for _ in range(3)] == ["1", "1", "1"]
    clock.advance(31_000)
    old = families()
    assert (old.by_name["up"].help, old.age_s) == ("1", 31.0), "the last copy, and its age"
    clock.advance(10_000)
    assert families().by_name["up"].help == "3"
