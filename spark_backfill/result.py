"""Each job reports its figures at its end, in one of these results."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

Figure = int | float | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """Base of the results of all jobs. The fields of a subclass are its figures.

    job: name of the job. ok: False when the job did its work and found something that needs an operator; the exit code
    of the command is 1 then. rows: a report, one value a row; empty where a job has no report.

    """

    job: str
    ok: bool = True
    rows: tuple[Any, ...] = ()

    def figures(self) -> dict[str, Figure]:
        """All figures by name, those of inner values too: `before.chunks` is `chunks_before`."""
        return {name: figure for name, figure in _figures(self) if name not in ("job", "ok", "rows")}

    def as_dict(self) -> dict[str, object]:
        """The result as one JSON object."""
        report = {"rows": [dict(_figures(row)) for row in self.rows]} if self.rows else {}
        return {"job": self.job, "ok": self.ok, **self.figures(), **report}

    def __str__(self) -> str:
        shown = {"ok": self.ok, **self._known()}
        width = max(map(len, shown))
        return "\n".join((self.job, *(f"  {name:{width}}  {figure}" for name, figure in shown.items())))

    def _repr_html_(self) -> str:
        """The figures as a table, for notebooks."""
        cells = {"ok": self.ok, **self._known()}
        lines = (f"<tr><td>{name}</td><td>{html.escape(str(figure))}</td></tr>" for name, figure in cells.items())
        return f"<table><caption>{html.escape(self.job)}</caption>{''.join(lines)}</table>"

    def _known(self) -> dict[str, Figure]:
        return {name: figure for name, figure in self.figures().items() if figure is not None}


def _figures(value: Any) -> Iterator[tuple[str, Any]]:
    for item in fields(value):
        inner = getattr(value, item.name)
        if is_dataclass(inner):
            yield from ((f"{name}_{item.name}", figure) for name, figure in _figures(inner))
        elif isinstance(inner, Mapping):
            yield from ((f"{item.name}_{key}", figure) for key, figure in inner.items())
        else:
            yield item.name, inner


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRule:
    """A rule that failed at some steps; what is stored there stayed. error: the text of one failure."""

    file: str
    group: str
    rule: str
    steps: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesResult(JobResult):
    """ok: no rule failed, and no sample was refused. rows: FailedRule. start_ms, end_ms: [start_ms, end_ms) of the
    samples.

    evaluations: rules at steps; failures: those without a result. results: samples that the rules give, stale
    markers included. samples: those that differ from what is stored; a dry run does not write them. refused: samples
    with labels that no series may have. chunks, bytes: written. announced: records of series. loaded: whether the job
    waited for the loader.
    """

    job: str = "rules"
    job_id: str
    dry_run: bool
    start_ms: int
    end_ms: int
    groups: int
    rules: int
    evaluations: int
    failures: int
    results: int
    samples: int
    refused: int
    chunks: int
    bytes: int
    announced: int
    loaded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DownsampleResult(JobResult):
    """ok: no window was refused. start_ms, end_ms: the span of windows that were checked, [start_ms, end_ms).

    packs: packs with data in the span. windows: their windows; windows_stale: windows to derive, new or with newer
    samples. samples_derived, chunks_written: 0 in a dry run. windows_refused: windows with a corrupt chunk.
    """

    job: str = "downsample"
    dry_run: bool
    start_ms: int
    end_ms: int
    packs: int
    windows: int
    windows_stale: int
    samples_derived: int
    chunks_written: int
    windows_refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult(JobResult):
    """folder: the folder of the command. samples: rows written. start_ms, end_ms: range of sample times, [start_ms,
    end_ms); None: no bound.
    """

    job: str = "export"
    folder: str
    samples: int
    start_ms: int | None
    end_ms: int | None


@dataclass(frozen=True, slots=True)
class RefusedCount:
    """Number of input rows that were refused for one reason; docs/spark/jobs.md lists the reasons."""

    reason: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult(JobResult):
    """An import. ok: no row was refused, or refused rows were allowed. rows: refused rows by reason.

    job_id: names the input; another run with it writes the same keys. rows_valid: input rows that were not refused.
    samples: samples written. chunks: parts of
    chunks, of `bytes` in all. duplicates, conflicts: rows that were left out for another row of the same series and
    time, with the same value or another. announced: series announced. rejected: rows refused. rejects: folder of the
    refused rows; None without one. end_ms: samples at or after it are too recent. loaded: the samples are in history.
    """

    job: str = "import"
    rows: tuple[RefusedCount, ...] = ()
    job_id: str
    rows_valid: int
    samples: int
    chunks: int
    bytes: int
    duplicates: int
    conflicts: int
    announced: int
    rejected: int
    rejects: str | None
    end_ms: int
    loaded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildResult(JobResult):
    """ok: nothing was refused. from_ms, to_ms: the windows that were built, [from_ms, to_ms); those from log_from_ms on
    come from the log, earlier ones from history. items: tasks of the job. items_before: those that earlier runs with
    the same job_id had finished; the counts include them.

    base_chunks, late_chunks: chunks written. windows: window markers written; 0 with selected packs. bytes: keys and
    values of all records written. history_chunks: chunks of any kind that were copied from history; holes: named losses
    that were. refused: rows of history that do not decode; they are not written.
    """

    job: str = "rebuild"
    from_ms: int
    to_ms: int
    log_from_ms: int
    job_id: str | None = None
    items: int
    items_before: int = 0
    base_chunks: int
    late_chunks: int
    windows: int
    bytes: int
    history_chunks: int = 0
    holes: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class PackDifference:
    """Keys of one pack and window with the same problem.

    pack: 16 hexadecimal digits; empty for a marker. kind: base, late, import, folded, or marker. place: chunks or
    history. problem: missing, differing or extra.
    """

    window_ms: int
    pack: str
    kind: str
    place: str
    problem: str
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateResult(JobResult):
    """ok: both histories have the same rows, and no row was refused. rows: the first 1,000 differences by time.

    items: parts of the copy; items_before: those that earlier runs with the same job_id had finished; the counts
    include them. chunks, series, holes: rows written. bytes: size of the chunks. refused: chunks that do not decode;
    they are not written. compared: rows of both histories. missing, differing, extra: chunks that the target lacks, has
    with other bytes, or has alone. series_differing: rows of the series index that differ. loader_goes_on: a loader of
    the target begins at the source's commits from before the copy; else at the first records of `chunks` and `series`.
    """

    job: str = "migrate"
    rows: tuple[PackDifference, ...] = ()
    job_id: str
    chunks: int
    series: int
    holes: int
    bytes: int
    refused: int
    items: int
    items_before: int
    compared: int
    missing: int
    differing: int
    extra: int
    series_differing: int
    loader_goes_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult(JobResult):
    """ok: there is no difference; after a repair, no difference is left. rows: the first 1,000 differences by time.

    from_ms, to_ms: the windows compared, [from_ms, to_ms). items: tasks that built chunks from the log. problems: keys
    with a difference, the sum of the six counts that follow. missing, differing, extra: keys that the place lacks, has
    with other bytes, or has without a source. history_*: None when history was not compared.

    found, repaired, written: only with a repair, else None. found: problems before it. repaired: differences that the
    repair removed. written: records written.
    """

    job: str = "verify"
    rows: tuple[PackDifference, ...] = ()
    from_ms: int
    to_ms: int
    items: int
    problems: int
    chunks_missing: int = 0
    chunks_differing: int = 0
    chunks_extra: int = 0
    history_missing: int | None = None
    history_differing: int | None = None
    history_extra: int | None = None
    found: int | None = None
    repaired: int | None = None
    written: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragments:
    """chunks: number of (pack, window)s. fragments: number of their fragments; uncovered: number of fragments that no
    fold covers.

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
    rows_deleted: rows of earlier folds. chunks_written, bytes_written: records of the folds. windows_open: windows that
    a later run must check again, to delete rows for example; open_from_ms: start of the first one. refused: windows not
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
    windows_open: int
    open_from_ms: int | None
    refused: Mapping[str, int] = field(default_factory=dict)
