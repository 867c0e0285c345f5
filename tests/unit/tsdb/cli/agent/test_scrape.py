"""A scrape is whole or not at all, bounded in time and size, and `up` says which."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tsdb.cli.agent import scrape
from tsdb.cli.agent.measuring import batch_of, details_of
from tsdb.cli.agent.sample import Measured
from tsdb.cli.agent.scrape import ScrapeRules, ScrapeSource, ScrapeTarget, parse_target, refusals
from tsdb.cli.samples import protobuf
from tsdb.client import Exemplar
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import metric_name, parse_labels
from tsdb.model.stale import STALE_BITS
from tsdb.v1.exposition_pb2 import ExposedFamily, ExposedMetric

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]
Endpoint = tuple[str, list[Answer]]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """(URL, answers): the first answer is given, for ever."""
    answers: list[Answer] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers[0](self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/metrics", answers
        server.shutdown()
        thread.join()


def body(text: bytes, code: int = 200, content_type: str = "text/plain") -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Type", content_type)
        handler.end_headers()
        handler.wfile.write(text)

    return answer


TARGET_SERIES = {
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
}


def own(samples: list[Measured]) -> dict[str, float]:
    return {metric_name(sample.canonical).decode(): sample.value for sample in samples}


def test_samples_carry_job_and_instance_and_keep_their_own_time(endpoint: Endpoint) -> None:
    url, answers = endpoint
    answers.append(body(b'# TYPE hits counter\nhits 3\nold{a="b"} 4 123\n'))
    found = ScrapeSource(ScrapeTarget("web", url), 5.0).measure(1_000)
    labels = {"job": "web", "instance": url.split("/")[2]}
    assert [(dict(parse_labels(s.canonical)), s.ts_ms, s.value) for s in found[:2]] == [
        ({"__name__": "hits", **labels}, 1_000, 3.0),
        ({"__name__": "old", "a": "b", **labels}, 123, 4.0),
    ]
    assert own(found)["up"] == 1.0
    assert own(found)["scrape_samples_scraped"] == 2.0
    assert own(found)["scrape_duration_seconds"] > 0
    assert all(labels.items() <= dict(parse_labels(sample.canonical)).items() for sample in found)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (body(b"hits 3", code=500), "answers 500"),
        (body(b"hits 3\nnonsense\n"), "line 2"),
        (body(b"\xff\xfe"), "not UTF-8"),
        (body(b" hits 1\n"), "a blank before the name"),
        (body(b"\xef\xbb\xbfhits 1\n"), "byte order mark"),
        (body(b"hits 1\n" * 100), "over 64 bytes"),
        (lambda handler: handler.connection.close(), "127.0.0.1"),
        (body(b"hits 1\n" * 6), "over 5 samples"),
        (body(b"x" * 50 + b" 1"), "line 1: longer than 40 bytes"),
        (body(b"hits 1\n", content_type="application/openmetrics-text; version=1.0.0"), "cut short"),
    ],
)
def test_a_bad_scrape_gives_nothing_but_up_0(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, answer: Answer, what: str
) -> None:
    monkeypatch.setattr(scrape, "BODY_BYTES_MAX", 64)
    monkeypatch.setattr(scrape, "SAMPLES_MAX", 5)
    monkeypatch.setattr(scrape, "LINE_BYTES_MAX", 40)
    url, answers = endpoint
    answers.append(answer)
    source = ScrapeSource(ScrapeTarget("web", url), 5.0)
    found = own(source.measure(1_000))
    assert set(found) == TARGET_SERIES
    assert found["up"] == 0.0
    assert source.failure is not None
    assert what in source.failure
    answers[0] = body(b"")
    assert own(source.measure(2_000))["up"] == 1.0
    assert source.failure is None


def page(text: bytes) -> Answer:
    return body(text + b"# EOF\n", content_type="application/openmetrics-text; version=1.0.0")


def test_an_exemplar_comes_with_its_sample_and_once_without_a_time(endpoint: Endpoint) -> None:
    url, answers = endpoint
    answers.append(page(b'a_total 1 # {t="1"} 0.5\nb_total 2 # {} 1 3.25\nc_total 4\nd_total 1 7 # {t="d"} 1\n'))
    source = ScrapeSource(ScrapeTarget("web", url), 5.0)

    def exemplars(now_ms: int) -> list[Exemplar | None]:
        found = source.measure(now_ms)
        assert own(found)["up"] == 1.0, source.failure
        return [next(iter(sample.exemplars), None) for sample in found[:4]]

    first = [Exemplar(b"t\xff1", 0.5, 1_000), Exemplar(b"", 1.0, 3_250), None, Exemplar(b"t\xffd", 1.0, 7_000)]
    assert exemplars(1_000) == first
    assert exemplars(2_000) == [None, first[1], None, None]
    answers[0] = page(b'a_total 1 # {t="2"} 0.5\nb_total 2\nc_total 4\nd_total 1\n')
    assert exemplars(3_000) == [Exemplar(b"t\xff2", 0.5, 3_000), None, None, None]


def protobuf_page() -> bytes:
    """A counter and a native histogram with an observation in each of two buckets, both with a start."""
    start: Any = {"seconds": 5}  # A dict is a message.
    counter = ExposedMetric.Counter(value=3, start_timestamp=start)
    native = ExposedMetric.Histogram(
        sample_count=2,
        sample_sum=1.5,
        positive_span=[ExposedMetric.Span(length=2)],
        positive_delta=[1, 0],
        start_timestamp=start,
    )
    metrics = [ExposedMetric(counter=counter), ExposedMetric(histogram=native)]
    families = [
        ExposedFamily(name=name, type=kind, metric=[metric.SerializeToString()])
        for name, kind, metric in zip(
            ("c_total", "h"), (ExposedFamily.COUNTER, ExposedFamily.HISTOGRAM), metrics, strict=True
        )
    ]
    return b"".join(bytes([family.ByteSize()]) + family.SerializeToString() for family in families)


def test_native_histograms_and_starts_of_a_protobuf_page_are_in_the_batch(endpoint: Endpoint) -> None:
    url, answers = endpoint
    asked = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers["Accept"])
        body(protobuf_page(), content_type=protobuf.ACCEPT)(handler)

    answers.append(answer)
    source = ScrapeSource(ScrapeTarget("web", url), 5.0, ScrapeRules(native_histograms=True))
    found = source.measure(10_000)
    assert own(found)["up"] == 1.0, source.failure
    assert asked[0].startswith(protobuf.ACCEPT)
    assert len(found) == 2 + len(TARGET_SERIES)
    details = details_of(found)
    assert batch_of(found).samples == len(found)
    assert details is not None
    assert details.start_ms is not None
    assert details.start_ms.tolist() == [5_000, 5_000, *[0] * len(TARGET_SERIES)]
    assert details.histogram_of is not None
    assert details.histogram_of.tolist() == [-1, 0, *[-1] * len(TARGET_SERIES)]
    answers[0] = body(protobuf_page()[:-1], content_type=protobuf.ACCEPT)
    found = source.measure(20_000)
    assert own(found)["up"] == 0.0
    assert "1 bytes are missing" in (source.failure or "")
    ended = {metric_name(one.canonical) for one in found if np.float64(one.value).view(np.int64) == STALE_BITS}
    assert ended == {b"h"}  # The page names c_total before its fault.


def test_protobuf_is_not_asked_for_without_native_histograms(endpoint: Endpoint) -> None:
    url, answers = endpoint
    asked = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers["Accept"])
        body(b"up 1\n")(handler)

    answers.append(answer)
    ScrapeSource(ScrapeTarget("web", url), 5.0).measure(1_000)
    assert "protobuf" not in asked[0]


@pytest.mark.parametrize("exemplar", [b"{} x", b"{} 1 x", b'{t="\\"} 1'])
def test_a_page_with_a_broken_exemplar_fails_as_in_prometheus(endpoint: Endpoint, exemplar: bytes) -> None:
    url, answers = endpoint
    answers.append(page(b"a_total 1 # " + exemplar + b"\n"))
    source = ScrapeSource(ScrapeTarget("web", url), 5.0)
    assert own(source.measure(1_000))["up"] == 0.0


def raw(answer: bytes) -> Answer:
    def write(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.wfile.write(answer)

    return write


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"", ""),
        (b"\x00\xff", ""),
        (b"HTTP/1.1 20000 X\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "100 headers"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", "header line"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nup 1\n", "cut short, 45 bytes are missing"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "IncompleteRead"),
        (b"HTTP/1.1 302 F\r\nLocation: http://[::1\r\n\r\n", "Invalid IPv6"),
        (b"HTTP/1.1 302 F\r\nLocation: http://\xff\xfe/\r\n\r\n", "latin-1"),
        (b"HTTP/1.1 302 F\r\nLocation: http://" + b"a" * 80 + b".b/\r\n\r\n", "idna"),
        (b"HTTP/1.1 302 F\r\nLocation: ftp://127.0.0.1:1/\r\n\r\n", "ftp"),
        (b"HTTP/1.1 302 F\r\nLocation: file:///etc/passwd\r\n\r\n", "302"),
        (b"HTTP/1.1 302 F\r\nLocation: /\r\n\r\n", "302"),
    ],
    ids=range(13),
)
def test_an_answer_that_is_no_page_is_up_0_whatever_it_is(endpoint: Endpoint, answer: bytes, what: str) -> None:
    url, answers = endpoint
    answers.append(raw(answer))
    source = ScrapeSource(ScrapeTarget("web", url), 5.0)
    assert own(source.measure(1_000))["up"] == 0.0
    assert what in (source.failure or "")


@pytest.mark.parametrize("drips", [False, True])
def test_an_endpoint_that_never_ends_costs_one_timeout(endpoint: Endpoint, drips: bool) -> None:
    url, answers = endpoint
    released = threading.Event()

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not released.wait(0.02):
                if drips:
                    handler.wfile.write(b"#\n")
        except OSError:
            pass  # The scraper has left, as it should.

    answers.append(answer)
    source = ScrapeSource(ScrapeTarget("web", url), 0.2)
    found = own(source.measure(1_000))
    released.set()
    assert found["up"] == 0.0
    assert found["scrape_duration_seconds"] >= 0.2


def test_a_page_whose_parsing_takes_too_long_costs_one_timeout(endpoint: Endpoint) -> None:
    url, answers = endpoint
    labels = b"".join(b',l%d="v"' % n for n in range(5_000))  # 50 KB, which take some 10 ms a line.
    answers.append(body(b"".join(b'a{x="%d"%s} 1\n' % (n, labels) for n in range(300))))
    source = ScrapeSource(ScrapeTarget("web", url), 0.3)
    found = own(source.measure(1_000))
    assert found["up"] == 0.0
    assert found["scrape_duration_seconds"] >= 0.3
    assert "not whole in 0.3 s" in (source.failure or "")


def test_openmetrics_is_read_as_such(endpoint: Endpoint) -> None:
    url, answers = endpoint
    answers.append(body(b'a_total 3 1.5 # {t="x"} 1\n# EOF\n', content_type="application/openmetrics-text"))
    [sample, *_] = ScrapeSource(ScrapeTarget("web", url), 5.0).measure(1_000)
    assert (metric_name(sample.canonical), sample.ts_ms, sample.value) == (b"a_total", 1500, 3.0)


def test_a_round_that_is_missed_is_up_0() -> None:
    assert own(ScrapeSource(ScrapeTarget("web", "http://h/"), 5.0).missed(7)) == {"up": 0.0}


def test_nobody_listening_is_up_0() -> None:
    assert own(ScrapeSource(ScrapeTarget("web", "http://127.0.0.1:1/metrics"), 1.0).measure(0))["up"] == 0.0


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("http://h:9100/metrics", ScrapeTarget("scrape", "http://h:9100/metrics")),
        ("node=https://h/metrics?a=b", ScrapeTarget("node", "https://h/metrics?a=b")),
    ],
)
def test_a_target_is_a_url_with_or_without_a_job(text: str, target: ScrapeTarget) -> None:
    assert parse_target(text) == target


def test_the_instance_is_host_and_port_without_credentials() -> None:
    assert ScrapeTarget("j", "https://user:secret@h/metrics").instance == "h:443"
    assert ScrapeTarget("j", "http://h:81/").instance == "h:81"


@pytest.mark.parametrize(
    "text", ["", "h:9100", "file:///etc/passwd", "ftp://h/x", "http://", "http://h:port/", "=http://h"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"not .JOB=.URL"):
        parse_target(text)


@pytest.mark.parametrize("text", ["http://user:secret@h/metrics", "j=https://secret@h:1"])
def test_a_password_in_a_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidRequest, match="holds a user or password") as caught:
        parse_target(text)
    assert "secret" not in caught.value.message


def stored(samples: list[Measured]) -> dict[tuple[tuple[str, str], ...], int]:
    """Bits of the page's samples by labels without job and instance."""
    found = {}
    for sample in samples:
        labels = {name: value for name, value in parse_labels(sample.canonical) if name not in ("job", "instance")}
        if not labels["__name__"].startswith(("scrape_", "up")):
            found[tuple(sorted(labels.items()))] = int(np.float64(sample.value).view(np.uint64))
    return found


STALE = 0x7FF0000000000002
ONE = int(np.float64(1.0).view(np.uint64))


def series(name: str, **labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"__name__": name, **labels}.items()))


@pytest.mark.parametrize(
    "gone",
    [
        body(b"b 1\n"),
        body(b""),
        body(b"a 1\n", code=503),
        body(b"nonsense\na 1\n"),
        lambda handler: handler.connection.close(),
    ],
)
def test_a_series_that_vanishes_or_whose_page_is_down_gets_one_stale_marker(endpoint: Endpoint, gone: Answer) -> None:
    url, answers = endpoint
    answers.append(body(b"a 1\n"))
    source = ScrapeSource(ScrapeTarget("web", url), 5.0)
    assert stored(source.measure(1_000)) == {series("a"): ONE}
    answers[0] = gone
    found = source.measure(2_000)
    assert stored(found)[series("a")] == STALE
    assert {sample.ts_ms for sample in found} == {2_000}
    assert series("a") not in stored(source.measure(3_000))
    answers[0] = body(b"a 1\n")
    assert stored(source.measure(4_000))[series("a")] == ONE


@pytest.mark.parametrize(
    ("page", "labels"),
    [
        (b'# TYPE a histogram\na_bucket{le="1"} 1\n', series("a_bucket", le="1.0")),
        (b'# TYPE a histogram\na_bucket{le="0.50"} 1\n', series("a_bucket", le="0.5")),
        (b'# TYPE a histogram\na_bucket{le="1000000"} 1\n', series("a_bucket", le="1e+06")),
        (b'# TYPE a histogram\na_bucket{le="123456789"} 1\n', series("a_bucket", le="1.23456789e+08")),
        (b'# TYPE a histogram\na_bucket{le="1e-05"} 1\n', series("a_bucket", le="1e-05")),
        (b'# TYPE a histogram\na_bucket{le="-0"} 1\n', series("a_bucket", le="0.0")),
        (b'# TYPE a histogram\na_bucket{le="Inf"} 1\n', series("a_bucket", le="+Inf")),
        (b'# TYPE a histogram\na_bucket{le="nan"} 1\n', series("a_bucket", le="NaN")),
        (b'# TYPE a histogram\na_bucket{le="much"} 1\n', series("a_bucket", le="much")),
        (b'# TYPE a summary\na{quantile="1"} 1\n', series("a", quantile="1.0")),
        (b'# TYPE a summary\na{le="1"} 1\n', series("a", le="1")),
        (b'# TYPE a histogram\na{quantile="1"} 1\n', series("a", quantile="1")),
        (b'# TYPE a gauge\na_bucket{le="1"} 1\n', series("a_bucket", le="1")),
        (b'a_bucket{le="1"} 1\n', series("a_bucket", le="1")),
        (b'# TYPE a histogram\n# TYPE b gauge\na_bucket{le="1"} 1\n', series("a_bucket", le="1")),
    ],
)
def test_le_and_quantile_are_stored_as_floats_of_openmetrics(
    endpoint: Endpoint, page: bytes, labels: tuple[tuple[str, str], ...]
) -> None:
    url, answers = endpoint
    answers.append(body(page))
    source = ScrapeSource(ScrapeTarget("web", url), 5.0)
    assert stored(source.measure(1_000)) == {labels: ONE}
    answers[0] = body(b'a_bucket{le="1"} 1\n')  # The type of the last page does not last.
    assert series("a_bucket", le="1") in stored(source.measure(2_000))


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        (b'{"a.name"} 1', series("a.name")),
        (b'{"a.name","b c"="d"} 1', series("a.name", **{"b c": "d"})),
        ('{"日本",x="y"} 1'.encode(), series("日本", x="y")),
        (b'a{"b.c"="d",} 1', series("a", **{"b.c": "d"})),
    ],
)
@pytest.mark.parametrize("kind", ["text/plain; version=1.0.0", "application/openmetrics-text; version=1.0.0"])
def test_names_in_quotes_may_be_any_text(
    endpoint: Endpoint, line: bytes, labels: tuple[tuple[str, str], ...], kind: str
) -> None:
    url, answers = endpoint
    answers.append(body(line + b"\n# EOF\n", content_type=kind))
    assert stored(ScrapeSource(ScrapeTarget("web", url), 5.0).measure(1_000)) == {labels: ONE}


def test_of_two_samples_of_one_series_the_first_counts(endpoint: Endpoint) -> None:
    url, answers = endpoint
    answers.append(body(b'a{x="1",y="2"} 1\na{y="2",x="1"} 5\na{x="1",y="2"} 6 9000\na{x="1",y="2"} 7 9000\nup 4\n'))
    found = ScrapeSource(ScrapeTarget("web", url), 5.0).measure(1_000)
    of_a = [(sample.ts_ms, sample.value) for sample in found if metric_name(sample.canonical) == b"a"]
    assert of_a == [(1_000, 1.0), (9_000, 6.0)]
    assert [sample.value for sample in found if metric_name(sample.canonical) == b"up"] == [4.0]
    assert own(found)["scrape_samples_post_metric_relabeling"] == 5.0


def test_the_series_of_a_target_count_samples_and_new_series(endpoint: Endpoint) -> None:
    url, answers = endpoint
    answers.append(body(b"a 1\nb 1\n"))
    source = ScrapeSource(ScrapeTarget("web", url), 5.0)
    counts = []
    for page in (b"a 1\nb 1\n", b"a 1\n", b"a 1\nb 1\nc 1\n"):
        answers[0] = body(page)
        found = own(source.measure(1_000))
        counts.append((found["scrape_samples_scraped"], found["scrape_series_added"]))
    assert counts == [(2.0, 2.0), (1.0, 0.0), (3.0, 2.0)]


def test_the_page_is_asked_for_as_prometheus_asks(endpoint: Endpoint) -> None:
    url, answers = endpoint
    asked: list[dict[str, str]] = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(dict(handler.headers))
        body(b"a 1\n")(handler)

    answers.append(answer)
    ScrapeSource(ScrapeTarget("web", url), 2.5).measure(1_000)
    (headers,) = asked
    assert headers["Accept"].startswith("application/openmetrics-text;version=1.0.0")
    assert "text/plain;version=0.0.4" in headers["Accept"]
    low = {name.lower(): value for name, value in headers.items()}
    assert low["x-prometheus-scrape-timeout-seconds"] == "2.5"
    assert low["accept-encoding"] == "gzip"


@pytest.mark.slow
def test_a_gzip_bomb_costs_no_more_than_the_limit(endpoint: Endpoint) -> None:
    url, answers = endpoint
    bomb = gzip.compress(b"#" * (256 << 20), 9)

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(bomb)

    answers.append(answer)
    source = ScrapeSource(ScrapeTarget("web", url), 5.0, ScrapeRules(body_size_limit=1_000_000))
    assert own(source.measure(1_000))["up"] == 0.0
    assert "over 1000000 bytes" in (source.failure or "")


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        ({"sample_limit": 1}, "2 samples; sample_limit is 1"),
        ({"label_limit": 3}, "4 labels; label_limit is 3"),
        ({"label_name_length_limit": 10}, "label longer_name: 11 bytes; label_name_length_limit is 10"),
        ({"label_value_length_limit": 25}, "label longer_name: 30 bytes; label_value_length_limit is 25"),
        ({"body_size_limit": 10}, "over 10 bytes"),
    ],
)
def test_a_page_over_a_limit_is_a_failed_scrape_that_names_it(
    endpoint: Endpoint, rules: dict[str, Any], what: str
) -> None:
    url, answers = endpoint
    answers.append(body(b'a{longer_name="%s"} 1\nb 1\n' % (b"x" * 30)))
    source = ScrapeSource(ScrapeTarget("web", url), 5.0, replace(ScrapeRules(), **rules))
    found = source.measure(1_000)
    assert own(found)["up"] == 0.0
    assert stored(found) == {}
    assert what in (source.failure or "")


def test_a_job_with_too_many_targets_is_not_scraped() -> None:
    targets = [
        ScrapeTarget("web", "http://h:1/"),
        ScrapeTarget("web", "http://h:2/"),
        ScrapeTarget("db", "http://h:3/"),
    ]
    refused = refusals(targets, 1)
    assert refused == {"web": "job web has 2 targets; target_limit is 1, so none of them is scraped"}
    source = ScrapeSource(targets[0], 5.0, refusal=refused["web"])
    assert own(source.measure(1_000))["up"] == 0.0
    assert source.failure == refused["web"]
    assert refusals(targets, 2) == refusals(targets, 0) == {}
