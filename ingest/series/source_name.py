"""Source name: the text of a source, for messages."""

from __future__ import annotations

import json

from tsdb.model.labels import SEPARATOR, parse_labels
from tsdb.model.placement import PlacementRule

SOURCE_CHARS_MAX = 64


def shown_source(labels: bytes, rule: PlacementRule) -> str:
    """The placement labels of the series, or its metric family; at most SOURCE_CHARS_MAX characters."""
    held = [(name, value) for name, value in parse_labels(labels) if name in rule.labels]
    if held:
        text = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in held)
    else:
        text = rule.place(labels).placement.replace(SEPARATOR, b",").decode(errors="replace")
    return text if len(text) <= SOURCE_CHARS_MAX else text[: SOURCE_CHARS_MAX - 3] + "..."
