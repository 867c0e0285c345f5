"""Kernels of the series table: pages of rows found by series id, and a set of announcements without rows.

A row is 6 words of 8 bytes: series id; check, 64 further bits of the labels; pack id; one word for each parity of index
epoch (epoch: 24 bits, known until: 40 bits); flags, partition and the retry time of a renewal. A page has PAGE_ROWS
rows with linear probing. The directory finds the page by the first bits of the mixed series id (extendible hashing): a
full page is split into two, which moves PAGE_ROWS_MAX rows at most. When all pages are in use, a new series replaces
another one of its page. The announcements of a replaced series go into the set.

Mixing multiplies by a secret odd number, so that a sender cannot choose series of one page. Python twin: a dictionary
(tests/unit/ingest/series/test_series_table.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import multiply_high
from tsdb.codec.jit import Array3, helper, short_kernel

PAGE_ROWS = 128
PAGE_ROWS_MAX = 112  # Probes become long above 7/8.
WORDS = 6
SERIES_ID, CHECK, PACK, WAY, META = 0, 1, 2, 3, 5
# Pages of an empty table. With 3 in place of a power of 2 the pages are well filled at 2 and at 10 million series.
ROOTS = 3
DEPTH_MAX = 22  # Bits of the directory, which takes at most 48 MiB.

# Words of an entry of the set: check, with the parity of the epoch as its lowest bit, and the word of that parity.
ENTRY_WORDS = 2
BUCKET = 4  # Entries of one cache line. A series may be in either of two buckets, so that few overflow.

# Columns of `state`, int64.
ROWS, PAGES, REPLACED, FORGOTTEN = 0, 1, 2, 3
STATE = 4

# Rows of a page that are examined for a replacement, and those examined for a dead row only.
VICTIMS, FEW_VICTIMS = 8, 2
# One in eight new series replaces a row that is in use: a scan then displaces an eighth of its series at most.
ADMITTED_SHARE = 8

_TAKEN, _USED = np.uint64(1 << 24), np.uint64(1 << 25)
_PARTITION = np.uint64((1 << 24) - 1)
_UNTIL = np.uint64((1 << 40) - 1)
_LOW = np.uint64((1 << 32) - 1)
_EPOCH = np.uint64((1 << 24) - 1)
_0, _1, _7, _13, _17 = np.uint64(0), np.uint64(1), np.uint64(7), np.uint64(13), np.uint64(17)
_16, _24, _32, _40, _64 = np.uint64(16), np.uint64(24), np.uint64(32), np.uint64(40), np.uint64(64)
_RETRY_MS = 256
_HOMES = np.uint64(PAGE_ROWS - 1)

FOUND, ABSENT, CONFLICT = 0, 1, 2
NO_ROW, ENLARGE = -1, -2  # Results in place of a position.


@short_kernel
def find_kernel(
    pages: NDArray[np.uint64],
    directory: NDArray[np.int32],
    depth: int,
    factor: np.uint64,
    window_ms: int,
    series_id: NDArray[np.uint64],
    check: NDArray[np.uint64],
    first: int,
    end: int,
    found: NDArray[np.bool_],
    pack_id: NDArray[np.uint64],
    partition: NDArray[np.int64],
    known: Array3[np.int64],
) -> int:
    """Fill the outputs of the rows [first, end) that are in the table with both hashes; returns their number."""
    hits = 0
    for row in range(first, end):
        at = _find(pages, directory, depth, factor, series_id[row])
        found[row] = at >= 0 and pages[at + CHECK] == check[row]
        if found[row]:
            _read(pages, at, window_ms, row, pack_id, partition, known)
            hits += 1
    return hits


@short_kernel
def recall_kernel(
    pages: NDArray[np.uint64],
    directory: NDArray[np.int32],
    depth: int,
    page_rows: NDArray[np.int64],
    page_depth: NDArray[np.int64],
    entries: NDArray[np.uint64],
    state: NDArray[np.int64],
    random: NDArray[np.uint64],
    factor: np.uint64,
    now_ms: int,
    first: int,
    series_id: NDArray[np.uint64],
    check: NDArray[np.uint64],
    pack_id: NDArray[np.uint64],
    partition: NDArray[np.int64],
    window_ms: int,
    status: NDArray[np.uint8],
    known: Array3[np.int64],
) -> int:
    """Look for series from `first` on by their canonical labels, in the table and then among the announcements.

    Fills status (FOUND, ABSENT, CONFLICT) and known. A series with announcements gets a row again. Returns the index at
    which the directory has to be doubled first, or the number of series.
    """
    for index in range(first, series_id.size):
        at = _find(pages, directory, depth, factor, series_id[index])
        if at >= 0:
            status[index] = FOUND if pages[at + CHECK] == check[index] else CONFLICT
            if status[index] == FOUND:
                _read(pages, at, window_ms, index, pack_id, partition, known)
            continue
        status[index] = ABSENT
        known[index, :, :] = 0
        even, odd = _recalled(entries, factor, check[index])
        if even | odd == _0:
            continue
        _unpack(even, series_id[index], window_ms, 0, index, 0, known)
        _unpack(odd, series_id[index], window_ms, 0, index, 1, known)
        at = _settle(
            pages, directory, depth, page_rows, page_depth, entries, state, random, factor, now_ms,
            series_id[index], check[index], pack_id[index], partition[index], even, odd,
        )  # fmt: skip
        if at == ENLARGE:
            return index
    return series_id.size


@short_kernel
def announce_kernel(
    pages: NDArray[np.uint64],
    directory: NDArray[np.int32],
    depth: int,
    page_rows: NDArray[np.int64],
    page_depth: NDArray[np.int64],
    entries: NDArray[np.uint64],
    state: NDArray[np.int64],
    random: NDArray[np.uint64],
    factor: np.uint64,
    now_ms: int,
    first: int,
    series_id: NDArray[np.uint64],
    check: NDArray[np.uint64],
    pack_id: NDArray[np.uint64],
    partition: NDArray[np.int64],
    epoch: NDArray[np.int64],
    known_until_ms: int,
) -> int:
    """Record that series from `first` on are announced for `epoch`. Returns what recall_kernel returns.

    Of two series with one id the one in the table stays.

    """
    for index in range(first, series_id.size):
        word = (np.uint64(epoch[index]) & _EPOCH) << _40 | np.uint64(known_until_ms) & _UNTIL
        way = epoch[index] & 1
        at = _find(pages, directory, depth, factor, series_id[index])
        if at >= 0:
            if pages[at + CHECK] == check[index]:
                pages[at + WAY + way] = _newer(pages[at + WAY + way], word)
            continue
        even, odd = _recalled(entries, factor, check[index])
        if way == 0:
            even = _newer(even, word)
        else:
            odd = _newer(odd, word)
        at = _settle(
            pages, directory, depth, page_rows, page_depth, entries, state, random, factor, now_ms,
            series_id[index], check[index], pack_id[index], partition[index], even, odd,
        )  # fmt: skip
        if at == ENLARGE:
            return index
        if at == NO_ROW:
            _put_entry(entries, state, factor, now_ms, check[index], way, word)
    return series_id.size


@short_kernel
def postpone_kernel(
    pages: NDArray[np.uint64],
    directory: NDArray[np.int32],
    depth: int,
    factor: np.uint64,
    series_id: NDArray[np.uint64],
    check: NDArray[np.uint64],
    retry_at_ms: int,
) -> None:
    """Record that the announcements of these series are being renewed: no request does so before retry_at_ms."""
    retry = np.uint64((retry_at_ms + _RETRY_MS - 1) // _RETRY_MS) << _32
    for index in range(series_id.size):
        at = _find(pages, directory, depth, factor, series_id[index])
        if at >= 0 and pages[at + CHECK] == check[index]:
            pages[at + META] = pages[at + META] & _LOW | retry


@helper
def _find(
    pages: NDArray[np.uint64], directory: NDArray[np.int32], depth: int, factor: np.uint64, series_id: np.uint64
) -> int:
    """Position of the row of the series, or NO_ROW."""
    mixed = series_id * factor
    base = int(directory[_place(mixed, depth)]) * (PAGE_ROWS * WORDS)
    home = int(np.int64(mixed >> _16 & _HOMES))
    for step in range(PAGE_ROWS):
        at = base + ((home + step) & (PAGE_ROWS - 1)) * WORDS
        if pages[at + META] & _TAKEN == _0:
            return NO_ROW
        if pages[at + SERIES_ID] == series_id:
            return int(at)
    return NO_ROW


@helper
def _place(mixed: np.uint64, depth: int) -> int:
    """Index in the directory. The highest part of the mixed id chooses the root, then `depth` bits of the rest
    follow."""
    root = int(np.int64(multiply_high(mixed, np.uint64(ROOTS))))
    rest = mixed * np.uint64(ROOTS) >> _1 >> np.uint64(63 - depth)
    return (root << depth) + int(np.int64(rest))


@helper
def _read(
    pages: NDArray[np.uint64],
    at: int,
    window_ms: int,
    row: int,
    pack_id: NDArray[np.uint64],
    partition: NDArray[np.int64],
    known: NDArray[np.int64],
) -> None:
    meta = pages[at + META]
    if meta & _USED == _0:
        pages[at + META] = meta | _USED
    pack_id[row] = pages[at + PACK]
    partition[row] = np.int64(meta & _PARTITION)
    retry_ms = int(np.int64(meta >> _32)) * _RETRY_MS
    for way in range(2):
        _unpack(pages[at + WAY + way], pages[at + SERIES_ID], window_ms, retry_ms, row, way, known)


@helper
def _unpack(
    word: np.uint64,
    series_id: np.uint64,
    window_ms: int,
    retry_ms: int,
    row: int,
    way: int,
    known: NDArray[np.int64],
) -> None:
    """Epoch, known until and renewal time. A renewal is due in the second half of the window, at a time that the id
    chooses."""
    until = int(np.int64(word & _UNTIL))
    half = window_ms // 2
    # The high bits decide, because the low bits choose the phase of the index epoch.
    share = int(np.int64(series_id >> _32)) * half >> 32
    known[row, way, 0] = np.int64(word) >> 40
    known[row, way, 1] = until
    known[row, way, 2] = max(until - window_ms + half + share, retry_ms)


@helper
def _newer(old: np.uint64, new: np.uint64) -> np.uint64:
    """The word to keep: a late answer never shortens an announcement of the same epoch."""
    if new == _0 or (old >> _40 == new >> _40 and old > new):
        return old
    return new


@helper
def _is_live(word: np.uint64, now_ms: int) -> bool:
    return bool(np.int64(word & _UNTIL) > now_ms)


@helper
def _write(
    pages: NDArray[np.uint64],
    at: int,
    series_id: np.uint64,
    check: np.uint64,
    pack_id: np.uint64,
    partition: int,
    even: np.uint64,
    odd: np.uint64,
) -> None:
    pages[at + SERIES_ID], pages[at + CHECK], pages[at + PACK] = series_id, check, pack_id
    pages[at + WAY], pages[at + WAY + 1] = even, odd
    pages[at + META] = np.uint64(partition) & _PARTITION | _TAKEN


@helper
def _settle(
    pages: NDArray[np.uint64],
    directory: NDArray[np.int32],
    depth: int,
    page_rows: NDArray[np.int64],
    page_depth: NDArray[np.int64],
    entries: NDArray[np.uint64],
    state: NDArray[np.int64],
    random: NDArray[np.uint64],
    factor: np.uint64,
    now_ms: int,
    series_id: np.uint64,
    check: np.uint64,
    pack_id: np.uint64,
    partition: int,
    even: np.uint64,
    odd: np.uint64,
) -> int:
    """Give a series a row with its announcements, which leave the set. Returns as _admit does."""
    at = _admit(pages, directory, depth, page_rows, page_depth, entries, state, random, factor, now_ms, series_id)
    if at >= 0:
        _write(pages, at, series_id, check, pack_id, partition, even, odd)
        _clear_entries(entries, factor, check)
    return at


@helper
def _admit(
    pages: NDArray[np.uint64],
    directory: NDArray[np.int32],
    depth: int,
    page_rows: NDArray[np.int64],
    page_depth: NDArray[np.int64],
    entries: NDArray[np.uint64],
    state: NDArray[np.int64],
    random: NDArray[np.uint64],
    factor: np.uint64,
    now_ms: int,
    series_id: np.uint64,
) -> int:
    """Position of an empty row for a series without a row. It is NO_ROW without an empty row, and ENLARGE when the
    directory must be doubled first.
    """
    mixed = series_id * factor
    place = _place(mixed, depth)
    page = int(directory[place])
    # The rows of a page may all go to one half, so a split repeats.
    while page_rows[page] >= PAGE_ROWS_MAX and state[PAGES] < page_rows.size and page_depth[page] < DEPTH_MAX:
        if page_depth[page] == depth:
            return ENLARGE
        _split(pages, directory, depth, page_rows, page_depth, state, factor, page, place)
        page = int(directory[place])
    if page_rows[page] >= PAGE_ROWS_MAX:
        victim = _victim(pages, random, page, now_ms)
        if victim < 0:
            return NO_ROW
        for way in range(2):
            word = pages[victim + WAY + way]
            if _is_live(word, now_ms):
                _put_entry(entries, state, factor, now_ms, pages[victim + CHECK], way, word)
        _remove(pages, page, victim, factor)
        page_rows[page] -= 1
        state[ROWS] -= 1
        state[REPLACED] += 1
    page_rows[page] += 1
    state[ROWS] += 1
    return _empty(pages, page, mixed)


@helper
def _empty(pages: NDArray[np.uint64], page: int, mixed: np.uint64) -> int:
    """Position of the first empty row from the home of a series on. The page has one."""
    home = int(np.int64(mixed >> _16 & _HOMES))
    at = page * (PAGE_ROWS * WORDS) + home * WORDS
    while pages[at + META] & _TAKEN != _0:
        home = (home + 1) & (PAGE_ROWS - 1)
        at = page * (PAGE_ROWS * WORDS) + home * WORDS
    return at


@helper
def _victim(pages: NDArray[np.uint64], random: NDArray[np.uint64], page: int, now_ms: int) -> int:
    """The row to replace, or NO_ROW. A row without a live announcement comes first; else a share of the calls takes a
    little used row."""
    word = random[0]
    word ^= word << _13
    word ^= word >> _7
    word ^= word << _17
    random[0] = word
    admitted = word >> _40 & np.uint64(ADMITTED_SHARE - 1) == _0
    start = int(np.int64(word & _HOMES))
    chosen, last, examined = NO_ROW, NO_ROW, 0
    for step in range(PAGE_ROWS):
        at = (page * PAGE_ROWS + ((start + step) & (PAGE_ROWS - 1))) * WORDS
        meta = pages[at + META]
        if meta & _TAKEN == _0:
            continue
        if not (_is_live(pages[at + WAY], now_ms) or _is_live(pages[at + WAY + 1], now_ms)):
            return at
        if admitted and chosen < 0:
            if meta & _USED == _0:
                chosen = at
            pages[at + META] = meta & ~_USED
            last = at
        examined += 1
        if examined == (VICTIMS if admitted else FEW_VICTIMS):
            break
    return chosen if chosen >= 0 else last


@helper
def _remove(pages: NDArray[np.uint64], page: int, at: int, factor: np.uint64) -> None:
    """Empty a row and move later ones of its run back, so that each is found from its home without a gap."""
    base = page * (PAGE_ROWS * WORDS)
    hole = (at - base) // WORDS
    place = hole
    while True:
        place = (place + 1) & (PAGE_ROWS - 1)
        row = base + place * WORDS
        if pages[row + META] & _TAKEN == _0:
            break
        home = int(np.int64(pages[row + SERIES_ID] * factor >> _16 & _HOMES))
        if ((place - home) & (PAGE_ROWS - 1)) >= ((place - hole) & (PAGE_ROWS - 1)):
            for word in range(WORDS):
                pages[base + hole * WORDS + word] = pages[row + word]
            hole = place
    pages[base + hole * WORDS + META] = _0


@helper
def _split(
    pages: NDArray[np.uint64],
    directory: NDArray[np.int32],
    depth: int,
    page_rows: NDArray[np.int64],
    page_depth: NDArray[np.int64],
    state: NDArray[np.int64],
    factor: np.uint64,
    page: int,
    place: int,
) -> None:
    """Move the rows of a page whose next bit is 1 to a new page. `place`: any index of the page in the directory."""
    added = state[PAGES]
    state[PAGES] += 1
    page_depth[page] += 1
    page_depth[added] = page_depth[page]
    left = depth - page_depth[page]
    begin = ((place >> (left + 1)) * 2 + 1) << left
    for index in range(begin, begin + (1 << left)):
        directory[index] = np.int32(added)
    bit = _64 - np.uint64(page_depth[page])
    at = page * (PAGE_ROWS * WORDS)
    end = at + PAGE_ROWS * WORDS
    while at < end:
        moves = False
        if pages[at + META] & _TAKEN != _0:
            mixed = pages[at + SERIES_ID] * factor
            moves = mixed * np.uint64(ROOTS) >> bit & _1 == _1
        if not moves:
            at += WORDS
            continue
        to = _empty(pages, added, mixed)
        for word in range(WORDS):
            pages[to + word] = pages[at + word]
        page_rows[added] += 1
        page_rows[page] -= 1
        _remove(pages, page, at, factor)  # A later row may now be at this position, so `at` stays.


@helper
def _bucket(entries: NDArray[np.uint64], factor: np.uint64, check: np.uint64, choice: int) -> int:
    """Position of one of the two buckets of a series."""
    mixed = (check | _1) * factor
    if choice:
        mixed = (mixed >> _32 | mixed << _32) * factor
    return int(np.int64(multiply_high(mixed, np.uint64(entries.size // (BUCKET * ENTRY_WORDS))))) * BUCKET * ENTRY_WORDS


@helper
def _find_entry(entries: NDArray[np.uint64], factor: np.uint64, check: np.uint64, way: int) -> int:
    key = check & ~_1 | np.uint64(way)
    for choice in range(2):
        begin = _bucket(entries, factor, check, choice)
        for at in range(begin, begin + BUCKET * ENTRY_WORDS, ENTRY_WORDS):
            if entries[at] == key and entries[at + 1] != _0:
                return at
    return NO_ROW


@helper
def _recalled(entries: NDArray[np.uint64], factor: np.uint64, check: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The words of a series without a row, or 0."""
    even, odd = _0, _0
    for choice in range(2):
        begin = _bucket(entries, factor, check, choice)
        for at in range(begin, begin + BUCKET * ENTRY_WORDS, ENTRY_WORDS):
            if entries[at] == check & ~_1:
                even = entries[at + 1]
            elif entries[at] == check | _1:
                odd = entries[at + 1]
    return even, odd


@helper
def _clear_entries(entries: NDArray[np.uint64], factor: np.uint64, check: np.uint64) -> None:
    """Drop the entries of a series that has a row now. The row of another series may already have replaced them."""
    for way in range(2):
        at = _find_entry(entries, factor, check, way)
        if at >= 0:
            entries[at], entries[at + 1] = _0, _0


@helper
def _put_entry(
    entries: NDArray[np.uint64],
    state: NDArray[np.int64],
    factor: np.uint64,
    now_ms: int,
    check: np.uint64,
    way: int,
    word: np.uint64,
) -> None:
    """Keep an announcement of a series without a row, in the emptier bucket or in place of the oldest entry."""
    place = _find_entry(entries, factor, check, way)
    if place >= 0:
        entries[place + 1] = _newer(entries[place + 1], word)
        return
    most, place_ms = -1, 0
    for choice in range(2):
        begin = _bucket(entries, factor, check, choice)
        capacity, oldest, oldest_ms = 0, begin, 1 << 62
        for at in range(begin, begin + BUCKET * ENTRY_WORDS, ENTRY_WORDS):
            until_ms = int(np.int64(entries[at + 1] & _UNTIL))
            capacity += until_ms <= now_ms
            if until_ms < oldest_ms:
                oldest, oldest_ms = at, until_ms
        if capacity > most or (capacity == most and oldest_ms < place_ms):
            most, place, place_ms = capacity, oldest, oldest_ms
    if place_ms > now_ms:
        state[FORGOTTEN] += 1
    entries[place], entries[place + 1] = check & ~_1 | np.uint64(way), word
