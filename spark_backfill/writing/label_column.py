"""Label column: labels of rows as the bytes that the gateway receives, without a Python object for each row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tsdb.model.labels import SEPARATOR

_SEPARATOR = pa.scalar(SEPARATOR, pa.binary())


def joined_labels(labels: pa.MapArray) -> pa.DictionaryArray:
    """Labels of each row as name 0xFF value 0xFF ..., in the row's order of names. The dictionary has each text once.

    Null for a row that is null or has a null label, and for a name or value that contains 0xFF, which is not UTF-8.

    """
    texts = [_text(labels.keys), _text(labels.items)]
    pairs = pc.binary_join_element_wise(*texts, _SEPARATOR)
    # A null map may have entries below it, and a slice of an array has the offsets of the whole.
    joined = pc.binary_join(pa.ListArray.from_arrays(labels.offsets, pairs), _SEPARATOR)
    return pc.if_else(labels.is_valid(), joined, pa.scalar(None, pa.binary())).dictionary_encode()


def _text(column: pa.Array) -> pa.Array:
    binary = column.cast(pa.binary())
    return pc.if_else(pc.match_substring(binary, SEPARATOR), pa.scalar(None, pa.binary()), binary)
