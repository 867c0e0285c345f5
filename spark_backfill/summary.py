"""Summary: what a job says of itself once it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Figure = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class JobSummary:
    """ok: False when the job did all it could and what it found calls for somebody; its exit code is 1 then.

    figures: what was done, by name; plain values. rows: a report, one mapping a row, all with the same names.
    """

    job: str
    ok: bool = True
    figures: Mapping[str, Figure] = field(default_factory=dict)
    rows: tuple[Mapping[str, Figure], ...] = ()

    def as_dict(self) -> dict[str, object]:
        """As one JSON object."""
        report = {"rows": [dict(row) for row in self.rows]} if self.rows else {}
        return {"job": self.job, "ok": self.ok, **self.figures, **report}
