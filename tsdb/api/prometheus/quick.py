"""QuickQueries: which queries the event loop's thread answers itself, because another thread would cost more.

Such a query was quick before, needs memory of this process alone, and has a budget. Past the budget, before a wait, and
with any error it is begun again on a thread of its pool: the event loop's thread never waits for one. All queries that
it answers between two looks at its sockets share a budget too, so other peers and probes wait for at most
TURN_S + BUDGET_S and one piece of work: the matching of some series, SAMPLES_MAX samples, VALUES_MAX values or
PIECE_VISITS. A head's lock may add the time in which its writer applies one batch.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from tsdb.reader.limits import SelectLimits

QUICK_S = 0.0015  # CPU time of a quick query: passing it to another thread and back costs about as much.
FIRST_S = 0.003  # The same for a text that comes for the first time: it is parsed too.
BUDGET_S = (
    0.005  # The budget of one query is several times its usual duration: threads of the process share the interpreter.
)
TURN_S = 0.005  # Of all queries between two looks at the sockets; the last one may begin just before.
SERIES_MAX, SAMPLES_MAX, VALUES_MAX = 256, 20_000, 10_000
PIECE_VISITS = 200_000  # Samples that ranges visit between two looks at the budget.
TEXT_CHARS_MAX = 500  # A longer text, with its parameters, takes long to read.
TEXTS_KEPT = 4096

LIMITS = SelectLimits(series_max=SERIES_MAX, samples_max=SAMPLES_MAX, bytes_max=1 << 20)

Key = tuple[str, str]
"""Path of the endpoint, and text of the query."""


class QuickQueries:
    """`add` may be called on any thread, all else on that of the event loop."""

    def __init__(self) -> None:
        # Each change is one step of the interpreter. A text that two threads add at once stays once.
        self._known: OrderedDict[Key, bool] = OrderedDict()
        self._turn_s = 0.0
        self._in_turn = False

    def add(self, key: Key, seconds: float) -> None:
        """A query has taken this CPU time."""
        if len(key[1]) > TEXT_CHARS_MAX:
            return
        limit_s = QUICK_S if key in self._known else FIRST_S
        self._known[key] = seconds <= limit_s
        if len(self._known) > TEXTS_KEPT:
            self._known.popitem(last=False)

    def forget(self, key: Key) -> None:
        """A query was over its budget, so its next run does not begin here."""
        self._known[key] = False

    def takes(self, key: Key) -> bool:
        """Whether the thread of the event loop answers this query."""
        return self._known.get(key, False) and self._turn_s < TURN_S

    def spend(self, seconds: float) -> None:
        """A query has used the thread of the event loop for this time."""
        self._turn_s += seconds
        if not self._in_turn:
            self._in_turn = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._in_turn, self._turn_s = False, 0.0
