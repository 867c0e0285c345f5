"""A scrape is whole or not at all, bounded in time and size, and `up` says which."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator

import pytest

from tsdb.cli.agent import scrape
from tsdb.cli.agent.sample import Measured
from tsdb.cli.agent.scrape import ScrapeSource, Target, parse_target
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import metric_name, parse_labels

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


def own(samples: list[Measured]) -> dict[str, float]:
    return {metric_name(sample.canonical).decode(): sample.value for sample in samples}


def test_samples_carry_job_and_instance_and_keep_their_own_time(endpoint: Endpoint) -> None:
    url, answers = endpoint
    answers.append(body(b'# TYPE hits counter\nhits 3\nold{a="b"} 4 123\n'))
    found = ScrapeSource(Target("web", url), 5.0).measure(1_000)
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
    source = ScrapeSource(Target("web", url), 5.0)
    found = own(source.measure(1_000))
    assert set(found) == {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
    assert (found["up"], found["scrape_samples_scraped"]) == (0.0, 0.0)
    assert source.failure is not None
    assert what in source.failure
    answers[0] = body(b"")
    assert own(source.measure(2_000))["up"] == 1.0
    assert source.failure is None


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
    source = ScrapeSource(Target("web", url), 5.0)
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
    source = ScrapeSource(Target("web", url), 0.2)
    found = own(source.measure(1_000))
    released.set()
    assert found["up"] == 0.0
    assert 0.2 <= found["scrape_duration_seconds"] < 2.0


def test_a_page_whose_parsing_takes_too_long_costs_one_timeout(endpoint: Endpoint) -> None:
    url, answers = endpoint
    # 60 KB of commas in labels take the library 60 ms a line.
    answers.append(body(b"".join(b'a{x="%d"%s} 1\n' % (n, b", " * 30_000) for n in range(100))))
    source = ScrapeSource(Target("web", url), 0.3)
    found = own(source.measure(1_000))
    assert found["up"] == 0.0
    assert 0.3 <= found["scrape_duration_seconds"] < 2.0
    assert "not whole in 0.3 s" in (source.failure or "")


def test_openmetrics_is_read_as_such(endpoint: Endpoint) -> None:
    url, answers = endpoint
    answers.append(body(b'a_total 3 1.5 # {t="x"} 1\n# EOF\n', content_type="application/openmetrics-text"))
    [sample, *_] = ScrapeSource(Target("web", url), 5.0).measure(1_000)
    assert (metric_name(sample.canonical), sample.ts_ms, sample.value) == (b"a_total", 1500, 3.0)


def test_a_round_that_is_missed_is_up_0() -> None:
    assert own(ScrapeSource(Target("web", "http://h/"), 5.0).missed(7)) == {"up": 0.0}


def test_nobody_listening_is_up_0() -> None:
    assert own(ScrapeSource(Target("web", "http://127.0.0.1:1/metrics"), 1.0).measure(0))["up"] == 0.0


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("http://h:9100/metrics", Target("scrape", "http://h:9100/metrics")),
        ("node=https://h/metrics?a=b", Target("node", "https://h/metrics?a=b")),
    ],
)
def test_a_target_is_a_url_with_or_without_a_job(text: str, target: Target) -> None:
    assert parse_target(text) == target


def test_the_instance_is_host_and_port_without_credentials() -> None:
    assert Target("j", "https://user:secret@h/metrics").instance == "h:443"
    assert Target("j", "http://h:81/").instance == "h:81"


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
