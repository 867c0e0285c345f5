"""The catalog: creates, opens and checks the table of samples and that of its series. Layout: docs/formats/iceberg.md,
version 1.

A catalog is a SQLite file with the table's files in a folder, or any catalog of pyiceberg's configuration. After each
commit `publish` writes the name of the newest metadata beside it, so a reader needs the files alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from sqlalchemy.exc import SQLAlchemyError

from tsdb.model.errors import ConfigMismatch, CorruptData, InvalidRequest, Unavailable
from tsdb.model.secrets import masked

SQLITE, PYICEBERG = "sqlite:///", "pyiceberg://"
OWN_CATALOG = "tsdb"  # Name of the catalog in a SQLite file; other programs give it too.
VERSION = "1"
VERSION_PROPERTY = "tsdb.format"
RETRY_AFTER_S = 5.0
BUCKETS_MAX = 4096

CONFLICT, UNAVAILABLE, MISSING = "tables_conflict", "tables_unavailable", "tables_missing"
DIFFERS, FILES_MISSING = "tables_differs", "tables_files_missing"

_SPAN = StructType(
    NestedField(0, "offset", IntegerType(), required=True), NestedField(0, "length", IntegerType(), required=True)
)


def _spans() -> ListType:
    return ListType(0, _SPAN, element_required=True)


def _doubles() -> ListType:
    return ListType(0, DoubleType(), element_required=True)


def _histogram() -> StructType:
    fields: tuple[tuple[str, IcebergType], ...] = (
        ("schema", IntegerType()),
        ("zero_threshold", DoubleType()),
        ("zero_count", DoubleType()),
        ("count", DoubleType()),
        ("sum", DoubleType()),
        ("positive_spans", _spans()),
        ("positive_counts", _doubles()),
        ("negative_spans", _spans()),
        ("negative_counts", _doubles()),
        ("custom_bounds", _doubles()),
        ("reset_hint", StringType()),
        ("is_integer", BooleanType()),
    )
    return StructType(*(NestedField(0, name, kind, required=False) for name, kind in fields))


# The catalog gives all fields their ids, in this order; specs and sort orders below name them.
SCHEMA = Schema(
    NestedField(1, "metric", StringType(), required=True),
    NestedField(2, "labels", MapType(0, StringType(), 0, StringType(), value_required=True), required=True),
    NestedField(3, "series_id", LongType(), required=True),
    NestedField(4, "tenant", StringType(), required=True),
    NestedField(5, "ts", TimestamptzType(), required=True),
    NestedField(6, "value", DoubleType(), required=False),
    NestedField(7, "histogram", _histogram(), required=False),
    NestedField(8, "start_ts", TimestamptzType(), required=False),
    NestedField(9, "order", LongType(), required=True),
)
SERIES_SCHEMA = Schema(
    NestedField(1, "epoch", IntegerType(), required=True),
    NestedField(2, "metric", StringType(), required=True),
    NestedField(3, "series_id", LongType(), required=True),
    NestedField(4, "pack_id", LongType(), required=True),
    NestedField(5, "partition", IntegerType(), required=True),
    NestedField(6, "canonical", BinaryType(), required=True),
)
DAY, BUCKET = "day", "metric_bucket"
_SORT = SortOrder(
    *(SortField(source_id=at, transform=IdentityTransform(), null_order=NullOrder.NULLS_FIRST) for at in (1, 3, 5))
)
_SORT_OF_SERIES = tuple(
    SortField(source_id=at, transform=IdentityTransform(), null_order=NullOrder.NULLS_FIRST) for at in (2, 3)
)
PROPERTIES = {
    VERSION_PROPERTY: VERSION,
    "write.parquet.compression-codec": "zstd",
    # Counts alone of the other columns: bounds of labels and values would be most of a manifest.
    "write.metadata.metrics.default": "counts",
    **{f"write.metadata.metrics.column.{name}": "full" for name in ("series_id", "ts", "order")},
    "write.metadata.metrics.column.metric": "truncate(64)",
    # One small manifest a commit would slow the planning of each read: a new reader takes 2.5 ms for each.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "8",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
SERIES_SUFFIX = "_series"
SHARED_PROPERTY = "tsdb.shared"  # Shared settings of all processes, as JSON.
HINT = "version-hint.text"  # Readers of Iceberg know the name.
METADATA_SUFFIX = ".metadata.json"


@dataclass(frozen=True, slots=True)
class TableSettings:
    """catalog: `sqlite:///PATH` or `pyiceberg://NAME`. warehouse: folder or URI of the files, of a SQLite catalog
    alone; empty: a folder beside it. name: NAMESPACE.TABLE. location: URI of the table, which queriers read; empty:
    the catalog chooses it."""

    catalog: str
    warehouse: str = ""
    name: str = "tsdb.samples"
    location: str = ""


@contextmanager
def translate_table_errors(where: str) -> Iterator[None]:
    """Raise errors of pyiceberg and its libraries as ours. A commit that another came before is Unavailable
    (tables_conflict); so is one whose outcome is unknown: the next load of the table shows it."""
    try:
        yield
    except (CommitFailedException, CommitStateUnknownException) as error:
        raise Unavailable(f"{where}: {error}", reason=CONFLICT, retry_after_s=0.0) from error
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise ConfigMismatch(f"{where}: {error}; `tsdb tables create` makes the table", reason=MISSING) from error
    except FileNotFoundError as error:
        raise CorruptData(
            f"{where}: a file of the table is gone: {error}; restore it, or make a new table under another name",
            reason=FILES_MISSING,
        ) from error
    except (OSError, SQLAlchemyError, RESTError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise Unavailable(f"{where}: {first}", reason=UNAVAILABLE, retry_after_s=RETRY_AFTER_S) from error


def open_catalog(settings: TableSettings) -> Catalog:
    """The catalog. The caller closes it. Raises ConfigMismatch (tables_url), Unavailable."""
    with translate_table_errors(f"catalog {masked(settings.catalog)}"):
        if settings.catalog.startswith(SQLITE):
            path = Path(settings.catalog.removeprefix(SQLITE)).absolute()
            path.parent.mkdir(parents=True, exist_ok=True)
            warehouse = settings.warehouse or str(path.parent / f"{path.stem}-files")
            if "://" not in warehouse:
                warehouse = Path(warehouse).absolute().as_uri()
            # Properties of object storage (s3.endpoint and others) come from pyiceberg's configuration of this name.
            return load_catalog(OWN_CATALOG, type="sql", uri=f"{SQLITE}{path}", warehouse=warehouse)
        if settings.catalog.startswith(PYICEBERG):
            try:
                return load_catalog(settings.catalog.removeprefix(PYICEBERG))
            except ValueError as error:
                raise _bad_url(settings.catalog, f"pyiceberg's configuration has no such catalog: {error}") from error
    raise _bad_url(settings.catalog, "it begins with neither sqlite:/// nor pyiceberg://")


def _bad_url(url: str, why: str) -> ConfigMismatch:
    return ConfigMismatch(
        f"catalog URL {masked(url)!r}: {why}; want sqlite:///PATH or pyiceberg://NAME", reason="tables_url"
    )


def create_table(catalog: Catalog, name: str, buckets: int, location: str = "") -> bool:
    """Create the table, with its namespace. False if a table of that name was there already."""
    if not 1 <= buckets <= BUCKETS_MAX:
        raise InvalidRequest(f"{buckets} buckets; want 1 to {BUCKETS_MAX}", reason="tables_buckets")
    spec = PartitionSpec(
        PartitionField(5, 1000, DayTransform(), DAY), PartitionField(1, 1001, BucketTransform(buckets), BUCKET)
    )
    with translate_table_errors(f"creating table {name}"):
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        return _create(catalog, name, SCHEMA, spec, PROPERTIES, location or None)


def load_table(catalog: Catalog, name: str) -> Table:
    """The table as it is now. Raises ConfigMismatch (tables_missing, tables_differs), Unavailable."""
    with translate_table_errors(f"table {name}"):
        table = catalog.load_table(name)
    if found := differences(table):
        raise ConfigMismatch(
            f"table {name} is not a table of samples: {'; '.join(found)}; give another tables_name", reason=DIFFERS
        )
    return table


def series_table(catalog: Catalog, samples: Table, shared: Mapping[str, str]) -> Table:
    """The table of the series, created beside that of the samples if it is missing. shared: settings that readers
    compare with theirs. Raises as load_table."""
    name = ".".join(samples.name()) + SERIES_SUFFIX
    spec = PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "epoch"),
        PartitionField(2, 1001, BucketTransform(buckets_of(samples) or 1), BUCKET),
    )
    metrics = {"write.metadata.metrics.column.epoch": "full", SHARED_PROPERTY: json.dumps(dict(sorted(shared.items())))}
    with translate_table_errors(f"table {name}"):
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:
            location = samples.location() + SERIES_SUFFIX
            _create(catalog, name, SERIES_SCHEMA, spec, {**PROPERTIES, **metrics}, location)
            table = catalog.load_table(name)
    found = [f"column {one.name} is not {one.field_type}" for one in SERIES_SCHEMA.fields if not _has(table, one)]
    if not found and not any(isinstance(one.transform, BucketTransform) for one in table.spec().fields[1:2]):
        found = [f"it is partitioned by {table.spec()}, want epoch, bucket[N](metric)"]
    if found:
        raise ConfigMismatch(
            f"table {name} is not a table of series: {'; '.join(found)}; give another tables_name", reason=DIFFERS
        )
    return table


def buckets_of_series(table: Table) -> int:
    """Number of metric buckets of a table of series."""
    bucket = table.spec().fields[1].transform
    assert isinstance(bucket, BucketTransform), "the table was created here"
    return bucket.num_buckets


def _has(table: Table, want: NestedField) -> bool:
    return any(one.name == want.name and one.field_type == want.field_type for one in table.schema().fields)


def _create(
    catalog: Catalog,
    name: str,
    schema: Schema,
    spec: PartitionSpec,
    properties: Mapping[str, str],
    location: str | None,
) -> bool:
    order = _SORT if schema is SCHEMA else SortOrder(*_SORT_OF_SERIES)
    try:
        table = catalog.create_table(name, schema, location, spec, order, dict(properties))
    except TableAlreadyExistsError:
        return False
    publish(table)
    return True


def publish(table: Table) -> None:
    """Name the newest metadata for readers without the catalog. Raises the errors of the files."""
    content = table.metadata_location.rpartition("/")[2].removesuffix(METADATA_SUFFIX).encode()
    path = f"{table.location()}/metadata/{HINT}"
    local = local_path(path)
    if local is None:
        with table.io.new_output(path).create(overwrite=True) as stream:
            stream.write(content)
        return
    # An object is replaced whole; a file is, if another one takes its name.
    beside = local.with_name(f".{HINT}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(local)


def local_path(location: str) -> Path | None:
    """The path of a URI of a file; None for one of object storage."""
    parts = urlparse(location)
    return Path(parts.path) if parts.scheme in ("", "file") else None


def differences(table: Table) -> list[str]:
    """How a table differs from the layout. Columns that somebody added may stay."""
    version = table.properties.get(VERSION_PROPERTY)
    if version != VERSION:
        return [f"property {VERSION_PROPERTY} is {version}, want {VERSION}"]
    kinds = {field.name: field for field in table.schema().fields}
    found = []
    for want in SCHEMA.fields:
        got = kinds.get(want.name)
        if got is None:
            found.append(f"column {want.name} is missing")
        elif (_shape(got.field_type), got.required) != (_shape(want.field_type), want.required):
            found.append(f"column {want.name} is {_text(got)}, want {_text(want)}")
    added = {field.name for field in table.schema().fields if field.required} - {field.name for field in SCHEMA.fields}
    found += [f"column {name} is required, and no sample has it" for name in sorted(added)]
    if buckets_of(table) is None:
        found.append(f"it is partitioned by {table.spec()}, want day(ts), bucket[N](metric)")
    return found


def buckets_of(table: Table) -> int | None:
    """Number of metric buckets; None for another partitioning."""
    fields = table.spec().fields
    names = [table.schema().find_column_name(field.source_id) for field in fields]
    if names != ["ts", "metric"] or not isinstance(fields[0].transform, DayTransform):
        return None
    bucket = fields[1].transform
    return bucket.num_buckets if isinstance(bucket, BucketTransform) else None


def _shape(kind: IcebergType) -> object:
    """A type without the ids of its fields."""
    match kind:
        case StructType():
            return [(field.name, _shape(field.field_type), field.required) for field in kind.fields]
        case ListType():
            return ["list", _shape(kind.element_type), kind.element_required]
        case MapType():
            return ["map", _shape(kind.key_type), _shape(kind.value_type), kind.value_required]
    return str(kind)


def _text(field: NestedField) -> str:
    return f"{'required' if field.required else 'optional'} {field.field_type}"
