"""The glossary has one row for each word of the project, with its meaning and its name elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

GLOSSARY = Path(__file__).resolve().parents[3] / "docs" / "glossary.md"

STORE_WORDS = """
    sample, series, placement, partition, pack, window, slice, broker time, watermark, order, head, coverage,
    late minute, applied offset, next_offset, decision offset D, position, emitted_through, chunk, fragment,
    base, late, folded, progress marker, loaded, hole, time set, series_id, ref, canonical labels, metric
    family, topic_id, high_watermark, since_offset, late list, fold, postings, matcher, tombstone, null record,
    tick, announcement, index epoch, seam, readiness, replay, token, frame, overlay, grace, spread, layout
    order, time axis, cover, follower, start from zero, arena, lane, emission, incarnation, conflict, selection,
    share, routing, stretch
"""
CONSUMER_WORDS = """
    record, TopicPartition, position, commit metadata, tracker, order, lane, UNORDERED, BARRIER, handler, task,
    block, slot, streak, executor, completion, mailbox, deferral, producer, dead letter, requeue, nack, attempt,
    attempt history, crash, suspect, generation, intake, admission, quota, over quota, throttle, breaker,
    linger, newest wins, control, control file, drain, stall, registry, wait record, copy, orphan, pending
    output, fenced, chain
"""


def words(text: str) -> set[str]:
    return {" ".join(word.split()) for word in text.split(",")}


def rows() -> list[tuple[str, list[str]]]:
    """(section, cells) of each row below the header of a table."""
    section, found = "", []
    for line in GLOSSARY.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("|") and not line.startswith(("| word ", "|---")):
            found.append((section, [cell.strip() for cell in line.strip("|").split(" | ")]))
    return found


def words_of(cell: str) -> list[str]:
    return [re.sub(r" \(.*\)|`", "", word).strip() for word in cell.split(", ")]


def test_each_row_has_a_word_a_meaning_and_a_name_elsewhere() -> None:
    assert [cells for _, cells in rows() if len(cells) != 3 or not all(cells)] == []


def test_the_words_of_the_store_are_there() -> None:
    found = {word for section, cells in rows() if section != "Parallel consumer" for word in words_of(cells[0])}
    assert sorted(words(STORE_WORDS) - found) == []


def test_the_words_of_the_parallel_consumer_are_there() -> None:
    found = {word for section, cells in rows() if section == "Parallel consumer" for word in words_of(cells[0])}
    assert sorted(words(CONSUMER_WORDS) - found) == []


def test_a_word_has_one_row_in_the_store_and_one_in_the_parallel_consumer() -> None:
    count = Counter((section == "Parallel consumer", cells[0].replace("`", "")) for section, cells in rows())
    assert [word for word, number in count.items() if number > 1] == []
