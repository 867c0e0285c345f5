"""Get: one HTTP request to one address of a name that resolves to several."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing


def http_get(
    name: str,
    address: tuple[str, int],
    path: str,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | None,
    *,
    within_s: float,
    bytes_max: int,
) -> tuple[int, bytes]:
    """(status, body) of an answer. tls: None for plain HTTP; the certificate is for the name, not for the address.
    within_s: bound of each wait.

    Raises OSError, HTTPException, and ValueError for a body longer than bytes_max.
    """
    with (
        socket.create_connection(address, within_s) as peer,
        closing(http.client.HTTPConnection(*address)) as connection,
    ):
        connection.sock = tls.wrap_socket(peer, server_hostname=name) if tls else peer
        connection.request("GET", path, headers={**headers, "connection": "close"})
        answer = connection.getresponse()
        body = answer.read(bytes_max + 1)
        if len(body) > bytes_max:
            raise ValueError(f"the answer is longer than {bytes_max} bytes")
        return answer.status, body
