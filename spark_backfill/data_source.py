"""Data source `tsdb`: the class that Spark calls. The module of each source reads and writes."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from spark_backfill.places import places_of
from spark_backfill.source.chunks import CHUNK_SCHEMA, ChunksReader
from spark_backfill.source.columns import columns_of, sample_schema
from spark_backfill.source.history import HistoryReader
from spark_backfill.source.log import LogSourceReader
from spark_backfill.source.options import CHUNKS, HISTORY, LOG, SourceOptions, source_options, wait_s_of
from spark_backfill.writing.frame_writer import WAIT_S, FrameWriter, begin_frame_write
from tsdb.model.errors import InvalidRequest


class TsdbDataSource(DataSource):
    """`spark.read.format("tsdb")`: options and columns are those of docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "tsdb"

    def schema(self) -> StructType:
        """Default schema of the source that the options name."""
        options = self._parsed()
        return CHUNK_SCHEMA if options.source == CHUNKS else sample_schema(options.wide, runs=options.runs)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns in `schema`: the source's columns or some of them, in any order."""
        options = self._parsed()
        if options.source == CHUNKS:
            return ChunksReader(options, schema)
        readers = {HISTORY: HistoryReader, LOG: LogSourceReader}
        return readers[options.source](options, columns_of(schema, runs=options.runs))

    def writer(self, schema: StructType, overwrite: bool) -> FrameWriter:
        """A writer of samples as an import. The option job_id names the import; the same rows again change nothing."""
        if overwrite:
            raise InvalidRequest("history is only added to: write with mode append", reason="bad_option")
        columns_of(schema)
        job_id = self.options.get("job_id")
        if not job_id:
            raise InvalidRequest("the option job_id is needed, and the same one to write again", reason="bad_option")
        return begin_frame_write(places_of(self.options), job_id, wait_s_of(self.options, WAIT_S))

    def _parsed(self) -> SourceOptions:
        return source_options(self.options)
