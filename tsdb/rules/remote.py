"""RuleGroups holds groups of rules as the HTTP API shows them; RemoteRulers asks all rulers of a cluster for theirs.

Nothing is kept between two requests: the rulers have the state. An answer without some groups has a warning.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.model.times import parse_time
from tsdb.ops.http.get import http_get
from tsdb.ops.metrics import counter
from tsdb.query.stores.pool import Resolve, StoreAddress, resolve

ANSWER_WITHIN_S = 5.0
ASKED_AT_ONCE_MAX = 16
ANSWER_BYTES_MAX = 64 << 20
PATH = "/api/v1/rules?own=1"  # A querier refuses it, so that none asks itself through another one.

_asked = counter("tsdb_query_ruler_requests_total", "Requests to rulers for their groups of rules.")
_failures = counter(
    "tsdb_query_ruler_request_failures_total",
    "Requests to rulers that failed, and names of rulers that do not resolve; the answer has a warning.",
)


@dataclass(frozen=True, slots=True)
class RuleGroups:
    """groups: as plain values, in the order of files and names. others: file and name of the groups of the same files
    that other rulers evaluate; None: these are all groups. warnings: why groups may be missing. alertmanagers: where
    the rulers send alerts."""

    groups: Sequence[dict[str, Any]] = ()
    others: Sequence[tuple[str, str]] | None = None
    warnings: Sequence[str] = ()
    alertmanagers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RulerAccess:
    """token: bearer token, "" for none. tls: None for plain HTTP."""

    token: str = ""
    tls: ssl.SSLContext | None = None


AskRuler = Callable[[StoreAddress, StoreAddress], bytes]
"""(configured name, resolved address) -> the body of an answer. Raises OSError, HTTPException, ValueError."""


class RemoteRulers:
    """All rulers behind configured names. Thread-safe."""

    def __init__(self, names: Sequence[StoreAddress], ask: AskRuler, *, resolve: Resolve = resolve) -> None:
        self._names = tuple(names)
        self._ask = ask
        self._resolve = resolve

    def groups(self) -> RuleGroups:
        """The groups of all rulers; of a group that two rulers show while it moves, the one that is further. Raises
        Unavailable when no ruler answers."""
        warnings: list[str] = []
        places = list(self._places(warnings))
        answers = self._answers(places, warnings)
        if not answers:
            raise Unavailable(f"no ruler answers: {'; '.join(warnings)}", reason="rulers_unavailable")
        return merged(answers, warnings)

    def _places(self, warnings: list[str]) -> Iterator[tuple[StoreAddress, StoreAddress]]:
        for name in self._names:
            try:
                yield from ((name, address) for address in self._resolve(name))
            except OSError as error:
                _failures.inc()
                warnings.append(f"rulers at {name} cannot be found, so that groups may be missing: {error}")

    def _answers(
        self, places: Sequence[tuple[StoreAddress, StoreAddress]], warnings: list[str]
    ) -> Sequence[RuleGroups]:
        if not places:
            return ()
        threads = ThreadPoolExecutor(min(len(places), ASKED_AT_ONCE_MAX), "ask-ruler")
        try:
            futures = [threads.submit(self._ask, *place) for place in places]
            wait(futures, ANSWER_WITHIN_S)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        found = []
        for (_, address), future in zip(places, futures, strict=True):
            _asked.inc()
            try:
                if not future.done() or future.cancelled():
                    raise TimeoutError(f"no answer within {ANSWER_WITHIN_S:g} s")
                found.append(groups_of(future.result()))
            except (OSError, http.client.HTTPException, ValueError) as error:
                _failures.inc()
                text = str(error) or type(error).__name__
                warnings.append(f"ruler {address} does not answer, so that its groups may be missing: {text}")
        return found


def groups_of(body: bytes) -> RuleGroups:
    """The groups in the answer of a ruler. Raises ValueError for another answer."""
    answer = json.loads(body)
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("otherGroups"), list):
        raise ValueError("the answer is not that of a ruler that has read its files")
    groups, others = data.get("groups"), data["otherGroups"]
    if not (isinstance(groups, list) and all(map(_is_named, (*groups, *others)))):
        raise ValueError("the answer has groups without name and file")
    if not all(isinstance(group.get("rules"), list) for group in groups):
        raise ValueError("the answer has a group without rules")
    urls = data.get("alertmanagers", [])
    if not (isinstance(urls, list) and all(isinstance(url, str) for url in urls)):
        raise ValueError("the answer has Alertmanagers without address")
    return RuleGroups(groups, [(one["file"], one["name"]) for one in others], alertmanagers=urls)


def merged(answers: Sequence[RuleGroups], warnings: Sequence[str]) -> RuleGroups:
    """The groups of several rulers, each once. warnings: the first warnings of the answer."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for group in (group for answer in answers for group in answer.groups):
        known = found.setdefault((group["file"], group["name"]), group)
        if _through_ms(group) > _through_ms(known):
            found[group["file"], group["name"]] = group
    named = {other for answer in answers for other in answer.others or ()}
    lost = [
        f"group {name} of {file} is missing: no ruler that answers has it now"
        for file, name in sorted(named - found.keys())
    ]
    urls = sorted({url for answer in answers for url in answer.alertmanagers})
    return RuleGroups([found[key] for key in sorted(found)], None, [*warnings, *lost], urls)


def ask_over_http(access: RulerAccess) -> AskRuler:
    """Asks with the HTTP API of a ruler."""

    def ask(name: StoreAddress, address: StoreAddress) -> bytes:
        headers = {"host": str(name)}
        if access.token:
            headers["authorization"] = f"Bearer {access.token}"
        place = (address.host, address.port)
        status, body = http_get(
            name.host, place, PATH, headers, access.tls, within_s=ANSWER_WITHIN_S, bytes_max=ANSWER_BYTES_MAX
        )
        if status != http.HTTPStatus.OK:
            raise ValueError(f"status {status}: {body[:200].decode(errors='replace')}")
        return body

    return ask


def _is_named(group: Any) -> bool:
    return isinstance(group, Mapping) and all(isinstance(group.get(name), str) for name in ("file", "name"))


def _through_ms(group: Mapping[str, Any]) -> int:
    try:
        return parse_time(str(group.get("evaluatedThrough", "")))
    except InvalidRequest:
        return 0
