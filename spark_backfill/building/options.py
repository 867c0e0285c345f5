"""Build options: what every task that builds chunks is told, as a value that travels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from spark_backfill.places import Places, places_of
from tsdb.codec.chunk import PART_BYTES_MAX
from tsdb.model.errors import InvalidRequest
from tsdb.model.time_set import SliceLengths, TimeSet

STAGE = "stage"  # Name of the data source's option.


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """places: where the log is. topic_id: of the log that all offsets are of.

    patience_s: how long a task waits for the log before it fails; above the time that a broker takes to come back.
    inflight_bytes_max: of chunks not acknowledged, in each task.
    """

    places: Places
    topic_id: str
    times: TimeSet
    slices: SliceLengths
    part_bytes_max: int = PART_BYTES_MAX
    patience_s: float = 60.0
    inflight_bytes_max: int = 16 << 20

    def as_options(self) -> dict[str, str]:
        """As options of a data source; `build_options_of` makes the same of them."""
        rest = {
            "topic_id": self.topic_id,
            "times": asdict(self.times),
            "slices": asdict(self.slices),
            "part_bytes_max": self.part_bytes_max,
            "patience_s": self.patience_s,
            "inflight_bytes_max": self.inflight_bytes_max,
        }
        return {**self.places.options(), STAGE: json.dumps(rest)}


def build_options_of(options: Mapping[str, str]) -> BuildOptions:
    """From options of a data source. Raises InvalidRequest (bad_option)."""
    try:
        rest = json.loads(options[STAGE])
        times, slices = TimeSet(**rest.pop("times")), SliceLengths(**rest.pop("slices"))
        return BuildOptions(places_of(options), times=times, slices=slices, **rest)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"option {STAGE}: {error}", reason="bad_option") from error
