"""Scrapes a Prometheus endpoint by Prometheus's rules.

A page counts as a whole or not at all. Every sample gets job and instance, a series that vanishes gets a stale marker,
and `up` and the `scrape_*` series of the target are always written. docs/agent.md lists the differences.
"""

from __future__ import annotations

import http.client
import io
import re
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tsdb.cli.agent.outage import Outage
from tsdb.cli.agent.sample import Measured, Staleness
from tsdb.cli.samples import protobuf
from tsdb.cli.samples.exposition import (
    END,
    LINE_BYTES_MAX,
    Dialect,
    ExposedExemplar,
    ExposedSample,
    ExpositionParser,
    dialect_of_page,
)
from tsdb.client import Exemplar
from tsdb.model.errors import InvalidRequest, TsdbError, Unavailable
from tsdb.model.labels import canonical_labels, parse_labels

BODY_BYTES_MAX = 64 << 20  # Twice the size of a large page of kube-state-metrics.
# Samples of one page, which take 60 MB as objects. BODY_BYTES_MAX alone would allow eighty times this number.
SAMPLES_MAX = 200_000
LINES_A_CHECK = 256  # Lines between two checks of the clock. A line takes some microseconds, and 70 ms at worst.
READ_BYTES = 64 << 10
DEFAULT_JOB = "scrape"
# The formats that Prometheus asks for, without protobuf, in its order.
ACCEPT = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)

# With native histograms protobuf comes first, as in Prometheus with scrape_native_histograms.
ACCEPT_NATIVE = f"{protobuf.ACCEPT};q=0.6,{ACCEPT}"

_TARGET = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_.-]*)=)?(https?://.+)")


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One endpoint to scrape."""

    job: str
    url: str

    @property
    def instance(self) -> str:
        """Host and port of the URL, without credentials."""
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{parts.hostname}:{port}"


def parse_target(text: str) -> ScrapeTarget:
    """Parse [JOB=]URL. Raises InvalidRequest (bad_target)."""
    match = _TARGET.fullmatch(text)
    if match and "@" in match[2].split("/", 3)[2]:
        raise InvalidRequest(
            "a target's URL holds a user or password, which process lists and logs would show; an endpoint that wants "
            "them cannot be scraped",
            reason="bad_target",
        )
    try:
        if match and urlsplit(match[2]).hostname and (urlsplit(match[2]).port or 1):
            return ScrapeTarget(match[1] or DEFAULT_JOB, match[2])
    except ValueError:
        pass  # The port is not a number.
    raise InvalidRequest(f"{text!r} is not [JOB=]URL with an http or https URL", reason="bad_target")


@dataclass(frozen=True, slots=True)
class ScrapeRules:
    """Options of scrapes with the names and meanings of Prometheus's scrape_config. 0 removes a limit.

    honor_labels: labels of a page win over job and instance. honor_timestamps: times of a page are kept. sample_limit:
    samples of a page. label_limit: labels of a series, with its name, job and instance; the length limits are in bytes.
    body_size_limit: bytes of a page, unpacked. target_limit: targets of a job. A page over a limit is a failed scrape.
    native_histograms: ask for the protobuf format, which has native histograms and start timestamps.
    """

    honor_labels: bool = False
    honor_timestamps: bool = True
    sample_limit: int = 0
    label_limit: int = 0
    label_name_length_limit: int = 0
    label_value_length_limit: int = 0
    body_size_limit: int = 0
    target_limit: int = 0
    native_histograms: bool = False


@dataclass(slots=True)
class _Page:
    """Content of a page, up to the last line that was read.

    scraped: samples of the page. kept: samples to store, without those that repeat a series at the same time. fading:
    series to which the page gives no time; they get a stale marker once they vanish. seen: all series. added: series
    that the scrapes before did not have. failure: why the page does not count.

    """

    scraped: int = 0
    accepted: int = 0
    added: int = 0
    kept: list[Measured] = field(default_factory=list)
    fading: set[bytes] = field(default_factory=set)
    timed: set[tuple[bytes, int]] = field(default_factory=set)
    seen: set[bytes] = field(default_factory=set)
    failure: str | None = None


class ScrapeSource:
    """Scrapes one endpoint. `failure`: cause of the last scrape's failure; None after a success.

    refusal: why this target is not scraped at all; each of its scrapes then fails.
    """

    def __init__(
        self, target: ScrapeTarget, timeout_s: float, rules: ScrapeRules | None = None, *, refusal: str | None = None
    ) -> None:
        self.target = target
        self.failure: str | None = None
        self._refusal = refusal
        self._rules = rules or ScrapeRules()
        self._outage = Outage("target down", "target is back", target=target.url)
        self._timeout_s = timeout_s
        self._labels = {"job": target.job, "instance": target.instance}
        self._parser = ExpositionParser(self._labels, honor_labels=self._rules.honor_labels, as_scraped=True)
        self._staleness = Staleness()
        self._known: set[bytes] = set()  # Series of the last good scrape, and of failed scrapes since then.
        self._within_limits: set[bytes] = set()
        self._untimed: dict[bytes, ExposedExemplar] = {}  # The last exemplar without a time of each series.
        self._opener = _opener()

    def measure(self, now_ms: int) -> list[Measured]:
        """Samples of the page (none after a failure), stale markers of series that vanished, and the target's series:
        up, scrape_duration_seconds, scrape_samples_scraped, scrape_samples_post_metric_relabeling,
        scrape_series_added.
        """
        began = time.monotonic()
        page = self._scrape(now_ms, began + self._timeout_s)
        self.failure = page.failure
        self._outage.saw(page.failure)
        # As in Prometheus, the series after a failed or empty page do not count as new.
        self._known = page.seen if page.failure is None and page.scraped else self._known | page.seen
        if page.failure is None:
            found = page.kept + self._staleness.round(page.fading, now_ms)
        else:
            # As in Prometheus, series that a failed page names before its fault are still present.
            found = self._staleness.round(page.fading & self._staleness.present, now_ms)
        own = {
            "up": float(page.failure is None),
            "scrape_duration_seconds": time.monotonic() - began,
            "scrape_samples_scraped": float(page.scraped),
            "scrape_samples_post_metric_relabeling": float(page.accepted),
            "scrape_series_added": float(page.added),
        }
        # A page may contain these series; the first sample of a time counts.
        stored = page.fading if page.failure is None else ()
        mine = (self._own(name, value, now_ms) for name, value in own.items())
        return found + [sample for sample in mine if sample.canonical not in stored]

    def missed(self, now_ms: int) -> list[Measured]:
        """`up` 0: the target did not answer in time."""
        self._outage.saw(f"{self.target.url}: still at an earlier scrape, after more than {self._timeout_s:g} s")
        return [self._own("up", 0.0, now_ms)]

    def _own(self, name: str, value: float, now_ms: int) -> Measured:
        return Measured(canonical_labels({"__name__": name, **self._labels}), now_ms, value)

    def _scrape(self, now_ms: int, give_up_at: float) -> _Page:
        page = _Page()
        try:
            if self._refusal is not None:
                raise InvalidRequest(self._refusal, reason="target_limit")
            self._read_page(page, *self._fetch(give_up_at), now_ms, give_up_at)
        except TsdbError as error:
            page.failure = error.message
        return page

    def _fetch(self, give_up_at: float) -> tuple[bytes, str]:
        """The page and its content type."""
        headers = {
            "Accept": ACCEPT_NATIVE if self._rules.native_histograms else ACCEPT,
            "Accept-Encoding": "gzip",
            "User-Agent": "kafka-tsdb-agent",
            "X-Prometheus-Scrape-Timeout-Seconds": f"{self._timeout_s:g}",
        }
        request = urllib.request.Request(self.target.url, headers=headers)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                if answer.status != http.HTTPStatus.OK:
                    raise Unavailable(f"{self.target.url} answers {answer.status}", reason="scrape_status")
                return self._read(answer, give_up_at), answer.headers.get("Content-Type", "")
        except urllib.error.HTTPError as error:
            with error:
                raise Unavailable(f"{self.target.url} answers {error.code}", reason="scrape_status") from None
        except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:  # ValueError: a bad redirect.
            why = error.reason if isinstance(error, urllib.error.URLError) else error
            raise Unavailable(f"{self.target.url}: {why}", reason="scrape_failed") from None

    def _read(self, answer: http.client.HTTPResponse, give_up_at: float) -> bytes:
        # The socket's timeout bounds only each single read. A slow endpoint must not hold the thread for ever.
        body = bytearray()
        packed = answer.headers.get("Content-Encoding", "").strip().lower() == "gzip"
        unpacking = zlib.decompressobj(wbits=31) if packed else None
        limit = min(BODY_BYTES_MAX, self._rules.body_size_limit or BODY_BYTES_MAX)
        while part := answer.read1(READ_BYTES):
            body += part if unpacking is None else unpacking.decompress(part, limit + 1 - len(body))
            if len(body) > limit:
                raise Unavailable(f"{self.target.url}: over {limit} bytes", reason="scrape_too_large")
            self._check_time(give_up_at)
        if answer.length:
            raise Unavailable(
                f"{self.target.url}: the page was cut short, {answer.length} bytes are missing", reason="scrape_cut"
            )
        if unpacking is not None and not unpacking.eof:
            raise Unavailable(f"{self.target.url}: the page was cut short within its gzip", reason="scrape_cut")
        return bytes(body)

    def _read_page(self, page: _Page, body: bytes, content_type: str, now_ms: int, give_up_at: float) -> None:
        """Add the samples of the page. Raises InvalidRequest or Unavailable, with what was read before in `page`."""
        if protobuf.is_protobuf(content_type):
            found = protobuf.protobuf_samples(body, self._parser, self.target.url)
            for number, (sample, place) in enumerate(found, start=1):
                if number % LINES_A_CHECK == 0:
                    self._check_time(give_up_at)
                self._add(page, sample, now_ms, place)
        else:
            self._read_text(page, body, content_type, now_ms, give_up_at)
        limit = self._rules.sample_limit
        if limit and len(page.kept) > limit:
            raise InvalidRequest(
                f"{self.target.url}: {len(page.kept)} samples; sample_limit is {limit}", reason="sample_limit"
            )

    def _read_text(self, page: _Page, body: bytes, content_type: str, now_ms: int, give_up_at: float) -> None:
        dialect = dialect_of_page(content_type, body)
        self._parser.begin_page()
        ended = False
        for number, line in enumerate(io.BytesIO(body), start=1):
            # The page may be anything, so the timeout also bounds its parsing.
            if number % LINES_A_CHECK == 0 or len(line) > LINES_A_CHECK:
                self._check_time(give_up_at)
            place = f"{self.target.url}, line {number}"
            text = _text(line, place)
            if ended:
                raise InvalidRequest(f"{place}: a line after {END}", reason="bad_input")
            ended = dialect is Dialect.OPENMETRICS and text.removesuffix("\n") == END
            sample = self._parser.parse(text, place, dialect)
            if sample is not None:
                self._add(page, sample, now_ms, place)
        if dialect is Dialect.OPENMETRICS and not ended:
            raise InvalidRequest(f"{self.target.url}: no {END} at its end: the page was cut short", reason="bad_input")

    def _add(self, page: _Page, sample: ExposedSample, now_ms: int, place: str) -> None:
        page.scraped += 1
        if page.scraped > SAMPLES_MAX:
            raise Unavailable(f"{self.target.url}: over {SAMPLES_MAX} samples", reason="scrape_too_large")
        canonical = sample.canonical
        self._check_labels(canonical, place)
        page.accepted += 1
        within = not self._rules.sample_limit or len(page.kept) < self._rules.sample_limit
        page.added += within and canonical not in self._known and canonical not in page.seen
        page.seen.add(canonical)
        if sample.ts_ms is None or not self._rules.honor_timestamps:
            # The first sample of a series and time counts.
            if canonical not in page.fading:
                page.fading.add(canonical)
                page.kept.append(self._measured(sample, now_ms))
        elif (canonical, sample.ts_ms) not in page.timed:
            page.timed.add((canonical, sample.ts_ms))
            page.kept.append(self._measured(sample, sample.ts_ms))

    def _measured(self, sample: ExposedSample, ts_ms: int) -> Measured:
        exemplars = tuple(self._exemplars(sample, ts_ms))
        return Measured(sample.canonical, ts_ms, sample.value, exemplars, sample.start_ms, sample.histogram)

    def _exemplars(self, sample: ExposedSample, ts_ms: int) -> Iterator[Exemplar]:
        """The exemplars of a sample at ts_ms, which is their time when the page gives none. Left out: one without a
        time that the page had before, because it would come anew with each scrape."""
        for found in sample.exemplars:
            if found.ts_ms is not None:
                yield Exemplar(found.labels, found.value, found.ts_ms)
            elif self._untimed.get(sample.canonical) != found:
                if len(self._untimed) >= SAMPLES_MAX:
                    self._untimed.clear()
                self._untimed[sample.canonical] = found
                yield Exemplar(found.labels, found.value, ts_ms)

    def _check_labels(self, canonical: bytes, place: str) -> None:
        """Raise InvalidRequest for a series over a limit of labels."""
        rules = self._rules
        if not (rules.label_limit or rules.label_name_length_limit or rules.label_value_length_limit):
            return
        if canonical in self._within_limits:
            return
        labels = list(parse_labels(canonical))
        if rules.label_limit and len(labels) > rules.label_limit:
            raise _over(place, f"{len(labels)} labels", "label_limit", rules.label_limit)
        for name, value in labels:
            for text, name_of_limit, limit in (
                (name, "label_name_length_limit", rules.label_name_length_limit),
                (value, "label_value_length_limit", rules.label_value_length_limit),
            ):
                size = len(text.encode())
                if limit and size > limit:
                    raise _over(place, f"label {name}: {size} bytes", name_of_limit, limit)
        if len(self._within_limits) >= SAMPLES_MAX:
            self._within_limits.clear()
        self._within_limits.add(canonical)

    def _check_time(self, give_up_at: float) -> None:
        if time.monotonic() > give_up_at:
            raise Unavailable(f"{self.target.url}: not whole in {self._timeout_s:g} s", reason="scrape_timeout")


def refusals(targets: Iterable[ScrapeTarget], limit: int) -> dict[str, str]:
    """The reason why no target of a job is scraped, by job with more targets than target_limit, as in Prometheus."""
    counts: dict[str, int] = {}
    for target in targets:
        counts[target.job] = counts.get(target.job, 0) + 1
    return {
        job: f"job {job} has {count} targets; target_limit is {limit}, so none of them is scraped"
        for job, count in counts.items()
        if limit and count > limit
    }


def _over(place: str, found: str, limit_name: str, limit: int) -> InvalidRequest:
    return InvalidRequest(f"{place}: {found}; {limit_name} is {limit}", reason=limit_name)


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
    """Follows redirects. It also closes the answer when a redirect has no valid URL."""

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
