"""Warm-up of line protocol: compile its kernel, or load it from the cache."""

from __future__ import annotations

from ingest.influx.lines import LineRules, decode_lines
from ingest.influx.precision import parse_precision


def warm_up() -> None:
    """Decode one line, so that the next one waits for no compiler."""
    decode_lines(b"m f=1", parse_precision(""), 0, LineRules())
