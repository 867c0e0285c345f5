"""Result that a comparison of log, `chunks` and history reports."""

from __future__ import annotations

from dataclasses import dataclass

from spark_backfill.result import JobResult


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
class VerifyResult(JobResult):
    """ok: there is no difference; after a repair, no difference is left. rows: the first 1,000 differences by time.

    from_ms, to_ms: the windows compared, [from_ms, to_ms). items: tasks that built chunks from the log. problems: keys
    with a difference, the sum of the six counts that follow. missing, differing, extra: keys that the place lacks, has
    with other bytes, or has without a source. history_*: None when history was not compared.

    found, repaired, written: only with a repair, else None. found: problems before it. repaired: those that are gone.
    written: records written.
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
