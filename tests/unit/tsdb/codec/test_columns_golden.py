"""Columns of earlier builds stay readable, and the same column keeps its bytes.

A file is a JSON line {"n": ..., "what": "values" | "values_dense" | "times"}, the decoded column as int64, the encoded.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from support.data.column_cases import GOLDEN
from support.oracles import columns_twin as twin
from tsdb.codec.columns.columns import decode_times, decode_values, encode_times, encode_values, encode_values_dense

FILES = sorted((GOLDEN / "v1/columns").glob("*.column"))


def stored(name: str) -> tuple[str, list[int], bytes]:
    head, _, rest = (GOLDEN / "v1/columns" / name).read_bytes().partition(b"\n")
    claims = json.loads(head)
    size = 8 * claims["n"]
    return claims["what"], np.frombuffer(rest[:size], "<i8").tolist(), rest[size:]


@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_a_stored_column_decodes_to_the_values_stored_beside_it(name: str) -> None:
    what, column, data = stored(name)
    if what == "times":
        assert decode_times(data, len(column)).tolist() == column
        assert twin.decode_times(data, len(column)) == column
    else:
        assert decode_values(data, len(column)).view(np.int64).tolist() == column
        assert twin.decode_values(data, len(column)) == column


@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_a_column_is_encoded_to_the_stored_bytes(name: str) -> None:
    # Chunks are keyed and compared by their bytes: an encoder that chooses otherwise is a new codec version.
    what, column, data = stored(name)
    array = np.array(column, np.int64)
    if what == "times":
        assert encode_times(array) == data
    else:
        encode = encode_values if what == "values" else encode_values_dense
        assert encode(array.view(np.float64)) == data


def test_every_form_of_a_column_has_a_file() -> None:
    values = {stored(path.name)[2][0] for path in FILES if stored(path.name)[0] != "times"}
    assert {128, 129, 130, 131, 180} <= values
    assert any(first < 128 for first in values)
    assert any(132 <= first < 180 for first in values)
    assert any(first >= 192 for first in values)
    assert {stored(path.name)[2][0] // 64 for path in FILES if stored(path.name)[0] == "times"} == {0, 1}
