"""Messages for errors that gRPC itself reports: the address, the likely cause, and the next step.

Errors of our servers have their own messages and stay unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import grpc

from tsdb.client.call import Method
from tsdb.model.errors import InvalidRequest, TsdbError, Unavailable
from tsdb.ops.grpc.errors import DETAILS_HEADER, from_rpc_error

# Parts of gRPC's text for a failed connection, the reason, and our message. A cause that no retry can remove has the
# reason "tls" or "wrong_port".
_CAUSES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), reason, text)
    for pattern, reason, text in (
        ("WRONG_VERSION_NUMBER", "tls", "{address} does not speak TLS: leave out --tls and --tls-ca"),
        (
            "ALPN|Failed parsing HTTP/2",
            "wrong_port",
            "{address} is not a gRPC port, it speaks HTTP/1: give the server's --grpc address, not its --http address",
        ),
        (
            "CERTIFICATE_VERIFY_FAILED: (?P<detail>[^:]+)",
            "tls",
            "the certificate of {address} is not trusted ({detail}): give the CA that signed it",
        ),
        (
            "Hostname Verification Check failed",
            "tls",
            "the certificate of {address} is for another host: call the server by the name in its certificate",
        ),
        (
            "Connection refused",
            "unreachable",
            "nothing listens at {address}: start the server, or give its --grpc address",
        ),
        (
            "errors resolving|[Nn]ame not found|getaddrinfo",
            "unreachable",
            "the host of {address} is not known: check the name",
        ),
    )
)
_CUT = re.compile("Socket closed|[Cc]onnection reset|[Bb]roken pipe|recvmsg")
# gRPC's texts for calls that this side ended.
_OWN_END = re.compile("Channel closed|Locally cancelled")
_LAST = re.compile(r".*last error: [A-Z_]+: (?:ipv[46]:[^ ]+: )?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Peer:
    """The server of a client: HOST:PORT, and whether TLS is on."""

    address: str
    tls: bool


def client_closed() -> Unavailable:
    """The error of a call on a closed client."""
    return Unavailable("the client is closed: connect again", reason="client_closed")


def call_error(error: grpc.RpcError, peer: Peer, method: Method) -> TsdbError:
    """The exception for a failed call. The caller raises it from `error`."""
    found = from_rpc_error(error)
    call: Any = error  # RpcError declares no methods; the objects that gRPC raises are also a Call.
    if any(key == DETAILS_HEADER for key, _ in call.trailing_metadata() or ()):
        return found
    if found.reason == "unreachable":
        return _unreachable(found.message, peer)
    if found.reason == "cancelled" and not _OWN_END.search(found.message):
        # A server that is ending drops calls that arrive before its clients know. None of our code has seen these
        # calls.
        return Unavailable(f"{peer.address} dropped the call, it may be ending", reason="call_dropped")
    if found.reason == "unimplemented":
        return _wrong_role(peer, method)
    if found.reason == "deadline":
        return Unavailable(f"{peer.address} did not answer within the timeout", reason="deadline")
    return found


def _unreachable(text: str, peer: Peer) -> TsdbError:
    for pattern, reason, words in _CAUSES:
        match = pattern.search(text)
        if match:
            return Unavailable(words.format(address=peer.address, **match.groupdict()), reason=reason)
    if _CUT.search(text):
        wish = "a client certificate (--tls-cert, --tls-key)" if peer.tls else "TLS (--tls, --tls-ca)"
        return Unavailable(f"{peer.address} closed the connection: it may require {wish}", reason="unreachable")
    return Unavailable(f"cannot reach {peer.address}: {_LAST.sub('', text)}", reason="unreachable")


def _wrong_role(peer: Peer, method: Method) -> TsdbError:
    if method is Method.WRITE:
        return InvalidRequest(
            f"{peer.address} takes no writes, it is a store or a querier: write to a gateway (`tsdb gateway`)",
            reason="wrong_role",
        )
    if method in (Method.QUERY, Method.QUERIES, Method.CANCEL_QUERY):
        return InvalidRequest(
            f"{peer.address} answers no queries, it is a gateway: call a querier or a standalone process"
            " (`tsdb querier`, `tsdb standalone`)",
            reason="wrong_role",
        )
    return InvalidRequest(
        f"{peer.address} answers no reads ({method.value}), it is a gateway: call a store or a querier (`tsdb store`,"
        " `tsdb querier`)",
        reason="wrong_role",
    )
