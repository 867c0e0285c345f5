"""Builds a ruler from its settings: alone, over stores and history, or beside the store of its process.

Its writes take the pipeline of a gateway in this process.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingest.gateway import Gateway
from ingest.pipeline import RecordToken
from ingest.rows import make_rows
from tsdb.answer.spec import ReadOptions, SelectSpec
from tsdb.config import RulerSettings, StandaloneSettings
from tsdb.config.ruler import RulerFields
from tsdb.log.interface import Log
from tsdb.model.clock import SystemClock
from tsdb.model.details import SampleDetails, value_columns
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.model.histograms import InvalidHistogram, count_errors
from tsdb.model.labels import canonical_labels, parse_labels, series_id
from tsdb.model.placement import PlacementRule
from tsdb.ops.http.bodies import JoinedRoutes
from tsdb.ops.lifecycle import Component, Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.watched_file import WatchedFile
from tsdb.query.promql.running import RunningQueries
from tsdb.query.promql.storage import QuerierStorage
from tsdb.query.reporter import partitions_health
from tsdb.query.select import SelectRead
from tsdb.query.sources import Sources
from tsdb.reader.read_call import ReadCall, ReadCalls, SelectLimits
from tsdb.roles.gateway import make_gateway
from tsdb.roles.log import LogComponent, connected, topic_watch
from tsdb.roles.process import Opened
from tsdb.roles.promql import prometheus_api, query_options
from tsdb.roles.querier import open_sources
from tsdb.roles.servers import read_calls
from tsdb.roles.ui import ui_routes
from tsdb.rules.alerts import Labels
from tsdb.rules.completeness import LogCompleteness
from tsdb.rules.document import DocumentError
from tsdb.rules.files import RuleFile, load_rules
from tsdb.rules.follower import LogFollower
from tsdb.rules.groups import RuleSample
from tsdb.rules.notifier import AlertmanagerAccess, Notifier
from tsdb.rules.placement import Partitions, RulePlacement
from tsdb.rules.remote import RuleGroups
from tsdb.rules.ruler import Ruler, RuleRead, RulerOptions, RulerPorts, WrittenResults
from tsdb.rules.shares import GroupShares, Shares
from tsdb.rules.view import shown_groups
from tsdb.store.store import Store

WRITE_S = 30.0  # Longest time until the log has the samples of a group, and readers show them.
LOOK_S = 1.0  # Between two looks whether a rule file has changed.
SHORT = ReadOptions(allow_stale=True, allow_holes=True)
SAMPLES_MAX = 50_000  # Samples of one write; a larger group takes several.

_bad_files = counter("tsdb_ruler_bad_files_total", "Changes of rule files that were not taken, because of a problem.")

log = get_logger(__name__)


Contain = Callable[[Mapping[int, int], ReadCall], Sequence[RecordToken]]
"""Makes a read contain records, by partition: waits for them, or returns tokens for the read."""


def open_ruler(settings: RulerSettings) -> Opened:
    """A ruler process. Raises Unavailable while log or history does not answer, ConfigMismatch when settings differ, or
    for a rule file that cannot be read."""
    with connected(settings) as log_:
        return _opened(settings, log_)


def _opened(settings: RulerSettings, log_: Log) -> Opened:
    read = open_sources(settings, log_)
    gateway, calls = make_gateway(settings, log_), read_calls(settings)
    topic_id = read.sources.topic_id

    def contain(records: Mapping[int, int], call: ReadCall) -> Sequence[RecordToken]:
        return [RecordToken(topic_id, number, offset) for number, offset in records.items()]

    ruler = make_ruler(settings, log_, gateway, read.sources, calls, contain, GroupShares(log_))
    running = RunningQueries()
    api = prometheus_api(settings, read.sources, calls, running, log_, rule_groups=rule_groups(ruler))
    reading: list[Component] = [LogComponent(log_), *read.components]
    components = [*reading, gateway, calls.drain, api, topic_watch(settings, log_), *ruler.notifiers, ruler]
    pages = ui_routes(settings, "ruler", read.sources, api)
    return Opened(
        components,
        lambda: partitions_health(read.sources),
        log_.stalled,
        gateway.problem,
        bodies=JoinedRoutes((api, pages)),
    )


def contain_applied(store: Store) -> Contain:
    """Waits until the store of this process has the records: its memory answers a read without tokens at once."""

    def contain(records: Mapping[int, int], call: ReadCall) -> Sequence[RecordToken]:
        store.applied.wait_for(store.partitions, records, call.time_remaining(), call.check_going)
        return ()

    return contain


def make_ruler(
    settings: RulerSettings | StandaloneSettings,
    log_: Log,
    gateway: Gateway,
    sources: Sources,
    calls: ReadCalls,
    contain: Contain,
    shares: Shares,
) -> Ruler:
    """The ruler of these rule files. Raises ConfigMismatch for a file that cannot be read."""
    clock = SystemClock()
    files = [
        WatchedFile(Path(name), _reader(settings), clock, look_every_s=LOOK_S, on_failure=_bad_files.inc)
        for name in settings.rules
    ]
    grace_ms = round(settings.rules_grace_s * 1000)
    follower = LogFollower(log_, list(sources.partitions))
    completeness = LogCompleteness(log_, follower.partitions, follower.position, grace_ms, clock)
    caller = RulerCaller()
    limits = SelectLimits(settings.select_series_max, settings.select_samples_max, settings.select_bytes_max)
    options = query_options(settings)

    @contextmanager
    def open_read(after: Mapping[int, int] | None, partitions: Partitions) -> Iterator[RuleRead]:
        with calls.of(caller) as call:
            accepted = SHORT if after is None else ReadOptions(contain(after, call))
            if partitions is not None:
                accepted = replace(accepted, partitions=sorted(partitions))
            storage = QuerierStorage(sources, limits, call, accepted)
            yield RuleRead(storage, replace(options, hold=call.hold_values, check=call.check_going))

    def labels(
        ids: NDArray[np.uint64], partition: int, first_ms: int, last_ms: int, after: Mapping[int, int]
    ) -> dict[int, Labels]:
        with calls.of(caller) as call:
            tokens = contain(after, call)
            return labels_of_series(sources, limits, call, ids, (first_ms, last_ms), tokens, (partition,))

    ports = RulerPorts(
        lambda: [file.now() for file in files],
        open_read,
        completeness.missing,
        _writer(gateway),
        follower,
        labels,
        clock,
        shares,
        make_notifier(settings),
        RulePlacement(PlacementRule(settings.placement_labels), len(sources.partitions)),
    )
    ruler = Ruler(
        ports,
        RulerOptions(
            query_offset_ms=round(settings.rules_query_offset_s * 1000),
            grace_ms=grace_ms,
            series_max=settings.rules_series_max,
            repair_ms=round(settings.rules_repair_s * 1000),
            lookback_ms=options.lookback_ms,
            wait_max_ms=None if settings.rules_wait_max_s is None else round(settings.rules_wait_max_s * 1000),
            external_url=settings.rules_external_url,
            external_labels=settings.external_labels,
        ),
    )
    caller.active = ruler.is_going
    return ruler


def make_notifier(settings: RulerFields) -> Notifier | None:
    """Sends to the Alertmanagers of the settings; None without one. Raises ConfigMismatch for a bad file of a CA."""
    if not settings.rules_alertmanagers:
        return None
    tls: ssl.SSLContext | None = None
    if settings.rules_alertmanager_tls_ca_file is not None:
        try:
            tls = ssl.create_default_context(cafile=str(settings.rules_alertmanager_tls_ca_file))
        except OSError as error:
            problem = f"rules_alertmanager_tls_ca_file {settings.rules_alertmanager_tls_ca_file}: {error}"
            raise ConfigMismatch(problem, reason="tls_file") from error
    token_file = settings.rules_alertmanager_token_file

    def token() -> str:
        return "" if token_file is None else token_file.read_text().strip()

    targets = [AlertmanagerAccess(url, token, tls) for url in settings.rules_alertmanagers]
    return Notifier(targets, settings.rules_external_url, SystemClock(), settings.external_labels)


def rule_groups(ruler: Ruler) -> Callable[[], RuleGroups]:
    """A function that shows the groups as the HTTP API does."""

    def groups() -> RuleGroups:
        others = ruler.other_groups()
        names = None if others is None else [(one.file, one.name) for one in others]
        return RuleGroups(shown_groups(ruler.groups()), names, alertmanagers=ruler.alertmanagers())

    return groups


class RulerCaller:
    """A Caller (tsdb.reader.read_call): reads of a ruler end with it."""

    def __init__(self) -> None:
        self.active: Callable[[], bool] = lambda: True

    def time_remaining(self) -> float | None:
        return None

    def is_active(self) -> bool:
        return self.active()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return True

    def peer(self) -> str:
        return "ruler"


def _reader(settings: RulerSettings | StandaloneSettings) -> Callable[[Path], RuleFile]:
    features = query_options(settings).features

    def read(path: Path) -> RuleFile:
        try:
            return load_rules(path, interval_ms=round(settings.rules_interval_s * 1000), features=features)
        except OSError as error:
            raise ConfigMismatch(f"rule file {path}: {error.strerror or error}", reason="rule_file") from error
        except DocumentError as error:
            raise ConfigMismatch(error.message, reason="rule_file") from error

    return read


def labels_of_series(
    sources: Sources,
    limits: SelectLimits,
    call: ReadCall,
    ids: NDArray[np.uint64],
    span_ms: tuple[int, int],
    after: Sequence[RecordToken],
    partitions: Sequence[int],
) -> dict[int, Labels]:
    """Labels of series of some partitions that have samples in span_ms, both ends included. ids: ascending. Losses do
    not matter here."""
    spec = SelectSpec(
        (),
        ids,
        span_ms[0],
        span_ms[1] + 1,
        last_n=1,
        options=ReadOptions(after, allow_holes=True, partitions=partitions),
        series_max=limits.series_max,
        samples_max=limits.samples_max,
        bytes_max=limits.bytes_max,
    )
    found: dict[int, Labels] = {}
    for answer in SelectRead(sources, spec, limits, call).answers(partitions):
        for part in answer.body.parts:
            if part.series is not None:
                pairs = zip(part.series.series_ids.tolist(), part.series.canonical(), strict=True)
                found.update((number, parse_labels(labels)) for number, labels in pairs)
    return found


def _refused_histograms(details: SampleDetails) -> Mapping[int, InvalidHistogram]:
    """The errors of the rows whose histograms have no meaning, as after a subtraction; a row has one sample."""
    assert details.histograms is not None, "some values are histograms"
    assert details.histogram_of is not None, "histograms come with the samples that have them"
    errors = count_errors(details.histograms)
    return {row: errors[of] for row, of in enumerate(details.histogram_of.tolist()) if of in errors}


def _writer(gateway: Gateway) -> Callable[[Sequence[RuleSample]], WrittenResults]:
    def write(samples: Sequence[RuleSample]) -> WrittenResults:
        deadline = Deadline.after(WRITE_S)
        refused, last_records, ids = 0, dict[int, int](), list[int]()
        for start in range(0, len(samples), SAMPLES_MAX):
            part = samples[start : start + SAMPLES_MAX]
            labels = [canonical_labels(sample.labels) for sample in part]
            ids += map(series_id, labels)
            values, details = value_columns([sample.value for sample in part])
            rows = make_rows(labels, None, np.array([sample.ts_ms for sample in part], np.int64), values)
            if details is not None:
                rows = replace(rows, details=details, errors=_refused_histograms(details))
            try:
                done = gateway.pipeline.write(rows, True, deadline)
            except InvalidRequest as error:  # The request as a whole: no sample of it is in the log.
                log.warning("samples of rules refused", reason=error.reason, error=error.message)
                refused += len(part)
                continue
            refused += done.refused_samples
            for token in done.tokens:
                known = last_records.get(token.partition, token.record_offset)
                last_records[token.partition] = max(known, token.record_offset)
        return WrittenResults(refused, ids, last_records)

    return write
