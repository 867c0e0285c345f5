"""The commands of roles, such as `tsdb store`. Each flag is a setting; `tsdb config show ROLE` lists them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import typer

from tsdb.cli.options.setting_options import with_settings
from tsdb.config import (
    CanarySettings,
    ChunkerSettings,
    GatewaySettings,
    LoaderSettings,
    ProcessSettings,
    QuerierSettings,
    RulerSettings,
    StandaloneSettings,
    StoreSettings,
    changed,
    effective,
)
from tsdb.config.trials import ExperimentFields
from tsdb.ops.descriptors import raise_limit
from tsdb.ops.interpreter import SWITCH_INTERVAL_S, share_malloc_arena
from tsdb.ops.lifecycle import run_until_signal
from tsdb.ops.logs import configure_logging, get_logger

if TYPE_CHECKING:
    from tsdb.ops.auth import Tokens
    from tsdb.ops.health import Readiness
    from tsdb.roles.process import Opened, RoleProcess

log = get_logger(__name__)


def run_role(name: str, settings: ProcessSettings, open_role: Callable[[], Opened]) -> int:
    """Run a role until a signal or a failure. Returns the exit code."""
    # Imported here: client commands need neither servers nor kernels.
    from tsdb.ops.http.server import serve_ops
    from tsdb.roles.process import RoleProcess
    from tsdb.roles.ready_line import ReadyWatch, ready_line
    from tsdb.roles.servers import http_limits, server_tls, server_tokens

    listen = settings.http_listen
    tokens = server_tokens(settings, listen)  # It refuses before anything else begins.
    json = settings.log_format == "json"
    configure_logging(json=json, level=settings.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_limit()
    log.info("starting", role=name, settings=changed(settings))
    log.debug("settings", settings=effective(settings))
    process = RoleProcess(open_role)
    ops = serve_ops(
        listen.host,
        listen.port,
        partial(_readiness, process, tokens),
        process.liveness,
        bodies=process,
        tls=server_tls(settings),
        tokens=tokens,
        limits=http_limits(settings),
        hosts=settings.http_hosts,
        experiment=settings.experiment if isinstance(settings, ExperimentFields) else "",
    )

    def say_ready() -> None:
        ready_line(name, settings, process.grpc_port(), ops.port).emit(json=json)

    return run_until_signal([ops, process, ReadyWatch(process.readiness, say_ready)], settings.drain_s)


def _readiness(process: RoleProcess, tokens: Tokens | None) -> Readiness:
    """Readiness of the role. A process that refuses every caller is not ready."""
    seen = process.readiness()
    problem = tokens.problem() if tokens else ""
    return replace(seen, reason="token_file", message=problem) if problem and not seen.reason else seen


@with_settings(StandaloneSettings)
def standalone(settings: StandaloneSettings) -> None:
    """Run every role in one process over an embedded log, without Kafka."""
    _run("standalone", settings)


@with_settings(GatewaySettings)
def gateway(settings: GatewaySettings) -> None:
    """Accept samples; OK means that the log has them."""
    share_malloc_arena()
    _run("gateway", settings)


@with_settings(StoreSettings)
def store(settings: StoreSettings) -> None:
    """Replay the log into memory and answer reads."""
    _run("store", settings)


@with_settings(ChunkerSettings)
def chunker(settings: ChunkerSettings) -> None:
    """Turn the log into chunks, window by window."""
    _run("chunker", settings)


@with_settings(LoaderSettings)
def loader(settings: LoaderSettings) -> None:
    """Write chunks and series into history; the only writer of it."""
    _run("loader", settings)


@with_settings(QuerierSettings)
def querier(settings: QuerierSettings) -> None:
    """Answer reads from several stores and history."""
    _run("querier", settings)


@with_settings(RulerSettings)
def ruler(settings: RulerSettings) -> None:
    """Evaluate Prometheus's rule files over stores and history, and again for late samples; write what they record."""
    _run("ruler", settings)


@with_settings(CanarySettings)
def canary(settings: CanarySettings) -> None:
    """Write known samples and check that every path of a read returns them: freshness and exactness as metrics."""
    _run("canary", settings)


def _run(name: str, settings: ProcessSettings) -> NoReturn:
    raise typer.Exit(run_role(name, settings, partial(_opener(name), settings)))


def _opener(name: str) -> Callable[..., Opened]:
    # Imports only the modules of that role: a gateway starts without Cassandra's driver.
    opener: Callable[..., Opened] = getattr(import_module(f"tsdb.roles.{name}"), f"open_{name}")
    return opener
