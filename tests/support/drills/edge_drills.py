"""Drills at the edges: connections and bombs against each port of a deployment, with a bystander beside them.

control: an untouched server, measured at the same time. Without it the figures are compared with those before the
attack.
"""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from support.drills.bystander import Bystander, Figures, RssPeak, check_unharmed
from support.drills.edge_attackers import HTTP, MIB, Attack, Bombs, Crowd, bomb_kinds, crowds
from support.servers.logs import wait_until
from support.servers.processes import Role

DRAIN_S = 25.0
# docs/bounds.md, gRPC: twice the memory of requests, received and handled, and the memory that the allocator keeps.
WRITES_BYTES = 2 * 256 * MIB + 128 * MIB
READS_BYTES = 2 * 64 * MIB + 128 * MIB
CROWD_BYTES = 256 * MIB
# docs/bounds.md, HTTP: what is read ahead of 2,048 connections at most.
HTTP_BYTES = 128 * MIB
DESCRIPTORS_BYTES = 128 * MIB
DESCRIPTORS = 200
HELD_MIN = DESCRIPTORS * 3 // 4  # The most that the ports allow to clients: half for gRPC, a quarter for HTTP.
LINES_MAX = 40


def crowd(gateway: Role, reader: Role, *, connections: int, calls: int, control: Role | None = None) -> None:
    """Idle, slow and half-open connections on every port: other callers do not notice them, and they take little
    memory.
    """
    roles = _roles(gateway, reader)
    attackers = [one for role in roles for one in _crowds(role, connections)]
    with Bystander(gateway, reader, roles) as bystander:
        quiet = bystander.quiet(calls=calls)
        with RssPeak(reader.process.pid) as rss, Attack(attackers):
            quiet, attacked = _figures(bystander, quiet, control, calls)
        quiet = bystander.quiet_again(quiet, attacked, calls=calls)
        bystander.check_all_is_read_back()
    print(f"{connections} connections a port, RSS +{rss.grown_bytes / MIB:.0f} MiB")
    check_unharmed(quiet, attacked)
    assert rss.grown_bytes <= CROWD_BYTES


def bombs(
    gateway: Role,
    reader: Role,
    *,
    kinds: Sequence[tuple[str, str]],
    target: Role,
    count: int,
    calls: int,
    control: Role | None = None,
) -> None:
    """Bombs of each kind, `count` at once, on one port of `target`: they are refused within the bound of memory, and
    other callers do not notice them.
    """
    with Bystander(gateway, reader, _roles(gateway, reader)) as bystander:
        quiet = bystander.quiet(calls=calls)
        for method, kind in kinds:
            bound = HTTP_BYTES if method == HTTP else WRITES_BYTES if target is gateway else READS_BYTES
            lines_before = target.lines_logged()
            address = target.http if method == HTTP else target.grpc
            with RssPeak(target.process.pid) as rss, Attack([Bombs(address, method, kind, count)]):
                quiet, attacked = _figures(bystander, quiet, control, calls)
            quiet = bystander.quiet_again(quiet, attacked, calls=calls)
            print(f"{kind} to {method}: RSS +{rss.grown_bytes / MIB:.0f} MiB of {bound / MIB:.0f}")
            check_unharmed(quiet, attacked)
            assert rss.grown_bytes <= bound
            assert "Traceback" not in target.log_file.read_text()
            assert target.lines_logged() - lines_before <= LINES_MAX
        bystander.check_all_is_read_back()


def no_descriptors(role: Role, *, connections: int, calls: int, control: Role | None = None) -> None:
    """The process may open no more files, and strangers hold all that are left: probes and clients go on."""
    process = psutil.Process(role.process.pid)
    limit = process.rlimit(psutil.RLIMIT_NOFILE)
    with Bystander(role, role, [role]) as bystander:
        quiet = bystander.quiet(calls=calls)
        lines_before = role.lines_logged()
        process.rlimit(psutil.RLIMIT_NOFILE, (DESCRIPTORS, limit[1]))
        with RssPeak(process.pid) as rss, Attack(_crowds(role, connections)):
            # Waits before the figures are taken, because connections that time out together leave gaps.
            wait_until(lambda: process.num_fds() >= HELD_MIN, 20.0)
            held = process.num_fds()
            quiet, attacked = _figures(bystander, quiet, control, calls)
        process.rlimit(psutil.RLIMIT_NOFILE, limit)
        quiet = bystander.quiet_again(quiet, attacked, calls=calls)
        bystander.check_all_is_read_back()
    print(f"{held} descriptors held, {role.lines_logged() - lines_before} lines logged", end=", ")
    print(f"RSS +{rss.grown_bytes / MIB:.0f} MiB of {DESCRIPTORS_BYTES / MIB:.0f}")
    assert rss.grown_bytes <= DESCRIPTORS_BYTES
    assert role.lines_logged() - lines_before <= LINES_MAX
    assert role.log_file.read_text().count("no file descriptor") >= 1
    check_unharmed(quiet, attacked)


def ends_without_descriptors(role: Role, *, connections: int) -> None:
    """SIGTERM ends a process within drain_s although it can open no file."""
    process = psutil.Process(role.process.pid)
    process.rlimit(psutil.RLIMIT_NOFILE, (DESCRIPTORS, process.rlimit(psutil.RLIMIT_NOFILE)[1]))
    with Attack(_crowds(role, connections)):
        assert role.terminate_within(DRAIN_S) == 0


def ends_in_time(role: Role, attackers: Sequence[Crowd | Bombs]) -> None:
    """SIGTERM in the middle of an attack ends the process within drain_s."""
    with Attack(attackers):
        assert role.terminate_within(DRAIN_S) == 0


def crowds_of(role: Role, connections: int) -> list[Crowd]:
    """Idle, slow and half-open connections on both ports of a role."""
    return _crowds(role, connections)


def kinds_of(*, write: bool) -> list[tuple[str, str]]:
    """Every bomb for a role."""
    return bomb_kinds(write)


def _figures(bystander: Bystander, quiet: Figures, control: Role | None, calls: int) -> tuple[Figures, Figures]:
    """(the figures to compare with, those under attack)."""
    if control is None:
        return quiet, bystander.attacked(quiet, calls=calls)
    with Bystander(control, control, [control]) as untouched:
        return bystander.beside(untouched, calls=calls)


def _crowds(role: Role, connections: int) -> list[Crowd]:
    return [*crowds(role.http, connections, http=True), *crowds(role.grpc, connections, http=False)]


def _roles(gateway: Role, reader: Role) -> list[Role]:
    return list({gateway.grpc: gateway, reader.grpc: reader}.values())
