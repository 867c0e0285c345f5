"""Scraping of a Prometheus text endpoint, as Prometheus does it: adds job and instance, and always writes `up`."""

from __future__ import annotations

import http.client
import io
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tsdb.cli.agent.outage import Outage
from tsdb.cli.agent.sample import Measured
from tsdb.cli.samples.dialect import END, Dialect, dialect_of_page
from tsdb.cli.samples.exposition import LINE_BYTES_MAX, ExpositionParser
from tsdb.model.errors import InvalidRequest, TsdbError, Unavailable
from tsdb.model.labels import canonical_labels

BODY_BYTES_MAX = 64 << 20  # Twice the size of a large kube-state-metrics page.
SAMPLES_MAX = 200_000  # Of one page: 60 MB of objects. BODY_BYTES_MAX alone would allow eighty times as many.
LINES_A_CHECK = 256  # Lines between two checks of the clock. A line takes some microseconds, and 70 ms at worst.
READ_BYTES = 64 << 10
DEFAULT_JOB = "scrape"
# Prefers the text format: most exporters then keep their names and need no second pass.
ACCEPT = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5"

_TARGET = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_.-]*)=)?(https?://.+)")


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint to scrape."""

    job: str
    url: str

    @property
    def instance(self) -> str:
        """Host and port of the URL, without credentials."""
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{parts.hostname}:{port}"


def parse_target(text: str) -> Target:
    """[JOB=]URL. Raises InvalidRequest (bad_target)."""
    match = _TARGET.fullmatch(text)
    if match and "@" in match[2].split("/", 3)[2]:
        raise InvalidRequest(
            "a target's URL holds a user or password, which process lists and logs would show; an endpoint that wants "
            "them cannot be scraped",
            reason="bad_target",
        )
    try:
        if match and urlsplit(match[2]).hostname and (urlsplit(match[2]).port or 1):
            return Target(match[1] or DEFAULT_JOB, match[2])
    except ValueError:
        pass  # A port that is no number.
    raise InvalidRequest(f"{text!r} is not [JOB=]URL with an http or https URL", reason="bad_target")


class ScrapeSource:
    """Scrapes one endpoint. `failure`: cause of the last scrape's failure; None after a success."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        self.target = target
        self.failure: str | None = None
        self._outage = Outage("target down", "target is back", target=target.url)
        self._timeout_s = timeout_s
        self._labels = {"job": target.job, "instance": target.instance}
        self._parser = ExpositionParser(self._labels)
        self._opener = _opener()

    def measure(self, now_ms: int) -> list[Measured]:
        """Samples of the page (none after a failure), and up, scrape_duration_seconds, scrape_samples_scraped."""
        began = time.monotonic()
        give_up_at = began + self._timeout_s
        try:
            found = self._parse(*self._fetch(give_up_at), now_ms, give_up_at)
            self.failure = None
        except TsdbError as error:
            found, self.failure = [], error.message
        self._outage.saw(self.failure)
        own = {
            "up": float(self.failure is None),
            "scrape_duration_seconds": time.monotonic() - began,
            "scrape_samples_scraped": float(len(found)),
        }
        return found + [self._own(name, value, now_ms) for name, value in own.items()]

    def missed(self, now_ms: int) -> list[Measured]:
        """`up` 0: the target did not answer in time."""
        self._outage.saw(f"{self.target.url}: still at an earlier scrape, after more than {self._timeout_s:g} s")
        return [self._own("up", 0.0, now_ms)]

    def _own(self, name: str, value: float, now_ms: int) -> Measured:
        return Measured(canonical_labels({"__name__": name, **self._labels}), now_ms, value)

    def _fetch(self, give_up_at: float) -> tuple[bytes, str]:
        """The page and its content type."""
        request = urllib.request.Request(self.target.url, headers={"Accept": ACCEPT})
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return self._read(answer, give_up_at), answer.headers.get("Content-Type", "")
        except urllib.error.HTTPError as error:
            with error:
                raise Unavailable(f"{self.target.url} answers {error.code}", reason="scrape_status") from None
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a redirect to a bad URL.
            why = error.reason if isinstance(error, urllib.error.URLError) else error
            raise Unavailable(f"{self.target.url}: {why}", reason="scrape_failed") from None

    def _read(self, answer: http.client.HTTPResponse, give_up_at: float) -> bytes:
        # The socket's timeout bounds only each single read. A slow endpoint must not hold the thread for ever.
        body = bytearray()
        while part := answer.read1(READ_BYTES):
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise Unavailable(f"{self.target.url}: over {BODY_BYTES_MAX} bytes", reason="scrape_too_large")
            self._check_time(give_up_at)
        if answer.length:
            raise Unavailable(
                f"{self.target.url}: the page was cut short, {answer.length} bytes are missing", reason="scrape_cut"
            )
        return bytes(body)

    def _parse(self, page: bytes, content_type: str, now_ms: int, give_up_at: float) -> list[Measured]:
        dialect = dialect_of_page(content_type, page)
        if dialect is Dialect.OPENMETRICS and not page.rstrip().endswith(END.encode()):
            raise InvalidRequest(f"{self.target.url}: no {END} at its end: the page was cut short", reason="bad_input")
        found: list[Measured] = []
        for number, line in enumerate(io.BytesIO(page), start=1):
            # The page may be anything, so the timeout also bounds its parsing.
            if number % LINES_A_CHECK == 0 or len(line) > LINES_A_CHECK:
                self._check_time(give_up_at)
            place = f"{self.target.url}, line {number}"
            sample = self._parser.parse(_text(line, place), place, dialect)
            if sample is None:
                continue
            if len(found) == SAMPLES_MAX:
                raise Unavailable(f"{self.target.url}: over {SAMPLES_MAX} samples", reason="scrape_too_large")
            found.append(Measured(sample.canonical, now_ms if sample.ts_ms is None else sample.ts_ms, sample.value))
        return found

    def _check_time(self, give_up_at: float) -> None:
        if time.monotonic() > give_up_at:
            raise Unavailable(f"{self.target.url}: not whole in {self._timeout_s:g} s", reason="scrape_timeout")


def _opener() -> urllib.request.OpenerDirector:
    """An opener for HTTP and HTTPS with redirects only: no files, no FTP, no proxy from the environment."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Also closes the answer when a redirect has no valid URL."""

    def http_error_302(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _text(line: bytes, place: str) -> str:
    if len(line) > LINE_BYTES_MAX:
        raise InvalidRequest(f"{place}: longer than {LINE_BYTES_MAX} bytes", reason="bad_input")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{place}: not UTF-8: {error}", reason="bad_input") from None
