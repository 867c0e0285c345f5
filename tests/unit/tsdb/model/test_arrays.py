"""Places of ranges are those of a loop over them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tsdb.model.arrays import joined_ranges


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_ranges_follow_one_another(ranges: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array(column, np.int64) for column in zip(*[(0, 0), *ranges], strict=True))
    expected = [start + step for start, length in ranges for step in range(length)]
    assert joined_ranges(starts, lengths).tolist() == expected
