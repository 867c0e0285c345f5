"""Templates of alerts: texts and errors as Prometheus has them, within bounds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tsdb.model.errors import InvalidRequest
from tsdb.rules.templates.functions import FUNCTIONS, TemplateContext, TemplateSample
from tsdb.rules.templates.syntax import TEMPLATE_CHARS_MAX, TemplateError
from tsdb.rules.templates.template import OUTPUT_CHARS_MAX, Template, TemplateData

DATA = TemplateData({"job": "a", "instance": "h.example:1"}, 1234567.5, {"zone": "z"}, "http://x/p")
SAMPLES = [TemplateSample({"a": "2", "__value__": "v"}, 2.0), TemplateSample({"a": "1"}, 3.0)]


def answered(text: str) -> Sequence[TemplateSample]:
    if text == "wrong(":
        raise InvalidRequest("1:7: parse error: unclosed left parenthesis")
    return [] if text == "none" else SAMPLES


CONTEXT = TemplateContext(answered, 1.5e9, "http://x/p")


def expanded(text: str) -> str:
    return Template(text, "__alert_A").expand(DATA, CONTEXT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no action } } {", "no action } } {"),
        ("{{ $value }}", "1.2345675e+06"),
        ("{{ .Value }} {{ $.Value }}", "1.2345675e+06 1.2345675e+06"),
        ("{{ $labels.job }}|{{ $labels.none }}|{{ .Labels.job }}", "a||a"),
        ("{{ $labels }}", "map[instance:h.example:1 job:a]"),
        ("{{ $externalLabels.zone }} {{ .ExternalURL }} {{ externalURL }} {{ pathPrefix }}",
         "z http://x/p http://x/p /p"),
        # Spaces, comments and texts.
        ("a {{- \"b\" -}} c {{/* d */}}e", "abc e"),
        ("a {{- /* d */ -}} b", "ab"),
        ("{{ `raw\\n` }}{{ \"q\\n\\u00e9\" }}{{ 'a' }}{{ 0x10 }}{{ 1.50 }}{{ true }}", "raw\\nq\né97161.5true"),
        # Control.
        ("{{ if $value }}yes{{ end }}{{ if $labels.none }}no{{ end }}", "yes"),
        ("{{ if eq $value 1.0 }}a{{ else if gt $value 2.0 }}b{{ else }}c{{ end }}", "b"),
        ("{{ with $labels.job }}{{ . }}{{ else }}x{{ end }}{{ with $labels.none }}x{{ else }}{{ .Value }}{{ end }}",
         "a1.2345675e+06"),
        ("{{ range query \"x\" }}[{{ .Labels.a }}={{ .Value }}]{{ else }}none{{ end }}", "[2=2][1=3]"),
        ("{{ range query \"none\" }}x{{ else }}none{{ end }}", "none"),
        ("{{ range $i, $e := query \"x\" }}{{ $i }}:{{ $e.Value }} {{ end }}", "0:2 1:3 "),
        ("{{ range $name, $text := $labels }}{{ $name }}={{ $text }};{{ end }}", "instance=h.example:1;job=a;"),
        ("{{ range query \"x\" }}{{ if eq .Value 2.0 }}{{ continue }}{{ end }}{{ .Value }}{{ end }}", "3"),
        ("{{ range query \"x\" }}{{ .Value }}{{ break }}{{ end }}", "2"),
        ("{{ $x := 3 }}{{ if true }}{{ $x = 4 }}{{ end }}{{ $x }}", "4"),
        ("{{ $x := 3 }}{{ if true }}{{ $x := 4 }}{{ end }}{{ $x }}", "3"),
        # Pipelines.
        ("{{ query \"x\" | first | value }}", "2"),
        ("{{ query \"x\" | sortByLabel \"a\" | first | value }}", "3"),
        ("{{ query \"x\" | first | label \"a\" }} {{ query \"x\" | first | strvalue }}", "2 v"),
        ("{{ (query \"x\" | first).Value }} {{ (index (query \"x\") 1).Labels.a }}", "2 1"),
        ("{{ with query \"x\" }}{{ . | first | value | humanize }}{{ end }}", "2"),
        # Go's functions.
        ("{{ and 1 0 }} {{ and 1 2 }} {{ or \"\" \"x\" }} {{ not 0 }} {{ or 1 (query \"wrong(\") }}", "0 2 x true 1"),
        ("{{ eq 1 2 1 }} {{ ne \"a\" \"b\" }} {{ lt 1 2 }} {{ le 2 2 }} {{ gt 1 2 }} {{ ge 2 3 }}",
         "true true true true false false"),
        ("{{ len $labels }} {{ len \"é\" }} {{ index $labels \"job\" }} {{ slice \"abcd\" 1 3 }}", "2 2 a bc"),
        ("{{ print 1 2 \"a\" 3 4 }}|{{ println 1 \"a\" }}", "1 2a3 4|1 a\n"),
        ("{{ html \"<a>\" }} {{ urlquery \"a b\" }} {{ js \"'a<\" }}", "&lt;a&gt; a+b \\'a\\u003C"),
        ("{{ printf \"%.2f %s %d %5.1f|%-5s|%05d|%q|%%\" 1.5 \"a\" 3 1.26 \"b\" -7 \"c\" }}",
         "1.50 a 3   1.3|b    |-0007|\"c\"|%"),
        ("{{ printf \"%v|%t|%x|%T\" $value true 255 1.5 }}", "1.2345675e+06|true|ff|float64"),
        ("{{ printf \"%d %s %z\" $value 1 }}{{ printf \"a\" 1 }}",
         "%!d(float64=1.2345675e+06) %!s(int=1) %!z(MISSING)a%!(EXTRA int=1)"),
        ("{{ printf \"%g %e %.3g %+d % d %6.2f|%*d\" 1e21 1.5 1234.5 3 4 1.0 4 5 }}",
         "1e+21 1.500000e+00 1.23e+03 +3  4   1.00|   5"),
        # Prometheus's functions.
        ("{{ reReplaceAll \"(.)b\" \"$1-${1}$$\" \"abcb\" }} {{ match \"b+\" \"abc\" }}", "a-a$c-c$ true"),
        ("{{ title \"ab cd\" }} {{ toUpper \"a\" }} {{ toLower \"A\" }} {{ safeHtml \"<\" }}", "Ab Cd A a <"),
        ("{{ stripPort $labels.instance }} {{ stripPort \"[::1]:9\" }}", "h.example ::1"),
        ("{{ stripDomain $labels.instance }} {{ stripDomain \"1.2.3.4:5\" }}", "h:1 1.2.3.4:5"),
        ("{{ graphLink \"up == 1\" }} {{ tableLink \"up\" }}",
         "/graph?g0.expr=up+%3D%3D+1&g0.tab=0 /graph?g0.expr=up&g0.tab=1"),
        ("{{ (args \"a\" 2).arg1 }} {{ urlQueryEscape \"a b\" }}", "2 a+b"),
        ("{{ parseDuration \"1h30m\" }} {{ now }} {{ toTime 1e9 }} {{ toDuration 3723.5 }}",
         "5400 1.5e+09 2001-09-09 01:46:40 +0000 UTC 1h2m3.5s"),
    ],
)  # fmt: skip
def test_a_template_has_the_text_of_prometheus(text: str, expected: str) -> None:
    assert expanded(text) == expected


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        ("humanize", "0.0", "0"),
        ("humanize", "1234567.0", "1.235M"),
        ("humanize", "0.0123", "12.3m"),
        ("humanize", "-1e30", "-1e+06Y"),
        ("humanize", '"1000"', "1k"),
        ("humanize", '"+Inf"', "+Inf"),
        ("humanize1024", "1048576.0", "1Mi"),
        ("humanize1024", "0.5", "0.5"),
        ("humanizeDuration", "0", "0s"),
        ("humanizeDuration", "60", "1m 0s"),
        ("humanizeDuration", "3600", "1h 0m 0s"),
        ("humanizeDuration", "-86400", "-1d 0h 0m 0s"),
        ("humanizeDuration", "899.99", "14m 59s"),
        ("humanizeDuration", ".12345", "123.5ms"),
        ("humanizeDuration", "1.2345", "1.234s"),
        ("humanizePercentage", "0.256", "25.6%"),
        ("humanizeTimestamp", "1435065584.128", "2015-06-23 13:19:44.128 +0000 UTC"),
        ("humanizeTimestamp", '"NaN"', "NaN"),
    ],
)
def test_numbers_for_people(function: str, value: str, expected: str) -> None:
    assert expanded(f"{{{{ {function} {value} }}}}") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ foo }}", 'function "foo" not defined'),
        ("{{ $x }}", 'undefined variable "$x"'),
        ("{{ if true }}{{ $x := 1 }}{{ end }}{{ range 1 }}{{ end }}{{ with $y := 1 }}{{ end }}{{ $y }}",
         'undefined variable "$y"'),
        ("a\n{{ if }}", "template: __alert_A:2: missing value for if"),
        ("{{ if 1 }}", "unexpected EOF"),
        ("{{ end }}", "unexpected {{end}}"),
        ("{{ else }}", "unexpected {{else}}"),
        ("{{ break }}", "{{break}} outside {{range}}"),
        ("{{ .Labels", "unclosed action"),
        ("{{ \"x", "unterminated quoted string"),
        ("{{ `x", "unterminated raw quoted string"),
        ("{{ 1x }}", 'bad number syntax: "1x"'),
        ("{{ (1 }}", "unclosed left paren"),
        ("{{ % }}", "unexpected '%' in command"),
        ("{{ 1 | 2 }}", "non executable command in pipeline stage 2"),
        ("{{ $x, $y := 1 }}", "too many declarations in command"),
        ("{{ define \"x\" }}{{ end }}", "unexpected {{define}}"),
        ("{{ 99999999999999999999999999999999999 }}", "bad number syntax"),
        ("{{ " + "(" * 2_000 + "1" + ")" * 2_000 + " }}", "nested more than 100 levels deep"),
        ("{{ if 1 }}" * 2_000 + "{{ end }}" * 2_000, "nested more than 100 levels deep"),
        ("{{ if 1 }}{{ else if 1 }}" + "{{ else if 1 }}" * 2_000 + "{{ end }}", "nested more than 100 levels deep"),
        ("{{ 1 }}" + "x" * TEMPLATE_CHARS_MAX, "the limit is 65536, write a shorter template"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_parsed_says_why(text: str, expected: str) -> None:
    with pytest.raises(TemplateError) as error:
        Template(text, "__alert_A")
    assert error.value.message.startswith("template: __alert_A:")
    assert expected in error.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{{ query "none" | first | value }}',
            'error executing template __alert_A: template: __alert_A:1:130: executing "__alert_A" at <first>: error '
            "calling first: first() called on vector with no elements",
        ),
        ("{{ if gt $value 0 }}x{{ end }}", "error calling gt: incompatible types for comparison"),
        ("{{ .Foo }}", "can't evaluate field Foo in type struct"),
        ("{{ $value.Foo }}", "can't evaluate field Foo in type float64"),
        ("{{ toUpper $value }}", "wrong type for value; expected string; got float64"),
        ("{{ humanize }}", "wrong number of args for humanize: want 1 got 0"),
        ("{{ not 1 2 }}", "wrong number of args for not: want 1 got 2"),
        ("{{ eq 1 }}", "missing argument for comparison"),
        ('{{ humanize "x" }}', 'error calling humanize: strconv.ParseFloat: parsing "x": invalid syntax'),
        ("{{ humanize true }}", "can't convert bool to float"),
        ("{{ toTime 1e300 }}", "cannot be represented as a timestamp without overflow"),
        ("{{ toDuration 1e300 }}", "cannot be represented as a duration without overflow"),
        ('{{ query "wrong(" }}', "error calling query: 1:7: parse error: unclosed left parenthesis"),
        ('{{ reReplaceAll "(" "" "a" }}', "error parsing regexp: missing ): (: `(`"),
        ("{{ range $value }}{{ end }}", "range can't iterate over 1.2345675e+06"),
        ('{{ index (query "none") 0 }}', "error calling index: index out of range: 0"),
        ('{{ parseDuration "x" }}', 'not a valid duration string: "x"'),
        ("{{ $value 1 }}", "can't give argument to non-function $value"),
    ],
)
def test_a_template_that_fails_says_why(text: str, expected: str) -> None:
    shown, error = Template(text, "__alert_A").expand_or_error(DATA, CONTEXT)
    assert expected in error
    assert shown == f"<error expanding template: {error}>"


@pytest.mark.parametrize(
    "text",
    [
        '{{ $x := "ab" }}{{ range $i := 100000 }}{{ $x = print $x $x }}{{ end }}',
        "{{ range 100000 }}{{ range 100000 }}{{ end }}{{ end }}",
        "{{ range 100000 }}abcdefghi{{ end }}",
        '{{ printf "%9999d%9999d%9999d%9999d%9999d%9999d%9999d" 1 1 1 1 1 1 1 }}',
        '{{ $x := printf "%9999d" 1 }}{{ range 900 }}{{ $x = reReplaceAll " " "aaaaaaaaaaaa" $x }}{{ end }}{{ $x }}',
    ],
)
def test_a_template_without_end_is_stopped(text: str) -> None:
    shown, error = Template(text, "__alert_A").expand_or_error(DATA, CONTEXT)
    assert error
    assert len(shown) < OUTPUT_CHARS_MAX


def test_widths_over_the_limit_are_an_error_of_the_verb() -> None:
    assert (
        expanded('{{ printf "%99999999d|%.99999999f" 1 1.0 }}') == "%!(BADWIDTH)|%!(BADWIDTH)%!(EXTRA int=1, float64=1)"
    )


def test_all_functions_of_prometheus_are_known() -> None:
    wanted = (
        "query first label value strvalue args reReplaceAll safeHtml match title toUpper toLower graphLink tableLink "
        "sortByLabel stripPort stripDomain humanize humanize1024 humanizeDuration humanizePercentage humanizeTimestamp "
        "toTime toDuration now pathPrefix externalURL parseDuration urlQueryEscape and or not len index slice print "
        "printf println html js urlquery eq ne lt le gt ge"
    )
    assert set(wanted.split()) == FUNCTIONS.keys()
