"""Options and columns of the data source are checked before anything is opened: one line with name and next step."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import DataType, FloatType, StringType, StructField, StructType

from spark_backfill.data_source import TsdbDataSource
from spark_backfill.source.columns import sample_schema
from tsdb.model.errors import InvalidRequest

LOG = {"log": "sqlite:////nowhere/log.db"}
SAMPLES = sample_schema()


def source(options: dict[str, str]) -> TsdbDataSource:
    return TsdbDataSource(CaseInsensitiveDict(options))


def columns(**others: DataType) -> StructType:
    """The columns of samples, with some of another type or added."""
    types = {field.name: field.dataType for field in SAMPLES.fields} | others
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"selctor": "up"}, "a stream has no option selctor; did you mean selector?"),
        ({"job_id": "x"}, "a stream has no option job_id; known are allow_holes, "),
        ({"versions": "newest"}, "option versions: a stream has all versions, for it knows no later ones"),
        ({"source": "history"}, "option source is 'history'; a stream has the source log"),
        ({"rows": "runs"}, "option rows is 'runs'; source log has none"),
        ({"start": "now"}, "option start is 'now'; want earliest or latest"),
        ({"start": "latest", "start_ms": "5"}, "options start and start_ms exclude each other"),
        ({"max_records_per_batch": "0"}, "option max_records_per_batch is '0'; want 1 to"),
        ({"selector": "{"}, "selector"),
        ({"labels_bytes_max": "few"}, "option labels_bytes_max is 'few'"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        source({**LOG, **options}).streamReader(SAMPLES)
    assert text in refused.value.message
    assert "\n" not in refused.value.message


def test_a_column_of_a_wrong_type_is_named() -> None:
    with pytest.raises(InvalidRequest, match="column value is string; want double"):
        source(LOG).streamReader(columns(value=StringType()))


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"target": "chunks"}, SAMPLES, "option target is 'chunks'; want history or log"),
        ({"target": "history"}, SAMPLES, "a stream writes into the log; import into history by a batch write"),
        ({"on_refused": "skip"}, SAMPLES, "option on_refused is 'skip'; want fail or drop"),
        ({"job_id": "x"}, SAMPLES, "a write into the log has no option job_id"),
        ({"ingest_settings": "[1]"}, SAMPLES, "option ingest_settings: "),
        ({"ingest_settings": '{"series_max": 0}'}, SAMPLES, "series_max is 0; it must be above 0"),
        ({"ingest_settings": '{"limits_file": "x"}'}, SAMPLES, "limits_file is a limit of a gateway"),
        ({"ingest_settings": '{"labels": {"most": 1}}'}, SAMPLES, "'most'"),
        ({}, StructType(SAMPLES.fields[1:]), "no column labels; a sample has the columns labels, ts, value"),
        ({}, columns(value=FloatType()), "column value is float; want double"),
        (
            {},
            columns(host=StringType()),
            "has the column host, which would be lost: put it into the map labels, or drop it",
        ),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_wrong_write_into_the_log_is_refused_by_name(
    options: dict[str, str], schema: StructType, text: str, *, stream: bool
) -> None:
    if not stream and options.get("target") == "history":
        return
    given = {**LOG, "target": "log", **options}
    with pytest.raises(InvalidRequest) as refused:
        source(given).streamWriter(schema, False) if stream else source(given).writer(schema, False)
    assert text in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "the option job_id is needed"),
        ({"job_id": "x", "on_refused": "drop"}, "an import has no option on_refused"),
    ],
)
def test_a_wrong_import_is_refused_by_name(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        source({**LOG, **options}).writer(SAMPLES, False)


def test_a_write_without_a_log_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="option log is missing"):
        source({}).streamWriter(SAMPLES, False)


def test_a_write_that_replaces_is_refused() -> None:
    for writer in (source(LOG).streamWriter, source(LOG).writer):
        with pytest.raises(InvalidRequest, match="samples are only added"):
            writer(SAMPLES, True)


def test_a_read_has_no_option_of_a_stream() -> None:
    with pytest.raises(InvalidRequest, match="a read has no option start"):
        source({**LOG, "source": "log", "start": "latest"}).reader(SAMPLES)


@pytest.mark.parametrize(
    ("options", "has_place"),
    [(LOG, True), ({**LOG, "history": ""}, True), ({**LOG, "history": "sqlite:////nowhere/h.db"}, False)],
)
def test_rows_of_the_log_show_their_place(options: dict[str, str], has_place: bool) -> None:
    assert ("order" in source(options).schema().names) is has_place
    of_log = {**options, "source": "log"}
    assert source(of_log).schema().names[-4:] == ["order", "partition", "offset", "broker_time"]


def test_rows_of_the_log_can_be_written_again() -> None:
    source(LOG).streamWriter(sample_schema(versions=True), False)
