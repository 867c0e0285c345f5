"""Detects clients of the library that stop answering: bounds their calls, and replaces them.

After an outage a client may go on without an answer for ever, while others of the same process have theirs. So each
call that waits for a broker has a bound, and each client has a watch that replaces it. A new client begins from the
bootstrap servers, whose names it resolves anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Generic, TypeVar

from confluent_kafka import KafkaException

from tsdb.log.kafka.errors import RETRY_AFTER_S, translate_kafka_errors
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.threads import new_thread

RENEW_AFTER_S = 10.0  # Time without an answer. Twice this time and a reader's own watch fit into half a minute.
GRACE_S = 5.0  # Added to the library's own timeout of a call. A call that exceeds both never returns.

LOOKUP, ADMIN, PRODUCER, READER, MEMBER = KINDS = ("lookup", "admin", "producer", "reader", "member")
STUCK = "it got nothing although the log has more"

log = get_logger(__name__)

renewals_total = counter(
    "tsdb_log_renewals_total",
    "Clients of Kafka replaced because they stopped answering, got nothing of what the log has, or failed for good.",
    "kind",
    KINDS,
)

Client = TypeVar("Client")
Result = TypeVar("Result")


def count_renewal(kind: str, why: str) -> None:
    """Log and count the replacement of a client."""
    log.warning("client of Kafka replaced", client=kind, why=why)
    renewals_total.labels(kind).inc()


def bounded(call: Callable[[], Result], timeout_s: float, place: str) -> Result:
    """The result of a call on a helper thread. Raises Unavailable (timeout) when the call takes longer. The thread then
    stays in the call, and the client behind it has to be replaced."""
    answer: Future[Result] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    new_thread(run, "log-call").start()
    return answer_of(answer, timeout_s, place)


def answer_of(answer: Future[Result], timeout_s: float, place: str) -> Result:
    """The result of a future of the library. Raises Unavailable (timeout), and the errors of translate_kafka_errors."""
    if not wait_for([answer], timeout_s).done:
        raise Unavailable(f"{place}: no answer within {timeout_s:g} s", reason="timeout", retry_after_s=RETRY_AFTER_S)
    with translate_kafka_errors(place):
        return answer.result()


def end_client(end: Callable[[], object]) -> None:
    """End a client that is not used any more, on a separate thread: its end waits for its own requests."""

    def run() -> None:
        try:
            end()
        except (KafkaException, RuntimeError) as error:  # RuntimeError means that it is closed already.
            log.debug("a replaced client did not close", error=str(error))

    new_thread(run, "log-client-end").start()


class Renewed(Generic[Client]):
    """A client that is replaced once its requests have failed for RENEW_AFTER_S. Thread-safe.

    end: closes a client that was replaced.
    """

    def __init__(
        self, kind: str, make: Callable[[], Client], clock: Clock, end: Callable[[Client], object] = lambda _: None
    ) -> None:
        self._kind = kind
        self._make = make
        self._clock = clock
        self._end = end
        self._lock = threading.Lock()  # Guards the fields below; no request is sent under it.
        self._client = make()
        self._failing_since: float | None = None

    def get(self) -> Client:
        """The client for the next request."""
        with self._lock:
            since, now = self._failing_since, self._clock.monotonic()
            if since is not None and now - since > RENEW_AFTER_S:
                self._replace_locked(f"no answer for {now - since:.0f} s")
            return self._client

    def answered(self, client: Client) -> None:
        """A broker has answered a request of this client."""
        with self._lock:
            if client is self._client:
                self._failing_since = None

    def failed(self, client: Client, *, hung: bool = False) -> None:
        """A request got no answer. hung: the call did not return either; the client is replaced at once."""
        with self._lock:
            if client is not self._client:
                return
            if hung:
                self._replace_locked("a call did not return")
            elif self._failing_since is None:
                self._failing_since = self._clock.monotonic()

    def close(self, end: Callable[[Client], object]) -> None:
        """End the client in use."""
        with self._lock:
            client = self._client
        end(client)

    def _replace_locked(self, why: str) -> None:
        old = self._client
        count_renewal(self._kind, why)
        self._client, self._failing_since = self._make(), None
        end_client(lambda: self._end(old))
