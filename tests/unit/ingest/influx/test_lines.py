"""The rules of Influx line protocol, one a row: series, times and values of good lines, refusals of bad ones."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.influx.line_kernels import LINE_BYTES_MAX, NUMBER_BYTES_MAX
from ingest.influx.lines import LISTED_MAX, LineRules, Lines, decode_lines, parse_precision
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import LabelLimits, format_series

NOW_MS = 1_700_000_000_123


def lines(body: bytes, rules: LineRules | None = None, precision: str = "", database: str = "") -> Lines:
    return decode_lines(body, parse_precision(precision), NOW_MS, rules or LineRules(), database=database)


def series(decoded: Lines) -> list[str]:
    rows = decoded.rows
    return [
        format_series(rows.labels[rows.label_starts[row] : rows.label_starts[row + 1]].tobytes())
        for row in range(len(rows))
    ]


GOOD = [
    # Names.
    (b"cpu,host=a usage=1", 'cpu_usage{host="a"}'),
    (b"cpu usage=1", "cpu_usage"),
    (b"cpu value=1", "cpu_value"),
    (b"disk.used,mount-point=/ per.cent=1", 'disk_used_per_cent{mount_point="/"}'),
    (b"9m,9t=9 9f=1", '_9m_9f{_9t="9"}'),
    (b"job:m,a:b=c:d x:y=1", 'job:m_x:y{a_b="c:d"}'),
    ("température,größe=ü é=1".encode(), 'temp_rature__{gr__e="ü"}'),
    # Escapes.
    (b"a\\ b\\,c,t\\ u\\,v\\=w=x\\ y\\,z\\=0 f\\ g\\,h\\=i=1", 'a_b_c_f_g_h_i{t_u_v_w="x y,z=0"}'),
    (b"m=n f=1", "m_n_f"),
    (b"m\\=n f=1", "m__n_f"),
    (b"m,t=C:\\dir\\x f=1", 'm_f{t="C:\\\\dir\\\\x"}'),
    (b"m,t=\\\\server\\x f=1", 'm_f{t="\\\\\\\\server\\\\x"}'),
    (b'm,t="quoted" f=1', 'm_f{t="\\"quoted\\""}'),
    # Tags.
    (b"m,a=,b=2 f=1", 'm_f{b="2"}'),
    (b"m,b=2,a=1 f=1", 'm_f{b="2",a="1"}'),
    # Space.
    (b"  \tm   f=1   5  ", "m_f"),
    (b"m f=1\r\n", "m_f"),
    (b"m f=1 5\r\n", "m_f"),
    (b"m f=1\r", "m_f"),
]


@pytest.mark.parametrize(("line", "want"), GOOD)
def test_a_field_is_a_series(line: bytes, want: str) -> None:
    decoded = lines(line)
    assert not decoded.report.refused, decoded.report.listed
    assert series(decoded) == [want]
    assert decoded.rows.starts.tolist() == [0, 1]


VALUES = [
    (b"1", 1.0),
    (b"-0", -0.0),
    (b"+1.5", 1.5),
    (b"1.", 1.0),
    (b".5", 0.5),
    (b"1e3", 1000.0),
    (b"1E-3", 0.001),
    (b"1e-400", 0.0),
    (b"4.9e-324", 5e-324),
    (b"2.2250738585072011e-308", 2.2250738585072011e-308),
    (b"1.7976931348623157e308", 1.7976931348623157e308),
    (b"9007199254740993", 9007199254740992.0),
    (b"9007199254740993.00000000000000000000000000000000000001", 9007199254740994.0),
    (b"0." + b"0" * 600 + b"1e600", 0.1),
    (b"7i", 7.0),
    (b"-7i", -7.0),
    (b"9223372036854775807i", 2.0**63),
    (b"-9223372036854775808i", -(2.0**63)),
    (b"18446744073709551615u", 2.0**64),
    (b"0u", 0.0),
    *((name, 1.0) for name in (b"t", b"T", b"true", b"True", b"TRUE")),
    *((name, 0.0) for name in (b"f", b"F", b"false", b"False", b"FALSE")),
]


@pytest.mark.parametrize(("text", "want"), VALUES)
def test_a_value_is_the_nearest_float(text: bytes, want: float) -> None:
    decoded = lines(b"m f=" + text)
    assert decoded.rows.values.view(np.int64).tolist() == np.array([want]).view(np.int64).tolist()


TIMES = [
    ("", b"1700000000000999999", 1_700_000_000_000),
    ("ns", b"-1", -1),
    ("n", b"1000000", 1),
    ("us", b"1700000000000999", 1_700_000_000_000),
    ("u", b"1000", 1),
    ("ms", b"1700000000000", 1_700_000_000_000),
    ("s", b"1700000000", 1_700_000_000_000),
    ("m", b"3", 180_000),
    ("h", b"2", 7_200_000),
    ("s", b"", NOW_MS),
]


@pytest.mark.parametrize(("precision", "text", "want"), TIMES)
def test_a_timestamp_counts_the_unit_of_the_request(precision: str, text: bytes, want: int) -> None:
    assert lines(b"m f=1 " + text, precision=precision).rows.ts_ms.tolist() == [want]


BAD = [
    (b",a=1 f=1", "missing_measurement", 1),
    (b"=1", "missing_fields", 3),
    (b"m", "missing_fields", 2),
    (b"m ", "missing_fields", 3),
    (b"m,a=1", "missing_fields", 6),
    (b"m, f=1", "bad_tag", 3),
    (b"m,a f=1", "bad_tag", 4),
    (b"m,=1 f=1", "bad_tag", 3),
    (b"m,a=b=c f=1", "bad_tag", 6),
    (b"m,a=1,a=2 f=1", "duplicate_tag", 7),
    (b"m,a.b=1,a-b=2 f=1", "duplicate_tag", 9),
    (b"m f", "bad_field", 4),
    (b"m =1", "bad_field", 3),
    (b"m f=", "bad_field", 5),
    (b"m f=1,", "bad_field", 7),
    (b"m f=1, g=2", "bad_field", 7),
    (b'm f="a"b', "bad_field", 8),
    (b"m f=abc", "bad_number", 5),
    (b"m f=NaN", "bad_number", 5),
    (b"m f=Inf", "bad_number", 5),
    (b"m f=-inf", "bad_number", 5),
    (b"m f=1_0", "bad_number", 5),
    (b"m f=0x10", "bad_number", 5),
    (b"m f=1e", "bad_number", 5),
    (b"m f=.", "bad_number", 5),
    (b"m f=1.5i", "bad_number", 5),
    (b"m f=-1u", "bad_number", 5),
    (b"m f=i", "bad_number", 5),
    (b"m f=tRUE", "bad_number", 5),
    (b"m f=trux", "bad_number", 5),
    (b"m f=" + b"1" * (NUMBER_BYTES_MAX + 1), "bad_number", 5),
    (b"m f=1e309", "number_out_of_range", 5),
    (b"m f=-1.8e308", "number_out_of_range", 5),
    (b"m f=9223372036854775808i", "number_out_of_range", 5),
    (b"m f=-9223372036854775809i", "number_out_of_range", 5),
    (b"m f=18446744073709551616u", "number_out_of_range", 5),
    (b"m f=99999999999999999999999999i", "number_out_of_range", 5),
    (b'm f="abc', "unclosed_string", 5),
    (b'm f="abc\\"', "unclosed_string", 5),
    (b"m f=1 x", "bad_timestamp", 7),
    (b"m f=1 1.5", "bad_timestamp", 7),
    (b"m f=1 5 6", "bad_timestamp", 9),
    (b"m f=1 9223372036854775808", "timestamp_out_of_range", 7),
    (b"m f=1 -9223372036854775808", "timestamp_out_of_range", 7),
    (b"m,a=\xff f=1", "not_utf8", 5),
    (b"m,a=\xed\xa0\x80 f=1", "not_utf8", 5),
    (b"m f=1,g\xc3=2", "not_utf8", 8),
    (b"m," + b",".join(b"t%d=1" % number for number in range(64)) + b" f=1", "too_many_tags", 371),
    (b"m,a=" + b"x" * 8192 + b" f=1", "labels_too_long", 3),
    (b"m" * 8193 + b" f=1", "labels_too_long", 1),
    (b'm f="' + b"x" * LINE_BYTES_MAX + b'"', "unclosed_string", 5),
    (b"m f=1 " + b" " * LINE_BYTES_MAX, "line_too_long", LINE_BYTES_MAX + 7),
]


@pytest.mark.parametrize(("line", "reason", "byte"), BAD)
def test_a_bad_line_is_refused_by_number_and_byte_and_the_others_are_stored(
    line: bytes, reason: str, byte: int
) -> None:
    decoded = lines(b"before f=1\n" + line + b"\nafter f=2")
    assert decoded.report.refused == {reason: 1}
    assert [(bad.line, bad.reason) for bad in decoded.report.listed] == [(2, reason)]
    assert decoded.report.listed[0].message.startswith(f"line 2, byte {byte}: ")
    assert series(decoded) == ["before_f", "after_f"]
    assert decoded.report.lines.tolist() == [1, 3]


@pytest.mark.parametrize("body", [b"", b"\n", b"\r\n\r\n", b"# a comment f=1\n  # another", b"   \t ", b'm s="text" 5'])
def test_lines_without_a_sample_are_no_error(body: bytes) -> None:
    decoded = lines(body)
    assert len(decoded.rows) == 0
    assert not decoded.report.refused


def test_strings_are_counted_and_passed_over() -> None:
    decoded = lines(b'm a="x=1, \\"y\\" \\\\",f=2,b="two\nlines" 1000000\nn f=3 2000000')
    assert series(decoded) == ["m_f", "n_f"]
    assert decoded.rows.ts_ms.tolist() == [1, 2]
    assert decoded.report.strings == 2
    assert decoded.report.lines.tolist() == [1, 3]


def test_the_line_after_an_unclosed_string_is_read() -> None:
    decoded = lines(b'm s="abc\nn f=1\n')
    assert series(decoded) == ["n_f"]
    assert decoded.report.refused == {"unclosed_string": 1}


def test_utf8_names_are_kept_by_setting() -> None:
    rules = LineRules(names="utf8")
    assert series(lines("größe.x,a.b=c 9.f=1".encode(), rules)) == ['größe.x_9.f{a.b="c"}']


def test_a_field_named_value_is_dropped_from_the_name_by_setting() -> None:
    assert series(lines(b"m value=1,valu=2,values=3", LineRules(value_field="dropped"))) == ["m", "m_valu", "m_values"]


def test_the_database_becomes_a_label_by_setting_unless_a_tag_has_its_name() -> None:
    rules = LineRules(database_label="db")
    assert series(lines(b"m f=1\nm,db=own f=1", rules, database="main")) == ['m_f{db="main"}', 'm_f{db="own"}']
    assert series(lines(b"m f=1", rules)) == ["m_f"]
    assert series(lines(b"m f=1", LineRules(), database="main")) == ["m_f"]


def test_of_many_bad_lines_the_first_have_a_text_and_all_are_counted() -> None:
    decoded = lines(b"bad\n" * 1000)
    assert decoded.report.refused == {"missing_fields": 1000}
    assert [bad.line for bad in decoded.report.listed] == list(range(1, LISTED_MAX + 1))
    assert all(len(bad.message) < 300 for bad in decoded.report.listed)


def test_a_request_over_the_limit_of_samples_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="more than 2 samples") as refused:
        lines(b"m a=1,b=2\nm a=3", LineRules(samples_max=2))
    assert refused.value.reason == "too_many_samples"


def test_labels_written_out_once_a_field_are_bounded() -> None:
    """8 KiB of tags for each of 3,000 fields: 24 MB from 30 KB."""
    body = b"m,t=" + b"x" * 8000 + b" " + b",".join(b"f%d=1" % number for number in range(3000))
    reserved: list[int] = []
    with pytest.raises(InvalidRequest, match="labels of all samples") as refused:
        decode_lines(body, parse_precision(""), NOW_MS, LineRules(label_bytes_max=1 << 20), reserve=reserved.append)
    assert refused.value.reason == "request_too_large"
    assert sum(reserved) <= (1 << 20) + 48 * body.count(b"=")


def test_room_for_labels_grows_within_the_limit() -> None:
    body = b"m,t=" + b"x" * 8000 + b" " + b",".join(b"f%d=1" % number for number in range(300)) + b"\nm f=1"
    decoded = lines(body)
    assert len(decoded.rows) == 301
    assert np.diff(decoded.rows.label_starts).min() == len(b"__name__ m_f")
    assert np.diff(decoded.rows.label_starts).max() == len(b"__name__ m_f299 t ") + 8000


def test_equals_signs_alone_allocate_no_more_rows_than_samples_are_allowed() -> None:
    reserved: list[int] = []
    decode_lines(b"=" * 100_000, parse_precision(""), NOW_MS, LineRules(samples_max=100), reserve=reserved.append)
    assert sum(reserved) <= 4 * 100_000 + 1024 + 48 * 100


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="allowed are ns, n, us, u, ms, s, m, h") as refused:
        parse_precision("ps")
    assert refused.value.reason == "bad_precision"


def test_limits_of_labels_come_from_the_settings() -> None:
    rules = LineRules(LabelLimits(labels_max=2, total_bytes_max=16))
    assert lines(b"m,a=1 f=1", rules).report.refused == {}
    assert lines(b"m,a=1,b=2 f=1", rules).report.refused == {"too_many_tags": 1}
    assert lines(b"m,a=12345678901234 f=1", rules).report.refused == {"labels_too_long": 1}


@pytest.mark.parametrize("body", [b"cpu v=1", b"# comment\ncpu v=1", b"\ncpu v=1"])
def test_a_byte_order_mark_before_the_first_line_is_no_part_of_a_name(body: bytes) -> None:
    assert series(lines(b"\xef\xbb\xbf" + body)) == series(lines(body))
    assert len(series(lines(body))) == 1
