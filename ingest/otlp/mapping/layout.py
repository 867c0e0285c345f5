"""Layout: the tables between Python, which makes the texts of metrics and resources, and the kernels.

All texts are spans of one arena of bytes, which begins with PIECES.
"""

from __future__ import annotations

PIECES = b"__name__\xff_sum_count_bucket\xffle\xff\xffquantile\xff+Inf"

# Pieces of a row, by their position in PIECES. FAMILY: nothing is added to the family's name.
FAMILY = 0
SUM_SUFFIX, COUNT_SUFFIX, BUCKET = (PIECES.index(piece) for piece in (b"_sum", b"_count", b"_bucket"))
LE, QUANTILE_LABEL, INFINITE = (PIECES.index(piece) for piece in (b"\xffle\xff", b"\xffquantile\xff", b"+Inf"))
ROW_BYTES_MAX = 48  # Of a row, beside family, value of `le` or `quantile`, and the labels of resource and point.

# Columns of the families' table, one row a metric.
(NAME_IN_ARENA, NAME_IN_ARENA_END, METRIC_CONTEXT, CONTEXT_BYTES, METRIC_REFUSED), FAMILY_COLUMNS = range(5), 5

# Columns of the contexts' table: the labels of one resource or scope are consecutive rows, and the context of a metric
# is the first of them. FALLBACK: an attribute of the point with the same name comes first. LABEL_LAST ends the context,
# as a row without a label.
(LABEL_AT, LABEL_NAME_END, LABEL_END, FALLBACK, LABEL_LAST), CONTEXT_COLUMNS = range(5), 5

# Causes of a refused point.
ACCEPTED, OF_METRIC, TOO_MANY_ATTRIBUTES, NAMELESS_LABEL, NOT_UTF8, SCALE_TOO_SMALL = range(6)

# Columns of the scratch table of one point's attributes.
(
    KEY_AT, KEY_END, VALUE_KIND, VALUE_AT, VALUE_END, NAME_AT, NAME_END, LEADER, ORDER,
), SCRATCH_COLUMNS = range(9), 9  # fmt: skip
ATTRIBUTE_EXTRA_BYTES = 26  # An attribute's label beyond its bytes on the wire: separators, `key_`, the digits.
