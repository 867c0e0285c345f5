"""Lists the questions of bench/promql, large and small, as requests to Prometheus's HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from bench.promql.promql_series import COUNTER, GAUGE, INFO, POINTS, STEP_MS, instance_name

API = "/api/v1/"
SHIFTS = 10  # A repeated question moves its range by one of these seconds each time, as on a dashboard.
_MORE = "$"  # One more matcher goes here.
_FEW = f'{GAUGE}{{instance="{instance_name(0)}",mode=~"mode_0.",{_MORE}}}'
_ONE = f'{GAUGE}{{instance="{instance_name(0)}",mode="mode_07",{_MORE}}}'
_JOINED = f"{GAUGE}{{{_MORE}}} / on (instance) group_left (ver) {INFO}"
_QUERY, _RANGE, _VALUES = "query", "query_range", "label/instance/values"


@dataclass(frozen=True, slots=True)
class Question:
    """text: PromQL with a gap for one more matcher. reach_ms: goal for the p50 of one client."""

    name: str
    endpoint: str
    text: str
    reach_ms: float | None = None
    small: bool = False

    def path(self, end_ms: int, turn: int, matcher: str = "") -> str:
        """Path of a request. matcher: a further matcher of the selector."""
        end_ms += turn % SHIFTS * 1000
        text = self.text.replace(_MORE, matcher)
        if self.endpoint == _RANGE:
            start_ms = end_ms - (POINTS - 1) * STEP_MS
            parameters = {"query": text, "start": _seconds(start_ms), "end": _seconds(end_ms), "step": STEP_MS // 1000}
        elif self.endpoint == _QUERY:
            parameters = {"query": text, "time": _seconds(end_ms)}
        else:
            parameters = {"match[]": text, "start": _seconds(end_ms - POINTS * STEP_MS), "end": _seconds(end_ms)}
        return f"{API}{self.endpoint}?{urlencode(parameters)}"


# Section 20's goals for `increase` and `group_left` are below that of raw JSON of 10,000 x 240, so they are taken as
# those of an instant query and of a sum. The whole answers have only the floor, to be ahead of Prometheus.
QUESTIONS = (
    Question("sum by rate", _RANGE, f"sum by (g) (rate({COUNTER}{{{_MORE}}}[5m]))", 30),
    Question("sum", _RANGE, f"sum({GAUGE}{{{_MORE}}})", 20),
    Question("quantile by", _RANGE, f"quantile by (g) (0.9, {GAUGE}{{{_MORE}}})", 100),
    Question("increase 1h", _QUERY, f"increase({COUNTER}{{{_MORE}}}[1h])", 30),
    Question("increase 1h, range", _RANGE, f"increase({COUNTER}{{{_MORE}}}[1h])"),
    Question("sum of group_left", _RANGE, f"sum by (ver) ({_JOINED})", 60),
    Question("group_left", _RANGE, _JOINED),
    Question("raw JSON", _RANGE, f"{GAUGE}{{{_MORE}}}", 150),
    Question("small: sum of 10", _QUERY, f"sum({_FEW})", 2, small=True),
    Question("small: 1 series", _RANGE, _ONE, 2, small=True),
    Question("small: label values", _VALUES, f"{INFO}{{{_MORE}}}", 2, small=True),
)


def _seconds(time_ms: int) -> str:
    return f"{time_ms / 1000:.3f}"
