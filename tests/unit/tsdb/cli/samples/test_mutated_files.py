"""Any file is read, or refused with its name; no other error is raised and nothing hangs."""

from __future__ import annotations

import io
import random
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsdb.cli.samples.source import Format, read_rows
from tsdb.model.errors import InvalidRequest

FILES_A_FORMAT = 800
WITHIN_CPU_S = 50.0  # Ends a hang; a run takes some hundred milliseconds.
PIECES = (b'"', b",", b"\n", b"{", b"}", b"\x00", b"\xff", b"1e999", b"-", b"9" * 30, b"\\", b"\r", b"null", b":", b"[")


def parquet(*columns: tuple[str, pa.Array]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table([column for _, column in columns], names=[name for name, _ in columns]), file)
    return file.getvalue()


LABELS, TIME, VALUE = ("labels", pa.array(["{}"])), ("ts_ms", pa.array([1])), ("value", pa.array([1.0]))
SEEDS: dict[Format, tuple[bytes, ...]] = {
    "parquet": (
        parquet(LABELS, TIME, VALUE),
        parquet(LABELS, LABELS, TIME, VALUE),
        parquet(("labels", pa.array([b"\xff\xfe"], pa.binary())), TIME, VALUE),
        parquet(("labels", pa.array([None], pa.null())), TIME, VALUE),
        parquet(("labels", pa.array(["{}"]).dictionary_encode()), TIME, ("value", pa.array(["x"]))),
        parquet(LABELS, ("ts_ms", pa.array([2**63], pa.uint64())), VALUE),
        parquet(LABELS, ("ts_ms", pa.array([2**62], pa.timestamp("us", "UTC"))), VALUE),
        parquet(LABELS, ("ts_ms", pa.array([1], pa.decimal128(5, 2))), ("value", pa.array([1], pa.decimal128(5, 2)))),
    ),
    "csv": (
        b'labels,ts_ms,value\n"{""a"":""b""}",1,2\n"{}",2,NaN\n',
        b"labels,labels,ts_ms,value\n{},{},1,2\n",
        b"labels,ts_ms,value\r\n{},2,+Inf\r\n",
        b'"labels",ts_ms,value\r{},1,1\r',
    ),
    "jsonl": (
        b'{"labels":{"__name__":"a"},"ts_ms":1,"value":2.5}\n{"labels":{"a":"b"},"ts_ms":1,"value":"NaN"}\n',
        b'{"labels":{"a":"\\ud800"},"ts_ms":1,"value":1}',
        b"[" * 200_000,
    ),
    "prom": (b'a{x="1"} 3 # {t="a"} 0.5\nb 2 17\n# EOF\n',),
    "openmetrics": (b'a{x="1"} 3 1.5\n# EOF\n',),
}


def mutated(chance: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(0, 5)):
        at = chance.randint(0, len(changed))
        match chance.randint(0, 3):
            case 0:
                changed[at:at] = chance.choice(PIECES)
            case 1:
                del changed[at : at + chance.randint(1, 8)]
            case 2:
                changed[at : at + 1] = bytes([chance.randint(0, 255)])
            case _:
                changed = changed[:at] * 2
    return bytes(changed)


@pytest.mark.parametrize("form", SEEDS)
def test_a_mutated_file_is_read_or_refused(form: Format) -> None:
    chance = random.Random(f"mutated {form}")
    contents = [*SEEDS[form], *(mutated(chance, chance.choice(SEEDS[form])) for _ in range(FILES_A_FORMAT))]
    began, read, unnamed = time.process_time(), 0, 0
    for content in contents:
        try:
            read += sum(len(rows.by_time()) for rows in read_rows(io.BytesIO(content), "the-file", form, now_ms=0))
        except InvalidRequest as error:
            unnamed += "the-file" not in error.message
    assert read > 0
    assert unnamed == 0
    assert time.process_time() - began < WITHIN_CPU_S
