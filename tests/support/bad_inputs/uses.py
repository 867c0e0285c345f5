"""Calls of tsdb.client that raise; each gets a client of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from support.bad_inputs.rows import Use
from tsdb.client import (
    Client,
    ClientTls,
    InvalidRequest,
    ReadOptions,
    RequestLimits,
    WriteBatch,
    WrongTopic,
    connect,
)
from tsdb.v1 import common_pb2

UP = {"__name__": "up"}
TOKEN = common_pb2.Token(topic_id="x", partition=0, record_offset=1)


def _add(name: str, words: str, labels: Any, ts_ms: Any, values: Any) -> Use:
    return Use(f"add {name}", lambda client: WriteBatch().add(labels, ts_ms, values), words, InvalidRequest)


def _columns(name: str, words: str, *columns: Any) -> Use:
    return Use(f"add_columns {name}", lambda client: WriteBatch().add_columns(*columns), words, InvalidRequest)


def _select(name: str, words: str, selector: Any = "up", start: Any = 0, end: Any = 10, **keywords: Any) -> Use:
    return Use(f"select {name}", lambda client: client.select(selector, start, end, **keywords), words, InvalidRequest)


def _connect(name: str, words: str, address: str = "h:1", **keywords: Any) -> Use:
    return Use(f"connect {name}", lambda client: _called(connect(address, **keywords)), words, InvalidRequest)


def _called(client: Client) -> None:
    with client:
        client.coverage()


CONNECTIONS = (
    _connect("nowhere", "address '' is not HOST:PORT", ""),
    _connect("a URL", "address 'http://h:1' is not HOST:PORT", "http://h:1"),
    _connect("port 0", "address 'h:0' is not HOST:PORT", "h:0"),
    _connect("no time", "timeout of 0 s; it must be finite and above 0", timeout_s=0),
    _connect("time that runs back", "timeout of -1 s", timeout_s=-1),
    _connect("endless time", "timeout of inf s", timeout_s=float("inf")),
    _connect("time that is none", "timeout of nan s", timeout_s=float("nan")),
    _connect("a token with blanks", "characters of the token are outside", token="two words"),
    Use("TLS without its file", lambda client: ClientTls(Path("none.pem")), "TLS file none.pem", InvalidRequest),
    Use("TLS without a key", lambda client: ClientTls(None, Path("c")), "certificate and its key", InvalidRequest),
)

BATCHES = (
    _add("fractions of time", "times of type float64; want integers", UP, 1.5, 1.0),
    _add("labels in a tuple", "samples: labels are ('up', 'job') (tuple): give a dict such as", ("up", "job"), 1, 1.0),
    _add("a time in words", "times of type", UP, "soon", 1.0),
    _add("no time", "times of type", UP, None, 1.0),
    _add("a time beyond int64", "beyond int64", UP, 1 << 63, 1.0),
    _add("a true time", "times of type bool", UP, True, 1.0),
    _add("a value in words", "values must be numbers", UP, 1, "many"),
    _add("no value", "values must be numbers", UP, 1, None),
    _add("a true value", "values must be numbers", UP, 1, True),
    _add("more times than values", "2 times, 1 values: they must agree", UP, [1, 2], [1.0]),
    _add("a label that is a number", "label", {"__name__": 1}, 1, 1.0),
    _add("a label that is none", "label", {"__name__": None}, 1, 1.0),
    _add("half a character", "not valid UTF-8", {"__name__": "\ud800"}, 1, 1.0),
    _columns("counts below zero", "counts must be integers", [b"a"], [-1], [], []),
    _columns("counts of fractions", "counts must be integers", [b"a"], [1.5], [1], [1.0]),
    _columns("fewer labels than counts", "1 label sets, 2 counts", [b"a"], [1, 1], [1, 2], [1.0, 2.0]),
    _columns("counts that do not add up", "1 counts of 3 samples, 1 times", [b"a"], [3], [1], [1.0]),
    Use("limits of nothing", lambda client: RequestLimits(series_max=0), "must be above 0", InvalidRequest),
)

READS = (
    _select("nothing", "give either a selector or series_ids", None),
    _select("both", "give either a selector or series_ids", "up", series_ids=[1]),
    _select("half a selector", "1:4: parse error", "up{"),
    _select("a malformed expression", "missing )", 'up{a=~"("}'),
    _select("everything", "must contain at least one non-empty matcher", '{a=~".*"}'),
    _select("an empty range", "range [5, 5) is empty", start=5, end=5),
    _select("a reversed range", "range [5, 1) is reversed", start=5, end=1),
    _select("times beyond the range", "Value out of range: 9223372036854775808", start=0, end=1 << 63),
    _select("a time in words", "select: start_ms: 'soon' is neither ms since the epoch nor a time", start="soon"),
    _select("a time in seconds", "start_ms is the float 1.5: give an int, ms since epoch UTC", start=1.5),
    _select("a tuple as time", "end_ms is tuple; want a datetime", end=(2026, 1, 1)),
    Use(
        "query_range with a step in seconds",
        lambda client: client.query_range("up", 0, 1, 0.5),  # type: ignore[arg-type]
        "step_ms is 0.5: give an int of ms, a timedelta or text",
        InvalidRequest,
    ),
    _select("steps without their word", "step_ms and aggregation go together", step_ms=10),
    _select("steps of an unknown kind", "'median' is unknown; known: last, avg", step_ms=10, agg="median"),
    _select("steps that run back", "step_ms -1 is negative", step_ms=-1, agg="avg"),
    _select("too many steps", "limit is 100000", step_ms=1, agg="avg", end=10**9),
    _select("fewer than none", "Value out of range: -1", last_n=-1),
    _select("an unknown encoding", "encoding 'zip' is unknown; known: raw, columns", encoding="zip"),
    _select("columns in steps", "COLUMNS goes without step_ms", encoding="columns", step_ms=5, agg="avg"),
    _select("ids below zero", "-1 out of bounds for uint64", None, series_ids=[-1]),
    _select("a partition not served", "partitions [77] are not served here", options=ReadOptions(partitions=[77])),
    Use(
        "select after a write to another log",
        lambda client: client.select("up", 0, 1, options=ReadOptions(after=[TOKEN])),
        "token is of topic 'x'",
        WrongTopic,
    ),
    Use("select without time", lambda client: client.select("up", 0, 1, timeout_s=0), "timeout of 0 s", InvalidRequest),
    Use("groups of nothing", lambda client: client.series_groups("up", []), "group_by names no label", InvalidRequest),
    Use("values of no label", lambda client: client.label_values(""), "label name is empty", InvalidRequest),
    Use("a write to a store", lambda client: client.write(_one()), "takes no writes", InvalidRequest),
    Use("a watch of half a selector", lambda client: next(client.watch("up{")), "1:4: parse error", InvalidRequest),
    Use("a watch of everything", lambda client: next(client.watch('{a=""}')), "non-empty matcher", InvalidRequest),
)


def _one() -> WriteBatch:
    batch = WriteBatch()
    batch.add(UP, np.array([1]), np.array([1.0]))
    return batch


USES = (*CONNECTIONS, *BATCHES, *READS)
