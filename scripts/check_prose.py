"""Prose lint: report openings and constructions that cost a reader a second pass.

`make check` runs it over the tree. `python scripts/check_prose.py tsdb/head docs` checks the given files and folders.
It reads docstrings and comments of Python files and the text of Markdown files, generated files and code blocks left
out. It also refuses two kinds of fragments: a module's docstring that joins noun phrases by a colon without a verb,
and a text that opens with "Of" and leaves its noun out. Exit code 1 means findings. Standard library only, and below
2 s for the tree.
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
# A shorter docstring of a module is a name with its parts, and easy to read.
MODULE_WORDS_MIN = 8
# The docstring of a module of tests is a claim, or names what its fixtures share.
MODULES_WITHOUT_VERB = ("tests/",)
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
    _anywhere(
        "(?:that|which) (?:is|are|was|were) no (?!(?:longer|more|less)\\b)[a-z]+",
        "that is no ...",
        '"that is not a ..."',
    ),
    _anywhere("(?:without|waits? for|makes?|finds?|out of) room", "room", "capacity, memory or space"),
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that are verbs in nearly every text of this tree count wherever they stand. Words that are nouns as well, such
# as `reads` or `names`, count only where a verb can stand: at the start of a sentence, or between a subject and an
# object. An error lets a fragment pass rather than refuse a sentence.
# Finite forms, and words that open a clause, which has a verb.
_FINITE = _words(
    """am is are was were be been has have had do does did can cannot could may might must shall should will would got
    gets gave gives come came comes became becomes began begins went goes kept keeps made makes took takes stays
    sent sends found finds lies left leaves ran runs tries says stands knew knows helps looks uses wins ended ends
    returns lost loses fell falls rose rises follows means raises reaches shows fits stops that which who if when
    while where whether because unless until"""
)
_VERBS = _words(
    """abort accept acknowledge act add adopt agree allocate allow announce appear append apply arrive ascend ask
    assert assign assume avoid await bind bring carry choose collect combine compare compensate compile compress
    compute concatenate configure confirm connect consist consume contain continue contradict convert create decide
    declare decode decorate defer define delete deliver deny depend derive describe detect determine differ disagree
    discard divide emit enable encode enter enumerate evaluate evict examine exceed execute exist expand expect
    expire explain extend fail fetch forget gather generate happen ignore implement include indent ingest inherit
    inspect install invent judge keep learn let locate lose maintain make mend notify observe obtain occur omit
    outlive override owe parse persist prefer prevent produce protect prove provide publish raise receive recognise
    recommend reconnect redirect reduce refer refuse reject rejoin relabel rely remember remove replace represent
    require reread resend resolve restart restate restore retain reveal revoke rewrite satisfy seem select send
    serialise serve shorten solve speak spend starve submit subscribe succeed suggest suppress survive tell
    terminate throttle translate try undo unlock unpack use validate vanish verify widen write"""
)
_ALSO_NOUNS = _words(
    """access address aggregate answer back bound break build cache call cancel change check claim close commit copy
    cost count cover cut delay draw drop echo end export express fill filter find finish fit fold format free give
    group guard guess handle hash help hide hold host import index insert join limit link list load lock log look
    lower map mark mask match measure meet merge move name need note number offer open order own pack page pass
    patch pause pick pin place plan play poll post print process push put queue rank rate read record release render
    repair repeat replay report request reserve reset rest retry return route run sample save scan schedule search
    seal separate set share shift show signal skip sleep sort split stack stage start state step stop store stream
    strip sum supply swap take test time touch trace track trim trust turn update upgrade value visit wait wake walk
    want warm warn watch weigh work wrap yield"""
)
_NOT_AN_OBJECT = _words("and as at but by for from in into of on or per than to with")
_NOT_A_SUBJECT = _NOT_AN_OBJECT | {"the", "a", "an", "its"}
_NOUN_GOES_ON = _words("and by for in of on or per")
_PREPOSITIONS = (
    "after|against|as|at|before|behind|below|beside|between|beyond|by|during|for|from|in|on|since|until|with|within|"
    "without"
)
# "At most" and its like begin a bound, which is a noun.
_OPENING_PREPOSITION = re.compile(rf"(?:{_PREPOSITIONS})\s(?!least\b|most\b|few\b|many\b)", re.IGNORECASE)
# The text of a parameter in a docstring: "start_ms: of the range".
_PARAMETER_OF = re.compile(r"(?:^|(?<=[.;] ))`?[a-z_][a-z_0-9]*`?(?:, `?[a-z_][a-z_0-9]*`?)*: of\s")
_TOKEN = re.compile(r"[a-z']+|[^a-z'\s]+")

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
    body = ast.parse(source).body
    for docstring in _docstrings(body):
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
        yield from _check_opening(path, docstring.lineno, text)
        yield from _check_parameters(path, docstring.lineno, text)
        if isinstance(body[0], ast.Expr) and docstring is body[0].value:
            yield from _check_module(path, docstring.lineno, text)
    for block in _comments(source):
        yield from check_lines(path, block)
        yield from _check_opening(path, block[0][0], " ".join(line.strip() for _, line in block))


def _check_module(path: str, line: int, text: str) -> Iterator[Finding]:
    first = re.split(r"\n\s*\n", text.strip())[0]
    joins = re.search(r"[:;]\s", first) and len(first.split()) >= MODULE_WORDS_MIN
    if joins and not path.startswith(MODULES_WITHOUT_VERB) and not has_verb(first):
        instead = "what the module does: reads, computes, keeps"
        yield Finding(path, line, _excerpt(first, 0, 0), "noun phrases joined by a colon, without a verb", instead)


def _check_opening(path: str, line: int, text: str) -> Iterator[Finding]:
    clause = re.split(r"(?<=[.:;])\s|, ", text.strip(), maxsplit=1)[0]
    if re.match(r"(?:of|those)\s", clause, re.IGNORECASE) and not has_verb(clause):
        instead = "the noun first: the limit of, samples of, parts of"
        yield Finding(path, line, _excerpt(text.strip(), 0, 0), "opens with of, without its noun", instead)
    if not _OPENING_PREPOSITION.match(text.strip()):
        return
    first = re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]
    if not has_verb(first):
        instead = "a sentence, or the noun first: the pause after, the bytes beside"
        yield Finding(path, line, _excerpt(first, 0, 0), "opens with a preposition, without a verb", instead)


def _check_parameters(path: str, line: int, text: str) -> Iterator[Finding]:
    if ": of" not in text:
        return
    joined = " ".join(text.split())
    for match in _PARAMETER_OF.finditer(joined):
        instead = "its noun: the start of, the labels of"
        yield Finding(
            path, line, _excerpt(joined, match.start(), match.start()), "a parameter's text opens with of", instead
        )


def _stems(word: str) -> tuple[str, ...]:
    if word.endswith("ies"):
        return (word[:-3] + "y",)
    return (word, word.removesuffix("es"), word.removesuffix("s"))


def has_verb(text: str) -> bool:
    """Whether a verb may be among the words. Text in backquotes counts as a noun."""
    for sentence in re.split(r"(?<=[.;:])\s+", re.sub(r"`[^`]*`", "x", text.lower())):
        tokens = _TOKEN.findall(sentence)
        for index, word in enumerate(tokens):
            stems = _stems(word)
            if word in _FINITE or word.endswith("n't") or any(stem in _VERBS for stem in stems):
                return True
            if any(stem in _ALSO_NOUNS for stem in stems):
                follows = tokens[index + 1] if index + 1 < len(tokens) else "."
                has_object = follows[0].isalpha() and follows not in _NOT_AN_OBJECT
                subject = tokens[index - 1] if index else ""
                # "reads" after one thing, "read" after several.
                agrees = word.endswith("s") != subject.endswith("s") and subject[:1].isalpha()
                if index:
                    is_verb = has_object and agrees and subject not in _NOT_A_SUBJECT
                else:
                    is_verb = follows[0].isalpha() and follows not in _NOUN_GOES_ON
                if is_verb:
                    return True
    return False


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
