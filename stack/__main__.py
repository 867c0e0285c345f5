"""`python -m stack up|down|status|jars` runs servers until `down`, for work by hand and for benches."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from stack.cassandra import CassandraNode
from stack.kafka import KafkaCluster
from stack.maven import JAR_SETS, ROOT, jars
from stack.process import wait_until_gone

STOP_WITHIN_S = 20.0
STATE = "state.json"

Started = tuple[str, str, list[int]]  # Name, address, process ids.


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 good, 1 failed, 2 misused."""
    options = _parser().parse_args(arguments)
    try:
        result: int = options.run(options)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stack", description=__doc__)
    commands = parser.add_subparsers(required=True)
    up = commands.add_parser("up", help="start servers and leave them running")
    up.add_argument("--brokers", type=int, choices=(0, 1, 3), default=1, help="Kafka brokers")
    up.add_argument("--cassandra", action="store_true", help="a Cassandra node too")
    up.set_defaults(run=_up)
    commands.add_parser("down", help="stop what `up` started").set_defaults(run=_down)
    commands.add_parser("status", help="what runs, as JSON").set_defaults(run=_status)
    for command in commands.choices.values():
        command.add_argument("--dir", type=Path, default=ROOT / "run", help="where data and state are kept")
    fetch = commands.add_parser("jars", help="fetch a server's jars and print their folder")
    fetch.add_argument("server", choices=sorted(JAR_SETS))
    fetch.set_defaults(run=_jars)
    return parser


def _up(options: argparse.Namespace) -> int:
    state_file = options.dir / STATE
    if _alive(_read(state_file)):
        print(f"already up: {state_file}", file=sys.stderr)
        return 1
    options.dir.mkdir(parents=True, exist_ok=True)
    starts = [partial(_start_kafka, options.brokers, options.dir)] if options.brokers else []
    starts += [partial(_start_cassandra, options.dir)] if options.cassandra else []
    # In parallel, since each start takes seconds.
    with ThreadPoolExecutor(max(1, len(starts))) as pool:
        started = [pool.submit(start) for start in starts]
    # Written even when one of them failed, because `down` must find the other.
    good = [one.result() for one in started if one.exception() is None]
    state: dict[str, Any] = {"pids": [pid for _, _, pids in good for pid in pids]}
    state |= {name: address for name, address, _ in good}
    state_file.write_text(json.dumps(state))
    for one in started:
        one.result()
    print(json.dumps(state))
    return 0


def _start_kafka(brokers: int, folder: Path) -> Started:
    kafka = KafkaCluster(brokers, folder=folder / "kafka", detached=True)
    kafka.start()
    return "kafka", kafka.bootstrap, kafka.pids


def _start_cassandra(folder: Path) -> Started:
    node = CassandraNode(folder=folder / "cassandra", detached=True)
    node.start()
    return "cassandra", f"{node.host}:{node.port}", [node.process.pid]


def _down(options: argparse.Namespace) -> int:
    state_file = options.dir / STATE
    pids = _alive(_read(state_file))
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    for pid in pids:
        if not wait_until_gone(pid, STOP_WITHIN_S):
            os.kill(pid, signal.SIGKILL)
    state_file.unlink(missing_ok=True)
    print(json.dumps({"stopped": pids}))
    return 0


def _status(options: argparse.Namespace) -> int:
    state = _read(options.dir / STATE)
    print(json.dumps({**state, "alive": _alive(state)}))
    return 0


def _jars(options: argparse.Namespace) -> int:
    print(jars(JAR_SETS[options.server]))
    return 0


def _read(state_file: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads(state_file.read_text())
    except FileNotFoundError:
        return {"pids": []}
    return state


def _alive(state: dict[str, Any]) -> list[int]:
    """The noted processes that still run and are our Java servers. The system may reuse a process id."""
    return [pid for pid in state["pids"] if _is_server(pid)]


def _is_server(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"kafka.Kafka" in words or b"CassandraDaemon" in words


if __name__ == "__main__":
    sys.exit(main())
