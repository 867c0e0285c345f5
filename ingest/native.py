"""Names the rules of the setting `native_histograms`, and counts the received histograms."""

from __future__ import annotations

from typing import Literal

from tsdb.ops.metrics import counter

NativeHistogramRule = Literal["keep", "classic", "refuse"]
"""Native histograms stay, become classic ones, or are refused by name."""

received_histograms = counter(
    "tsdb_ingest_native_histograms_total", "Received native histograms, whatever `native_histograms` makes of them."
)
