"""Functions of PromQL as the parser knows them: names, argument types, result types. As of Prometheus 3.15.

The bodies stand in tsdb.promql.evaluate.functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.promql.syntax.tree import ValueType

SCALAR, VECTOR, MATRIX, STRING = ValueType.SCALAR, ValueType.VECTOR, ValueType.MATRIX, ValueType.STRING


@dataclass(frozen=True, slots=True)
class Function:
    """args: types of all arguments that may be given once; the last `optional` of them may be left out.

    repeats: the last argument may come any number of times. experimental: behind a setting. of_time: the value
    depends on the time of the step, whatever the arguments are.
    """

    name: str
    args: tuple[ValueType, ...]
    result: ValueType = VECTOR
    optional: int = 0
    repeats: bool = False
    experimental: bool = False
    of_time: bool = False

    @property
    def args_min(self) -> int:
        """The least number of arguments."""
        return len(self.args) - self.optional

    @property
    def args_max(self) -> int | None:
        """The largest number of arguments; None: any."""
        return None if self.repeats else len(self.args)

    def type_of(self, index: int) -> ValueType:
        """Type of an argument."""
        return self.args[min(index, len(self.args) - 1)]


def _each(
    names: str, *args: ValueType, optional: int = 0, experimental: bool = False, of_time: bool = False
) -> list[Function]:
    return [
        Function(name, args, optional=optional, experimental=experimental, of_time=of_time) for name in names.split()
    ]


_ALL = [
    *_each("abs ceil floor exp ln log2 log10 sqrt sgn deg rad absent sort sort_desc", VECTOR),
    *_each("timestamp", VECTOR, of_time=True),
    *_each("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh", VECTOR),
    *_each("histogram_avg histogram_count histogram_sum histogram_stddev histogram_stdvar", VECTOR),
    *_each(
        "minute hour day_of_week day_of_month day_of_year days_in_month month year", VECTOR, optional=1, of_time=True
    ),
    *_each("rate increase delta irate idelta resets changes deriv", MATRIX),
    *_each("avg_over_time sum_over_time min_over_time max_over_time count_over_time last_over_time", MATRIX),
    *_each("stddev_over_time stdvar_over_time present_over_time absent_over_time", MATRIX),
    *_each("first_over_time", MATRIX),
    *_each("mad_over_time", MATRIX, experimental=True),
    *_each("ts_of_min_over_time ts_of_max_over_time ts_of_first_over_time", MATRIX, experimental=True),
    *_each("ts_of_last_over_time", MATRIX, experimental=True),
    *_each("clamp", VECTOR, SCALAR, SCALAR),
    *_each("clamp_min clamp_max", VECTOR, SCALAR),
    *_each("round", VECTOR, SCALAR, optional=1),
    *_each("quantile_over_time", SCALAR, MATRIX),
    *_each("predict_linear", MATRIX, SCALAR, of_time=True),
    *_each("double_exponential_smoothing", MATRIX, SCALAR, SCALAR, experimental=True),
    *_each("histogram_quantile", SCALAR, VECTOR),
    *_each("histogram_fraction", SCALAR, SCALAR, VECTOR),
    *_each("label_replace", VECTOR, STRING, STRING, STRING, STRING),
    *_each("vector", SCALAR),
    # info() reads info series at the time of the step, even where its selectors read several times.
    *_each("info", VECTOR, VECTOR, optional=1, experimental=True, of_time=True),
    Function("histogram_quantiles", (VECTOR, STRING, *[SCALAR] * 10), optional=9, experimental=True),
    Function("label_join", (VECTOR, STRING, STRING, STRING), optional=1, repeats=True),
    Function("sort_by_label", (VECTOR, STRING), optional=1, repeats=True, experimental=True),
    Function("sort_by_label_desc", (VECTOR, STRING), optional=1, repeats=True, experimental=True),
    Function("scalar", (VECTOR,), SCALAR),
    Function("time", (), SCALAR, of_time=True),
    Function("pi", (), SCALAR),
    *(Function(name, (), SCALAR, experimental=True) for name in ("start", "end", "step", "range")),
    *(Function(name, (SCALAR, SCALAR), SCALAR, experimental=True) for name in ("min_of", "max_of")),
    Function("start_timestamp", (VECTOR,), experimental=True),
]
FUNCTIONS = {function.name: function for function in _ALL}

# Aggregations, with the type of the parameter that they take.
AGGREGATIONS: dict[str, ValueType | None] = {
    **dict.fromkeys(("sum", "avg", "count", "min", "max", "group", "stddev", "stdvar")),
    **dict.fromkeys(("topk", "bottomk", "quantile", "limitk", "limit_ratio"), SCALAR),
    "count_values": STRING,
}
EXPERIMENTAL_AGGREGATIONS = frozenset({"limitk", "limit_ratio"})
