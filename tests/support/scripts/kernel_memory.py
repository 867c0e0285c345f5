"""Run as a process with NUMBA_NRT_STATS=1: prints the arrays that kernels allocated and did not free, in two rounds."""

from __future__ import annotations

import json

from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys

from ingest.warm_up import warm_up as warm_up_gateway
from tsdb.answer.warm_up import warm_up as warm_up_client
from tsdb.chunks.warm_up import warm_up as warm_up_chunks
from tsdb.head.warm_up import warm_up as warm_up_head
from tsdb.query.warm_up import warm_up as warm_up_querier

ROUNDS = 2


def main() -> None:
    rtsys.initialize(cpu_target.target_context)  # Begins to count. A load of kernels leaves that out.
    warm_up_all()
    leaked = []
    for _ in range(ROUNDS):
        before = rtsys.get_allocation_stats()
        warm_up_all()
        after = rtsys.get_allocation_stats()
        leaked.append(after.mi_alloc - before.mi_alloc - (after.mi_free - before.mi_free))
    print(json.dumps(leaked))


def warm_up_all() -> None:
    for warm_up in (warm_up_head, warm_up_chunks, warm_up_client, warm_up_querier, warm_up_gateway):
        warm_up()


if __name__ == "__main__":
    main()
