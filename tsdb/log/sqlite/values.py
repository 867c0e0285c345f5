"""Encodes the values of an embedded log in its file: plain, or compressed by zstd, alone or with a dictionary of the
lane.

A log record is mostly series ids. They do not compress within one record, but the records before have the same ids. So
a lane gets a dictionary, which is the end of the values appended so far, and a new one after some more bytes. Layout:
docs/formats/sqlite-log.md.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict

import zstandard

from tsdb.log.sqlite.database import Lane
from tsdb.model.errors import CorruptData

PLAIN_BYTES_MAX = 200  # Shorter values gain less than the call costs.
# Node data takes 4.6 B a sample, 6.1 with half of this size, and 20 without a dictionary.
DICTIONARY_BYTES = 256 * 1024
RENEWAL_BYTES = 8 * 1024 * 1024  # Bytes of values after which a new dictionary is made, which costs a fortieth of them.
LEVEL = 3
VALUE_BYTES_MAX = 4 * 1024 * 1024  # Above the size of every record that the log accepts.
DICTIONARIES_MAX = 64  # Most dictionaries in the memory of one reader.

PLAIN, ALONE = None, 0  # Codings. A positive coding is the number of a dictionary.


class LaneCoder:
    """Compresses the values of one lane. For the writer's thread, within its transaction.

    A failed transaction loses its dictionary, so another coder is needed then.
    """

    def __init__(self, connection: sqlite3.Connection, lane: Lane, *, own_dictionaries: bool) -> None:
        """own_dictionaries: false for a guest, since two writers cannot know when a dictionary is no longer used."""
        self._lane = lane.number
        self._own = own_dictionaries
        self._number = ALONE
        self._recent = bytearray()
        self._since = 0  # Bytes of values since the dictionary was made.
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        if own_dictionaries:
            self._load(connection)

    def encode(
        self, connection: sqlite3.Connection, value: bytes | None, row_id: int
    ) -> tuple[int | None, bytes | None]:
        """(coding, bytes) of the value of a row, the highest of its lane."""
        if value is None or len(value) < PLAIN_BYTES_MAX:
            return PLAIN, value
        if self._own:
            self._remember(connection, value, row_id)
        data = self._compressor.compress(value)
        return (self._number, data) if len(data) < len(value) else (PLAIN, value)

    def _load(self, connection: sqlite3.Connection) -> None:
        """Go on with the dictionary of the process before."""
        row = connection.execute(
            "SELECT number, data FROM dictionaries WHERE lane = ? AND last_id IS NULL ORDER BY number DESC LIMIT 1",
            (self._lane,),
        ).fetchone()
        if row is not None:
            self._use(row[0], _expand(row[1], DICTIONARY_BYTES))

    def _remember(self, connection: sqlite3.Connection, value: bytes, row_id: int) -> None:
        limit = DICTIONARY_BYTES if self._number == ALONE else RENEWAL_BYTES
        if self._since >= limit:
            self._renew(connection, row_id)
        self._since += len(value)
        if self._since > limit - 2 * DICTIONARY_BYTES:  # Keep only the bytes that fit into the next dictionary.
            self._recent += value
            del self._recent[:-DICTIONARY_BYTES]

    def _renew(self, connection: sqlite3.Connection, row_id: int) -> None:
        data = bytes(self._recent)
        connection.execute(
            "UPDATE dictionaries SET last_id = ? WHERE lane = ? AND last_id IS NULL", (row_id - 1, self._lane)
        )
        number = connection.execute(
            "SELECT coalesce(max(number), 0) + 1 FROM dictionaries WHERE lane = ?", (self._lane,)
        ).fetchone()[0]
        stored = zstandard.ZstdCompressor(level=LEVEL).compress(data)
        connection.execute("INSERT INTO dictionaries VALUES (?, ?, NULL, ?)", (self._lane, number, stored))
        self._use(number, data)

    def _use(self, number: int, data: bytes) -> None:
        dictionary = _dictionary(data)
        dictionary.precompute_compress(level=LEVEL)
        self._number, self._since = number, 0
        self._recent.clear()
        self._compressor = zstandard.ZstdCompressor(dict_data=dictionary, level=LEVEL, write_dict_id=False)


class LaneCoders:
    """The coders of all lanes, for the writer's thread."""

    def __init__(self, *, own_dictionaries: bool) -> None:
        self._own = own_dictionaries
        self._coders: dict[int, LaneCoder] = {}

    def of(self, connection: sqlite3.Connection, lane: Lane) -> LaneCoder:
        """The coder of a lane."""
        if lane.number not in self._coders:
            self._coders[lane.number] = LaneCoder(connection, lane, own_dictionaries=self._own)
        return self._coders[lane.number]

    def forget(self) -> None:
        """A transaction has failed, and with it the dictionaries that it made."""
        self._coders.clear()


class ValueReader:
    """Expands the values that one connection reads."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._alone = zstandard.ZstdDecompressor()
        self._of_dictionary: OrderedDict[tuple[int, int], zstandard.ZstdDecompressor] = OrderedDict()

    def decode(self, lane: Lane, coding: int | None, data: bytes | None) -> bytes | None:
        """The value as it was appended. Raises CorruptData."""
        if coding is PLAIN or data is None:
            return data
        with_dictionary = self._alone if coding == ALONE else self._decompressor(lane, coding)
        return _expand(data, VALUE_BYTES_MAX, with_dictionary)

    def _decompressor(self, lane: Lane, number: int) -> zstandard.ZstdDecompressor:
        place = (lane.number, number)
        if place not in self._of_dictionary:
            row = self._connection.execute(
                "SELECT data FROM dictionaries WHERE lane = ? AND number = ?", place
            ).fetchone()
            if row is None:
                raise CorruptData(f"the embedded log has no dictionary {number} of lane {lane.number}")
            dictionary = _dictionary(_expand(row[0], DICTIONARY_BYTES))
            self._of_dictionary[place] = zstandard.ZstdDecompressor(dict_data=dictionary)
            if len(self._of_dictionary) > DICTIONARIES_MAX:
                self._of_dictionary.popitem(last=False)
        self._of_dictionary.move_to_end(place)
        return self._of_dictionary[place]


def drop_unused(connection: sqlite3.Connection, lane: Lane, low_id: int) -> None:
    """Delete the dictionaries that only rows below low_id used."""
    connection.execute("DELETE FROM dictionaries WHERE lane = ? AND last_id < ?", (lane.number, low_id))


def _dictionary(data: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _expand(data: bytes, bytes_max: int, decompressor: zstandard.ZstdDecompressor | None = None) -> bytes:
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= bytes_max:
            raise CorruptData(f"a value of the embedded log claims {size} bytes; limit is {bytes_max}")
        return (decompressor or zstandard.ZstdDecompressor()).decompress(data)
    except zstandard.ZstdError as error:
        raise CorruptData(f"a value of the embedded log does not expand: {error}") from error
