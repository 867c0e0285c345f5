"""Prose lint: report openings and constructions that cost a reader a second pass.

`make check` runs it over the tree. `python scripts/check_prose.py tsdb/head docs` checks the given files and folders.
It reads docstrings and comments of Python files and the text of Markdown files, generated files and code blocks left
out. Exit code 1 means findings. Standard library only, and below 2 s for the tree.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ("tsdb/v1/",)
# Shorter docstrings say no more than the name they stand under.
DOCSTRING_WORDS_MIN = 4
# A table cell or a list entry below this length is a label, not a sentence.
SENTENCE_WORDS_MIN = 3
EXCERPT_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Rule:
    """One construction to avoid. An opening is searched at the start of each sentence, any other pattern everywhere."""

    pattern: re.Pattern[str]
    name: str
    instead: str
    opening: bool = False


def _opening(words: str, name: str, instead: str) -> Rule:
    return Rule(re.compile(rf"\W*(?:{words})\b(?!-)", re.IGNORECASE), name, instead, opening=True)


def _anywhere(pattern: str, name: str, instead: str) -> Rule:
    return Rule(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), name, instead)


RULES = (
    _opening(
        "who|whom|whose|whoever|what|whatever|whichever|that which|those who",
        "opens with who, what or that which",
        "the subject first, as a noun of the field",
    ),
    _opening(
        "told|said|asked|heard|looked|spoken",
        "opens with a participle of speech",
        "the subject first, and the field's verb: reports, requests, receives, reads",
    ),
    _anywhere("whoever|that which", "whoever, that which", "a noun: the caller, the process, the value"),
    _anywhere("so many", "so many", "the number, or the name of the limit"),
    # Python's own `is None` has a capital.
    Rule(re.compile(r"\b(?:is|are|was|were) none\b"), "is none", '"there is no ...", or "... does not exist"'),
    _anywhere("of (?:its|their|our|your|his|one's) own", "of its own", '"a separate ...", or "its own ..."'),
    _anywhere("(?:has|have|had|having) to say", "has to say", "a verb of the field: reports, contains, states"),
)

Line = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Finding:
    path: str
    line: int
    excerpt: str
    rule: str
    instead: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.excerpt}": {self.rule}; write {self.instead}'


def check_lines(path: str, lines: list[Line], *, openings: bool = True) -> Iterator[Finding]:
    """Findings of one text: a docstring, a block of comment lines, a paragraph. `lines` are (line number, text)."""
    raw = ""
    starts: list[tuple[int, int]] = []
    for number, line in lines:
        starts.append((len(raw), number))
        raw += line.strip() + " "
    text = re.sub(r"`[^`]*`", lambda code: "x" * len(code[0]), raw)

    def finding(rule: Rule, start: int, end: int) -> Finding:
        number = next(line for begin, line in reversed(starts) if begin <= start)
        return Finding(path, number, _excerpt(raw, start, end), rule.name, rule.instead)

    for start, sentence in _sentences(text) if openings else ():
        if sentence.endswith("?") or len(sentence.split()) < SENTENCE_WORDS_MIN:
            continue
        yield from (finding(rule, start, start) for rule in RULES if rule.opening and rule.pattern.match(sentence))
    for rule in RULES:
        if not rule.opening:
            yield from (finding(rule, *match.span()) for match in rule.pattern.finditer(text))


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """(start, sentence). A sentence begins with a capital; so does the text after a colon that is one."""
    start = 0
    for gap in re.finditer(r"(?<=[.!?:])[\"')*]*\s+(?=[\"'(*]*[A-Z])", text):
        yield start, text[start : gap.start()].strip()
        start = gap.end()
    yield start, text[start:].strip()


def _excerpt(text: str, start: int, end: int) -> str:
    """The words from an opening on, or those around another construction (`start` < `end`)."""
    begin = start if start == end else text.rfind(" ", 0, max(0, start - EXCERPT_CHARACTERS // 2)) + 1
    return textwrap.shorten(text[begin:], EXCERPT_CHARACTERS, placeholder=" ...")


def check_python(path: str, source: str) -> Iterator[Finding]:
    for docstring in _docstrings(ast.parse(source).body):
        text = docstring.value
        assert isinstance(text, str)
        # "Raises TheError (reason)." has content.
        if len(text.split()) < DOCSTRING_WORDS_MIN and not text.startswith("Raises "):
            yield Finding(
                path,
                docstring.lineno,
                text.strip(),
                f"a docstring of fewer than {DOCSTRING_WORDS_MIN} words",
                "units, range ends, order, errors, or no docstring",
            )
        for paragraph in _paragraphs(enumerate(text.split("\n"), docstring.lineno)):
            yield from check_lines(path, paragraph)
    for block in _comments(source):
        yield from check_lines(path, block)


def _docstrings(body: list[ast.stmt]) -> Iterator[ast.Constant]:
    """Every string that stands alone as a statement: docstrings, and texts below the attribute they describe."""
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                yield text
            case _:
                for field in ("body", "orelse", "finalbody"):
                    yield from _docstrings(getattr(statement, field, []))


# Strings are matched only to be passed over: `"#"` opens no comment.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|(?P<comment>#[^\n]*)',
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"#\s*(?:type:|noqa|fmt:|ruff:|mypy:|pragma|!)")


def _comments(source: str) -> Iterator[list[Line]]:
    """Comments as (line number, text); lines that follow each other at one indent are one block.

    `tokenize` gives the same and needs 2 s for the tree; this expression needs 0.2 s.
    """
    block: list[Line] = []
    column, line, position = -1, 1, 0
    for match in _STRING_OR_COMMENT.finditer(source):
        text = match["comment"]
        if text is None or _DIRECTIVE.match(text):
            continue
        line += source.count("\n", position, match.start())
        position = match.start()
        here = position - source.rfind("\n", 0, position)
        if block and (block[-1][0] != line - 1 or here != column):
            yield block
            block = []
        column = here
        block.append((line, text.lstrip("#")))
    if block:
        yield block


def check_markdown(path: str, source: str) -> Iterator[Finding]:
    for line, text in _outside_code(source):
        if text.startswith("#"):
            yield from check_lines(path, [(line, text)], openings=False)
        elif text.lstrip().startswith("|"):
            for cell in text.split("|"):
                yield from check_lines(path, [(line, cell)])
    for paragraph in _paragraphs(_running_text(source)):
        yield from check_lines(path, paragraph)


def _outside_code(source: str) -> Iterator[Line]:
    fence = ""
    for number, line in enumerate(source.split("\n"), 1):
        mark = line.strip()[:3]
        if fence:
            fence = "" if mark == fence else fence
        elif mark in ("```", "~~~"):
            fence = mark
        else:
            yield number, line


def _running_text(source: str) -> Iterator[Line]:
    """Lines of paragraphs and lists. A heading or a table row ends the text above it, a list mark begins one."""
    for number, line in _outside_code(source):
        if line.startswith("#") or line.lstrip().startswith("|"):
            yield number, ""
        elif mark := re.match(r"\s*(?:[-*+>]|\d+[.)])\s+", line):
            yield number, ""
            yield number, line[mark.end() :]
        else:
            yield number, line


def _paragraphs(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines between empty ones. Lines of an interactive example are left out."""
    paragraph: list[Line] = []
    for number, line in lines:
        if line.strip() and not line.lstrip().startswith(">>>"):
            paragraph.append((number, line))
        elif paragraph:
            yield paragraph
            paragraph = []
    if paragraph:
        yield paragraph


def tracked(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """Names of Python and Markdown files below `paths`, relative to `root`, without ignored and generated files."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in names if Path(name).suffix in (".py", ".md") and not name.startswith(GENERATED)]


def check(names: Iterable[str], root: Path = ROOT) -> Iterator[Finding]:
    for name in names:
        # A file that git knows may be gone from the working tree until the removal is staged.
        if (file := root / name).exists():
            check_file = check_python if file.suffix == ".py" else check_markdown
            yield from sorted(check_file(name, file.read_text(encoding="utf-8")), key=lambda finding: finding.line)


def main(paths: list[str]) -> int:
    names = tracked(paths or ["."])
    findings = list(check(names))
    for finding in findings:
        print(finding)
    folders = Counter(str(Path(finding.path).parent) for finding in findings)
    for folder, count in sorted(folders.items()):
        print(f"{count:6} {folder}")
    print(f"prose: {len(findings)} findings in {len(names)} files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
