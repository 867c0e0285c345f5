"""Describes the functions and aggregations of PromQL for completion: their arguments, and a sentence for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tsdb.promql.syntax.functions import AGGREGATIONS, EXPERIMENTAL_AGGREGATIONS, FUNCTIONS, Function

# The functions that most expressions have, so that "ra" completes to rate and not to rad.
_COMMON = (
    *("rate", "sum", "avg", "max", "min", "count", "topk", "histogram_quantile", "increase", "irate", "delta"),
    *("avg_over_time", "max_over_time", "min_over_time", "sum_over_time", "last_over_time", "label_replace", "absent"),
)


@dataclass(frozen=True, slots=True)
class FunctionHelp:
    """kind: function or aggregation. signature: the name with the types of its arguments; those in brackets may be left
    out. help: one sentence."""

    name: str
    kind: str
    signature: str
    help: str


def function_helps(*, experimental: bool) -> Iterator[FunctionHelp]:
    """All functions and aggregations, the most common ones first. experimental: those behind a setting too."""
    found = {
        **{
            name: FunctionHelp(name, "aggregation", _aggregation(name), HELP[name])
            for name in AGGREGATIONS
            if experimental or name not in EXPERIMENTAL_AGGREGATIONS
        },
        **{
            name: FunctionHelp(name, "function", _function(function), HELP[name])
            for name, function in FUNCTIONS.items()
            if experimental or not function.experimental
        },
    }
    yield from (found.pop(name) for name in _COMMON if name in found)
    yield from found.values()


def _aggregation(name: str) -> str:
    parameter = AGGREGATIONS[name]
    return f"{name} by (label) ({f'{parameter.value}, ' if parameter else ''}instant vector)"


def _function(function: Function) -> str:
    texts = [one.value for one in function.args]
    needed, optional = texts[: function.args_min], texts[function.args_min :]
    if function.repeats:
        optional.append("...")
    rest = f"[{', ' if needed else ''}{', '.join(optional)}]" if optional else ""
    return f"{function.name}({', '.join(needed)}{rest})"


HELP = {
    # Aggregations.
    "sum": "The sum of the values of each group.",
    "avg": "The mean of the values of each group.",
    "count": "The number of series of each group.",
    "min": "The smallest value of each group.",
    "max": "The largest value of each group.",
    "group": "1 for each group that has a series.",
    "stddev": "The standard deviation of the values of each group.",
    "stdvar": "The variance of the values of each group.",
    "topk": "The k series with the largest values of each group, with all their labels.",
    "bottomk": "The k series with the smallest values of each group, with all their labels.",
    "quantile": "The quantile (0 to 1) of the values of each group.",
    "limitk": "k series of each group, with all their labels.",
    "limit_ratio": "A share (-1 to 1) of the series of each group, chosen by a hash of their labels.",
    "count_values": "The number of series with each value; a new label has the value.",
    # Counters and gauges over a range.
    "rate": "The increase of a counter per second, averaged over the range; resets are compensated.",
    "increase": "The increase of a counter over the range; resets are compensated.",
    "irate": "The increase of a counter per second between the last two samples of the range.",
    "delta": "The difference between the end and the beginning of the range, for gauges.",
    "idelta": "The difference between the last two samples of the range, for gauges.",
    "deriv": "The slope of a gauge per second, by linear regression over the range.",
    "predict_linear": "The value a number of seconds from now, by linear regression over the range.",
    "resets": "The number of times that a counter was reset in the range.",
    "changes": "The number of times that the value changed in the range.",
    "double_exponential_smoothing": "A smoothed value of a gauge; factors from 0 to 1 for the level and the trend.",
    "avg_over_time": "The mean of the samples of the range.",
    "sum_over_time": "The sum of the samples of the range.",
    "min_over_time": "The smallest sample of the range.",
    "max_over_time": "The largest sample of the range.",
    "count_over_time": "The number of samples of the range.",
    "first_over_time": "The oldest sample of the range.",
    "last_over_time": "The newest sample of the range.",
    "stddev_over_time": "The standard deviation of the samples of the range.",
    "stdvar_over_time": "The variance of the samples of the range.",
    "mad_over_time": "The median absolute deviation of the samples of the range.",
    "quantile_over_time": "The quantile (0 to 1) of the samples of the range.",
    "present_over_time": "1 for each series with a sample in the range.",
    "absent_over_time": "1 when no series has a sample in the range; nothing otherwise.",
    "ts_of_first_over_time": "The time of the oldest sample of the range, in seconds since 1970.",
    "ts_of_last_over_time": "The time of the newest sample of the range, in seconds since 1970.",
    "ts_of_min_over_time": "The time of the smallest sample of the range, in seconds since 1970.",
    "ts_of_max_over_time": "The time of the largest sample of the range, in seconds since 1970.",
    # Histograms.
    "histogram_quantile": "The quantile (0 to 1) of a histogram, from its buckets with the label le or a native one.",
    "histogram_quantiles": "Several quantiles of a histogram; a new label has the quantile.",
    "histogram_fraction": "The share of a histogram's observations between two values.",
    "histogram_avg": "The mean of the observations of a native histogram.",
    "histogram_count": "The number of observations of a native histogram.",
    "histogram_sum": "The sum of the observations of a native histogram.",
    "histogram_stddev": "The standard deviation of the observations of a native histogram.",
    "histogram_stdvar": "The variance of the observations of a native histogram.",
    # Labels and order.
    "label_replace": "Sets a label to a replacement where a regular expression matches the whole value of another.",
    "label_join": "Sets a label to the values of other labels, joined by a separator.",
    "info": "Adds the labels of info series, such as target_info, to the series of the same source.",
    "sort": "Sorts by value, the smallest first; for tables.",
    "sort_desc": "Sorts by value, the largest first; for tables.",
    "sort_by_label": "Sorts by the values of labels; for tables.",
    "sort_by_label_desc": "Sorts by the values of labels, the last first; for tables.",
    "absent": "1 when the vector has no series; nothing otherwise.",
    # Numbers.
    "abs": "The value without its sign.",
    "ceil": "The next whole number above or equal.",
    "floor": "The next whole number below or equal.",
    "round": "The nearest multiple of a number; of 1 where it is left out.",
    "clamp": "The value, kept between a lowest and a highest one.",
    "clamp_min": "The value, but at least this number.",
    "clamp_max": "The value, but at most this number.",
    "exp": "e to the power of the value.",
    "ln": "The natural logarithm.",
    "log2": "The logarithm to base 2.",
    "log10": "The logarithm to base 10.",
    "sqrt": "The square root.",
    "sgn": "1, 0 or -1: the sign of the value.",
    "min_of": "The smaller of two numbers.",
    "max_of": "The larger of two numbers.",
    "deg": "Radians as degrees.",
    "rad": "Degrees as radians.",
    "sin": "The sine of radians.",
    "cos": "The cosine of radians.",
    "tan": "The tangent of radians.",
    "asin": "The arc sine, in radians.",
    "acos": "The arc cosine, in radians.",
    "atan": "The arc tangent, in radians.",
    "sinh": "The hyperbolic sine.",
    "cosh": "The hyperbolic cosine.",
    "tanh": "The hyperbolic tangent.",
    "asinh": "The inverse hyperbolic sine.",
    "acosh": "The inverse hyperbolic cosine.",
    "atanh": "The inverse hyperbolic tangent.",
    "pi": "The number pi.",
    "scalar": "The value of the only series of a vector as a scalar; NaN where it has none or several.",
    "vector": "A scalar as a vector with one series without labels.",
    # Times.
    "time": "The time of the step, in seconds since 1970.",
    "timestamp": "The time of the sample of each series, in seconds since 1970.",
    "start_timestamp": "The time at which the counter of each sample began, in seconds since 1970.",
    "minute": "The minute of the hour (0 to 59) of a time in UTC; of the step where it is left out.",
    "hour": "The hour of the day (0 to 23) of a time in UTC; of the step where it is left out.",
    "day_of_week": "The day of the week (0 is Sunday) of a time in UTC; of the step where it is left out.",
    "day_of_month": "The day of the month (1 to 31) of a time in UTC; of the step where it is left out.",
    "day_of_year": "The day of the year (1 to 366) of a time in UTC; of the step where it is left out.",
    "days_in_month": "The days of the month (28 to 31) of a time in UTC; of the step where it is left out.",
    "month": "The month (1 to 12) of a time in UTC; of the step where it is left out.",
    "year": "The year of a time in UTC; of the step where it is left out.",
    "start": "The start of the range of the query, in seconds since 1970.",
    "end": "The end of the range of the query, in seconds since 1970.",
    "range": "The length of the range of the query, in seconds.",
    "step": "The step of the query, in seconds.",
}
