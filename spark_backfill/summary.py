"""Summary: the result that a job reports at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Figure = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class JobSummary:
    """ok: False when the job did its work and found something that needs an operator; the exit code is 1 then.

    figures: counts and values by name. rows: a report, one mapping a row, all with the same names.
    """

    job: str
    ok: bool = True
    figures: Mapping[str, Figure] = field(default_factory=dict)
    rows: tuple[Mapping[str, Figure], ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The summary as one JSON object."""
        report = {"rows": [dict(row) for row in self.rows]} if self.rows else {}
        return {"job": self.job, "ok": self.ok, **self.figures, **report}
