"""Builds the ruler of a process that has gateway, store and querier, from its settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.gateway import Gateway
from ingest.rows import make_rows
from tsdb.config import StandaloneSettings
from tsdb.log.interface import Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.model.labels import canonical_labels
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.watched_file import WatchedFile
from tsdb.query.promql.storage import QuerierStorage
from tsdb.query.sources import Sources
from tsdb.reader.read_call import ReadCalls, SelectLimits
from tsdb.roles.promql import query_options
from tsdb.rules.completeness import LogCompleteness, ReplayPosition
from tsdb.rules.document import DocumentError
from tsdb.rules.files import RuleFile, load_rules
from tsdb.rules.groups import RuleSample
from tsdb.rules.notifier import AlertmanagerAccess, Notifier
from tsdb.rules.ruler import Ruler, RuleRead, RulerOptions, RulerPorts
from tsdb.rules.view import shown_groups
from tsdb.store.store import Store

WRITE_S = 30.0  # Longest time until the log has the samples of a group, and readers show them.
LOOK_S = 1.0  # Between two looks whether a rule file has changed.
SAMPLES_MAX = 50_000  # Samples of one write; a larger group takes several.

_bad_files = counter("tsdb_ruler_bad_files_total", "Changes of rule files that were not taken, because of a problem.")

log = get_logger(__name__)


def make_ruler(
    settings: StandaloneSettings, log_: Log, gateway: Gateway, store: Store, sources: Sources, calls: ReadCalls
) -> Ruler:
    """The ruler of these rule files. Raises ConfigMismatch for a file that cannot be read."""
    clock = SystemClock()
    files = [
        WatchedFile(Path(name), _reader(settings), clock, look_every_s=LOOK_S, on_failure=_bad_files.inc)
        for name in settings.rules
    ]
    grace_ms = round(settings.rules_grace_s * 1000)
    completeness = LogCompleteness(log_, list(store.partitions), _positions(store), grace_ms, clock)
    caller = RulerCaller()
    limits = SelectLimits(settings.select_series_max, settings.select_samples_max, settings.select_bytes_max)
    options = query_options(settings)

    @contextmanager
    def open_read() -> Iterator[RuleRead]:
        with calls.of(caller) as call:
            storage = QuerierStorage(sources, limits, call)
            yield RuleRead(storage, replace(options, hold=call.hold_values, check=call.check_going))

    ports = RulerPorts(
        lambda: [file.now() for file in files],
        open_read,
        completeness.missing,
        _writer(gateway, store),
        clock,
        make_notifier(settings),
    )
    offset_ms = round(settings.rules_query_offset_s * 1000)
    ruler = Ruler(ports, RulerOptions(offset_ms, grace_ms, settings.rules_series_max, settings.rules_external_url))
    caller.active = ruler.is_going
    return ruler


def make_notifier(settings: StandaloneSettings) -> Notifier | None:
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
    return Notifier(targets, settings.rules_external_url, SystemClock())


def rule_groups(ruler: Ruler) -> Callable[[], Sequence[dict[str, Any]]]:
    """A function that shows the groups as the HTTP API does."""
    return lambda: shown_groups(ruler.groups())


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


def _reader(settings: StandaloneSettings) -> Callable[[Path], RuleFile]:
    features = query_options(settings).features

    def read(path: Path) -> RuleFile:
        try:
            return load_rules(path, interval_ms=round(settings.rules_interval_s * 1000), features=features)
        except OSError as error:
            raise ConfigMismatch(f"rule file {path}: {error.strerror or error}", reason="rule_file") from error
        except DocumentError as error:
            raise ConfigMismatch(error.message, reason="rule_file") from error

    return read


def _positions(store: Store) -> Callable[[int], ReplayPosition]:
    def position(number: int) -> ReplayPosition:
        head, snapshot = store.partitions[number].evaluate()
        at_end = snapshot.high_watermark is not None and snapshot.next_offset >= snapshot.high_watermark
        return ReplayPosition(head.state().watermark_ms, at_end, snapshot.readiness.reason)

    return position


def _writer(gateway: Gateway, store: Store) -> Callable[[Sequence[RuleSample]], int]:
    def write(samples: Sequence[RuleSample]) -> int:
        deadline = Deadline.after(WRITE_S)
        refused, tokens = 0, dict[int, int]()
        for start in range(0, len(samples), SAMPLES_MAX):
            part = samples[start : start + SAMPLES_MAX]
            rows = make_rows(
                [canonical_labels(sample.labels) for sample in part],
                None,
                np.array([sample.ts_ms for sample in part], np.int64),
                np.array([sample.value for sample in part], np.float64),
            )
            try:
                done = gateway.pipeline.write(rows, True, deadline)
            except InvalidRequest as error:  # The request as a whole: no sample of it is in the log.
                log.warning("samples of rules refused", reason=error.reason, error=error.message)
                refused += len(part)
                continue
            refused += done.refused_samples
            for token in done.tokens:
                tokens[token.partition] = max(tokens.get(token.partition, -1), token.record_offset)
        store.applied.wait_for(store.partitions, tokens, deadline.remaining())
        return refused

    return write
