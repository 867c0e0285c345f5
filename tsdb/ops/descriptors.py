"""File descriptors of the process: the limit raised as far as it goes, and shares of it for connections.

What is left of them is for the log, history and everything else that a process opens.
"""

from __future__ import annotations

import resource

GRPC_SHARE = 2
HTTP_SHARE = 4


def raise_limit() -> None:
    """Ask for as many as the process may have: the soft limit is often 1,024, for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def grpc_connections(connections_max: int) -> int:
    """At most half of the descriptors."""
    return share_of(connections_max, GRPC_SHARE)


def http_connections(connections_max: int) -> int:
    """At most a quarter of the descriptors."""
    return share_of(connections_max, HTTP_SHARE)


def share_of(count: int, share: int) -> int:
    """`count`, and at most the `share`-th part of all descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return count if soft == resource.RLIM_INFINITY else max(1, min(count, soft // share))
