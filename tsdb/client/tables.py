"""Converts samples of series to tables of Arrow and pandas, with one row for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import labels_json, parse_labels

if TYPE_CHECKING:
    import pandas
    import pyarrow


def samples_arrow(
    canonical: Sequence[bytes],
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    details: SampleDetails | None = None,
    *,
    start_times: bool = False,
) -> pyarrow.Table:
    """Columns labels (sorted JSON, dictionary-encoded), ts_ms int64, value float64 bit for bit.

    Series i has samples [starts[i], starts[i + 1]). Where a sample is a native histogram, a column `histogram` of
    structs (tsdb.codec.histogram_rows) follows: null for a number, and a histogram has a null value. start_times: a
    column start_ms int64 follows, null for a sample without a start timestamp.
    """
    # Imported here, so that other clients need not load Arrow.
    import pyarrow

    codes = np.repeat(np.arange(len(canonical), dtype=np.int32), np.diff(starts))
    names = pyarrow.array([labels_json(one) for one in canonical], pyarrow.string())
    labels = pyarrow.DictionaryArray.from_arrays(pyarrow.array(codes), names)
    columns = {"labels": labels, "ts_ms": ts_ms, "value": values}
    return pyarrow.table(columns | _detail_columns(values, details, start_times=start_times))


def _detail_columns(
    values: NDArray[np.float64], details: SampleDetails | None, *, start_times: bool
) -> dict[str, pyarrow.Array]:
    """The columns that details add or replace."""
    if not start_times and (details is None or details.histograms is None):
        return {}
    import pyarrow

    from tsdb.codec.histogram_rows import histogram_column

    columns: dict[str, pyarrow.Array] = {}
    if details is not None and details.histogram_of is not None:
        columns["value"] = pyarrow.array(values, mask=details.histogram_of >= 0, from_pandas=False)
        columns["histogram"] = histogram_column(details, len(values))
    if start_times:
        start_ms = None if details is None else details.start_ms
        if start_ms is None:
            columns["start_ms"] = pyarrow.nulls(len(values), pyarrow.int64())
        else:
            columns["start_ms"] = pyarrow.array(start_ms, mask=start_ms == 0)
    return columns


def samples_pandas(
    canonical: Sequence[bytes],
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    details: SampleDetails | None = None,
    *,
    start_times: bool = False,
) -> pandas.DataFrame:
    """A column for each label, then ts_ms int64 and value float64, both bit for bit.

    Label columns are categoricals, sorted by name, null where a series lacks the label. A label named as one of the
    other columns gets a column such as label_ts_ms or label_value. Columns `histogram` and `start_ms` as of
    `samples_arrow`, with types of Arrow; the value of a histogram is NaN. Raises InvalidRequest (pandas_missing)
    without the extra `pandas`.

    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            "pandas is not installed: `pip install 'kafka-tsdb[pandas]'`", reason="pandas_missing"
        ) from error

    labels = [dict(parse_labels(one)) for one in canonical]
    counts = np.diff(starts)
    more = _detail_columns(values, details, start_times=start_times)
    taken = ("ts_ms", "value", *more)
    columns: dict[str, Any] = {}
    for name in sorted({name for one in labels for name in one}):
        found = pandas.Categorical([one.get(name) for one in labels])
        column = f"label_{name}" if name in taken else name
        columns[column] = pandas.Categorical.from_codes(np.repeat(found.codes, counts), dtype=found.dtype)
    if details is not None and details.histogram_of is not None:
        values = np.where(details.histogram_of >= 0, np.nan, values)
        more.pop("value")
    typed = {name: pandas.Series(pandas.arrays.ArrowExtensionArray(column)) for name, column in more.items()}
    return pandas.DataFrame(columns | {"ts_ms": ts_ms, "value": values} | typed)
