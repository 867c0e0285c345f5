"""Federation: returns the latest sample of each selected series as Prometheus text, for another Prometheus to
scrape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.answer import Representation
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.parameters import selectors
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import parse_labels
from tsdb.model.stale import STALE_BITS
from tsdb.promql.evaluate.storage import StoredSeries

TEXT = "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8"
LINES_A_PIECE = 1000
LINE_COPIES = 3
LINE_BYTES = 64  # Value, time and punctuation of a line.

Labels = tuple[tuple[str, str], ...]
Latest = dict[bytes, tuple[int, float]]


def federate(call: ApiCall) -> Representation:
    """Answers `/federate`: the last samples within the lookback, except of series that have ended.

    Native histograms are left out, as in Prometheus: the text format has none.
    """
    try:
        wanted = selectors(call.form)
    except InvalidRequest as error:
        raise BadParameter("match[]", error.message) from error
    now_ms = call.sources.clock.now_ms()
    lookback_ms = parameters.lookback_ms(call.form, call.options.query.lookback_ms)
    call.running.text = " ".join(call.form.all("match[]"))
    latest: Latest = {}
    with call.storage() as storage:
        for matchers in wanted:
            call.running.check()
            _take(storage.select(matchers, now_ms - lookback_ms, now_ms), latest)
            call.hold(sum(LINE_COPIES * len(labels) + LINE_BYTES for labels in latest))
    return Representation(_pieces(latest), TEXT)


def _take(stored: StoredSeries, latest: Latest) -> None:
    bits = stored.values.view(np.int64)
    if stored.details is not None and stored.details.histogram_of is not None:
        bits = np.where(stored.details.histogram_of < 0, bits, STALE_BITS)
    ends = stored.starts[1:].tolist()
    for labels, start, end in zip(stored.labels, stored.starts[:-1].tolist(), ends, strict=True):
        if end > start and bits[end - 1] != STALE_BITS:
            latest[labels] = int(stored.ts_ms[end - 1]), float(stored.values[end - 1])


def _pieces(latest: Latest) -> Iterator[bytes]:
    rows = sorted((_parts(labels), sample) for labels, sample in latest.items())
    lines: list[str] = []
    for name, of_name in groupby(rows, key=lambda row: row[0][0]):
        lines.append(f"# TYPE {_quoted_name(name)} untyped\n")
        for (_, labels), (ts_ms, value) in of_name:
            lines.append(f"{_series(name, labels)} {float_text(value)} {ts_ms}\n")
        if len(lines) >= LINES_A_PIECE:
            yield "".join(lines).encode(errors="replace")
            lines = []
    yield "".join(lines).encode(errors="replace")


def _parts(canonical: bytes) -> tuple[str, Labels]:
    """The metric's name, and the other labels. A series without `instance` gets an empty one, so that a scrape sets no
    other."""
    labels = dict(parse_labels(canonical))
    name = labels.pop("__name__", "")
    return name, tuple(sorted({"instance": "", **labels}.items()))


def _series(name: str, labels: Sequence[tuple[str, str]]) -> str:
    pairs = ",".join(f'{_quoted_name(label)}="{_escaped(value)}"' for label, value in labels)
    if _is_plain(name):
        return f"{name}{{{pairs}}}"
    return f'{{"{_escaped(name)}",{pairs}}}'


def _quoted_name(name: str) -> str:
    return name if _is_plain(name) else f'"{_escaped(name)}"'


def _is_plain(name: str) -> bool:
    return name.replace(":", "_").isidentifier() and name.isascii()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def float_text(value: float) -> str:
    """A value as Go writes it: the shortest decimal, with an exponent below 1e-4 and from 1e6 on."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return np.format_float_positional(value, trim="-")
    return np.format_float_scientific(value, trim="-", exp_digits=2)
