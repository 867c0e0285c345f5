"""Line protocol: the kernel against its twin on any input, its numbers against float()."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.influx.lines import LISTED_MAX, LineRules, Lines, decode_lines, parse_precision
from support.examples import examples
from support.oracles.line_twin import Twin, TwinRules, decode
from tsdb.model.labels import LabelLimits

NOW_MS = 1_700_000_000_123

PIECES = [
    b"cpu", b"m", b"host", b"a", b"value", b"9", b"x.y", b":", b"\xc3\xa9", b"\xf0\x9f\x98\x80",
    b"\xff", b"\xed\xa0\x80", b"\xc3", b"\0",
    b",", b"=", b" ", b"\t", b"\n", b"\r\n", b"\r", b"\\", b'"', b'\\"', b"#",
    b"1", b"-2.5e3", b"1e999", b"nan", b"1.", b".", b".5", b"1700000000000000000", b"9223372036854775807",
    b"3i", b"-9223372036854775808i", b"9223372036854775808i", b"18446744073709551615u", b"-1u",
    b"t", b"True", b"tRUE", b"FALSE",
]  # fmt: skip
LINES = st.sampled_from(
    [
        b"cpu,host=a,core=1 user=1.5,idle=98i 1700000000000000000",
        b'm s="a \\" , b\nc",f=t',
        b"m\\ x,t\\,a=g\\=b\\ c f\\ 1=0.1 -1",
        b"m,a=,b=1 value=2",
        b"m,a=1,a=2 f=1",
        b"# comment",
    ]
)
TOKENS = st.one_of(st.sampled_from(PIECES), LINES, LINES.map(lambda line: line + b"\n"), st.binary(max_size=3))
BODIES = st.lists(TOKENS, max_size=40).map(b"".join)

BITS = st.integers(0, (1 << 64) - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
FLOATS = BITS.filter(math.isfinite)


@st.composite
def midpoints(draw: st.DrawFn) -> str:
    """The exact decimal halfway between two floats, or one digit beside it."""
    value = draw(st.floats(1e-30, 1e40))
    half = (Fraction(value) + Fraction(math.nextafter(value, math.inf))) / 2
    power = (half.denominator.bit_length() - 1) if half.denominator > 1 else 0
    digits = half.numerator * 5**power
    return f"{digits + draw(st.integers(-1, 1))}e-{power}"


DECIMALS = st.one_of(
    FLOATS.map(repr),
    FLOATS.map(lambda value: f"{value:.17e}"),
    midpoints(),
    st.builds("{}{}e{}".format, st.sampled_from(["", "-", "+"]), st.integers(0, 10**30), st.integers(-400, 400)),
    st.builds("{}.{:0>{}}".format, st.integers(0, 10**20), st.integers(0, 10**20), st.integers(1, 40)),
)


def lines(body: bytes, rules: LineRules, precision: str = "", database: str = "") -> Lines:
    return decode_lines(body, parse_precision(precision), NOW_MS, rules, database=database)


def same(decoded: Lines, twin: Twin) -> None:
    rows = decoded.rows
    bits = rows.values.view(np.int64).tolist()
    labels = [rows.labels[rows.label_starts[row] : rows.label_starts[row + 1]].tobytes() for row in range(len(rows))]
    assert list(zip(decoded.report.lines.tolist(), labels, rows.ts_ms.tolist(), strict=True)) == [
        row[:3] for row in twin.rows
    ]
    assert bits == np.array([row[3] for row in twin.rows], np.float64).view(np.int64).tolist()
    assert [(line.line, line.reason) for line in decoded.report.listed] == twin.refused[:LISTED_MAX]
    assert sum(decoded.report.refused.values()) == len(twin.refused)
    assert decoded.report.strings == twin.strings


@given(BODIES)
@example(b'm s="\\')
@example(b"m f=1\r")
@example(b"m f=1 5\r\r\n")
def test_any_request_is_decoded_as_its_twin_decodes_it(body: bytes) -> None:
    same(lines(body, LineRules()), decode(body, TwinRules(now_ms=NOW_MS)))


@given(BODIES, st.booleans(), st.booleans(), st.sampled_from(["s", "h", "ms", "u"]))
def test_settings_change_names_and_limits_as_in_the_twin(
    body: bytes, sanitised: bool, dropped: bool, precision: str
) -> None:
    unit = parse_precision(precision)
    rules = LineRules(
        LabelLimits(labels_max=3, total_bytes_max=24),
        "sanitised" if sanitised else "utf8",
        "dropped" if dropped else "kept",
        database_label="host",
    )
    twin = TwinRules(unit.multiply, unit.divide, NOW_MS, 3, 24, sanitised, dropped, (b"host", b"db 1"))
    same(lines(body, rules, precision, "db 1"), decode(body, twin))


@given(st.binary(max_size=400))
def test_random_bytes_are_decoded_or_refused(body: bytes) -> None:
    decoded = lines(body, LineRules())
    assert len(decoded.rows) <= body.count(b"=")
    assert decoded.rows.labels.size <= 4 * len(body) + 1024 + 64


@settings(max_examples=examples(300))
@given(st.lists(DECIMALS, min_size=1, max_size=50))
def test_numbers_are_those_of_float_bit_for_bit(texts: list[str]) -> None:
    texts = [text for text in texts if math.isfinite(float(text))]
    decoded = lines("\n".join(f"m f={text}" for text in texts).encode(), LineRules())
    want = np.array([float(text) for text in texts], np.float64)
    assert decoded.rows.values.view(np.int64).tolist() == want.view(np.int64).tolist()


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.lists(st.integers(0, (1 << 64) - 1)))
def test_integers_are_those_of_float_bit_for_bit(signed: list[int], unsigned: list[int]) -> None:
    body = "".join([*(f"m f={number}i\n" for number in signed), *(f"m f={number}u\n" for number in unsigned)])
    decoded = lines(body.encode(), LineRules())
    assert decoded.rows.values.tolist() == [float(number) for number in [*signed, *unsigned]]
