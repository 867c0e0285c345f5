"""The Prometheus API over samples in memory: real sockets, and reads that a test can hold up."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from support.data.exemplars import One, exemplars_of
from tsdb.answer.spec import ReadOptions
from tsdb.api.prometheus.api import PrometheusApi
from tsdb.api.prometheus.call import ApiOptions, ApiSources, Families
from tsdb.codec.records.exemplar_record import Exemplars
from tsdb.index.cardinality import By
from tsdb.model.clock import ManualClock
from tsdb.model.errors import TsdbError
from tsdb.model.family import Family
from tsdb.model.labels import canonical_labels
from tsdb.model.selector import Matcher
from tsdb.ops.auth import Tokens
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.bodies import BodyRoutes, JoinedRoutes
from tsdb.ops.http.connections import HttpLimits
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.query.shadow.seen import AnswerObserver
from tsdb.reader.read_call import AnswerBytes, Caller
from tsdb.rules.memory import MemoryStorage, label_filter
from tsdb.rules.remote import RuleGroups
from tsdb.v1 import reader_pb2

NOW_MS = 1_435_781_451_781
FORM = {"content-type": "application/x-www-form-urlencoded"}
Labels = tuple[tuple[str, str], ...]


@dataclass
class Samples:
    """Samples in memory, and the reads of them.

    error: raised by each read. gate: each read waits for it, and `reading` is set then. options: the options of each
    request. threads: the thread of each storage. read_s: the CPU time of each read.
    """

    memory: MemoryStorage = field(default_factory=MemoryStorage)
    series: dict[Labels, list[tuple[int, float]]] = field(default_factory=dict)
    exemplars: dict[Labels, list[One]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    error: TsdbError | None = None
    gate: threading.Event | None = None
    reading: threading.Event = field(default_factory=threading.Event)
    options: list[ReadOptions] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    read_s: float = 0.0

    def add(self, labels: dict[str, str], samples: Sequence[tuple[int, float]]) -> None:
        key = tuple(sorted(labels.items()))
        self.memory.add(key, samples)
        self.series.setdefault(key, []).extend(samples)

    @contextmanager
    def open(self, caller: Caller, options: ReadOptions) -> Iterator[_Storage]:
        self.options.append(options)
        self.threads.append(threading.current_thread().name)
        yield _Storage(self, caller)


class _Storage:
    """A QueryStorage over samples in memory."""

    def __init__(self, samples: Samples, caller: Caller) -> None:
        self._samples = samples
        self._caller = caller

    @property
    def warnings(self) -> Sequence[str]:
        return self._samples.warnings

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        self._pass_gate()
        found = self._samples.memory.select(matchers, start_ms, end_ms)
        return replace(found, warnings=self._samples.warnings)

    def series(self, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None) -> list[bytes]:
        return [canonical_labels(labels) for labels in self._found(matchers, start_ms, end_ms)]

    def label_names(self, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None) -> list[str]:
        return sorted({name for labels in self._found(matchers, start_ms, end_ms) for name, _ in labels})

    def label_values(
        self, name: str, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None
    ) -> list[str]:
        found = self._found(matchers, start_ms, end_ms)
        return sorted({value for labels in found for one, value in labels if one == name})

    def exemplars(
        self, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None
    ) -> list[tuple[bytes, Exemplars]]:
        self._pass_gate()
        matches = label_filter(matchers)
        first, last = start_ms if start_ms is not None else -(1 << 62), end_ms if end_ms is not None else 1 << 62
        found = []
        for labels, exemplars in self._samples.exemplars.items():
            within = [one for one in exemplars if first <= one[1] <= last]
            if matches(labels) and within:
                found.append((canonical_labels(labels), exemplars_of(within)))
        return found

    def _found(self, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None) -> list[Labels]:
        self._pass_gate()
        matches = label_filter(matchers)
        first, last = start_ms if start_ms is not None else -(1 << 62), end_ms if end_ms is not None else 1 << 62
        return [
            labels
            for labels, samples in self._samples.series.items()
            if matches(labels) and any(first <= ts <= last for ts, _ in samples)
        ]

    def _pass_gate(self) -> None:
        samples = self._samples
        until = time.thread_time() + samples.read_s
        while time.thread_time() < until:
            pass
        gate = samples.gate  # A test may take the gate away in the middle.
        if gate is not None:
            ended = threading.Event()
            self._caller.add_callback(ended.set)
            samples.reading.set()
            while not gate.wait(0.005):
                left_s = self._caller.time_remaining()
                if ended.is_set() or (left_s is not None and left_s <= 0):
                    break
        if samples.error is not None:
            raise samples.error


@dataclass(frozen=True)
class Got:
    """An answer; names of headers in lower case."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        """The field `data`; the answer must be a success."""
        assert self.json["status"] == "success", self.body
        return self.json["data"]

    @property
    def failure(self) -> tuple[int, str, str]:
        """(status, errorType, error) of an error."""
        assert self.json["status"] == "error", self.body
        return self.status, self.json["errorType"], self.json["error"]


@dataclass
class ApiServer:
    """A server with the API over `samples`."""

    samples: Samples
    api: PrometheusApi
    server: OpsServer
    answers: AnswerBytes

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET", **parameters: Any) -> Got:
        """path: path below /api/v1/. parameters: the parameters of the URL, a list for one that comes several times;
        `match`: match[].
        """
        named = {"match[]" if name == "match" else name: value for name, value in parameters.items()}
        url = f"/api/v1/{path}" + (f"?{urlencode(named, doseq=True)}" if named else "")
        return self.send(method, url, None, headers or {})

    def post(self, path: str, **parameters: Any) -> Got:
        """parameters: the parameters of the form in the body."""
        named = {"match[]" if name == "match" else name: value for name, value in parameters.items()}
        return self.send("POST", f"/api/v1/{path}", urlencode(named, doseq=True).encode(), FORM)

    def send(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> Got:
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)) as connection:
            connection.request(method, url, body, headers)
            got = connection.getresponse()
            return Got(got.status, got.read(), {name.lower(): value for name, value in got.getheaders()})


def _no_cardinality(_caller: Caller, _by: By, _top: int) -> reader_pb2.CardinalityResponse:
    return reader_pb2.CardinalityResponse(groups_total=0)


@contextmanager
def api_server(
    options: ApiOptions = ApiOptions(),
    *,
    tokens: Tokens | None = None,
    limits: HttpLimits | None = None,
    families: dict[str, Family] | None = None,
    families_age_s: float | None = None,
    cardinality: Callable[[Caller, By, int], reader_pb2.CardinalityResponse] = _no_cardinality,
    answers: AnswerBytes | None = None,
    seen: AnswerObserver | None = None,
    beside: Callable[[PrometheusApi], BodyRoutes] | None = None,
    rule_groups: Callable[[], Sequence[dict[str, Any]]] = list,
    rule_others: Sequence[tuple[str, str]] | None = None,
    rule_warnings: Sequence[str] = (),
    alertmanagers: Sequence[str] = (),
    asks_rulers: bool = False,
    settings: Mapping[str, Any] = MappingProxyType({}),
    tries: bool = False,
) -> Iterator[ApiServer]:
    """beside: makes further routes of the server. settings: beside the usual ones. tries: whether queries are tried on
    the event loop's thread."""
    samples, memory = Samples(), answers or AnswerBytes()
    sources = ApiSources(
        open_storage=samples.open,
        families=lambda: Families(families or {}, families_age_s),
        cardinality=cardinality,
        settings=lambda: {
            "log": "sqlite:///x",
            "drain_s": 25.0,
            "store_tls": False,
            "token": None,
            "names": ["a", "b"],
            **settings,
        },
        clock=ManualClock(NOW_MS),
        answers=memory,
        seen=seen,
        rule_groups=lambda: RuleGroups(rule_groups(), rule_others, rule_warnings, alertmanagers),
        asks_rulers=asks_rulers,
        open_small=samples.open if tries else None,
    )
    api = PrometheusApi(sources, options, RequestBytes(64 << 20))
    bodies = JoinedRoutes((api,) if beside is None else (api, beside(api)))
    with serve_ops("127.0.0.1", 0, Readiness, Liveness, bodies=bodies, tokens=tokens, limits=limits) as server:
        api.start()
        yield ApiServer(samples, api, server, memory)
        if samples.gate is not None:
            samples.gate.set()
        api.close()
        assert api.join(10.0), "a request did not end"
