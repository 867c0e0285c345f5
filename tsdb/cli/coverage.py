"""`tsdb coverage` and `tsdb status` print content and state of the partitions."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from typing import Annotated, Any

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.connection import Connection, address, connected
from tsdb.cli.terminal.output import message_dict, note, print_json, print_table
from tsdb.model.errors import Unavailable
from tsdb.model.lag import known_lag
from tsdb.model.times import time_text
from tsdb.v1 import common_pb2, reader_pb2

STAGE_COLUMNS = (
    *("chunk stage", "members", "lag records", "windows overdue"),
    *("last commit seen", "emitted through", "as of"),
)
HTTP_TIMEOUT_S = 5.0
SERVER_NEXT_STEP = "Start the server, or give its --grpc address as --address."
HTTP_BYTES_MAX = 4 << 20


@connected()
def coverage(connection: Connection, output: TableOrJson = "table") -> None:
    """Print the coverage of partitions: complete from `covers from` on, all records from `since offset` on."""
    with connection.open() as client:
        states = client.coverage()
    if output == "json":
        print_json({"partitions": [_state_dict(state) for state in states]})
        return
    numbers = ("partition", "since offset", "applied", "high watermark")
    print_table(
        ("partition", "covers from", "to", "since offset", "applied", "high watermark", "from start", "topic id"),
        (
            (
                state.partition,
                time_text(state.coverage_start_ms),
                time_text(_optional(state, "watermark_ms")),
                state.since_offset,
                _optional(state, "applied_offset"),
                state.high_watermark,
                state.from_start,
                state.topic_id,
            )
            for state in states
        ),
        right=numbers,
    )
    _note_holes(states)


@connected()
def status(
    connection: Connection,
    http: Annotated[
        str | None,
        typer.Option(
            "--http", parser=address, metavar="HOST:PORT", help="Also read the readiness probe at this HTTP address."
        ),
    ] = None,
    output: TableOrJson = "table",
) -> None:
    """Print the state of partitions: ready or the reason, lag, content and memory; and the progress of history.

    `left`: time that memory may still drop before reads of older ranges are refused until history has caught up.
    `chunk stage`: the engine that runs it, python or spark, from the members of its group.

    A store, the history or the log that does not answer is named with its address and what to do; the exit code is then
    1. A lag is `unknown` (null in JSON) while the log does not say where it ends.
    """
    try:
        with connection.open() as client:
            states, history, stage = client.coverage(), client.history(), client.chunk_stage()
            experiment, away = client.experiment(), client.away()
    except Unavailable as error:
        if output == "json":
            server = {"part": "server", "address": connection.address, "error": error.message}
            print_json({"partitions": [], "away": [server | {"next_step": SERVER_NEXT_STEP}]})
        raise
    process = None if http is None else _probe(http)
    if output == "json":
        answer: dict[str, Any] = {"partitions": [_state_dict(state) for state in states]}
        if experiment:
            answer["experiment"] = experiment
        if history:
            answer["history"] = [message_dict(state) for state in history]
        if stage is not None:
            answer["chunk_stage"] = message_dict(stage) | {"lag_records": known_lag(stage.lag_records)}
        answer["away"] = [message_dict(part) for part in away]
        print_json(answer if process is None else answer | {"process": process})
        _end_with(away)
        return
    right = ("partition", "lag records", "lag ms", "series", "samples", "bytes", "B/sample", "holes")
    print_table(
        ("partition", "ready", "reason", "lag records", "lag ms", "covers from", *right[3:]),
        map(_status_row, states),
        right=right,
    )
    _note_holes(states)
    if experiment:
        note(f"of the experiment {experiment}: queriers of production read none of these partitions")
    if history:
        print_table(
            ("partition", "history to", "left s", "loaded below offset", "memory from offset", "reaches memory"),
            _history_rows(states, history),
            right=("partition", "left s", "loaded below offset", "memory from offset"),
        )
    if stage is not None:
        print_table(STAGE_COLUMNS, [_stage_row(stage)], right=("members", "lag records", "windows overdue"))
    if process is not None:
        note(f"process: {'ready' if process['ready'] else 'not ready'} {process['reason']}".rstrip())
    for part in away:
        note(f"away: {part.part} {part.address}: {part.error}. {part.next_step}")
    _end_with(away)


def _end_with(away: list[reader_pb2.PartAway]) -> None:
    """Exit code 1 when a part does not answer."""
    if away:
        raise typer.Exit(1)


def _state_dict(state: common_pb2.PartitionState) -> dict[str, Any]:
    """The state as JSON; an unknown lag is null."""
    lag = {"lag_records": known_lag(state.lag_records), "lag_ms": known_lag(state.lag_ms)}
    return message_dict(state) | lag


def _status_row(state: common_pb2.PartitionState) -> tuple[object, ...]:
    return (
        state.partition,
        state.ready,
        state.reason,
        _or_unknown(known_lag(state.lag_records)),
        _or_unknown(known_lag(state.lag_ms)),
        time_text(state.coverage_start_ms),
        state.series,
        state.samples,
        state.bytes,
        f"{state.bytes / state.samples:.2f}" if state.samples else None,
        len(state.holes),
    )


def _stage_row(stage: reader_pb2.ChunkStageState) -> tuple[object, ...]:
    return (
        ", ".join(stage.engines) or "nobody",
        stage.members,
        _or_unknown(known_lag(stage.lag_records)),
        stage.windows_overdue,
        time_text(stage.last_commit_ms if stage.HasField("last_commit_ms") else None),
        time_text(stage.emitted_through_ms if stage.HasField("emitted_through_ms") else None),
        time_text(stage.as_of_ms),
    )


def _history_rows(
    states: list[common_pb2.PartitionState], history: list[reader_pb2.HistoryState]
) -> Iterator[tuple[object, ...]]:
    memory = {state.partition: state for state in states}
    for loaded in history:
        state = memory.get(loaded.partition)
        # A head with the whole log needs no history.
        left_ms = None if state is None or state.from_start else loaded.emitted_through_ms - state.coverage_start_ms
        yield (
            loaded.partition,
            time_text(loaded.emitted_through_ms),
            None if left_ms is None else left_ms // 1000,
            loaded.position,
            None if state is None else state.since_offset,
            loaded.reaches_memory,
        )


def _optional(state: common_pb2.PartitionState, name: Any) -> int | None:
    return int(getattr(state, name)) if state.HasField(name) else None


def _or_unknown(lag: int | None) -> int | str:
    return "unknown" if lag is None else lag


def _note_holes(states: list[common_pb2.PartitionState]) -> None:
    for state in states:
        for hole in state.holes:
            note(
                f"hole in partition {hole.partition}: {time_text(hole.start_ms)} to {time_text(hole.end_ms)}, "
                f"{hole.reason}, record offset {hole.record_offset}"
            )


def _probe(address: str) -> dict[str, Any]:
    """Readiness, from the probe of the process. "Not ready" is an answer, not a failure."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}/-/ready", timeout=HTTP_TIMEOUT_S) as answer:
            body = answer.read(HTTP_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            body = error.read(HTTP_BYTES_MAX)
    except HTTPException:
        raise Unavailable(
            f"{address} does not speak HTTP: give the server's --http address, not its --grpc address",
            reason="wrong_port",
        ) from None
    except OSError as error:
        why = getattr(error, "reason", error)
        raise Unavailable(f"http://{address}/-/ready does not answer: {why}", reason="unreachable") from None
    try:
        found = json.loads(body)
        return {"ready": bool(found["ready"]), "reason": str(found.get("reason", ""))}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unavailable(f"http://{address}/-/ready is not a kafka-tsdb probe", reason="bad_probe") from None
