"""Answer: one form for the answer of any server to a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from support.promql.comparison import Row
from support.promql.shown_histograms import ShownHistogram, histogram_of_json
from tsdb.rules.unit_tests.notation import labels_of


@dataclass(frozen=True, slots=True)
class Query:
    """step_ms: None for an instant query at start_ms."""

    text: str
    start_ms: int
    end_ms: int
    step_ms: int | None = None

    def __str__(self) -> str:
        if self.step_ms is None:
            return f"{self.text}    at {self.start_ms}"
        return f"{self.text}    from {self.start_ms} to {self.end_ms} step {self.step_ms}"


@dataclass(frozen=True, slots=True)
class Failure:
    """kind: `bad_data`, `execution` and so on, as in Prometheus's envelope."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True)
class Answer:
    """kind: `vector`, `matrix`, `scalar`, `string`; empty after a failure. rows: series in the order of the answer; a
    scalar is a row without labels. text: the text of a string.
    """

    kind: str = ""
    rows: Sequence[Row] = ()
    text: str = ""
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()


def answer_of(body: dict[str, Any]) -> Answer:
    """The answer in a JSON envelope of Prometheus."""
    warnings, infos = tuple(body.get("warnings", ())), tuple(body.get("infos", ()))
    if body["status"] != "success":
        return Answer(failure=Failure(body["errorType"], body["error"]), warnings=warnings, infos=infos)
    kind, result = body["data"]["resultType"], body["data"]["result"]
    match kind:
        case "string":
            return Answer(kind, text=result[1], warnings=warnings, infos=infos)
        case "scalar":
            rows = [Row((), dict([_point(result)]))]
        case "vector":
            rows = [Row(labels_of(one["metric"]), dict([_point(_only(one))])) for one in result]
        case _:
            rows = [
                Row(labels_of(one["metric"]), dict(map(_point, [*one.get("values", ()), *one.get("histograms", ())])))
                for one in result
            ]
    return Answer(kind, rows, warnings=warnings, infos=infos)


def _only(one: dict[str, Any]) -> Sequence[Any]:
    found: Sequence[Any] = one["value"] if "value" in one else one["histogram"]
    return found


def _point(pair: Sequence[Any]) -> tuple[int, float | ShownHistogram]:
    return round(pair[0] * 1000), float(pair[1]) if isinstance(pair[1], str) else histogram_of_json(pair[1])
