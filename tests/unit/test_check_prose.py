"""The prose lint finds each construction where it stands, and passes plain text that uses the same words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import check_prose
from scripts.check_prose import Finding, check_markdown, check_python, tracked

ROOT = Path(__file__).resolve().parents[2]

BAD = [
    ("# Whoever ended since must not be blamed.", "opens with who, what or that which"),
    ("# what the other end sees of it", "opens with who, what or that which"),
    ("# Plain. What is left goes out.", "opens with who, what or that which"),
    ("# The bound: What is left goes out.", "opens with who, what or that which"),
    ("# **Who asks** waits for it.", "opens with who, what or that which"),
    ("# That which is left goes out.", "opens with who, what or that which"),
    ("# Told of its state by the reader.", "opens with a participle of speech"),
    ("# Asked for again after a second.", "opens with a participle of speech"),
    ("# The value goes to whoever reads.", "whoever, that which"),
    ("# Sleeps for so many seconds.", "so many"),
    ("# The default where there is none.", "is none"),
    ("# A thread of its own reads them.", "of its own"),
    ("# The error has to say so.", "has to say"),
    ("# Bytes that are no request are refused.", "that is no ..."),
    ("# A partition without room waits alone.", "room"),
]
GOOD = [
    "# The record shows what a reader sees, and who wrote it.",
    "# What is a lane?",
    "# `What` is the title of the column.",
    "# A value that is None is left out.",
    "# Its own thread reads them.",
    "# A claim that is no longer valid is withdrawn.",
    "# The room of the tests is warm.",
    "# what",
    "# whole lines, whatever their length",
    "# Whole windows only. However long they are.",
    "x = 'no comment: # What is in a string is data.'",
    'x = """\n# What is in a string is data.\n"""',
]


def rules(findings: Iterator[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


@pytest.mark.parametrize(("comment", "rule"), BAD)
def test_each_construction_is_found_in_a_comment(comment: str, rule: str) -> None:
    assert rule in rules(check_python("a.py", f"x = 1\n{comment}\ny = 2\n"))
    assert rule in rules(check_python("a.py", f"x = 1  {comment}\n"))


@pytest.mark.parametrize(("comment", "rule"), BAD)
def test_each_construction_is_found_in_a_docstring_and_in_markdown(comment: str, rule: str) -> None:
    text = comment.removeprefix("# ")
    assert rule in rules(check_python("a.py", f'def f():\n    """{text}"""\n'))
    assert rule in rules(check_markdown("a.md", f"{text}\n"))
    assert rule in rules(check_markdown("a.md", f"| name | {text} |\n"))
    assert rule in rules(check_markdown("a.md", f"Some text\n- {text}\n"))


@pytest.mark.parametrize("source", GOOD)
def test_plain_text_with_the_same_words_passes(source: str) -> None:
    assert rules(check_python("a.py", source)) == []


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("# Of the arrays of one row.", "opens with of, without its noun"),
        ("x = 1  # Of a cell's seconds, after the announcement.", "opens with of, without its noun"),
        ('x = 1\n"""Those of the address."""', "opens with of, without its noun"),
        ("# With the limits of the server.", "opens with a preposition, without a verb"),
        ("x = 1  # After the end of a batch.", "opens with a preposition, without a verb"),
        ('def f():\n    """As `read`, from two stores."""', "opens with a preposition, without a verb"),
        ('def f():\n    """A range. start_ms, end_ms: of the whole range."""', "a parameter's text opens with of"),
        ('def f():\n    """labels: of all series. Canonical form."""', "a parameter's text opens with of"),
        (
            '"""Limits: the limits of a server, lowered for one request."""',
            "noun phrases joined by a colon, without a verb",
        ),
        (
            '"""Reads; pages of statements, in the order of the statements."""',
            "noun phrases joined by a colon, without a verb",
        ),
    ],
)
def test_a_fragment_is_found(source: str, rule: str) -> None:
    assert rules(check_python("a.py", source)) == [rule]


@pytest.mark.parametrize(
    "source",
    [
        "# Of two records the later one wins.",
        "# Of the steps that remain, the first is done.",
        "# Those errors come from the driver.",
        "# After an append the writer waits.",
        "x = 1  # At most a quarter of the descriptors.",
        'def f():\n    """A range. start_ms: the start of the range; with `limit`, of the first part."""',
        '"""Limits: a request may lower the limits of the server."""',
        '"""Reads: fetches pages of statements, in the order of the statements."""',
        '"""`tsdb agent` writes metrics: those of this host, and of endpoints."""',
        '"""The limits of a server, lowered for one request."""',
        'x = 1\n"""Limits: the limits of a server, lowered for one request."""',
    ],
)
def test_a_sentence_is_no_fragment_and_only_a_module_needs_a_verb(source: str) -> None:
    assert rules(check_python("a.py", source)) == []


def test_a_sentence_over_several_comment_lines_is_found_at_its_line() -> None:
    source = "x = 1\n# A first sentence. A thread of\n# its own. It ends.\n# What is left\n# goes out.\n"
    assert sorted((finding.line, finding.rule) for finding in check_python("a.py", source)) == [
        (2, "of its own"),
        (4, "opens with who, what or that which"),
    ]


def test_comments_of_two_indents_are_two_texts() -> None:
    assert rules(check_python("a.py", "if x:\n    y = 1\n    # The first is of\n# its own kind\nz = 1\n")) == []


def test_a_finding_names_place_words_rule_and_the_way_to_write() -> None:
    (finding,) = check_python("a.py", "# The log is read by one thread, and it waits for so many seconds at most.\n")
    assert str(finding) == (
        'a.py:1: "by one thread, and it waits for so many seconds at most.": so many; '
        "write the number, or the name of the limit"
    )


@pytest.mark.parametrize("docstring", ["Close.", "The child process.", "`what`"])
def test_a_docstring_of_up_to_three_words_is_found(docstring: str) -> None:
    (finding,) = check_python("a.py", f'class A:\n    def f(self):\n        """{docstring}"""\n')
    assert (finding.line, finding.rule) == (3, "a docstring of fewer than 4 words")


def test_a_docstring_of_an_error_passes() -> None:
    assert rules(check_python("a.py", 'def f():\n    """Raises ConfigMismatch (no_java)."""\n')) == []


def test_code_headings_and_short_cells_of_markdown_pass() -> None:
    page = (
        "# What a write costs\n\n```\nWhat is in a fence is code.\n```\n\n| what |\n|---|\n| what it is, `so many` |\n"
    )
    assert [(finding.line, finding.excerpt) for finding in check_markdown("a.md", page)] == [
        (9, "what it is, `so many`")
    ]


def test_directives_are_no_prose() -> None:
    assert rules(check_python("a.py", "x = 1  # type: ignore[what]  # so many\n")) == []


def test_generated_code_is_left_out() -> None:
    names = tracked(["tsdb"])
    assert "tsdb/v1/__init__.py" not in names
    assert any(name.startswith("tsdb/model/") for name in names)


def test_the_command_counts_findings_by_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_prose.main(["tests/unit/test_check_prose.py"]) == 0
    assert capsys.readouterr().out == "prose: 0 findings in 1 files\n"


@pytest.mark.slow
def test_the_whole_tree_is_checked_in_seconds() -> None:
    started = time.process_time()
    list(check_prose.check(tracked(["."])))
    assert time.process_time() - started < 60.0
