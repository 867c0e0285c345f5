"""Reads: fetches pages of statements, several in flight at once, and returns them in the order of the statements.

A cluster is silent when it answers nothing at all, as when its nodes hang. Reads are then refused at once.

A hanging node keeps its connections, so each read of it would wait for its whole time limit. One slow read does not
make a cluster silent: another answer within the same time shows that the cluster works.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from cassandra import OperationTimedOut
from cassandra.cluster import NoHostAvailable, ResponseFuture, Session
from cassandra.query import BoundStatement

from tsdb.history import statement_metrics as metrics
from tsdb.history.cassandra.errors import is_busy, to_error, translate_cassandra_errors
from tsdb.history.cassandra.session import READ_PROFILE
from tsdb.history.cassandra.writes import BUSY_PAUSE_S
from tsdb.history.settings import HistorySettings
from tsdb.model.errors import Unavailable
from tsdb.ops.threads import waiting_for_others

Row = tuple[Any, ...]

PAGE_ROWS = (8, 500)  # Fewest and most rows of a page.
ROW_BYTES_GUESS = 64 * 1024  # Assumed size of a chunk's row before the first one was read.

PROBE_EVERY_S = 0.5
PROBE_WAIT_S = 0.2


class PageSize:
    """Rows per page, from the size of the rows read so far. Thread-safe."""

    def __init__(self, bytes_target: int) -> None:
        self._bytes_target = bytes_target
        self._lock = threading.Lock()  # Guards the estimate.
        self._row_bytes = float(ROW_BYTES_GUESS)

    def rows(self) -> int:
        """Rows to request for the next page."""
        least, most = PAGE_ROWS
        return max(least, min(most, int(self._bytes_target / self._row_bytes)))

    def saw(self, rows: int, size: int) -> None:
        """Record a page's rows and bytes. The estimate rises at once and falls slowly."""
        with self._lock:
            weight = size / rows
            share = 1.0 if weight > self._row_bytes else 0.2
            self._row_bytes = max(1.0, self._row_bytes + share * (weight - self._row_bytes))


class PagedRead:
    """Reads the pages of one statement; the constructor requests the first page. One thread.

    Each page is a separate request, because the driver's paging counts all pages, and the caller's time in between,
    against one timeout. page_size: None for statements whose rows are small. Raises Unavailable (history_silent).

    """

    def __init__(
        self,
        session: Session,
        statement: BoundStatement,
        settings: HistorySettings,
        silence: Silence,
        page_size: PageSize | None = None,
    ) -> None:
        self._session = session
        self._statement = statement
        self._settings = settings
        self._silence = silence
        self._page_size = page_size
        self._done = threading.Event()
        self._future: ResponseFuture | None = self._request(None)

    def pages(self) -> Iterator[list[Row]]:
        """All pages, none empty. The next one is requested while the caller uses this one. Raises TsdbError."""
        paging_state: bytes | None = None
        while self._future is not None:
            rows, next_state = self._answer(self._future, paging_state)
            self._future = None if next_state is None else self._request(next_state)
            paging_state = next_state
            if rows:
                yield rows

    def _request(self, paging_state: bytes | None) -> ResponseFuture:
        metrics.statements_total.labels(metrics.READ).inc()
        self._statement.fetch_size = PAGE_ROWS[1] if self._page_size is None else self._page_size.rows()
        try:
            self._silence.admit()
        except Unavailable as error:
            raise metrics.count_failure(error) from None
        with translate_cassandra_errors("reading"):
            future = self._session.execute_async(
                self._statement, execution_profile=READ_PROFILE, paging_state=paging_state
            )
        done = self._done = threading.Event()
        future.add_callbacks(partial(self._answered, done), partial(self._failed, done))
        return future

    def _answered(self, done: threading.Event, rows: object) -> None:
        self._silence.answered()
        done.set()

    def _failed(self, done: threading.Event, error: BaseException) -> None:
        # Those errors come from the driver, not from a node.
        if not isinstance(error, OperationTimedOut | NoHostAvailable):
            self._silence.answered()
        done.set()

    def _answer(self, future: ResponseFuture, paging_state: bytes | None) -> tuple[list[Row], bytes | None]:
        """(rows, paging state of the next page or None)."""
        give_up_at = time.monotonic() + self._settings.read_timeout_s
        while True:
            try:
                with waiting_for_others():
                    self._silence.wait(self._done)
                    result = future.result()
                return list(result.current_rows), result.paging_state
            except Unavailable as error:
                raise metrics.count_failure(error) from None
            except Exception as error:
                if not is_busy(error) or time.monotonic() >= give_up_at:
                    raise metrics.count_failure(to_error(error, "reading")) from error
            metrics.busy_retries_total.inc()
            with waiting_for_others():
                time.sleep(BUSY_PAUSE_S)
            future = self._request(paging_state)


def read_ahead(
    session: Session,
    statements: Iterable[BoundStatement],
    settings: HistorySettings,
    silence: Silence,
    page_size: PageSize | None = None,
) -> Iterator[list[Row]]:
    """The pages of all statements, in order. The first pages of the next statements are fetched meanwhile."""
    waiting: deque[PagedRead] = deque()
    rest = iter(statements)
    while True:
        while len(waiting) < settings.reads_ahead_max and (statement := next(rest, None)) is not None:
            waiting.append(PagedRead(session, statement, settings, silence, page_size))
        if not waiting:
            return
        yield from waiting.popleft().pages()


class Silence:
    """Thread-safe. after_s: reads wait this long without any answer of the cluster before they are refused."""

    def __init__(self, after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._after_s = after_s
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below.
        self._answer_at = clock()
        self._silent = False
        self._probe_at = 0.0

    def answered(self) -> None:
        """The cluster has answered a request, with rows or with an error."""
        with self._lock:
            self._answer_at = self._clock()
            self._silent = False

    def admit(self) -> None:
        """Called before a request. During a silence one request in PROBE_EVERY_S is sent; its answer ends the silence.

        Raises Unavailable (history_silent) for the others.

        """
        with self._lock:
            now = self._clock()
            if self._silent and now < self._probe_at:
                raise self._refusal()
            self._probe_at = now + PROBE_EVERY_S

    def wait(self, done: threading.Event) -> None:
        """Wait until the request is done. Raises Unavailable (history_silent)."""
        began = self._clock()
        while True:
            with self._lock:
                limit_s = PROBE_WAIT_S if self._silent else self._after_s
                left_s = max(began, self._answer_at) + limit_s - self._clock()
                if left_s <= 0 and not done.is_set():
                    self._silent = True
                    raise self._refusal()
            if done.wait(max(left_s, 0.0)):
                return

    def _refusal(self) -> Unavailable:
        return Unavailable(
            f"history answers nothing, for over {self._after_s:g} s; the read is refused, send it again",
            reason="history_silent",
            retry_after_s=1.0,
        )
