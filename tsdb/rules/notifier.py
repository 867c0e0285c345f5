"""Notifier keeps every Alertmanager informed about the alerts of a ruler, over Alertmanager's API v2.

It has the newest state of each alert and no queue: an Alertmanager that was away gets what holds now. A firing alert is
sent again each RESEND_S, also while its group waits for samples, because an Alertmanager resolves an alert without
news. A resolved alert is sent once to each Alertmanager, and for RESOLVED_MS again where that fails. Each Alertmanager
has its own thread, so that one that hangs does not delay the others.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote_plus

from tsdb.model.clock import Clock
from tsdb.model.times import time_text
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.periodic import Periodic
from tsdb.rules.alerts import RESOLVED_MS, Alert, AlertState, Labels
from tsdb.rules.files import AlertingRule
from tsdb.rules.schedule import ScheduledGroup

RESEND_S = 60.0
LIVES = 4  # An Alertmanager resolves an alert without news for four resends, or four intervals of its group.
TIMEOUT_S = 10.0
AGAIN_S = 5.0  # Time until a failed request is repeated.
NO_LABELS: Mapping[str, str] = {}
BATCH_ALERTS, BATCH_BYTES = 256, 1 << 20

_sent = counter("tsdb_ruler_notifications_total", "Alerts that an Alertmanager has taken, resolved ones included.")
_requests = counter("tsdb_ruler_notification_requests_total", "Requests to Alertmanagers.")
_failures = counter(
    "tsdb_ruler_notification_failures_total", "Requests to Alertmanagers that failed; they are repeated."
)
_away = gauge("tsdb_ruler_alertmanagers_away", "Alertmanagers whose last request failed.")

log = get_logger(__name__)

AlertKey = tuple[str, int, Labels]  # Group, number of the rule, labels.


@dataclass(frozen=True, slots=True)
class Notice:
    """An alert that fires or is resolved. lives_ms: how long an Alertmanager keeps it without news. source: link."""

    alert: Alert
    lives_ms: int
    source: str

    @property
    def resolved(self) -> bool:
        """Whether the alert has ended."""
        return self.alert.state is AlertState.INACTIVE

    def json(self, now_ms: int, external_labels: Mapping[str, str]) -> dict[str, Any]:
        """The alert in the API v2, with these labels where it has no others of these names."""
        alert = self.alert
        ends_ms = alert.resolved_at_ms if alert.resolved_at_ms is not None else now_ms + self.lives_ms
        return {
            "labels": {**external_labels, **dict(alert.labels)},
            "annotations": dict(alert.annotations),
            "startsAt": time_text(alert.fired_at_ms if alert.fired_at_ms is not None else alert.active_at_ms),
            "endsAt": time_text(ends_ms),
            "generatorURL": self.source,
        }


@dataclass(frozen=True, slots=True)
class AlertmanagerAccess:
    """url: address without the path of the API. token: read for each request, "" for none."""

    url: str
    token: Callable[[], str] = lambda: ""
    tls: ssl.SSLContext | None = None


class Notifier:
    """A component with a thread for each Alertmanager. `update` is called by the thread of the ruler."""

    def __init__(
        self,
        targets: Sequence[AlertmanagerAccess],
        external_url: str,
        clock: Clock,
        external_labels: Mapping[str, str] = NO_LABELS,
    ) -> None:
        self._external_url = external_url.rstrip("/")
        self._clock = clock
        self._lock = threading.Lock()  # Guards the notices.
        self._notices: dict[AlertKey, Notice] = {}
        self._targets = [_Target(target, self._current, clock, external_labels) for target in targets]

    @property
    def urls(self) -> list[str]:
        """Addresses to which alerts are sent."""
        return [target.url for target in self._targets]

    def update(self, one: ScheduledGroup) -> None:
        """Take the alerts of a group after an evaluation; those of rules that are gone are resolved."""
        found = dict(self._found(one))
        now_ms = self._clock.now_ms()
        with self._lock:
            self._resolve(one.group.key, now_ms)
            self._notices.update(found)
            self._forget(now_ms)
        self._wake()

    def remove(self, group: str) -> None:
        """Resolve the alerts of a group that is gone."""
        with self._lock:
            self._resolve(group, self._clock.now_ms())
        self._wake()

    def forget(self, group: str) -> None:
        """Send nothing more of a group: another ruler does."""
        with self._lock:
            for key in [key for key in self._notices if key[0] == group]:
                del self._notices[key]

    def _resolve(self, group: str, now_ms: int) -> None:
        for key, known in self._notices.items():
            if key[0] == group and not known.resolved:
                alert = replace(known.alert, state=AlertState.INACTIVE, resolved_at_ms=now_ms, kept_since_ms=None)
                self._notices[key] = replace(known, alert=alert)

    def _found(self, one: ScheduledGroup) -> Iterator[tuple[AlertKey, Notice]]:
        lives_ms = LIVES * max(round(RESEND_S * 1000), one.group.interval_ms)
        for number, (rule, state) in enumerate(zip(one.group.rules, one.state.rules, strict=True)):
            if isinstance(rule, AlertingRule):
                source = f"{self._external_url}/graph?g0.expr={quote_plus(rule.query.text)}&g0.tab=1"
                for labels, alert in state.alerts.items():
                    if alert.state is not AlertState.PENDING:
                        yield (one.group.key, number, labels), Notice(alert, lives_ms, source)

    def _forget(self, now_ms: int) -> None:
        for key, known in list(self._notices.items()):
            resolved_ms = known.alert.resolved_at_ms
            if resolved_ms is not None and now_ms - resolved_ms > RESOLVED_MS:
                del self._notices[key]

    def _current(self) -> Mapping[AlertKey, Notice]:
        with self._lock:
            return dict(self._notices)

    def _wake(self) -> None:
        for target in self._targets:
            target.wake()

    def start(self) -> None:
        for target in self._targets:
            target.start()

    def failure(self) -> BaseException | None:
        """The exception that ended a thread."""
        return next((found for target in self._targets if (found := target.failure()) is not None), None)

    def close(self) -> None:
        """Send nothing more after the current requests."""
        for target in self._targets:
            target.close()

    def join(self, timeout_s: float) -> bool:
        """Wait for the current requests; False after the timeout."""
        give_up_at = self._clock.monotonic() + timeout_s
        return all(target.join(max(0.0, give_up_at - self._clock.monotonic())) for target in self._targets)

    def abort(self) -> None:
        """Nothing is lost: the next process sends what holds then."""


@dataclass(slots=True)
class _Known:
    """The last state of an alert that an Alertmanager has taken. sent_at: monotonic time."""

    active_at_ms: int
    resolved: bool
    sent_at: float


class _Target(Periodic):
    """Sends to one Alertmanager, on its own thread."""

    def __init__(
        self,
        target: AlertmanagerAccess,
        current: Callable[[], Mapping[AlertKey, Notice]],
        clock: Clock,
        external_labels: Mapping[str, str],
    ) -> None:
        super().__init__("alertmanager", 1.0, self._step)
        self.url = f"{target.url.rstrip('/')}/api/v2/alerts"
        self._target = target
        self._current = current
        self._clock = clock
        self._external_labels = external_labels
        self._known: dict[AlertKey, _Known] = {}
        self._is_away = False

    def _step(self) -> float:
        current = self._current()
        for gone in self._known.keys() - current.keys():
            del self._known[gone]
        due = [(key, notice) for key, notice in current.items() if self._is_due(key, notice)]
        for batch in _batches(due, self._clock.now_ms(), self._external_labels):
            if self._closing.is_set():
                return 0.0
            if not self._post(batch):
                return AGAIN_S
        return 1.0

    def _is_due(self, key: AlertKey, notice: Notice) -> bool:
        known = self._known.get(key)
        if notice.resolved:
            # Also one that this process never sent as firing: an earlier process may have.
            return known is None or not known.resolved
        if known is None or known.resolved or known.active_at_ms != notice.alert.active_at_ms:
            return True
        return self._clock.monotonic() - known.sent_at >= RESEND_S

    def _post(self, batch: _Batch) -> bool:
        _requests.inc()
        request = urllib.request.Request(self.url, batch.body, {"content-type": "application/json"})
        try:
            token = self._target.token()
            if token:
                request.add_header("authorization", f"Bearer {token}")
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._target.tls) as answer:
                answer.read(1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            _failures.inc()
            self._set_away(str(error))
            return False
        self._set_away("")
        _sent.inc(len(batch.notices))
        now = self._clock.monotonic()
        for key, notice in batch.notices:
            self._known[key] = _Known(notice.alert.active_at_ms, notice.resolved, now)
        return True

    def _set_away(self, error: str) -> None:
        if bool(error) == self._is_away:
            return
        self._is_away = bool(error)
        _away.inc(1 if error else -1)
        if error:
            log.warning("Alertmanager does not take alerts; they are sent again", url=self.url, error=error)
        else:
            log.info("Alertmanager takes alerts again", url=self.url)


@dataclass(slots=True)
class _Batch:
    body: bytes
    notices: list[tuple[AlertKey, Notice]] = field(default_factory=list)


def _batches(
    due: Sequence[tuple[AlertKey, Notice]], now_ms: int, external_labels: Mapping[str, str]
) -> Iterator[_Batch]:
    texts: list[bytes] = []
    notices: list[tuple[AlertKey, Notice]] = []
    size = 0
    for key, notice in due:
        text = json.dumps(notice.json(now_ms, external_labels)).encode()
        if notices and (len(notices) >= BATCH_ALERTS or size + len(text) > BATCH_BYTES):
            yield _Batch(b"[" + b",".join(texts) + b"]", notices)
            texts, notices, size = [], [], 0
        texts.append(text)
        notices.append((key, notice))
        size += len(text)
    if notices:
        yield _Batch(b"[" + b",".join(texts) + b"]", notices)
