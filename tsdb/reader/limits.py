"""Limits of one read: the request may lower the limits of the server."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tsdb.answer.spec import LabelsSpec, SelectSpec
from tsdb.model import defaults
from tsdb.model.errors import Overloaded

WATCHES_MAX = 16  # Each watch occupies a thread of the server, and the other threads must stay free for reads.
LABEL_VALUES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class SelectLimits:
    """Limits of one Select. series: matched series. samples: before trimming. bytes: payload of the answer."""

    series_max: int = defaults.SELECT_SERIES_MAX
    samples_max: int = defaults.SELECT_SAMPLES_MAX
    bytes_max: int = defaults.SELECT_BYTES_MAX

    def lowered(self, series_max: int, samples_max: int, bytes_max: int) -> SelectLimits:
        """The lower limit of each pair. 0 in the request means no limit of the request."""
        return SelectLimits(
            min(self.series_max, series_max or self.series_max),
            min(self.samples_max, samples_max or self.samples_max),
            min(self.bytes_max, bytes_max or self.bytes_max),
        )

    def of(self, spec: SelectSpec) -> SelectSpec:
        """The spec with these limits, for the stores that answer it."""
        return replace(spec, series_max=self.series_max, samples_max=self.samples_max, bytes_max=self.bytes_max)

    def check_series(self, got: int) -> None:
        """Raises Overloaded (series_limit)."""
        if got > self.series_max:
            raise _over("series", got, self.series_max)

    def check_samples(self, got: int) -> None:
        """Raises Overloaded (samples_limit)."""
        if got > self.samples_max:
            raise _over("samples", got, self.samples_max)

    def check_bytes(self, got: int) -> None:
        """Raises Overloaded (bytes_limit)."""
        if got > self.bytes_max:
            raise _over("bytes", got, self.bytes_max)


def values_max(spec: LabelsSpec) -> int:
    """The most values of a label in an answer."""
    return min(LABEL_VALUES_MAX, spec.values_max or LABEL_VALUES_MAX)


def check_values(spec: LabelsSpec, values: int) -> None:
    """Raises Overloaded (values_limit) when a label has more values than the read or the server allows."""
    if spec.name is not None and values > (limit := values_max(spec)):
        raise Overloaded(
            f"label {spec.name!r} has over {limit} values; add matchers", reason="values_limit", limit=limit
        )


def _over(name: str, got: int, limit: int) -> Overloaded:
    return Overloaded(
        f"the answer has {got} {name}; limit is {limit}: ask for a shorter range or fewer series",
        reason=f"{name}_limit",
        limit=limit,
        asked=got,
    )
