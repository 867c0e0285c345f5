"""Generator of random queries over the dataset: most are valid, and each function and operator comes in its turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from support.promql.differential.answers import Query
from support.promql.differential.queries.dialect import Dialect
from support.promql.differential.queries.joins import Joins
from support.promql.differential.queries.mistakes import BAD_PATTERNS, MISTAKES
from support.promql.differential.queries.selectors import Selectors, Times
from support.promql.differential.queries.vocabulary import BUCKETS, LABELS, NATIVE, NUMBERS, ODD_NUMBERS, Deck
from tsdb.promql.syntax.functions import AGGREGATIONS, FUNCTIONS, Function
from tsdb.promql.syntax.tree import COMPARISONS, SET_OPERATORS, ValueType

DEPTH_MAX = 4
ARITHMETIC = ("+", "-", "*", "/", "%", "^", "atan2")
TEXTS = ("", "x", "job", "a:9100", "$1", "$1-$2", "é", "a b")
REPLACEMENTS = ("$1", "x", "", "${1}!", "$1-$2", "$word")
REGEXES = ("(.*)", "(.+):(.+)", "(?P<word>[a-z]+).*", "", "a", "([0-9]+)", "(api|web)")
PHIS = ("0", "0.25", "0.5", "0.9", "0.99", "1", "-1", "2", "NaN")


class Generator:
    """Queries for a server with a dialect. The same seed gives the same queries."""

    def __init__(self, seed: int, dialect: Dialect, times: Times) -> None:
        self._random = random.Random(seed)
        self._dialect = dialect
        self._times = times
        chance = self._random
        self._selectors = Selectors(chance, dialect, times)
        self._joins = Joins(chance, dialect)
        known = [FUNCTIONS[name] for name in sorted(dialect.functions)]
        self._calls = Deck(chance, [one for one in known if one.result is ValueType.VECTOR])
        self._scalar_calls = Deck(chance, [one for one in known if one.result is ValueType.SCALAR])
        self._aggregations = Deck(chance, sorted(dialect.aggregations))
        self._operators = Deck(chance, [*ARITHMETIC, *sorted(COMPARISONS), *sorted(SET_OPERATORS)])
        self._vectors = Deck(chance, self._kinds_of_vector())
        self._mistakes = Deck(chance, MISTAKES)

    def queries(self, count: int) -> Iterator[Query]:
        """Instant queries and range queries."""
        for _ in range(count):
            text = self._whole()
            yield self._times.query(self._random, text)

    def _kinds_of_vector(self) -> Sequence[Callable[[int], str]]:
        """As often as they shall come."""
        return (
            *[self._call] * 9,
            *[self._aggregation] * 6,
            *[self._binary] * 7,
            *[self._quantile] * 2,
            *[self._of_natives] * (4 if self._dialect.has_native_histograms else 0),
            lambda depth: f"({self._vector(depth - 1)})",
            lambda depth: f"{self._random.choice('+-')}{self._vector(depth - 1)}",
            lambda _: self._selectors.vector(),
            lambda _: self._selectors.vector(),
        )

    def _whole(self) -> str:
        depth = self._random.randint(1, DEPTH_MAX)
        match self._random.randrange(40):
            case 0:
                return self._scalar(depth)
            case 1:
                return self._range(depth)
            case 2:
                return self._mistaken(depth)
            case 3:
                return self._random.choice((_quoted(self._random.choice(TEXTS)), self._number()))
        return self._vector(depth)

    def _mistaken(self, depth: int) -> str:
        text = self._mistakes.draw()
        return text.replace("VECTOR", self._vector(depth - 1)).replace("SCALAR", self._scalar(depth - 1))

    def _vector(self, depth: int) -> str:
        return self._vectors.draw()(depth) if depth > 0 else self._selectors.vector()

    def _call(self, depth: int) -> str:
        function = self._calls.draw()
        return f"{function.name}({', '.join(self._arguments(function, depth))})"

    def _arguments(self, function: Function, depth: int) -> list[str]:
        special = self._special_arguments(function, depth)
        if special is not None:
            return special
        most = function.args_max if function.args_max is not None else len(function.args) + 2
        count = self._random.randint(function.args_min, most)
        return [self._argument(function.type_of(index), depth) for index in range(count)]

    def _special_arguments(self, function: Function, depth: int) -> list[str] | None:
        """Arguments that make sense, for functions that few values suit."""
        chance = self._random
        match function.name:
            case "label_replace":
                pattern = chance.choice(BAD_PATTERNS if chance.random() < 0.03 else REGEXES)
                target = chance.choice((*LABELS, "new", "__name__"))
                texts = [target, chance.choice(REPLACEMENTS), chance.choice(LABELS), pattern]
                return [self._vector(depth - 1), *map(_quoted, texts)]
            case "label_join":
                sources = chance.choices(LABELS, k=chance.randrange(4))
                texts = [chance.choice((*LABELS, "new")), chance.choice(("", "-", ", ")), *sources]
                return [self._vector(depth - 1), *map(_quoted, texts)]
            case "sort_by_label" | "sort_by_label_desc":
                return [self._vector(depth - 1), *map(_quoted, chance.sample(LABELS, chance.randint(1, 2)))]
            case "histogram_quantile":
                return [self._phi(), self._buckets()]
            case "histogram_fraction":
                return [self._number(), self._number(), self._buckets()]
            case "histogram_quantiles":
                return [self._buckets(), _quoted("q"), *(self._phi() for _ in range(chance.randint(1, 3)))]
            case "quantile_over_time":
                return [self._phi(), self._range(depth)]
            case "double_exponential_smoothing":
                return [self._range(depth), *(chance.choice(("0.1", "0.5", "0.9", "1", "0")) for _ in range(2))]
            case "predict_linear":
                return [self._range(depth), self._number()]
            case "info":
                return self._joins.info_arguments(self._selectors)
        return None

    def _argument(self, kind: ValueType, depth: int) -> str:
        match kind:
            case ValueType.VECTOR:
                return self._vector(depth - 1)
            case ValueType.SCALAR:
                return self._scalar(depth - 1)
            case ValueType.MATRIX:
                return self._range(depth)
            case ValueType.STRING:
                return _quoted(self._random.choice(TEXTS))

    def _range(self, depth: int) -> str:
        if depth <= 1 or self._random.random() < 0.6:
            return self._selectors.range()
        return self._selectors.subquery(self._vector(depth - 1))

    def _scalar(self, depth: int) -> str:
        chance = self._random.random()
        if depth <= 0 or chance < 0.5:
            return self._number()
        if chance < 0.6:
            return f"{self._scalar(depth - 1)} {self._random.choice(ARITHMETIC)} {self._scalar(depth - 1)}"
        if chance < 0.65:
            comparison = self._random.choice(sorted(COMPARISONS))
            return f"({self._scalar(depth - 1)} {comparison} bool {self._scalar(depth - 1)})"
        if chance < 0.7:
            return f"-{self._scalar(depth - 1)}"
        function = self._scalar_calls.draw()
        return f"{function.name}({', '.join(self._argument(kind, depth - 1) for kind in function.args)})"

    def _number(self) -> str:
        if self._dialect.has_durations_as_numbers and self._random.random() < 0.03:
            return self._random.choice(("1m", "1h30m", "1ms"))
        return self._random.choice(ODD_NUMBERS if self._random.random() < 0.1 else NUMBERS)

    def _phi(self) -> str:
        return self._random.choice(PHIS)

    def _aggregation(self, depth: int) -> str:
        operator = self._aggregations.draw()
        operand = self._vector(depth - 1)
        arguments = f"{self._parameter(operator, depth)}{operand}"
        match self._random.randrange(5):
            case 0:
                return f"{operator}({arguments})"
            case 1 | 2:
                return f"{operator} {self._grouping()} ({arguments})"
        return f"{operator}({arguments}) {self._grouping()}"

    def _parameter(self, operator: str, depth: int) -> str:
        match AGGREGATIONS[operator]:
            case None:
                return ""
            case ValueType.STRING:
                return f"{_quoted(self._random.choice(('value', 'job', 'version')))}, "
        if self._random.random() < 0.1:
            return f"{self._scalar(depth - 1)}, "
        if operator == "quantile":
            return f"{self._phi()}, "
        if operator == "limit_ratio":
            return f"{self._random.choice(('0.5', '-0.5', '0.1', '1', '0', '-1', '2', '-3'))}, "
        return f"{self._random.choice(('1', '2', '3', '0', '5.9', '-1'))}, "

    def _grouping(self) -> str:
        labels = self._random.sample((*LABELS, "__name__"), self._random.choice((0, 1, 1, 2, 2, 3)))
        return f"{self._random.choice(('by', 'by', 'without'))} ({', '.join(labels)})"

    def _binary(self, depth: int) -> str:
        operator = self._operators.draw()
        chance = self._random.random()
        if operator not in SET_OPERATORS and chance < 0.3:
            sides = [self._vector(depth - 1), self._scalar(depth - 1)]
            self._random.shuffle(sides)
            return f"{sides[0]} {self._written(operator)} {sides[1]}"
        if chance < 0.75:
            return self._joins.joined(self._selectors, self._written(operator), operator)
        left, right = self._vector(depth - 1), self._vector(depth - 1)
        return f"{left} {self._written(operator)} {self._joins.loose_matching(operator)}{right}"

    def _written(self, operator: str) -> str:
        return f"{operator} bool" if operator in COMPARISONS and self._random.random() < 0.4 else operator

    def _quantile(self, _: int) -> str:
        """The way in which histograms are asked for."""
        return f"histogram_quantile({self._phi()}, {self._buckets()})"

    def _buckets(self) -> str:
        chance = self._random
        if self._dialect.has_native_histograms and chance.random() < 0.5:
            return self._natives()
        name = chance.choice(list(BUCKETS))
        selector = f"{name}{chance.choice(('', '', self._selectors.matchers(name)))}"
        rate = f"{chance.choice(('rate', 'increase', 'delta'))}({selector}[{chance.choice(('2m', '5m', '17m'))}])"
        labels = ", ".join(["le", *chance.sample(("job", "instance", "zone"), chance.randrange(3))])
        return chance.choice((selector, rate, f"sum by ({labels}) ({rate})", f"avg by ({labels}) ({selector})"))

    def _of_natives(self, _: int) -> str:
        """A function of histograms over native ones."""
        name = self._random.choice(
            ("histogram_count", "histogram_sum", "histogram_avg", "histogram_stddev", "histogram_stdvar")
        )
        return f"{name}({self._natives()})"

    def _natives(self) -> str:
        """Native histograms, as quantiles and fractions take them."""
        chance = self._random
        name = chance.choice(list(NATIVE))
        selector = f"{name}{chance.choice(('', '', self._selectors.matchers(name)))}"
        rate = f"{chance.choice(('rate', 'increase', 'delta'))}({selector}[{chance.choice(('2m', '5m', '17m'))}])"
        labels = ", ".join(chance.sample(("job", "instance"), chance.randrange(3)))
        return chance.choice((selector, rate, f"sum by ({labels}) ({rate})", f"avg by ({labels}) ({selector})"))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
