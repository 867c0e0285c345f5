"""Decoded: an LRU cache of columns of row groups in memory, so that a repeated read does not decode them again.

A file of the table never changes, so what was decoded stays valid. A read hands its row groups over when it ends, and
only when all that it needed fits a share of the cache: a large scan leaves the cache as it was. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

from tsdb.ops.metrics import counter, gauge

READ_SHARE = 4  # A read that needs more than one part in READ_SHARE of the cache keeps nothing.
CACHED, DECODED = "cached", "decoded"

GroupKey = tuple[str, int, tuple[str, ...]]  # Path of the file, number of the row group, columns.

groups_total = counter(
    "tsdb_history_row_groups_total",
    "Row groups of the table that reads of samples needed: taken from the cache in memory, or decoded.",
    "source",
    (CACHED, DECODED),
)
decoded_bytes = gauge("tsdb_history_decoded_bytes", "Bytes of decoded row groups of the table in the cache in memory.")


class DecodedRead:
    """Row groups of one read, which one thread uses. bytes_max: 0 where nothing is kept."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._needed = 0
        self.groups: dict[GroupKey, pa.Table] = {}

    def fits(self, size: int) -> bool:
        """Whether all that the read needed is small enough to be kept, with `size` bytes more."""
        self._needed += size
        if self._needed > self._bytes_max:
            self.groups.clear()
        return self._needed <= self._bytes_max


class DecodedGroups:
    """At most `bytes_max` bytes of row groups; the ones used least recently are dropped."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._groups: OrderedDict[GroupKey, pa.Table] = OrderedDict()
        self._bytes = 0

    def read(self) -> DecodedRead:
        """A new read, for `keep` at its end."""
        return DecodedRead(self._bytes_max // READ_SHARE)

    def get(self, key: GroupKey) -> pa.Table | None:
        with self._lock:
            found = self._groups.get(key)
            if found is not None:
                self._groups.move_to_end(key)
            return found

    def keep(self, read: DecodedRead) -> None:
        """Keep the row groups that the read decoded."""
        with self._lock:
            for key, group in read.groups.items():
                if key not in self._groups:
                    self._groups[key] = group
                    self._bytes += group.get_total_buffer_size()
            while self._bytes > self._bytes_max:
                _, oldest = self._groups.popitem(last=False)
                self._bytes -= oldest.get_total_buffer_size()
            decoded_bytes.set(self._bytes)

    def clear(self) -> None:
        with self._lock:
            self._groups.clear()
            self._bytes = 0
            decoded_bytes.set(0)
