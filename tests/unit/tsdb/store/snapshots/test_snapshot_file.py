"""Snapshot file: a round trip through the disk, and every way that a file can be bad."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.data.exemplars import plain, records_of
from support.data.heads import Record, apply, details_of, id_of, new_head, refs_of
from support.data.snapshots import place_of_image, read_head, write_head
from tsdb.head.head import Head
from tsdb.head.head_image import image_of
from tsdb.model.details import same_details
from tsdb.model.errors import CorruptData, TsdbError, UnknownVersion
from tsdb.store.snapshots.content import document_of, groups_of
from tsdb.store.snapshots.file_reader import SnapshotFile
from tsdb.store.snapshots.file_writer import PIECE_BYTES, SUFFIX, write_file

SERIES = range(6)
NOW_MS = 10_000
MALFORMED = (ValueError, KeyError, TypeError, IndexError)
FLIPS, CUTS = 300, 200


@pytest.fixture
def head() -> Head:
    """Open, sealed and merged slices, late samples in the list and in slices, a slice below coverage, a hole."""
    head = new_head(series=len(SERIES))
    for number in range(150):
        now_ms = NOW_MS + 4 * number
        samples = tuple((n, now_ms - back, float(number + n)) for n in SERIES for back in (0, 130 * (number % 3)))
        apply(head, [Record(number, now_ms, samples)])
        if number % 4 == 0:
            head.maintain()
    apply(head, [Record(150, NOW_MS + 600, ((99, NOW_MS + 600, 1.0), (1, NOW_MS - 200, 1.0)))])
    return head


def test_a_head_is_the_same_after_a_round_trip(head: Head, tmp_path: Path) -> None:
    contents = head.contents
    parts = (contents.open.count, contents.late.count, contents.sealed, contents.below, contents.holes.all)
    assert all(parts), f"a part of the head is empty: {parts}"
    size = write_head(head, tmp_path / "one")
    assert size == (tmp_path / "one").stat().st_size
    assert [file.name for file in tmp_path.iterdir()] == ["one"]
    found = read_head(tmp_path / "one")
    assert found.state() == head.state()
    assert answer(found) == answer(head)


def test_exemplars_are_in_the_file_and_without_them_it_has_neither_field_nor_group(tmp_path: Path) -> None:
    head = new_head(series=1)
    apply(head, [Record(0, NOW_MS, ((0, NOW_MS, 1.0),))])
    image = image_of(head)
    assert "exemplars" not in document_of(image, place_of_image(image), {})
    assert "exemplars" not in [name for name, _ in groups_of(image)]
    ones = [(id_of(0), ts_ms, 0.5, {"trace_id": str(ts_ms)}) for ts_ms in range(9)]
    head.apply(records_of([ones]), np.ones(1, np.int64), np.full(1, NOW_MS))
    write_head(head, tmp_path / "with")
    found = read_head(tmp_path / "with")
    assert plain(found.exemplars_of(refs_of(found, [0]), 0, 100)) == ones


def test_sealed_slices_are_mapped_and_outlive_the_name_of_their_file(head: Head, tmp_path: Path) -> None:
    path = tmp_path / "one"
    write_head(head, path)
    found = read_head(path)
    for slice_ in (*found.contents.sealed, *found.contents.below):
        assert not slice_.data.flags.writeable
        assert not slice_.data.flags.owndata
    assert str(path) in Path("/proc/self/maps").read_text()
    # A later snapshot takes the name; the mapped file goes with its last slice.
    write_head(new_head(series=1), path)
    assert answer(found) == answer(head)
    path.unlink()
    assert answer(found) == answer(head)


def test_mapped_slices_are_memory_of_the_process_only_after_a_read(head: Head, tmp_path: Path) -> None:
    path = tmp_path / "one"
    write_head(head, path)
    found = read_head(path)
    assert mapped_kib(path) == 0
    answer(found)
    assert mapped_kib(path) > 0
    # The next snapshot reads all of them.
    write_head(found, tmp_path / "two")
    assert mapped_kib(path) == 0
    assert answer(found) == answer(head)


def mapped_kib(path: Path) -> int:
    """Resident memory of all maps of a file."""
    resident, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            ours = words[-1] == str(path)
        elif ours and words[0] == "Rss:":
            resident += int(words[1])
    return resident


def test_an_image_stays_as_it_is_while_its_head_goes_on(head: Head, tmp_path: Path) -> None:
    image = image_of(head)
    want, state = answer(head), head.state()
    document = document_of(image, place_of_image(image), {})
    for number in range(151, 300):
        now_ms = NOW_MS + 4 * number
        apply(head, [Record(number, now_ms, tuple((n, now_ms - n * 50, 5.0) for n in SERIES))])
        head.maintain()
    write_file(tmp_path / "one", document, groups_of(image), lambda: None)
    found = read_head(tmp_path / "one")
    assert found.state() == state
    assert answer(found) == want


def test_a_file_cut_anywhere_is_passed_over(head: Head, tmp_path: Path) -> None:
    path = tmp_path / "one"
    size = write_head(head, path)
    data = path.read_bytes()
    lengths = {0, 1, 39, 40, 63, 64, size - 1, *random.Random(5).sample(range(size), CUTS)}
    for length in lengths:
        path.write_bytes(data[:length])
        with pytest.raises(CorruptData) as raised:
            read_head(path)
        assert raised.value.reason == "half_written"


def test_a_file_that_was_allocated_but_not_filled_is_passed_over(head: Head, tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_bytes(bytes(write_head(head, path)))
    with pytest.raises(CorruptData) as raised:
        read_head(path)
    assert raised.value.reason == "half_written"


def test_a_byte_that_changed_is_noticed_or_belongs_to_nothing(head: Head, tmp_path: Path) -> None:
    path = tmp_path / "one"
    size = write_head(head, path)
    data, want, noticed = path.read_bytes(), answer(head), 0
    flip = random.Random(7)
    for at in (*range(48), *flip.sample(range(48, size), FLIPS)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << flip.randrange(8)]) + data[at + 1 :])
        try:
            found = read_head(path)
        except (TsdbError, *MALFORMED):
            noticed += 1
        else:
            assert at >= 40, "a byte of the header"
            assert answer(found) == want
    assert noticed > FLIPS // 4


@pytest.mark.parametrize(("kind", "version"), [(0, 1), (1, 2), (8, 2)])
def test_a_head_with_details_has_another_version(tmp_path: Path, kind: int, version: int) -> None:
    path, head = tmp_path / "one", new_head(series=1)
    apply(head, [Record(0, 100, ((0, 100, 4.0),), details=(kind,) if kind else ())])
    write_head(head, path)
    assert path.read_bytes()[8] == version
    found = read_head(path).gather_raw(refs_of(head, [0]), 0, 1000)
    assert same_details(found.details, details_of([kind], found.values))


@pytest.mark.parametrize("version", [0, 3, 255])
def test_another_version_is_passed_over(head: Head, tmp_path: Path, version: int) -> None:
    path = tmp_path / "one"
    write_head(head, path)
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), bytes([version]), 8)
    with pytest.raises(UnknownVersion):
        read_head(path)


@pytest.mark.parametrize("data", [b"x" * 10_000, b"TSDBHEAD" + b"\xff" * 200, b"SQLite format 3\0" * 9])
def test_another_file_is_passed_over(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "one").write_bytes(data)
    with pytest.raises(TsdbError):
        SnapshotFile(tmp_path / "one")


def test_a_write_that_fails_anywhere_leaves_the_former_file(head: Head, tmp_path: Path) -> None:
    path = tmp_path / "one"
    write_head(head, path)
    before = path.read_bytes()
    big = [("late", [("value", np.zeros(3 * PIECE_BYTES // 8))])]
    for pieces in range(3):
        with pytest.raises(OSError, match="No space"):
            write_file(path, {}, big, after(pieces, OSError(errno.ENOSPC, "No space left on device")))
        assert path.read_bytes() == before
        assert not path.with_name(path.name + SUFFIX).exists()


def after(calls: int, error: Exception) -> Callable[[], None]:
    """A pause that fails after some calls."""
    left = [calls]

    def pause() -> None:
        if not left[0]:
            raise error
        left[0] -= 1

    return pause


def answer(head: Head) -> list[bytes]:
    """All samples in memory with their orders."""
    raw = head.gather_raw(refs_of(head, SERIES), 0, 2 * NOW_MS, partial=True)
    assert raw.orders is not None
    return [raw.counts.tobytes(), raw.ts_ms.tobytes(), raw.values.tobytes(), raw.orders.tobytes()]
