"""AnswerStream: an answer whose pieces are made on threads while the event loop sends those before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

PIECES_BYTES = 1 << 20  # Made at once: some milliseconds of work.

_bytes = counter(
    "tsdb_query_answer_bytes_total", "Bytes of answers of the Prometheus API that were made, compressed where they are."
)

log = get_logger(__name__)

Pieces = Iterator[bytes | memoryview]


class AnswerStream:
    """A BodyStream (tsdb.ops.http.bodies). run: runs work on a thread. release: called once, after the answer is sent
    or its peer has left, when no thread works on it any more."""

    def __init__(self, pieces: Pieces, run: Callable[[Callable[[], None]], None], release: Callable[[], None]) -> None:
        self._pieces: Pieces | None = pieces
        self._run = run
        self._release = release
        self._lock = threading.Lock()  # Guards _pieces; held while they are made.

    def make(self, deliver: Callable[[Sequence[bytes], bool], None]) -> None:
        """Implements BodyStream.make; the threads of `run` make the pieces."""
        self._run(lambda: self._make(deliver))

    def close(self) -> None:
        """Implements BodyStream.close. A thread releases the memory, because another thread may still make pieces."""
        self._run(self._close)

    def _make(self, deliver: Callable[[Sequence[bytes], bool], None]) -> None:
        with self._lock:
            if self._pieces is None:
                return
            try:
                made, is_last = next_pieces(self._pieces)
            except Exception as error:
                log.error("an answer could not be written to its end", exc_info=error)
                made, is_last = [], False
        deliver(made, is_last)

    def _close(self) -> None:
        with self._lock:
            pieces, self._pieces = self._pieces, None
        if pieces is not None:
            self._release()


def next_pieces(pieces: Pieces) -> tuple[list[bytes], bool]:
    """(pieces, are last): the next pieces, PIECES_BYTES or more."""
    made: list[bytes] = []
    size = 0
    for piece in pieces:
        made.append(bytes(piece))
        size += len(piece)
        if size >= PIECES_BYTES:
            _bytes.inc(size)
            return made, False
    _bytes.inc(size)
    return made, True
