"""Text to tree: precedence, modifiers, types, errors with their place."""

from __future__ import annotations

import tracemalloc

import pytest

from tsdb.promql.syntax.features import ALL_FEATURES, Features
from tsdb.promql.syntax.parser import PARTS_MAX, parse
from tsdb.promql.syntax.printer import shown
from tsdb.promql.syntax.tree import (
    Binary,
    Call,
    Edge,
    Expression,
    MatchCardinality,
    MatrixSelector,
    NumberLiteral,
    Paren,
    Subquery,
    Unary,
    VectorSelector,
    post_order,
)
from tsdb.selector.tokens import NESTING_MAX, QUERY_CHARS_MAX, QueryError


def grouped(node: Expression) -> str:
    """The text with parentheses around each operator's parts."""
    match node:
        case Binary():
            return f"({grouped(node.left)} {node.operator} {grouped(node.right)})"
        case Unary():
            return f"({node.operator}{grouped(node.operand)})"
        case Paren():
            return grouped(node.inner)
        case _:
            return shown(node)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a * b + c", "((a * b) + c)"),
        ("a - b - c", "((a - b) - c)"),
        ("a ^ b ^ c", "(a ^ (b ^ c))"),
        ("-a ^ b", "(-(a ^ b))"),
        ("-a * b", "((-a) * b)"),
        ("2 ^ -3 * 4", "((2 ^ -3) * 4)"),
        ("-1 ^ 2", "(-(1 ^ 2))"),
        ("- -1", "1"),
        ("a or b and c unless d", "(a or ((b and c) unless d))"),
        ("a == bool b + c", "(a == (b + c))"),
        ("a > b < c", "((a > b) < c)"),
        ("a atan2 b % c", "((a atan2 b) % c)"),
        ("a + b offset 5m", "(a + b offset 5m)"),
        ("a offset 2 ^ 2", "(a offset 2s ^ 2)"),
        ("a offset -step() * 2", "(a offset -step() * 2)"),
        ("-a offset 1m", "(-a offset 1m)"),
        ("a offset (2) * 2", "a offset (2) * 2"),
        ("a offset - -2 * 2", "a offset 2 * 2"),
        ("a offset -(2) * 2", "(a offset -(2) * 2)"),
    ],
)
def test_operators_bind_as_in_prometheus(text: str, expected: str) -> None:
    assert grouped(parse(text, ALL_FEATURES)) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31.0),
        ("1_000", 1000.0),
        ("010", 8.0),
        ("089", 89.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1h30m", 5400.0),
        ("1ms", 0.001),
        ("-5m", -300.0),
        ("+Inf", float("inf")),
        ("iNf", float("inf")),
    ],
)
def test_numbers_and_durations_are_one_kind_of_literal(text: str, value: float) -> None:
    node = parse(text)
    assert isinstance(node, NumberLiteral)
    assert node.value == value


def test_a_selector_has_the_name_first() -> None:
    node = parse('up{job="a", x!="b", y=~"c.*", z!~"d"} @ -1.5 offset -1d')
    assert isinstance(node, VectorSelector)
    assert [(one.name, one.value) for one in node.matchers] == [
        ("__name__", "up"), ("job", "a"), ("x", "b"), ("y", "c.*"), ("z", "d")
    ]  # fmt: skip
    assert node.at == -1500
    assert shown(node) == 'up{job="a",x!="b",y=~"c.*",z!~"d"} @ -1.500 offset -1d'


def test_names_may_be_keywords_or_quoted() -> None:
    for name in ("sum", "by", "offset_total", "start", "step", "a:b"):
        node = parse(name)
        assert isinstance(node, VectorSelector)
        assert node.name == name
    node = parse('{"http.requests", "le bel"="x"}')
    assert isinstance(node, VectorSelector)
    assert [(one.name, one.value) for one in node.matchers] == [("__name__", "http.requests"), ("le bel", "x")]


def test_strings_have_the_escapes_of_go() -> None:
    node = parse(r"""x{a="\n\"\x41\101é\U0001F600\\", b='\'', c=`\n`}""")
    assert isinstance(node, VectorSelector)
    assert [one.value for one in node.matchers[1:]] == ['\n"AAé😀\\', "'", r"\n"]


def test_ranges_and_subqueries() -> None:
    node = parse("rate(x[5m] @ end() offset 1m)")
    assert isinstance(node, Call)
    matrix = node.args[0]
    assert isinstance(matrix, MatrixSelector)
    assert matrix.selector.at is Edge.END
    node = parse("max_over_time(rate(x[1m])[1h:30s] offset 1w)")
    assert isinstance(node, Call)
    subquery = node.args[0]
    assert isinstance(subquery, Subquery)
    assert shown(subquery) == "rate(x[1m])[1h:30s] offset 1w"


def test_matching_modifiers() -> None:
    node = parse("a / on (x, y) group_left (z) b")
    assert isinstance(node, Binary)
    assert (node.matching.on, node.matching.labels, node.matching.include) == (True, ("x", "y"), ("z",))
    assert node.matching.cardinality is MatchCardinality.MANY_TO_ONE
    node = parse("a + ignoring (x) group_right fill_left (-1) fill_right (NaN) b", ALL_FEATURES)
    assert isinstance(node, Binary)
    assert node.matching.fill_left == -1.0
    assert shown(node) == "a + ignoring (x) group_right () fill_left (-1) fill_right (NaN) b"
    node = parse("a + fill_right (1) fill_left (2) b", ALL_FEATURES)
    assert isinstance(node, Binary)
    assert (node.matching.fill_left, node.matching.fill_right) == (2.0, 1.0)


@pytest.mark.parametrize("fills", ["fill (0) fill (1)", "fill (0) fill_left (1)", "fill_left (0) fill_left (1)"])
def test_each_side_is_filled_once(fills: str) -> None:
    with pytest.raises(QueryError):
        parse(f"a + {fills} b", ALL_FEATURES)


@pytest.mark.parametrize(
    ("seconds", "at_ms"), [("1.0005", 1001), ("-1.0005", -1001), ("2.0015", 2002), ("1.0004", 1000)]
)
def test_a_time_is_rounded_away_from_zero(seconds: str, at_ms: int) -> None:
    node = parse(f"a @ {seconds}")
    assert isinstance(node, VectorSelector)
    assert node.at == at_ms


def test_spans_cover_the_text_of_a_node() -> None:
    text = "sum by (a) (rate(x{b='c'}[5m] offset 1m)) / 2"
    node = parse(text)
    assert isinstance(node, Binary)
    assert text[node.left.span.start : node.left.span.end] == "sum by (a) (rate(x{b='c'}[5m] offset 1m))"
    assert text[node.operator_span.start : node.operator_span.end] == "/"


# The words and places are those of Prometheus 3.15.
ERRORS = [
    ("", "1:1", "no expression found in input"),
    ("a +", "1:4", "unexpected end of input"),
    ("foo bar", "1:5", 'unexpected identifier "bar"'),
    ("(a", "1:3", "unclosed left parenthesis"),
    ("a)", "1:3", "unexpected right parenthesis ')'"),
    ("\n  $", "2:3", "unexpected character: '$'"),
    ("12a", "1:1", 'bad number or duration syntax: "12a"'),
    ("5m1h", "1:1", 'not a valid duration string: "5m1h"'),
    ('x{a="b', "1:5", "unterminated quoted string"),
    (r'x{a="\q"}', "1:5", "unknown escape sequence \\q"),
    ("x{a!b}", "1:4", "unexpected character after '!': 'b'"),
    ("x{a=b}", "1:5", 'unexpected identifier "b" in label matching, expected string'),
    ('x{a=~"("}', "1:3", "regular expression"),
    ('x{__name__="y"}', "1:3", 'metric name must not be set twice: "x" or "y"'),
    ("{}", "1:1", "vector selector must contain at least one non-empty matcher"),
    ('{a=~".*", b!="c"}', "1:1", "vector selector must contain at least one non-empty matcher"),
    ("rate(x)", "1:6", 'expected type range vector in call to function "rate", got instant vector'),
    ("abs()", "1:1", 'expected 1 argument(s) in call to "abs", got 0'),
    ("round(x, 1, 2)", "1:1", 'expected at most 2 argument(s) in call to "round", got 3'),
    ("label_join(x)", "1:1", 'expected at least 3 argument(s) in call to "label_join", got 1'),
    ("abs(x,)", "1:7", "trailing commas not allowed in function call args"),
    ("ratee(x[5m])", "1:1", 'unknown function with name "ratee"; did you mean "rate"?'),
    ("sum()", "1:1", "no arguments for aggregate expression provided"),
    ("sum(1, x)", "1:1", "wrong number of arguments for aggregate expression provided, expected 1, got 2"),
    ("sum(1)", "1:5", "expected type instant vector in aggregation expression, got scalar"),
    ("topk('a', x)", "1:6", "expected type scalar in aggregation parameter, got string"),
    ("1 == 2", "1:3", "comparisons between scalars must use BOOL modifier"),
    ("x + bool y", "1:3", "bool modifier can only be used on comparison operators"),
    ("1 and x", "1:1", 'set operator "and" not allowed in binary scalar expression'),
    ("1 + on (a) x", "1:1", "vector matching only allowed between instant vectors"),
    ("x and on (a) group_left y", "1:1", 'no grouping allowed for "and" operation'),
    ("x * on (a) group_left (a) y", "1:3", 'label "a" must not occur in ON and GROUP clause at once'),
    ("x[5m] + y", "1:1", "binary expression must contain only scalar and instant vector types"),
    ("-'a'", "1:1", 'unary expression only allowed on expressions of type scalar or instant vector, got "string"'),
    ("1[5m:]", "1:1", "subquery is only allowed on instant vector, got scalar instead"),
    ("(x)[5m]", "1:1", "ranges only allowed for vector selectors"),
    ("x offset 1m [5m]", "1:1", "no offset modifiers allowed before range"),
    ("x @ 1 [5m]", "1:1", "no @ modifiers allowed before range"),
    ("x offset 1m offset 2m", "1:1", "offset may not be set multiple times"),
    ("x @ 1 @ 2", "1:1", "@ <timestamp> may not be set multiple times"),
    ("x @ Inf", "1:5", "timestamp out of bounds for @ modifier"),
    ("1 offset 1m", "1:1", "offset modifier must be preceded by"),
    ("x[0]", "1:3", "duration must be greater than 0"),
    ("x[5m:0s]", "1:6", "duration must be greater than 0"),
    ("x[300y]", "1:3", "duration out of range"),
    ("x[1m / 0]", "1:6", "division by zero"),
    ("x[1m % 0s]", "1:6", "modulo by zero"),
    ("x offset (5m) + y", "1:17", 'unexpected identifier "y" in offset'),
    ('sum by ("") (x)', "1:9", 'invalid label name for grouping: ""'),
    (r'x + on(a) group_left("\xff") y', "1:22", r'invalid label name for grouping: "\xff"'),
    ("é + ", "1:1", "unexpected character: 'é'"),
    ('{"é"} + ', "1:10", "unexpected end of input"),
]


@pytest.mark.parametrize(("text", "place", "problem"), ERRORS, ids=[text or "empty" for text, *_ in ERRORS])
def test_errors_name_place_and_problem(text: str, place: str, problem: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert caught.value.message.startswith(f"{place}: parse error: {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mad_over_time(x[5m])", 'function "mad_over_time" is not enabled'),
        ("limitk(1, x)", "limitk() is experimental"),
        ("rate(x[5m] anchored)", "anchored modifier is experimental and not enabled"),
        ("x + fill (0) y", "binop fill modifiers are experimental and not enabled"),
    ],
)
def test_experimental_parts_are_behind_settings(text: str, problem: str) -> None:
    parse(text, ALL_FEATURES)
    with pytest.raises(QueryError, match=problem.replace("(", r"\(").replace(")", r"\)")):
        parse(text, Features())


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "x" + ")" * 10_000,
        "-" * 10_000 + "x",
        "x[" + "(" * 10_000,
        "abs(" * 10_000,
        "1 ^ " * 10_000 + "1",
        "x + " * PARTS_MAX + "x",
        "x" * (QUERY_CHARS_MAX + 1),
        "x[" + "1m + " * 10_000 + "1m]",
        "x[" + "-" * 10_000 + "1m]",
        "x[" + "min_of(" * 10_000,
        "x offset " + "(" * 10_000,
        '"' + "\\" * 60_000,
        "1" * 60_000,
        "x{" + 'a="b",' * 10_000 + "}",
        "x" + "[5m:]" * 10_000,
    ],
    ids=[
        *("brackets", "signs", "durations", "calls", "right operands", "operators", "characters", "sums of durations"),
        *("signs of durations", "calls of durations", "offsets", "escapes", "digits", "matchers", "subqueries"),
    ],
)
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        parse(text, ALL_FEATURES)


@pytest.mark.parametrize("text", ["(" * 100_000 + "x" + ")" * 100_000, "-" * 100_000 + "x", "abs(" * 100_000 + "x"])
def test_a_refusal_names_the_limit_of_nesting(text: str) -> None:
    with pytest.raises(QueryError, match=f"query is nested more than {NESTING_MAX} levels deep"):
        parse(text)


LARGE = {
    "calls": "abs(" * 100 + "x" + ")" * 100,
    "parentheses": "(" * (NESTING_MAX - 1) + "x" + ")" * (NESTING_MAX - 1),
    "signs": "- " * (NESTING_MAX - 1) + "x",
    "subqueries": "max_over_time(" * 100 + "x" + "[5m:1m])" * 100,
    "parts of or": " or ".join(f"x{number}" for number in range(300)),
    "parts of +": " + ".join(f"x{number}" for number in range(300)),
    "numbers": "1" + " + 1" * 20_000,
    "powers": " ^ ".join("2" for _ in range(NESTING_MAX)),
    "aggregations": "sum by (a) (" * 100 + "x" + ")" * 100,
    "arguments": 'label_join(x, "a", ",", ' + ", ".join(f'"l{number}"' for number in range(5_000)) + ")",
    "groupings": "sum by (" + ", ".join(f"l{number}" for number in range(5_000)) + ") (x)",
    "74,000 characters": " or ".join(f'x{{instance="{number:0100}"}}' for number in range(600)),
    "values": 'x{instance=~"' + "|".join(f"host-{number}:9100" for number in range(20_000)) + '"}',
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_a_large_query_is_a_query_and_prints_back(text: str) -> None:
    node = parse(text)
    assert len(post_order(parse(shown(node)))) == len(post_order(node))


def test_a_duration_with_many_digits_is_out_of_range() -> None:
    with pytest.raises(QueryError, match="duration out of range"):
        parse("9" * 100_000 + "h")


def test_a_long_string_takes_the_memory_of_its_text() -> None:
    for text in ('"' + "a" * 100_000 + '"', "'" + "\\n" * 50_000 + "'", "`" + "a" * 100_000 + "`"):
        tracemalloc.start()
        parse(text)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100 * len(text)


def test_duration_expressions_can_be_switched_off() -> None:
    parse("x[1m+1m]")
    with pytest.raises(QueryError, match="experimental duration expression is not enabled"):
        parse("x[1m+1m]", Features(duration_expressions=False))
