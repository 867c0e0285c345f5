"""Label names and values: complete for the stated offset, also when series come during a read."""

from __future__ import annotations

from typing import cast

import grpc
import pytest

from support.data.heads import Record, apply, new_head, register
from support.servers.queriers import Context, ServedHeads
from tsdb.head.head import Head
from tsdb.v1 import common_pb2, reader_pb2


class BusyCaller(Context):
    """Each check of this caller adds a series with a new instance to the head."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self._head = head

    def is_active(self) -> bool:
        offset = self._head.next_offset
        register(self._head, [3 * offset])
        apply(self._head, [Record(offset, 1000 + offset, ((3 * offset, 1000, 1.0),))])
        return True


@pytest.mark.parametrize("matchers", [[], [common_pb2.Matcher(name="job", value="test")]])
def test_values_of_all_series_below_the_stated_offset_are_in_the_answer(matchers: list[common_pb2.Matcher]) -> None:
    heads = {0: new_head(0), 1: new_head(1)}
    served = ServedHeads(heads)
    caller = BusyCaller(heads[0])
    caller.is_active()
    served.catch_up()
    request = reader_pb2.LabelValuesRequest(name="instance", matchers=matchers)
    request.options.allow_stale = True
    answer = served.service.LabelValues(request, cast(grpc.ServicerContext, caller))
    (state, _) = answer.header.partitions
    assert {f"i{offset}" for offset in range(state.applied_offset + 1)} <= set(answer.values)
    assert (heads[0].applied_offset or 0) > state.applied_offset, "series came in the middle of the read"
