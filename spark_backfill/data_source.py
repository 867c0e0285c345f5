"""Data source `tsdb`: the class that Spark calls. The modules of the sources and targets read and write."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader
from pyspark.sql.types import StructType

from spark_backfill.failures import quoted_errors
from spark_backfill.places import HISTORY as HISTORY_URL
from spark_backfill.places import places_of
from spark_backfill.source.chunks import CHUNK_SCHEMA, ChunksReader
from spark_backfill.source.columns import columns_of, sample_schema
from spark_backfill.source.history import HistoryReader
from spark_backfill.source.log import LogSourceReader
from spark_backfill.source.options import (
    CHUNKS,
    HISTORY,
    LOG,
    PLACES,
    READ,
    SourceOptions,
    check_names,
    source_options,
    wait_s_of,
)
from spark_backfill.source.stream.options import stream_options
from spark_backfill.source.stream.reader import LogStreamReader
from spark_backfill.writing.frame_writer import WAIT_S, FrameWriter, begin_frame_write
from spark_backfill.writing.samples.options import TARGET, sample_options, target_of
from spark_backfill.writing.samples.writers import StreamSampleWriter, begin_sample_write
from tsdb.model.errors import InvalidRequest

IMPORT = (*PLACES, TARGET, "job_id", "wait_s")


class TsdbDataSource(DataSource):
    """`format("tsdb")` of reads, writes and streams: options and columns are those of docs/spark."""

    @classmethod
    def name(cls) -> str:
        """The name that `format(...)` takes."""
        return "tsdb"

    def schema(self) -> StructType:
        """Default schema of the source that the options name. Spark does not say here whether it reads a stream. So
        options that name neither a source nor a history give the schema of the log."""
        options = source_options(self.options, HISTORY if self.options.get(HISTORY_URL) else LOG)
        if options.source == CHUNKS:
            return CHUNK_SCHEMA
        return sample_schema(options.wide, runs=options.runs, versions=options.source == LOG)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns in `schema`: the source's columns or some of them, in any order."""
        check_names(self.options, READ, "a read")
        options = self._parsed()
        if options.source == CHUNKS:
            return ChunksReader(options, schema)
        if options.source == LOG:
            return LogSourceReader(options, columns_of(schema, versions=True))
        return HistoryReader(options, columns_of(schema, runs=options.runs))

    def streamReader(self, schema: StructType) -> LogStreamReader:
        """A stream of the log's samples, with the columns of the batch source."""
        with quoted_errors():
            return LogStreamReader(stream_options(self.options), columns_of(schema, versions=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of samples: an import into history, or with target=log into the log."""
        if overwrite:
            raise InvalidRequest("samples are only added: write with mode append", reason="bad_option")
        if target_of(self.options, HISTORY) == LOG:
            return begin_sample_write(sample_options(self.options, schema, stream=False))
        return self._import(schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSampleWriter:
        """A writer of samples into the log."""
        with quoted_errors():
            if overwrite:
                raise InvalidRequest(
                    "samples are only added: write with outputMode append or update", reason="bad_option"
                )
            if target_of(self.options, LOG) != LOG:
                raise InvalidRequest(
                    "option target: a stream writes into the log; import into history by a batch write",
                    reason="bad_option",
                )
            return StreamSampleWriter(sample_options(self.options, schema, stream=True))

    def _import(self, schema: StructType) -> FrameWriter:
        """The option job_id names the import; a repeat with the same rows changes nothing."""
        check_names(self.options, IMPORT, "an import")
        columns_of(schema, versions=True)
        job_id = self.options.get("job_id")
        if not job_id:
            raise InvalidRequest(
                "the option job_id is needed, and the same one to write again; recent samples go into the log, with"
                " target=log",
                reason="bad_option",
            )
        return begin_frame_write(places_of(self.options), job_id, wait_s_of(self.options, WAIT_S))

    def _parsed(self) -> SourceOptions:
        return source_options(self.options)
