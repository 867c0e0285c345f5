"""Credentials of InfluxDB's senders, in the form that the token check of the server reads."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import parse_qsl

from tsdb.model.errors import InvalidRequest
from tsdb.ops.http.bodies import HttpHead

PARAMETERS_MAX = 32


def bearer(head: HttpHead) -> str | None:
    """`Bearer TOKEN` from `Authorization: Token T`, from a password (Basic, or the query's `p`), or as it came.

    InfluxDB 1 has names and passwords. As in InfluxDB 2 the password is the token, and the name is not used.
    """
    given = head.headers.get("authorization", "").strip()
    scheme, _, rest = given.partition(" ")
    if scheme.lower() == "token":
        return f"Bearer {rest.strip()}"
    if scheme.lower() == "basic":
        password = _password(rest.strip())
        return given if password is None else f"Bearer {password}"
    if given:
        return given
    try:
        password = parameters(head.query).get("p")
    except InvalidRequest:
        return None
    return f"Bearer {password}" if password else None


def parameters(query: str) -> dict[str, str]:
    """Parameters of a query; of one that comes twice the last value. Raises InvalidRequest (malformed_request)."""
    try:
        return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX))
    except ValueError:
        raise InvalidRequest(
            f"the query has more than {PARAMETERS_MAX} parameters", reason="malformed_request"
        ) from None


def _password(encoded: str) -> str | None:
    """The password of a Basic authorization; None when malformed."""
    try:
        _name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return password if colon else None
