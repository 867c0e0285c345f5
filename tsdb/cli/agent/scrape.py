"""Scraping: a Prometheus text endpoint, read as Prometheus does: job and instance added, `up` told in any case."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from urllib.parse import urlsplit

from tsdb.cli.agent.sample import Measured
from tsdb.cli.samples.exposition import ExpositionParser
from tsdb.model.errors import InvalidRequest, TsdbError, Unavailable
from tsdb.model.labels import canonical_labels

BODY_BYTES_MAX = 64 << 20
READ_BYTES = 64 << 10
DEFAULT_JOB = "scrape"
ACCEPT = "text/plain;version=0.0.4"

_TARGET = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_.-]*)=)?(https?://.+)")


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint."""

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
    try:
        if match and urlsplit(match[2]).hostname and (urlsplit(match[2]).port or 1):
            return Target(match[1] or DEFAULT_JOB, match[2])
    except ValueError:
        pass  # A port that is no number.
    raise InvalidRequest(f"{text!r} is not [JOB=]URL with an http or https URL", reason="bad_target")


class ScrapeSource:
    """One endpoint, scraped when asked. `failure` says why the last scrape failed; None: it did not."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        self.target = target
        self.failure: str | None = None
        self._timeout_s = timeout_s
        self._labels = {"job": target.job, "instance": target.instance}
        self._parser = ExpositionParser(self._labels)
        # A target is named by its address; a proxy from the environment would scrape something else.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def measure(self, now_ms: int) -> list[Measured]:
        """What is exposed, all or nothing; and up, scrape_duration_seconds, scrape_samples_scraped in any case."""
        began = time.monotonic()
        try:
            found = self._parse(self._fetch(began + self._timeout_s), now_ms)
            self.failure = None
        except TsdbError as error:
            found, self.failure = [], error.message
        told = {
            "up": float(self.failure is None),
            "scrape_duration_seconds": time.monotonic() - began,
            "scrape_samples_scraped": float(len(found)),
        }
        for name, value in told.items():
            found.append(Measured(canonical_labels({"__name__": name, **self._labels}), now_ms, value))
        return found

    def _fetch(self, give_up_at: float) -> bytes:
        request = urllib.request.Request(self.target.url, headers={"Accept": ACCEPT})
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return self._read(answer, give_up_at)
        except urllib.error.HTTPError as error:
            with error:
                raise Unavailable(f"{self.target.url} answers {error.code}", reason="scrape_status") from None
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{self.target.url}: {error}", reason="scrape_failed") from None

    def _read(self, answer: http.client.HTTPResponse, give_up_at: float) -> bytes:
        # The socket's timeout bounds each read only: an endpoint that drips must not hold us for ever.
        body = bytearray()
        while part := answer.read1(READ_BYTES):
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise Unavailable(f"{self.target.url}: over {BODY_BYTES_MAX} bytes", reason="scrape_too_large")
            if time.monotonic() > give_up_at:
                raise Unavailable(f"{self.target.url}: not whole in {self._timeout_s:g} s", reason="scrape_timeout")
        return bytes(body)

    def _parse(self, body: bytes, now_ms: int) -> list[Measured]:
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{self.target.url}: not UTF-8: {error}", reason="bad_input") from None
        found = []
        for number, line in enumerate(text.split("\n"), start=1):
            sample = self._parser.parse(line, f"{self.target.url}, line {number}")
            if sample is not None:
                ts_ms = now_ms if sample.ts_ms is None else sample.ts_ms
                found.append(Measured(sample.canonical, ts_ms, sample.value))
        return found
