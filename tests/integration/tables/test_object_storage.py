"""The table in object storage, by a catalog of pyiceberg's own configuration: the same promises as on a file system."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.fs as pafs
import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config

from stack.ports import Ports
from support.data.chunk_rows import random_rows
from support.data.table_rows import NAME, expected, fragments, known_labels, rows_of, state
from support.servers.logs import wait_until
from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.iceberg.blocks import _CachedFile, fetched_total
from tsdb.history.iceberg.catalog import TableSettings, create_table, load_table, open_catalog, series_table
from tsdb.history.iceberg.emission import emit, is_conflict
from tsdb.history.iceberg.maintain import compact, expire
from tsdb.history.iceberg.state import table_state
from tsdb.history.interface import WantedSeries, WindowRange
from tsdb.history.open import open_history_reads
from tsdb.history.settings import HistorySettings
from tsdb.model.errors import CorruptData, TsdbError, Unavailable

ROOT = Path(__file__).parents[3]
MOTO = "moto[s3,server]==5.2.5"
INSTALLED_WITHIN_S = 250.0  # The first run on a machine installs the server.
STALLED_WITHIN_S = 30.0  # Three tries of 2 s, and pauses between them.
BUCKET = "lake"
KEYS = {"access-key-id": "test", "secret-access-key": "test", "region": "us-east-1"}


class ObjectStorage:
    """An S3 server with one bucket, as a process: its packages ask for older ones than ours do."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [str(ROOT / "scripts/run-tool.sh"), MOTO, "moto_server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: listens(port), INSTALLED_WITHIN_S)
        self.files = pafs.S3FileSystem(
            endpoint_override=self.endpoint, access_key="test", secret_key="test", allow_bucket_creation=True
        )
        self.files.create_dir(BUCKET)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def paths(self, suffix: str) -> list[str]:
        found = self.files.get_file_info(pafs.FileSelector(BUCKET, recursive=True))
        return sorted(one.path for one in found if one.path.endswith(suffix))


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def storage() -> Iterator[ObjectStorage]:
    with Ports(1) as ports:
        storage = ObjectStorage(ports.numbers[0])
        yield storage
        storage.stop()


@pytest.fixture
def settings(storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableSettings:
    """A catalog that pyiceberg finds in the environment."""
    values = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"s3://{BUCKET}/tables"}
    values |= {"s3.endpoint": storage.endpoint} | {f"s3.{name}": value for name, value in KEYS.items()}
    values |= {"s3.connect-timeout": "2", "s3.request-timeout": "2"}
    for name, value in values.items():
        variable = name.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{variable}", value)
    # pyiceberg reads the environment once, at its import.
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    return TableSettings("pyiceberg://lake", name=NAME)


def test_a_table_in_object_storage_is_kept_compacted_and_expired(
    settings: TableSettings, storage: ObjectStorage
) -> None:
    some = fragments(random_rows(1, packs=3, windows=3, samples=60))
    with open_catalog(settings) as catalog:
        assert create_table(catalog, NAME, 2)
        first = load_table(catalog, NAME)
        assert first.location() == f"s3://{BUCKET}/tables/tsdb/samples"
        for number in range(4):
            emit(load_table(catalog, NAME), some[number::4], known_labels, state(number + 1))
        with pytest.raises(Unavailable) as refused:
            emit(first, some[:1], known_labels, state(9))
        assert is_conflict(refused.value)
        assert rows_of(load_table(catalog, NAME)) == expected(some)
        assert all(one.files_after == 1 for one in compact(catalog, NAME, 2))
        expire(catalog, NAME, datetime.now(UTC) + timedelta(seconds=1))
        table = load_table(catalog, NAME)
        assert (rows_of(table), table_state(table)) == (expected(some), state(4))
        read = sorted(task.file.file_path.removeprefix("s3://") for task in table.scan().plan_files())
        # The file of the refused emission belongs to no snapshot.
        assert set(read) <= set(storage.paths(".parquet"))
        for path in read:
            storage.files.delete_file(path)
        with pytest.raises(CorruptData, match="a file of the table is gone"):
            emit(table, some[:1], known_labels, state(5))


def kept_history(
    settings: TableSettings, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, seed: int
) -> tuple[list[Fragment], str]:
    """A table of the seed's samples, and the URL of history that reads it by properties of the catalog `tsdb`."""
    for name, value in {"endpoint": storage.endpoint, **KEYS}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TSDB__S3__{name.upper().replace('-', '_')}", value)
    some = fragments(random_rows(seed, packs=4, windows=6, samples=400))
    with open_catalog(settings) as catalog:
        assert create_table(catalog, NAME, 2)
        table = load_table(catalog, NAME)
        series_table(catalog, table, {})
        emit(table, some, known_labels, state(1))
    return some, f"iceberg+s3://{BUCKET}/tables/tsdb/samples"


def read(url: str, settings: HistorySettings, ids: list[int]) -> dict[tuple[int, int], int]:
    """(series, ms): bits of the value."""
    wanted = WantedSeries(np.array(sorted(ids), np.uint64), lambda: {f"m{number}".encode() for number in range(7)})
    found: dict[tuple[int, int], int] = {}
    with closing(open_history_reads(url, settings)) as history:
        for _ in range(2):
            for piece in history.read([1], WindowRange(0, 1 << 41), wanted):
                for row in piece:
                    one = row.fragment()
                    series = np.repeat(one.series_id, np.diff(one.sample_start)).tolist()
                    rows = zip(series, one.ts_ms.tolist(), one.value.view(np.uint64).tolist(), strict=True)
                    found |= {(series, ts_ms): bits for series, ts_ms, bits in rows}
            yet = cache_files(settings)
            assert sum(path.stat().st_blocks * 512 for path in yet) <= settings.cache_bytes_max + 128 * 1024
    assert cache_files(settings) == [], "the cache ends with its history"
    return found


def cache_files(settings: HistorySettings) -> list[Path]:
    assert settings.cache_folder is not None
    return [path for path in settings.cache_folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("cache_bytes", [1 << 30, 1])
def test_history_in_object_storage_is_read_through_a_bounded_cache(
    settings: TableSettings,
    storage: ObjectStorage,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cache_bytes: int,
) -> None:
    some, url = kept_history(settings, storage, monkeypatch, 3)
    want = {key: bits for key, (_, bits) in expected(some).items()}
    ids = sorted({series for series, _ in want})
    cached = HistorySettings(cache_folder=tmp_path / "cache", cache_bytes_max=cache_bytes)
    before = fetched_total._value.get()
    assert read(url, cached, ids) == want
    once = fetched_total._value.get() - before
    few = {key: bits for key, bits in want.items() if key[0] in ids[:2]}
    assert read(url, cached, ids[:2]) == few
    stored = sum(storage.files.get_file_info(path).size for path in storage.paths(".parquet"))
    # With a cache, a second read fetches nothing; without one, it fetches all of it again.
    print(f"\n{once} bytes fetched of {stored}")
    assert once <= stored if cache_bytes > 1 else once > stored / 2


def test_history_whose_storage_is_away_or_refuses_is_unavailable_in_time(
    settings: TableSettings, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    some, url = kept_history(settings, storage, monkeypatch, 4)
    ids = sorted({one for fragment in some for one in fragment.series_id.tolist()})
    patient = HistorySettings(cache_folder=tmp_path / "cache", read_timeout_s=1.0)
    with pytest.raises(Unavailable) as missing:
        read(f"iceberg+s3://{BUCKET}/elsewhere", patient, ids)
    assert missing.value.reason == "tables_missing"
    storage.stop()
    with pytest.raises(Unavailable) as away:
        read(url, patient, ids)
    assert away.value.reason == "tables_unavailable"


def test_files_of_one_read_are_fetched_at_once(
    settings: TableSettings, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    some, url = kept_history(settings, storage, monkeypatch, 7)
    with open_catalog(settings) as catalog:
        emit(load_table(catalog, NAME), fragments(random_rows(8, packs=4, windows=6)), known_labels, state(2))
    together, inside, fetch = threading.Event(), list[int](), _CachedFile.fetch

    def counted(file: _CachedFile, ranges: Sequence[tuple[int, int]]) -> None:
        inside.append(1)
        if len(inside) > 1:
            together.set()
        assert together.wait(STALLED_WITHIN_S), "the second file waits for the first one"
        fetch(file, ranges)

    monkeypatch.setattr(_CachedFile, "fetch", counted)
    ids = sorted({one for fragment in some for one in fragment.series_id.tolist()})
    assert len(read(url, HistorySettings(cache_folder=tmp_path / "cache"), ids)) > 0


def s3_error(status: str, code: str) -> bytes:
    """An answer of S3."""
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


@contextmanager
def bad_storage(port: int, answer: bytes) -> Iterator[None]:
    """A server in the place of the storage that sends one answer to each request; an empty one: it never answers."""
    ended = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if not answer:
                ended.wait(STALLED_WITHIN_S)
                return
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            self.wfile.write(answer)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    with Server(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="bad-storage")
        thread.start()
        yield
        ended.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [b"", s3_error("503 Slow Down", "SlowDown"), s3_error("403 Forbidden", "AccessDenied")],
    ids=["silent", "refuses", "denies"],
)
def test_storage_that_is_silent_or_refuses_is_unavailable_in_bounded_time(
    settings: TableSettings,
    storage: ObjectStorage,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    answer: bytes,
) -> None:
    some, url = kept_history(settings, storage, monkeypatch, 6)
    ids = sorted({one for fragment in some for one in fragment.series_id.tolist()})
    patient = HistorySettings(cache_folder=tmp_path / "cache", read_timeout_s=1.0)
    with open_catalog(settings) as catalog:
        table = load_table(catalog, NAME)
        storage.stop()
        with bad_storage(storage.port, answer):
            for step in (
                lambda: read(url, patient, ids),
                lambda: emit(table, some[:1], known_labels, state(2)),
                lambda: load_table(catalog, NAME),
            ):
                began = time.monotonic()
                with pytest.raises(Unavailable) as found:
                    step()
                took_s = time.monotonic() - began
                assert (found.value.reason, took_s < STALLED_WITHIN_S) == ("tables_unavailable", True), took_s
                print(f"{took_s:.1f} s: {found.value.message[:120]}")


def test_storage_that_is_away_is_unavailable_by_name(settings: TableSettings, storage: ObjectStorage) -> None:
    some = fragments(random_rows(2, packs=1, windows=1))
    with open_catalog(settings) as catalog:
        assert create_table(catalog, NAME, 1)
        table = load_table(catalog, NAME)
        storage.stop()
        with pytest.raises(TsdbError) as away:
            emit(table, some, known_labels, state(1))
        assert (type(away.value), away.value.reason) == (Unavailable, "tables_unavailable")
