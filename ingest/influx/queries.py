"""Queries that clients of InfluxDB send before they write: databases exist as soon as somebody asks for them.

Line protocol is stored whatever its database is, so there is nothing to create and nothing to list. Reads are PromQL's.

Credentials of InfluxDB's senders, in the form that the token check of the server reads.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qsl

from tsdb.model.errors import InvalidRequest
from tsdb.ops.http.bodies import HttpHead

FORM = "application/x-www-form-urlencoded"
QUERY_BYTES_MAX = 64 << 10
STATEMENTS_MAX = 100
SHOWN = 100
HEALTHY = (
    json.dumps(
        {
            "name": "influxdb",
            "message": "ready for queries and writes",
            "status": "pass",
            "checks": [],
            "version": "1.8.10",
            "commit": "",
        }
    ).encode()
    + b"\n"
)
INTERNAL = "_internal"  # InfluxDB always has it.
_POLICY_COLUMNS = ["name", "duration", "shardGroupDuration", "replicaN", "default"]
_POLICY = ["autogen", "0s", "168h0m0s", 1, True]
# Statements that have no effect here, because what they create exists or is not needed.
_NO_EFFECT = re.compile(
    r"(create\s+(database|retention\s+policy|user|continuous\s+query)|alter\s+retention\s+policy|grant)\b", re.I
)
_EMPTY = re.compile(r"show\s+(continuous\s+queries|subscriptions|users|shards|queries|grants)\b", re.I)
_PARTS = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^;"']+|["'])|(;)""")

PARAMETERS_MAX = 32


def answer_query(query: str, body: bytes | bytearray, media_type: str) -> tuple[int, bytes]:
    """Status and JSON of a request of `/query`. Parameters of the body come before those of the URL."""
    try:
        given = parameters(query)
        if media_type == FORM:
            given |= dict(parse_qsl(bytes(body[:QUERY_BYTES_MAX]).decode(), max_num_fields=PARAMETERS_MAX))
    except (InvalidRequest, ValueError) as error:
        return 400, _json({"error": f"the parameters of the query cannot be read: {error}"})
    text = given.get("q", "").strip()
    if not text:
        return 400, _json({"error": 'missing required parameter "q"'})
    if len(text) > QUERY_BYTES_MAX:
        return 400, _json({"error": f"the query has {len(text)} characters; limit is {QUERY_BYTES_MAX}"})
    statements = list(_statements(text))
    if len(statements) > STATEMENTS_MAX:
        return 400, _json({"error": f"the query has {len(statements)} statements; limit is {STATEMENTS_MAX}"})
    results = []
    for number, statement in enumerate(statements):
        found = _result(statement, given.get("db", ""))
        if found is None:
            return 400, _json({"error": _refusal(statement)})
        results.append({"statement_id": number, **found})
    return 200, _json({"results": results})


def _statements(text: str) -> Iterator[str]:
    """The parts between semicolons that stand in no quotes."""
    parts: list[str] = []
    for piece, end in _PARTS.findall(text):
        if end:
            yield from filter(None, ["".join(parts).strip()])
            parts = []
        else:
            parts.append(piece)
    yield from filter(None, ["".join(parts).strip()])


def _result(statement: str, database: str) -> dict[str, object] | None:
    """None for a statement that is not answered here."""
    words = " ".join(statement.lower().split()[:3])
    if _NO_EFFECT.match(statement) or _EMPTY.match(statement):
        return {}
    if words.startswith("show databases"):
        names = dict.fromkeys([INTERNAL, *filter(None, [database])])
        return {"series": [{"name": "databases", "columns": ["name"], "values": [[name] for name in names]}]}
    if words.startswith("show retention policies"):
        return {"series": [{"columns": _POLICY_COLUMNS, "values": [_POLICY]}]}
    return None


def _refusal(statement: str) -> str:
    return (
        f"{statement[:SHOWN]!r} is not answered here: this address takes writes, and CREATE DATABASE and SHOW DATABASES"
        " of clients that begin with them; read with PromQL at /api/v1/query of a querier"
    )


def _json(answer: dict[str, object]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def bearer(head: HttpHead) -> str | None:
    """The credentials as `Bearer TOKEN`. They come from `Authorization: Token T`, from a password (Basic, or the
    query's `p`), or have this form already.

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
    """Parameters of a query. Of a parameter that comes twice the last value counts. Raises InvalidRequest
    (malformed_request)."""
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
