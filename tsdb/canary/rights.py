"""Rights: at its start a canary proves that it may read and write; a wrong token or address is refused by name."""

from __future__ import annotations

from collections.abc import Callable

from tsdb.model.errors import ConfigMismatch, Overloaded, TsdbError, Unavailable

# Reasons of Unavailable that waiting does not change: the two sides do not agree on TLS, or the port speaks HTTP/1.
_LASTING = frozenset({"tls", "wrong_port"})


def require(right: str, server: str, hint: str, call: Callable[[], object]) -> None:
    """Run the call. Raises Unavailable while the server does not answer, otherwise ConfigMismatch (canary_read,
    canary_write).

    right: read or write. server: role and address. hint: the missing right.
    """
    try:
        call()
    except (Unavailable, Overloaded) as error:
        if error.reason not in _LASTING:
            raise Unavailable(f"{server}: {error.message}", reason=error.reason) from error
        raise _refusal(right, server, hint, error) from error
    except TsdbError as error:
        raise _refusal(right, server, hint, error) from error


def _refusal(right: str, server: str, hint: str, error: TsdbError) -> ConfigMismatch:
    return ConfigMismatch(
        f"the canary may not {right} at the {server}: {error.message}; {hint}", reason=f"canary_{right}"
    )
