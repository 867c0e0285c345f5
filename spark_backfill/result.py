"""Job result: the report of a job at its end. Each job has a class with its figures beside its `job.py`."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
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
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from ((f"{name}_{field.name}", figure) for name, figure in _figures(inner))
        elif isinstance(inner, Mapping):
            yield from ((f"{field.name}_{key}", figure) for key, figure in inner.items())
        else:
            yield field.name, inner
