"""Placement and packs: which series travel and are stored together.

Placement is the values of the placement labels (the metric family when none is present); it decides the partition, so
one source's samples travel together. A pack is placement + metric family: series of one source that are read together.
"""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from tsdb.model.labels import METRIC_NAME, SEPARATOR

PACK_RULE_VERSION = 1
# Suffixes that client libraries add to one histogram's or summary's name. Stripped once, longest match first.
FAMILY_SUFFIXES = (b"_bucket", b"_count", b"_sum", b"_total", b"_created")
DEFAULT_PLACEMENT_LABELS = ("job", "instance")

_RESOLUTION = b"__resolution__"  # See tsdb.model.resolution.


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement, metric family and pack of a series. pack_id is unsigned, 64 bit."""

    placement: bytes
    family: bytes
    pack_id: int


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """The rule that places a series by its labels; all processes share it through `meta`."""

    labels: tuple[str, ...] = DEFAULT_PLACEMENT_LABELS

    def place(self, canonical: bytes) -> Placement:
        """Absent placement labels count as empty. When all of them are absent, the metric family is the placement."""
        parts = canonical.split(SEPARATOR)
        values = dict(zip(parts[::2], parts[1::2], strict=True))
        family = metric_family(values.get(METRIC_NAME, b""))
        wanted = [values.get(label.encode(), b"") for label in self.labels]
        placement = SEPARATOR.join(wanted) if any(wanted) else family
        pack = placement + SEPARATOR + family
        # Derived series form a separate pack, so that a read of their sources does not read them too.
        if resolution := values.get(_RESOLUTION, b""):
            pack += SEPARATOR + resolution
        return Placement(placement, family, xxhash.xxh3_64_intdigest(pack))


def metric_family(name: bytes) -> bytes:
    """Metric name without one histogram or summary suffix; a name that is only a suffix stays whole."""
    for suffix in FAMILY_SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return name
