"""Kept pictures of pages. They are compared in blocks of pixels, for each release of a browser draws text anew."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

KEPT = Path(__file__).parents[2] / "e2e" / "ui" / "pictures"
BLOCK = 8  # Pixels. Within a block the edges of letters average out.
LEVELS = 24  # Difference in steps of 255. A block differs when a channel of its average differs by more.
SHARE_MAX = 0.01  # Of the blocks may differ.
COLOURS = 64


def check_picture(name: str, screenshot: bytes) -> None:
    """Compare a PNG with the kept one of this name. A picture that differs is left in a folder, in the form in which it
    may be kept."""
    kept = KEPT / f"{name}.png"
    seen = Image.open(io.BytesIO(screenshot)).convert("RGB")
    if not kept.exists():
        raise AssertionError(f"no picture {kept}: look at {_left(name, seen)} and keep it")
    with Image.open(kept) as picture:
        share = differing_share(np.asarray(picture.convert("RGB")), np.asarray(seen))
    assert share <= SHARE_MAX, (
        f"{share:.1%} of {name} differs from {kept}, {SHARE_MAX:.1%} may: look at {_left(name, seen)}"
    )


def differing_share(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> float:
    """Share of the blocks that differ, of two pictures (height, width, 3). 1 for pictures of different sizes."""
    if left.shape != right.shape:
        return 1.0
    difference = np.abs(_blocks(left) - _blocks(right)).max(axis=2)
    return float((difference > LEVELS).mean())


def _blocks(picture: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Averages of the whole blocks, (rows, columns, 3)."""
    height, width = (size // BLOCK * BLOCK for size in picture.shape[:2])
    blocks = picture[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3)
    averages: NDArray[np.float64] = blocks.mean(axis=(1, 3))
    return averages


def _left(name: str, picture: Image.Image) -> Path:
    folder = Path(tempfile.gettempdir()) / "kafka-tsdb-pictures"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.png"
    picture.quantize(COLOURS).save(path, optimize=True)
    return path
