"""`tsdb await-release`: makes the pods themselves keep the order of an upgrade.

A reader refuses records of a newer writer, so readers are upgraded before writers. A writer's pod runs this command
first. It waits only while an older release answers. So a process that is down, or never existed, cannot prevent a
writer's start.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tsdb.cli.options.connection import address
from tsdb.cli.terminal.output import note
from tsdb.config.types import HostPort, host_port
from tsdb.ops.http.get import http_get

EVERY_S = 2.0
ANSWER_WITHIN_S = 2.0
ANSWER_BYTES_MAX = 1 << 20
HEALTHY = "/-/healthy"

Release = tuple[int, ...]


def await_release(
    addresses: Annotated[
        list[str],
        typer.Argument(parser=address, metavar="HOST:PORT...", help="HTTP servers; a name: all its addresses."),
    ],
    tls_ca: Annotated[
        Path | None,
        typer.Option("--tls-ca", help="Use TLS; PEM of the trusted authorities."),
    ] = None,
    release: Annotated[str, typer.Option("--release", help="Release to wait for; by default of this command.")] = "",
) -> None:
    """Wait until no process behind HOST:PORT runs an older release than this one.

    Pods of writers run it first, so that readers are upgraded before them. A process that does not answer is passed
    over.
    """
    wanted = release or _own_release()
    if not release_of(wanted):
        raise typer.BadParameter(f"{wanted!r} has no release such as 1.2.3", param_hint="--release")
    context = None if tls_ca is None else _context(tls_ca)
    names, shown = [host_port(one) for one in addresses], [""]
    while found := older(names, release_of(wanted), context):
        if found != shown:
            note(f"waiting for release {wanted}: {', '.join(found)}")
            shown = found
        time.sleep(EVERY_S)
    note(f"no process runs a release older than {wanted}")


def release_of(version: str) -> Release:
    """The numbers of a version: (1, 2, 3) of 1.2.3rc1, and () for a version without a number."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def older(names: Sequence[HostPort], wanted: Release, context: ssl.SSLContext | None) -> list[str]:
    """A text for each process that runs a release older than `wanted`. context: settings of TLS."""
    found = []
    for name in names:
        for place in _addresses(name):
            version = _version(name, place, context)
            if version is not None and release_of(version) < wanted:
                found.append(f"{name.host} at {place} runs {version or 'a release without a number'}")
    return sorted(found)


def _addresses(name: HostPort) -> list[HostPort]:
    try:
        found = socket.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    except OSError:
        return []  # The process does not exist yet, or is not part of this installation.
    return [HostPort(host, name.port) for host in sorted({str(address[0]) for *_, address in found})]


def _version(name: HostPort, place: HostPort, context: ssl.SSLContext | None) -> str | None:
    """The version that a process reports. "" when it reports none, as early releases do; None without an answer."""
    try:
        _, body = http_get(
            name.host,
            (place.host, place.port),
            HEALTHY,
            {"host": name.host},
            context,
            within_s=ANSWER_WITHIN_S,
            bytes_max=ANSWER_BYTES_MAX,
        )
        answer = json.loads(body)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return str(answer.get("version", "")) if isinstance(answer, dict) else None


def _context(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{ca} is no PEM of authorities: {error}", param_hint="--tls-ca") from None


def _own_release() -> str:
    from tsdb.ops.process_metrics import package_version  # Imported here: it loads the metrics.

    return package_version()
