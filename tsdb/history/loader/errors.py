"""What the loader makes of a record that it cannot load, and what each error leads to."""

from __future__ import annotations

from tsdb.model.errors import CorruptData, InvalidRequest, Overloaded, Unavailable
from tsdb.parallel_consumer import Action, Backoff, ErrorPolicy

BLOCK_BACKOFF = Backoff(first_s=0.2, longest_s=15.0)


class NotLoadable(CorruptData):
    """A record that is no use to history. Its hole is written: readers know of the loss."""

    default_reason = "not_loadable"


# What is not listed is a bug of ours or a newer writer's record: the loader stops rather than guess. A record that ends
# the process is such a bug too: as a dead letter without a hole it would be a loss that no read tells of.
POLICY = ErrorPolicy(
    actions={Unavailable: Action.BLOCK, Overloaded: Action.BLOCK, NotLoadable: Action.DEAD_LETTER},
    default=Action.FATAL,
    exhausted=Action.FATAL,
    crashes_max=None,
    block_backoff=BLOCK_BACKOFF,
)

# Refusals of a store that tell of the record, not of the store.
REFUSED_ROWS = (InvalidRequest, CorruptData)
