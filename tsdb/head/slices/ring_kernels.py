"""Ring: the samples of records that readers may see, copied with their records' offsets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import kernel
from tsdb.head.slices.rows import IGNORED_REF


@kernel
def visible_kernel(
    record_offsets: NDArray[np.int64],
    sample_start: NDArray[np.int64],
    first_record: int,
    refs: NDArray[np.uint32],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    out_refs: NDArray[np.uint32],
    out_offsets: NDArray[np.int64],
    out_ts_ms: NDArray[np.int64],
    out_values: NDArray[np.float64],
) -> None:
    """Record i has the samples [sample_start[i], sample_start[i + 1]). The out arrays are as long as the records from
    first_record on have visible samples: neither unknown nor ignored."""
    count = 0
    for record in range(first_record, record_offsets.size):
        for index in range(sample_start[record], sample_start[record + 1]):
            if refs[index] < IGNORED_REF:
                out_refs[count], out_offsets[count] = refs[index], record_offsets[record]
                out_ts_ms[count], out_values[count] = ts_ms[index], values[index]
                count += 1
