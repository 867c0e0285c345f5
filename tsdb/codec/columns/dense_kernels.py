"""Dense value columns: the forms that are smaller than the packed one, and slower both ways. Used for chunks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.dictionary_kernels import write_dictionary
from tsdb.codec.columns.frame_kernels import head_of, write_entropy_frame
from tsdb.codec.columns.multiples_kernels import write_multiples
from tsdb.codec.columns.packed_kernels import exceptions_bytes, write_exceptions, write_head
from tsdb.codec.columns.plan_kernels import plan_entropy
from tsdb.codec.columns.scale_choice_kernels import integers_of
from tsdb.codec.columns.scale_kernels import FLOAT_BITS
from tsdb.codec.jit import helper

DENSE_FORMS = 3
MULTIPLES_FROM = 3  # bytes a value: a smaller column consists of small integers


@helper
def write_dense(
    form: int,
    values: NDArray[np.float64],
    start: int,
    n: int,
    out: NDArray[np.uint8],
    bound: int,
    scratch: NDArray[np.int64],
) -> int:
    """Write values[start : start + n], n >= 2, to out in one of DENSE_FORMS. Returns the bytes, or -1 if they are not
    below bound."""
    if form == 0:
        return _write_entropy(values, start, n, out, bound, scratch)
    if form == 1:
        return write_dictionary(values, start, n, out, bound, scratch)
    return write_multiples(values, start, n, out, bound, scratch) if bound > MULTIPLES_FROM * n else -1


@helper
def _write_entropy(
    values: NDArray[np.float64], start: int, n: int, out: NDArray[np.uint8], bound: int, scratch: NDArray[np.int64]
) -> int:
    """A packed column whose residuals go through the entropy coder."""
    integers, exceptions, residuals = scratch[:n], scratch[n : 2 * n], scratch[2 * n : 3 * n]
    scale, found = integers_of(values, start, n, integers, exceptions)
    planned = plan_entropy(integers, n, scale == FLOAT_BITS, residuals)
    aside = exceptions_bytes(exceptions, found)
    if planned[0] + aside > bound:
        return -1
    pos = write_head(head_of(planned), scale, found, out, 0)
    pos = write_entropy_frame(planned, n, residuals, out, pos, bound - aside)
    return write_exceptions(values, start, exceptions, found, out, pos) if pos >= 0 else -1
