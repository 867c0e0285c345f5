"""Messages that the servers of a store and of a gateway refuse, and bytes that no protocol of theirs knows."""

from __future__ import annotations

import time
from typing import Any

import grpc
import numpy as np

from support.bad_inputs.rows import Bytes, Call
from support.data.fuzz import HTTP2_PREFACE
from tsdb.v1 import common_pb2, ingest_pb2, reader_pb2

MATCHERS = [common_pb2.Matcher(name="__name__", value="up")]
FOREIGN = common_pb2.Token(topic_id="x", partition=0, record_offset=1)
UP = b"__name__\xffup"
NOW = np.array([time.time_ns() // 1_000_000], "<i8").tobytes()
ONE = np.array([1.0], "<f8").tobytes()


def _select(words: str, matchers: list[common_pb2.Matcher] | None = None, **fields: Any) -> Call:
    given: dict[str, Any] = {
        "start_ms": 0,
        "end_ms": 1000,
        "matchers": MATCHERS if matchers is None else matchers,
    } | fields
    return Call("Reader/Select", reader_pb2.SelectRequest(**given).SerializeToString(), words)


def _matcher(words: str, **fields: Any) -> Call:
    return _select(words, [common_pb2.Matcher(**fields)])


def _options(words: str, **fields: Any) -> Call:
    return _select(words, options=reader_pb2.ReadOptions(**fields))


def _write(words: str, labels: list[bytes], **fields: Any) -> Call:
    given: dict[str, Any] = {"ts_ms": NOW, "values": ONE} | fields
    return Call("Ingest/Write", ingest_pb2.WriteRequest(labels=labels, **given).SerializeToString(), words)


def _watch(words: str, resume: list[common_pb2.Token], **fields: Any) -> Call:
    request = reader_pb2.WatchRequest(matchers=MATCHERS, **fields)
    getattr(request, "from").extend(resume)  # A keyword of Python.
    return Call("Reader/Watch", request.SerializeToString(), words)


SELECTS = (
    _select("give either matchers or series_ids", []),
    _select("give either matchers or series_ids", series_ids=b"\0" * 8),
    _select("series_ids has 7 bytes, not a multiple of 8", [], series_ids=b"\0" * 7),
    _select("range [5, 5) is empty; end_ms is exclusive", start_ms=5, end_ms=5),
    _select("range [5, 1) is reversed", start_ms=5, end_ms=1),
    _select("is beyond +-2^61 ms", start_ms=-(1 << 62)),
    _select("step_ms -1 is negative", step_ms=-1, aggregation=1),
    _select("step_ms and aggregation go together", step_ms=10),
    _select("step_ms and aggregation go together", aggregation=2),
    _select("aggregation 99 is unknown", step_ms=10, aggregation=99),
    _select("encoding 99 is unknown", encoding=99),
    _select("COLUMNS goes without step_ms, last_n and partial", encoding=1, last_n=2),
    _select("last_n and partial go without step_ms", step_ms=10, aggregation=1, last_n=2),
    _select("range has 1000000000 steps; limit is 100000", step_ms=1, aggregation=1, end_ms=10**9),
    _select("downsampled goes with step_ms and matchers", downsampled=True),
    _select("1001 matchers; limit is 1000", MATCHERS * 1001),
    _matcher("matcher type 9 is unknown", type=9, name="a", value="b"),
    _matcher("a matcher without a label name", value="b"),
    _matcher("regular expression '(': missing )", type=2, name="a", value="("),
    _matcher("regular expression of 200000 bytes; limit is 131072", type=2, name="a", value="[a-z]" * 40_000),
    _options("partitions [77] are not served here", partitions=[77]),
    _options("token is of topic 'x'; this log is topic", after=[FOREIGN]),
    Call("Reader/Select", b"\xff\xff\xff\xff", "the request is not a valid message"),
    Call("Reader/Select", b"\x0a\x05\x12\x03\xff\xfe\xfd", "the request is not a valid message"),
)

OTHER_READS = (
    Call("Reader/Series", reader_pb2.SeriesRequest(start_ms=5, end_ms=1).SerializeToString(), "is reversed"),
    Call("Reader/LabelNames", reader_pb2.LabelNamesRequest(start_ms=5, end_ms=1).SerializeToString(), "is reversed"),
    Call("Reader/LabelValues", b"", "label name is empty"),
    Call("Reader/Cardinality", reader_pb2.CardinalityRequest(top=10_001).SerializeToString(), "top is 10001; limit is"),
    Call("Reader/Coverage", b"\x08", "the request is not a valid message"),
    Call("Reader/Watch", b"", "selector matches series without any of its labels"),
    _watch("partitions [77] are not served here", [], partitions=[77]),
    _watch("token is of topic 'x'", [FOREIGN]),
    Call("Reader/Nothing", b"", "Method not found", grpc.StatusCode.UNIMPLEMENTED),
)

WRITES = (
    _write("the request has no series", [], ts_ms=b"", values=b""),
    _write("the request has no series", []),
    _write("1 series claim 1 samples, but there are 0 timestamps and 0 values", [UP], ts_ms=b"", values=b""),
    _write("ts_ms has 7 bytes", [UP], ts_ms=NOW[:7]),
    _write("values has 9 bytes", [UP], values=ONE + b"x"),
    _write("there are 2 timestamps and 1 values", [UP], ts_ms=NOW * 2),
    _write("2 series claim 2 samples, but there are 1 timestamps", [UP, UP]),
    _write("1 series claim 2 samples", [UP], sample_counts=b"\2\0\0\0"),
    _write("1 series claim 4294967295 samples", [UP], sample_counts=b"\xff\xff\xff\xff"),
    _write("sample_counts has 3 bytes", [UP], sample_counts=b"\1\0\0"),
    _write("series_index 0 has no samples", [UP], sample_counts=b"\0\0\0\0", ts_ms=b"", values=b""),
    _write("series_index 0: label set is empty", [b""]),
    _write("series_index 0: an empty label name", [b"\xff"]),
    _write("a label name without a value", [b"up"]),
    _write("series_index 0: label 'a' twice", [UP + b"\xffa\xff1\xffa\xff2"]),
    _write("label '__name__' is not valid UTF-8", [b"__name__\xff\xfe\xfd"]),
    Call("Ingest/Write", b"\xff\xff", "the request is not a valid message"),
    Call("Ingest/Write", b"\x0a\xff\xff\xff\xff\x7f", "the request is not a valid message"),
)

CALLS = (*SELECTS, *OTHER_READS, *WRITES)

_HOST = b"Host: h\r\n"
_CLOSE = b"Connection: close\r\n\r\n"
_SETTINGS = HTTP2_PREFACE + b"\0\0\0\4\0\0\0\0\0"
_TLS_HELLO = bytes.fromhex("160301002f0100002b0303") + b"\x11" * 32 + bytes.fromhex("000004c02bc02f0100")

BYTES = (
    Bytes("an unknown path", "http", b"GET /nothing HTTP/1.1\r\n" + _HOST + _CLOSE, b"404"),
    Bytes("a path that climbs", "http", b"GET /../../etc/passwd HTTP/1.1\r\n" + _HOST + _CLOSE, b"404"),
    Bytes(
        "POST to the metrics", "http", b"POST /metrics HTTP/1.1\r\n" + _HOST + b"Content-Length: 0\r\n" + _CLOSE, b"405"
    ),
    Bytes("an unknown verb", "http", b"STEAL /metrics HTTP/1.1\r\n" + _HOST + _CLOSE, b"40"),
    Bytes("a length that is no number", "http", b"GET / HTTP/1.1\r\n" + _HOST + b"Content-Length: x\r\n\r\n", b"400"),
    Bytes("a header without a name", "http", b"GET / HTTP/1.1\r\n: x\r\n\r\n", b"400"),
    Bytes("letters", "http", b"hello there\r\n\r\n", b"400"),
    Bytes("zeros", "http", b"\0" * 1000),
    Bytes("half a request", "http", b"GET /metrics HT"),
    Bytes("half a body", "http", b"POST /metrics HTTP/1.1\r\n" + _HOST + b"Content-Length: 999999\r\n\r\nx"),
    Bytes("a TLS greeting to HTTP", "http", _TLS_HELLO),
    Bytes("HTTP/2 to HTTP", "http", HTTP2_PREFACE),
    Bytes("HTTP/1 to gRPC", "grpc", b"GET /metrics HTTP/1.1\r\n" + _HOST + _CLOSE),
    Bytes("letters to gRPC", "grpc", b"hello there\r\n\r\n"),
    Bytes("zeros to gRPC", "grpc", b"\0" * 1000),
    Bytes("a TLS greeting to gRPC", "grpc", _TLS_HELLO),
    Bytes("a preface and nothing", "grpc", HTTP2_PREFACE),
    Bytes("a preface and letters", "grpc", HTTP2_PREFACE + b"hello there" * 10),
    Bytes("a frame of 16 MB claimed", "grpc", HTTP2_PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + b"x" * 100),
    Bytes("data for a stream that is none", "grpc", _SETTINGS + b"\0\0\1\0\0\0\0\0\7x"),
    Bytes("settings of a wrong size", "grpc", HTTP2_PREFACE + b"\0\0\5\4\0\0\0\0\0" + b"x" * 5),
    Bytes(
        "headers that do not decode",
        "grpc",
        _SETTINGS + b"\0\0\4\1\5\0\0\0\1\xff\xff\xff\xff",
    ),
)
