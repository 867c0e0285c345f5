"""Cancel: ends a running query, as `tsdb queries --cancel`."""

from __future__ import annotations

import orjson

from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.parameters import integer
from tsdb.ui.pages.page import PageCall


def cancel(asked: PageCall) -> bytes:
    """Answers `/ui/cancel`: `number` is that of the query. found: whether it ran. Raises BadParameter."""
    try:
        number = integer(asked.call.form.get("number"))
    except ValueError as error:
        raise BadParameter("number", error) from None
    return orjson.dumps({"status": "success", "found": asked.call.sources.running.cancel(number)})
