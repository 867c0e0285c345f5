"""The table in object storage, by a catalog of pyiceberg's own configuration: the same promises as on a file system."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.fs as pafs
import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config

from stack.ports import Ports
from support.data.chunk_rows import random_rows
from support.data.table_rows import NAME, expected, fragments, known_labels, rows_of, state
from support.servers.logs import wait_until
from tsdb.model.errors import CorruptData, TsdbError, Unavailable
from tsdb.tables.catalog import TableSettings, create_table, load_table, open_catalog
from tsdb.tables.emission import emit, is_conflict
from tsdb.tables.maintain import compact, expire
from tsdb.tables.state import table_state

ROOT = Path(__file__).parents[3]
MOTO = "moto[s3,server]==5.2.5"
INSTALLED_WITHIN_S = 250.0  # The first run on a machine installs the server.
BUCKET = "lake"
KEYS = {"access-key-id": "test", "secret-access-key": "test", "region": "us-east-1"}


class ObjectStorage:
    """An S3 server with one bucket, as a process: its packages ask for older ones than ours do."""

    def __init__(self, port: int) -> None:
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


def test_storage_that_is_away_is_unavailable_by_name(settings: TableSettings, storage: ObjectStorage) -> None:
    some = fragments(random_rows(2, packs=1, windows=1))
    with open_catalog(settings) as catalog:
        assert create_table(catalog, NAME, 1)
        table = load_table(catalog, NAME)
        storage.stop()
        with pytest.raises(TsdbError) as away:
            emit(table, some, known_labels, state(1))
        assert (type(away.value), away.value.reason) == (Unavailable, "tables_unavailable")
