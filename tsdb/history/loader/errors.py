"""Errors of the loader: the error policy, and the class for a record that cannot be loaded."""

from __future__ import annotations

from tsdb.model.errors import CorruptData, InvalidRequest, Overloaded, Unavailable
from tsdb.parallel_consumer import Action, Backoff, ErrorPolicy

BLOCK_BACKOFF = Backoff(first_s=0.2, longest_s=15.0)


class NotLoadable(CorruptData):
    """A record that cannot be loaded. Its hole is written, so that reads show the loss.

    The header of a dead letter has the module and name of this class, so it stays here.
    """

    default_reason = "not_loadable"


# An error that is not listed is a bug, or a record of a newer writer. The loader then stops and does not guess. A
# record that crashes the process is such a bug too: as a dead letter without a hole it would be a loss that no read
# shows.
POLICY = ErrorPolicy(
    actions={Unavailable: Action.BLOCK, Overloaded: Action.BLOCK, NotLoadable: Action.DEAD_LETTER},
    default=Action.FATAL,
    exhausted=Action.FATAL,
    crashes_max=None,
    block_backoff=BLOCK_BACKOFF,
)

# Refusals of a store that are caused by the record, not by the store.
REFUSED_ROWS = (InvalidRequest, CorruptData)
