"""The commands of roles, such as `tsdb store`. Each flag is a setting; `tsdb config show ROLE` lists them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import typer

from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.kernel_bar import KernelBar
from tsdb.config import (
    ChunkerSettings,
    CommonSettings,
    GatewaySettings,
    LoaderSettings,
    QuerierSettings,
    StandaloneSettings,
    StoreSettings,
    effective,
)
from tsdb.ops.descriptors import raise_limit
from tsdb.ops.lifecycle import run_until_signal
from tsdb.ops.logs import configure_logging, get_logger

if TYPE_CHECKING:
    from tsdb.roles.process import Opened

SWITCH_INTERVAL_S = 0.0005  # Longest wait of a read for a thread that runs Python. The default is 5 ms.

_ROLES: tuple[tuple[str, type[CommonSettings], str], ...] = (
    ("standalone", StandaloneSettings, "Run every role in one process over an embedded log, without Kafka."),
    ("gateway", GatewaySettings, "Accept samples; OK means that the log has them."),
    ("store", StoreSettings, "Replay the log into memory and answer reads."),
    ("chunker", ChunkerSettings, "Turn the log into chunks, window by window."),
    ("loader", LoaderSettings, "Write chunks and series into history; the only writer of it."),
    ("querier", QuerierSettings, "Answer reads from several stores and history."),
)

log = get_logger(__name__)


def run_role(name: str, settings: CommonSettings, open_role: Callable[[], Opened]) -> int:
    """Run a role until a signal or a failure. Returns the exit code."""
    # Imported here: client commands need neither servers nor kernels.
    from tsdb.ops.http.server import serve_ops
    from tsdb.roles.kernels import KernelLog, KernelStart
    from tsdb.roles.process import RoleProcess
    from tsdb.roles.ready_line import ReadyWatch, ready_line
    from tsdb.roles.servers import http_limits, server_tls, server_tokens

    json = settings.log_format == "json"
    configure_logging(json=json, level=settings.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_limit()
    log.info("starting", settings=effective(settings))
    process = RoleProcess(open_role, KernelStart(KernelBar() if sys.stderr.isatty() and not json else KernelLog()))
    listen = settings.http_listen
    ops = serve_ops(
        listen.host,
        listen.port,
        process.readiness,
        process.liveness,
        tls=server_tls(settings),
        tokens=server_tokens(settings),
        limits=http_limits(settings),
    )

    def say_ready() -> None:
        ready_line(name, settings, process.grpc_port(), ops.port).emit(json=json)

    return run_until_signal([ops, process, ReadyWatch(process.readiness, say_ready)], settings.drain_s)


def register(app: typer.Typer) -> None:
    """Add the role commands."""
    for name, settings_class, text in _ROLES:
        app.command(name, help=text)(with_settings(settings_class)(_runner(name)))


def _runner(name: str) -> Callable[..., None]:
    def run(settings: CommonSettings) -> None:
        raise typer.Exit(run_role(name, settings, partial(_opener(name), settings)))

    return run


def _opener(name: str) -> Callable[..., Opened]:
    # Imports only the modules of that role: a gateway starts without Cassandra's driver.
    opener: Callable[..., Opened] = getattr(import_module(f"tsdb.roles.{name}"), f"open_{name}")
    return opener
