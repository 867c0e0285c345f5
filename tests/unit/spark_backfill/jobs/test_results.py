"""Results of jobs: figures by attribute, as one JSON object, and as a table."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields

import pytest

from spark_backfill.pipeline.counts import SUMS
from spark_backfill.pipeline.result import PipelineResult
from spark_backfill.result import (
    Fragments,
    ImportResult,
    JobResult,
    MergeLateResult,
    PartitionFolds,
    RebuildResult,
    RefusedCount,
)

REBUILT = RebuildResult(
    from_ms=0, to_ms=14_400_000, log_from_ms=0, items=3, base_chunks=2, late_chunks=1, windows=1, bytes=900
)
FOLDED = MergeLateResult(
    ok=False,
    rows=(PartitionFolds(partition=2, before=Fragments(chunks=1, fragments=9), after=Fragments(chunks=1)),),
    before=Fragments(chunks=1, fragments=9, per_chunk=9.0),
    after=Fragments(chunks=1, fragments=1, per_chunk=1.0),
    folded=1,
    rows_covered=9,
    rows_deleted=0,
    chunks_written=1,
    bytes_written=70,
    windows_open=1,
    open_from_ms=14_400_000,
    refused={"corrupt_chunk": 1},
)


def test_a_result_is_one_json_object_with_its_job_and_figures() -> None:
    assert REBUILT.as_dict() == {
        "job": "rebuild",
        "ok": True,
        "from_ms": 0,
        "to_ms": 14_400_000,
        "log_from_ms": 0,
        "job_id": None,
        "items": 3,
        "items_before": 0,
        "base_chunks": 2,
        "late_chunks": 1,
        "windows": 1,
        "bytes": 900,
        "history_chunks": 0,
        "holes": 0,
        "refused": 0,
    }


def test_figures_of_inner_values_and_reasons_have_names_of_one_level() -> None:
    figures = FOLDED.figures()
    assert (figures["chunks_before"], figures["per_chunk_before"], figures["per_chunk_after"]) == (1, 9.0, 1.0)
    assert figures["refused_corrupt_chunk"] == 1
    (row,) = json.loads(json.dumps(FOLDED.as_dict()))["rows"]
    assert (row["partition"], row["fragments_before"], row["fragments_after"]) == (2, 9, 0)


def test_a_result_prints_its_known_figures_a_line_each() -> None:
    lines = str(REBUILT).splitlines()
    assert lines[0] == "rebuild"
    assert "  late_chunks     1" in lines
    imported = ImportResult(
        job_id="<b>",
        rows_valid=0,
        samples=0,
        chunks=0,
        bytes=0,
        duplicates=0,
        conflicts=0,
        announced=0,
        rejected=1,
        rejects=None,
        end_ms=0,
        loaded=True,
        rows=(RefusedCount("bad_value", 1),),
    )
    assert "rejects" not in str(imported), "a figure that is not known is left out"
    assert "<td>&lt;b&gt;</td>" in imported._repr_html_()


def test_the_result_of_a_pipeline_has_every_sum_of_its_receipts() -> None:
    figures = {field.name for field in fields(PipelineResult)} - {field.name for field in fields(JobResult)}
    assert figures == {"batches", "items", *SUMS}


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        REBUILT.items = 4  # type: ignore[misc]  # the claim
