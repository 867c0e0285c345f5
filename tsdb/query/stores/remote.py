"""Remote store: reads from a store over gRPC. Its calls end with the caller's call, at the deadline or on
cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import grpc

from tsdb.answer.answer import Answer, ExemplarsAnswer, LabelsAnswer, SeriesAnswer, WatchAnswer
from tsdb.answer.spec import ExemplarsSpec, LabelsSpec, SelectSpec, SeriesSpec, WatchSpec
from tsdb.answer.state import MemoryState
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.threads import waiting_for_others
from tsdb.reader.read_call import Caller
from tsdb.v1 import reader_pb2, reader_pb2_grpc
from tsdb.wire.exemplars import decode_exemplars_answer, encode_exemplars_spec
from tsdb.wire.select import decoded, encode_select
from tsdb.wire.series import (
    decode_names,
    decode_series_answer,
    decode_values,
    encode_labels,
    encode_series,
)
from tsdb.wire.state import coverage_states, decode_state
from tsdb.wire.watch import decode_watch_answer, encode_watch

STATES_AGE_MAX_S = 10.0  # The bound that a store has for a high watermark; older states are not reliable.
# A frozen process keeps its connections. After two polls without an answer, some five seconds, the reads that wait
# for it end: also those in the middle of an answer.
SILENT_POLLS_MAX = 2
CANCELLED = "cancelled"
PRODUCTION = "production"  # Text in logs when a store has no experiment.
NO_DEADLINE_S = 1e7  # gRPC gives callers without a deadline one that is a century away.

log = get_logger(__name__)

polls_total = counter("tsdb_query_store_polls_total", "Coverage requests to stores.")
poll_failures_total = counter("tsdb_query_store_poll_failures_total", "Coverage requests to stores that failed.")

silent_reads_total = counter(
    "tsdb_query_store_silent_reads_total", "Reads ended because their store did not answer polls any more."
)

Metadata = tuple[tuple[str, str], ...]
Decoded = TypeVar("Decoded")


class RemoteStore:
    """One store at one address, over a channel that this object owns. Thread-safe. metadata: sent with each call, for
    example a token. experiment: the experiment of the querier. A store of another experiment, or of production, has no
    states."""

    def __init__(
        self, name: str, channel: grpc.Channel, metadata: Metadata, clock: Clock, experiment: str = ""
    ) -> None:
        self._name = name
        self._channel = channel
        self._stub = reader_pb2_grpc.ReaderStub(channel)
        self._metadata = metadata
        self._clock = clock
        self._experiment = experiment
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._states: dict[int, MemoryState] = {}
        self._answered_at: float | None = None
        self._reachable: bool | None = None
        self._failure = ""
        self._apart = False
        self._suspect = False
        self._silent_polls = 0  # Failures in direct succession.
        self._calls: set[Any] = set()  # Calls that are running.

    @property
    def name(self) -> str:
        return self._name

    def close(self) -> None:
        """Close the channel, which ends its running calls."""
        self._channel.close()

    def states(self) -> Mapping[int, MemoryState]:
        with self._lock:
            fresh = self._answered_at is not None and self._clock.monotonic() - self._answered_at <= STATES_AGE_MAX_S
            return self._states if fresh and self._reachable else {}

    @property
    def apart(self) -> bool:
        with self._lock:
            return self._apart and self._reachable is True

    @property
    def failure(self) -> str:
        """Why the last poll has no answer; empty while the store answers, and before the first poll."""
        with self._lock:
            return "" if self._reachable is not False else self._failure

    @property
    def may_be_silent(self) -> bool:
        return True

    @property
    def is_suspect(self) -> bool:
        return self._suspect

    def suspect(self) -> None:
        self._suspect = True

    def refresh(self, timeout_s: float) -> None:
        self.finish_refresh(self.begin_refresh(timeout_s))

    def begin_refresh(self, timeout_s: float) -> Any:
        """Send the request without waiting, so that several stores work at a time. Returns the argument for
        `finish_refresh`."""
        polls_total.inc()
        try:
            return self._stub.Coverage.future(
                reader_pb2.CoverageRequest(), timeout=timeout_s, metadata=self._metadata, wait_for_ready=False
            )
        except ValueError:  # gRPC raises it for a closed channel.
            return None

    def finish_refresh(self, call: Any) -> None:
        """Wait for the answer and keep its states. An error leaves the store without states."""
        try:
            answer = None if call is None else call.result()
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            self._lost(from_rpc_error(error).message if isinstance(error, grpc.RpcError) else "cancelled")
            return
        if answer is None:
            self._lost("it has left", 0)
            return
        apart = answer.experiment.name != self._experiment
        states = [] if apart else coverage_states(answer)
        with self._lock:
            before, self._reachable = self._reachable, True
            was_apart, self._apart = self._apart, apart
            self._states = {state.partition: decode_state(state) for state in states}
            self._answered_at = self._clock.monotonic()
            self._suspect, self._silent_polls = False, 0
        if apart and not (before and was_apart):
            log.warning("store is not read: it is of another experiment", store=self._name, **self._sides(answer))
        elif not before:
            log.info("store answers", store=self._name, partitions=sorted(self._states))

    def _sides(self, answer: reader_pb2.CoverageResponse) -> dict[str, str]:
        return {
            "store_experiment": answer.experiment.name or PRODUCTION,
            "querier_experiment": self._experiment or PRODUCTION,
        }

    def _lost(self, reason: str, polls: int = 1) -> None:
        poll_failures_total.inc()
        with self._lock:
            before, self._reachable = self._reachable, False
            self._failure = reason
            self._silent_polls += polls
            silent = list(self._calls) if self._silent_polls >= SILENT_POLLS_MAX else []
        if before is not False:
            log.warning("store does not answer", store=self._name, error=reason)
        if silent:
            log.warning("reads of a store that does not answer end", store=self._name, reads=len(silent))
            silent_reads_total.inc(len(silent))
        for call in silent:
            call.cancel()

    def select(self, spec: SelectSpec, caller: Caller) -> Iterator[Answer]:
        return decoded(self._stream(self._stub.Select, encode_select(spec), caller))

    def series(self, spec: SeriesSpec, caller: Caller) -> Iterator[SeriesAnswer]:
        return _each(decode_series_answer, self._stream(self._stub.Series, encode_series(spec), caller))

    def labels(self, spec: LabelsSpec, caller: Caller) -> Iterator[LabelsAnswer]:
        if spec.name is None:
            return _each(decode_names, self._single(self._stub.LabelNames, encode_labels(spec), caller))
        return _each(decode_values, self._single(self._stub.LabelValues, encode_labels(spec), caller))

    def exemplars(self, spec: ExemplarsSpec, caller: Caller) -> Iterator[ExemplarsAnswer]:
        request = encode_exemplars_spec(spec)
        return _each(decode_exemplars_answer, self._stream(self._stub.Exemplars, request, caller))

    def cardinality(
        self, request: reader_pb2.CardinalityRequest, caller: Caller
    ) -> Iterator[reader_pb2.CardinalityResponse]:
        return self._single(self._stub.Cardinality, request, caller)

    def watch(self, spec: WatchSpec, caller: Caller) -> Iterator[WatchAnswer]:
        return _each(decode_watch_answer, self._stream(self._stub.Watch, encode_watch(spec), caller))

    def _stream(self, method: Any, request: Any, caller: Caller) -> Iterator[Any]:
        call = self._begin(method, request, caller)
        return self._messages(call, lambda: call, caller)

    def _single(self, method: Any, request: Any, caller: Caller) -> Iterator[Any]:
        call = self._begin(method.future, request, caller)
        return self._messages(call, lambda: (one.result() for one in (call,)), caller)

    def _begin(self, method: Any, request: Any, caller: Caller) -> Any:
        """The started call; None when the store has left since routing chose it."""
        try:
            call = method(request, timeout=_timeout_s(caller), metadata=self._metadata)
        except ValueError:  # gRPC raises it for a closed channel.
            return None
        with self._lock:
            self._calls.add(call)
        if not caller.add_callback(call.cancel):
            call.cancel()
        return call

    def _messages(self, call: Any, messages: Callable[[], Iterable[Any]], caller: Caller) -> Iterator[Any]:
        if call is None:
            raise self._cancelled(caller)
        try:
            rest = iter(messages())
            while True:
                with waiting_for_others():
                    message = next(rest, None)
                if message is None:
                    return
                yield message
        except grpc.FutureCancelledError:
            raise self._cancelled(caller) from None
        except grpc.RpcError as rpc_error:
            error = from_rpc_error(rpc_error)
            if isinstance(error, Unavailable) and error.reason == CANCELLED:
                error = self._cancelled(caller)
            raise error from rpc_error
        finally:
            call.cancel()
            with self._lock:
                self._calls.discard(call)

    def _cancelled(self, caller: Caller) -> Unavailable:
        """The error of a cancelled call. Three causes are possible: the caller left, the store is silent, or the store
        was removed because its name now resolves to other addresses. In the last two cases another store may answer."""
        if caller.is_active() and self._silent_polls >= SILENT_POLLS_MAX:
            return Unavailable(f"store {self._name} does not answer any more", reason="store_silent", retry_after_s=0.1)
        if caller.is_active():
            return Unavailable(f"store {self._name} is no longer in use", reason="store_left", retry_after_s=0.1)
        return Unavailable("the caller left", reason=CANCELLED)


def _timeout_s(caller: Caller) -> float | None:
    left_s = caller.time_remaining()
    return None if left_s is None or left_s > NO_DEADLINE_S else left_s


def _each(decode: Callable[[Any], Decoded], messages: Iterator[Any]) -> Iterator[Decoded]:
    for message in messages:
        yield decode(message)
