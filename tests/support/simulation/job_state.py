"""Batch jobs under way in a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_backfill.jobs.merge_late.plan import WindowPlan
from spark_backfill.writing.import_run import ImportRun
from spark_backfill.writing.loader_wait import JobEnds
from support.simulation.oracle import Entry

DELETE_AFTER_MS = 8_000  # Longer than any read of a simulation takes.


@dataclass
class ImportJob:
    """run: the run with its ticks. entries: samples that readers see once it has ended. samples: numbers and times of
    their sources.
    """

    run: ImportRun
    entries: list[Entry]
    samples: list[tuple[int, int]]


@dataclass
class FoldJob:
    """plans: the plans of its run. ends: offsets that the loader has to pass before the plans are checked again."""

    plans: list[WindowPlan]
    ends: JobEnds


@dataclass
class Jobs:
    """The jobs that are under way. ended: imports whose end their callers know."""

    imports: list[ImportJob] = field(default_factory=list)
    ended: list[ImportJob] = field(default_factory=list)
    fold: FoldJob | None = None
