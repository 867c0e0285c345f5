"""File descriptors of the process: raise the limit as far as possible, and give connections a share of it.

The rest is for the log, history and all other files of the process.
"""

from __future__ import annotations

import resource

GRPC_SHARE = 2
HTTP_SHARE = 4


def raise_limit() -> None:
    """Raise the soft limit to the hard limit. The soft limit is often 1,024, for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def grpc_connections(connections_max: int) -> int:
    """The bound of connections, at most half of the descriptors."""
    return share_of(connections_max, GRPC_SHARE)


def http_connections(connections_max: int) -> int:
    """`connections_max`, or a quarter of the descriptors if that is lower."""
    return share_of(connections_max, HTTP_SHARE)


def share_of(count: int, share: int) -> int:
    """The lower one of `count` and 1/`share` of all descriptors, and at least 1."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return count if soft == resource.RLIM_INFINITY else max(1, min(count, soft // share))
