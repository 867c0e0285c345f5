"""Random bytes sent to a TCP port."""

from __future__ import annotations

import contextlib
import random
import socket

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def payloads(seed: int, count: int) -> list[bytes]:
    """Random bytes, alone and after the first bytes of a valid request."""
    rng = random.Random(seed)
    starts = (b"", HTTP2_PREFACE, b"GET /metrics HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
    return [start + rng.randbytes(rng.randrange(1, 4096)) for start in starts for _ in range(count)]


def send(port: int, payload: bytes) -> bytes:
    """Send the bytes and return the answer; the peer may close the connection at any moment."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(payload)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65_536):
            answer += part
    return answer
