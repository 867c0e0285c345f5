"""Pages about what this store does not have: scrapes, rules, alerts, exemplars. Each has an empty answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.answer import Result, plain
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.model.errors import InvalidRequest
from tsdb.promql.syntax.parser import parse
from tsdb.selector.tokens import QueryError

_RULE_TYPES = ("", "alert", "record")


def empty(data: Any) -> Callable[[ApiCall], Result]:
    """A page that always has this answer."""
    return lambda call: plain(data)


def rules(call: ApiCall) -> Result:
    """Answers `/api/v1/rules`. Rules are evaluated elsewhere: docs/alerting.md."""
    kind = call.form.get("type").lower()
    if kind not in _RULE_TYPES:
        raise BadParameter("type", f"not supported value {parameters.quoted(kind)}")
    return plain({"groups": []})


def exemplars(call: ApiCall) -> Result:
    """Answers `/api/v1/query_exemplars`. Exemplars are counted at the gateway and not kept."""
    if parameters.lookup_range(call.form).is_empty:
        raise InvalidRequest("end timestamp must not be before start timestamp", reason="bad_parameter")
    try:
        parse(call.form.get("query"), call.options.query.features)
    except QueryError as error:
        raise BadParameter("query", error.message) from error
    return plain([])
