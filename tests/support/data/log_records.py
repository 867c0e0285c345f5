"""Log records for tests: between the twin's packs and the arrays of the real codec."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from support.oracles.record_twin import Pack
from tsdb.codec.records.log_record import DecodedRecords, decode_records, encode_record

GOLDEN = Path(__file__).parents[2] / "golden"


def encode_packs(packs: Sequence[Pack]) -> bytes:
    """The record as the real encoder writes it."""
    samples = [sample for pack in packs for sample in pack.samples]
    return encode_record(
        np.array([pack.pack_id for pack in packs], dtype=np.uint64),
        np.array([len(pack.samples) for pack in packs], dtype=np.uint32),
        np.array([series_id for series_id, _, _ in samples], dtype=np.uint64),
        np.array([ts_ms for _, ts_ms, _ in samples], dtype=np.int64),
        np.array([bits for _, _, bits in samples], dtype=np.uint64).view(np.float64),
    )


def decode_list(records: Sequence[bytes]) -> DecodedRecords:
    """The records decoded by the real decoder in one call."""
    return decode_records(b"".join(records), np.cumsum([0, *map(len, records)]).astype(np.int64))


def packs_of(decoded: DecodedRecords, record: int) -> list[Pack]:
    """The packs of one decoded record."""
    packs = []
    at = int(decoded.sample_start[record])
    bits = decoded.value.view(np.uint64)
    for pack in range(int(decoded.pack_start[record]), int(decoded.pack_start[record + 1])):
        end = at + int(decoded.pack_length[pack])
        columns = decoded.series_id[at:end].tolist(), decoded.ts_ms[at:end].tolist(), bits[at:end].tolist()
        packs.append(Pack(int(decoded.pack_id[pack]), tuple(zip(*columns, strict=True))))
        at = end
    assert at == decoded.sample_start[record + 1]
    return packs


def golden_packs(name: str) -> list[Pack]:
    """The packs of <name>.bin, as listed in tests/golden/v1/log_record/<name>.json."""
    stored = json.loads((GOLDEN / "v1/log_record" / f"{name}.json").read_text())
    return [
        Pack(int(pack["pack_id"], 16), tuple((int(sid, 16), ts, int(bits, 16)) for sid, ts, bits in pack["samples"]))
        for pack in stored["packs"]
    ]
