"""Converts samples of series to tables of Arrow and pandas, with one row for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import labels_json, parse_labels

if TYPE_CHECKING:
    import pandas
    import pyarrow

SAMPLE_COLUMNS = ("ts_ms", "value")  # Columns of a data frame beside the labels.


def samples_arrow(
    canonical: Sequence[bytes], starts: NDArray[np.int64], ts_ms: NDArray[np.int64], values: NDArray[np.float64]
) -> pyarrow.Table:
    """Columns labels (sorted JSON, dictionary-encoded), ts_ms int64, value float64 bit for bit.

    Series i has samples [starts[i], starts[i + 1]).
    """
    # Imported here, so that other clients need not load Arrow.
    import pyarrow

    codes = np.repeat(np.arange(len(canonical), dtype=np.int32), np.diff(starts))
    names = pyarrow.array([labels_json(one) for one in canonical], pyarrow.string())
    labels = pyarrow.DictionaryArray.from_arrays(pyarrow.array(codes), names)
    return pyarrow.table({"labels": labels, "ts_ms": ts_ms, "value": values})


def samples_pandas(
    canonical: Sequence[bytes], starts: NDArray[np.int64], ts_ms: NDArray[np.int64], values: NDArray[np.float64]
) -> pandas.DataFrame:
    """A column for each label, then ts_ms int64 and value float64, both bit for bit.

    Label columns are categoricals, sorted by name, null where a series lacks the label. A label named ts_ms or value
    gets the column label_ts_ms or label_value. Raises InvalidRequest (pandas_missing) without the extra `pandas`.

    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            "pandas is not installed: `pip install 'kafka-tsdb[pandas]'`", reason="pandas_missing"
        ) from error

    labels = [dict(parse_labels(one)) for one in canonical]
    counts = np.diff(starts)
    columns: dict[str, Any] = {}
    for name in sorted({name for one in labels for name in one}):
        found = pandas.Categorical([one.get(name) for one in labels])
        column = f"label_{name}" if name in SAMPLE_COLUMNS else name
        columns[column] = pandas.Categorical.from_codes(np.repeat(found.codes, counts), dtype=found.dtype)
    return pandas.DataFrame(columns | {"ts_ms": ts_ms, "value": values})
