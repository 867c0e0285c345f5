"""Warm-up of the OTLP decoder."""

from __future__ import annotations

from ingest.otlp.decode import OtlpDecoder


def warm_up() -> None:
    """Compile or load the kernels. An empty request calls each of them."""
    OtlpDecoder().decode(b"")
