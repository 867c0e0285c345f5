"""Pages about what this store does not have: scrapes, exemplars. Each has an empty answer."""

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


def empty(data: Any) -> Callable[[ApiCall], Result]:
    """A page that always has this answer."""
    return lambda call: plain(data)


def exemplars(call: ApiCall) -> Result:
    """Answers `/api/v1/query_exemplars`. Exemplars are counted at the gateway and not kept."""
    if parameters.lookup_range(call.form).is_empty:
        raise InvalidRequest("end timestamp must not be before start timestamp", reason="bad_parameter")
    try:
        parse(call.form.get("query"), call.options.query.features)
    except QueryError as error:
        raise BadParameter("query", error.message) from error
    return plain([])
