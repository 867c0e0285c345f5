"""SmallQueries: chooses the queries that are tried on the event loop's thread.

A small query saves the way to another thread and back, which took a tenth of its time, and a fifth beside seven other
clients. A trial waits for nothing and is bounded in all its work, so that it holds up nobody. A query that exceeds a
bound, or that fails, goes to a thread, which evaluates it anew with the usual bounds: its answer is the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace

from tsdb.api.prometheus.arrow import MEDIA_TYPE
from tsdb.api.prometheus.call import ApiOptions, ApiSources, OpenStorage
from tsdb.ops.http.bodies import HttpHead

CHARS_MAX = 2048  # Characters of all parameters. Parsing takes some 1 us for each.
VALUES_MAX = 4096  # Values of one vector over all its steps. Their JSON takes 0.5 ms.
TURN_S = 0.008  # CPU time for trials in one turn of the event loop. Requests beyond it go to threads.
LOST_S = 0.0005  # A text whose trial failed after more CPU time than this is not tried again for LARGE_FOR_S.
LARGE_FOR_S = 10.0
LARGE_TEXTS_MAX = 1024


class SmallQueries:
    """Used on the event loop's thread alone. sources, options: those of trials. open_small: opens storages that raise
    in place of reads that are large or may wait."""

    def __init__(self, sources: ApiSources, options: ApiOptions, open_small: OpenStorage) -> None:
        query = replace(options.query, values_max=min(options.query.values_max, VALUES_MAX))
        self.sources = replace(sources, open_storage=open_small)
        self.options = replace(options, query=query)
        self._spent_s = 0.0  # The time of trials in this turn of the event loop.
        self._large: OrderedDict[str, float] = OrderedDict()  # Texts, and until when they are not tried.

    def tries(self, head: HttpHead, body: bytes | bytearray) -> bool:
        """Whether this turn has time for a trial of a request that may be small."""
        return (
            self._spent_s < TURN_S
            and len(head.query) + len(body) <= CHARS_MAX
            and MEDIA_TYPE not in head.headers.get("accept", "").lower()  # pyarrow takes long to import.
        )

    def is_large(self, text: str) -> bool:
        """Whether a trial of the same text failed a short time ago."""
        until = self._large.get(text)
        return until is not None and self.sources.clock.monotonic() < until

    def add(self, text: str, seconds: float, *, is_answered: bool) -> None:
        """A trial of a text took this CPU time."""
        if not self._spent_s:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._spent_s += seconds
        if not is_answered and seconds > LOST_S:
            self._large.pop(text, None)
            self._large[text] = self.sources.clock.monotonic() + LARGE_FOR_S
            if len(self._large) > LARGE_TEXTS_MAX:
                self._large.popitem(last=False)

    def _begin_turn(self) -> None:
        self._spent_s = 0.0
