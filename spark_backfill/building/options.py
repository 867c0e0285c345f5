"""Build options: parameters of every task that builds chunks, as a value that Spark can send to workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from spark_backfill.places import Places, places_of
from tsdb.codec.chunk.chunk import PART_BYTES_MAX
from tsdb.model.errors import InvalidRequest
from tsdb.model.time_set import SliceLengths, TimeSet

STAGE = "stage"  # Name of the data source's option.


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """places: address of the log. topic_id: id of the log topic that all offsets belong to.

    patience_s: time a task waits for the log before it fails; longer than a broker's restart.
    inflight_bytes_max: limit of unacknowledged chunk bytes in each task. window_bytes_max: limit of a window's samples
    in a task's memory.
    """

    places: Places
    topic_id: str
    times: TimeSet
    slices: SliceLengths
    part_bytes_max: int = PART_BYTES_MAX
    patience_s: float = 60.0
    inflight_bytes_max: int = 16 << 20
    window_bytes_max: int = 1 << 30

    def as_options(self) -> dict[str, str]:
        """Options of a data source, from which `build_options_of` makes an equal value."""
        rest = {
            "topic_id": self.topic_id,
            "times": asdict(self.times),
            "slices": asdict(self.slices),
            "part_bytes_max": self.part_bytes_max,
            "patience_s": self.patience_s,
            "inflight_bytes_max": self.inflight_bytes_max,
            "window_bytes_max": self.window_bytes_max,
        }
        return {**self.places.options(), STAGE: json.dumps(rest)}


def build_options_of(options: Mapping[str, str]) -> BuildOptions:
    """Build options from options of a data source. Raises InvalidRequest (bad_option)."""
    try:
        rest = json.loads(options[STAGE])
        times, slices = TimeSet(**rest.pop("times")), SliceLengths(**rest.pop("slices"))
        return BuildOptions(places_of(options), times=times, slices=slices, **rest)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"option {STAGE}: {error}", reason="bad_option") from error
