"""Results of a merge of late data: the plan of a run that writes nothing, and the report of a run that writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_backfill.result import JobResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragments:
    """chunks: number of (pack, window)s. fragments: number in all of them; uncovered: those that no fold covers.

    per_chunk: mean number of fragments a chunk; most_of_a_chunk: highest number.
    """

    chunks: int = 0
    fragments: int = 0
    uncovered: int = 0
    per_chunk: float = 0.0
    most_of_a_chunk: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The plan for one partition. Its fields have the same meaning as in MergeLatePlan."""

    partition: int
    chunks: int
    fragments: int
    uncovered: int
    per_chunk: float
    most_of_a_chunk: int
    to_fold: int
    rows_to_delete: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFolds:
    """Fragments of one partition before and after a run."""

    partition: int
    before: Fragments
    after: Fragments


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLatePlan(JobResult):
    """The plan of a run that writes nothing. ok: each window can be planned. rows: the plan by partition.

    chunks to most_of_a_chunk: as in Fragments. to_fold: chunks to fold. rows_to_delete: rows of folds that were read
    back long enough ago. refused: windows that cannot be planned, by reason.
    """

    job: str = "merge-late"
    rows: tuple[PartitionPlan, ...] = ()
    applied: bool = False
    chunks: int
    fragments: int
    uncovered: int
    per_chunk: float
    most_of_a_chunk: int
    to_fold: int
    rows_to_delete: int
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLateResult(JobResult):
    """A run that wrote. ok: nothing was refused. rows: fragments by partition.

    before, after: fragments of all chunks. folded: chunks folded. rows_covered: rows that these folds cover.
    rows_deleted: rows of earlier folds. chunks_written, bytes_written: records of the folds. refused: windows not
    folded and rows not deleted, by reason.
    """

    job: str = "merge-late"
    rows: tuple[PartitionFolds, ...] = ()
    applied: bool = True
    before: Fragments
    after: Fragments
    folded: int
    rows_covered: int
    rows_deleted: int
    chunks_written: int
    bytes_written: int
    refused: Mapping[str, int] = field(default_factory=dict)
