"""Standard streams that accept every character in any encoding."""

from __future__ import annotations

import codecs
import io
import os
import sys

ESCAPES = "tsdb.escapes"  # The name of the codec error handler.


def prepare_streams() -> None:
    r"""Make the streams write characters that the encoding lacks as \u escapes: JSON stays valid, tables readable.

    Output to a stream that was closed before the start is discarded, as with Python's print.
    """
    codecs.register_error(ESCAPES, _escapes)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # Until the process ends.
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # Until the process ends.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPES)


def _escapes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    # JSON escapes a character beyond 16 bits as a pair of surrogates, as UTF-16 encodes it.
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(rf"\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end
