"""Parses a template of Go's text/template to a tree. Errors have the words of Go.

`define`, `block` and `template` are refused: a rule has no template of another file.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from tsdb.model.errors import InvalidRequest
from tsdb.selector.tokens import string_of

NESTING_MAX = 100
TEMPLATE_CHARS_MAX = 64 << 10
INTEGER_DIGITS_MAX = 30  # Python parses long integers slowly, or not at all.


class TemplateError(InvalidRequest):
    """A template that cannot be parsed, or has no text for its data."""

    default_reason = "bad_template"


# Operands.


@dataclass(frozen=True, slots=True)
class Literal:
    """value: a number, text or truth value, or None for nil."""

    value: object


@dataclass(frozen=True, slots=True)
class Variable:
    """name: with its dollar sign."""

    name: str


@dataclass(frozen=True, slots=True)
class Dot:
    """The current value, which `with` and `range` set."""


@dataclass(frozen=True, slots=True)
class FunctionName:
    """A function. The other operands of its command are the arguments."""

    name: str


@dataclass(frozen=True, slots=True)
class FieldAccess:
    """Fields of a value, one after another: `$value.Labels.job`."""

    of: Operand
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """Operands between two bars of a pipeline. at: index of its first character. source: its text, for messages."""

    operands: tuple[Operand, ...]
    at: int
    source: str


@dataclass(frozen=True, slots=True)
class TemplatePipeline:
    """variables: names that get the value. is_new: `:=` declares them; otherwise `=` sets them."""

    commands: tuple[Command, ...]
    variables: tuple[str, ...] = ()
    is_new: bool = True


Operand: TypeAlias = Literal | Variable | Dot | FunctionName | FieldAccess | TemplatePipeline


# Parts of a template.


@dataclass(frozen=True, slots=True)
class Shown:
    """An action that prints its value, unless it sets variables."""

    pipeline: TemplatePipeline


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`, or `with` where sets_dot. otherwise: the parts of `else`."""

    pipeline: TemplatePipeline
    parts: tuple[Part, ...]
    otherwise: tuple[Part, ...]
    sets_dot: bool


@dataclass(frozen=True, slots=True)
class Loop:
    """`range`. otherwise: the parts for an empty value."""

    pipeline: TemplatePipeline
    parts: tuple[Part, ...]
    otherwise: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """`break` where ends_loop, else `continue`."""

    ends_loop: bool


Part: TypeAlias = str | Shown | Branch | Loop | Leave


def parse_template(text: str, name: str, functions: Collection[str], variables: Collection[str]) -> tuple[Part, ...]:
    """The parts of a template. name: for messages. variables: set before the template, with their dollar signs.

    Raises TemplateError.
    """
    if len(text) > TEMPLATE_CHARS_MAX:
        problem = f"{len(text)} characters; the limit is {TEMPLATE_CHARS_MAX}, write a shorter template"
        raise TemplateError(f"template: {name}:1: {problem}")
    return _Parser(text, name, functions, variables).template()


@dataclass(frozen=True, slots=True)
class _Token:
    """kind: a group of _TOKEN, `text`, `end of action` or `end`. glued: no space stands before it."""

    kind: str
    text: str
    at: int
    glued: bool = False

    def is_symbol(self, *texts: str) -> bool:
        return self.kind == "symbol" and self.text in texts

    def is_word(self, *texts: str) -> bool:
        return self.kind == "name" and self.text in texts


_SPACE = " \t\r\n"
_OPEN = re.compile(r"\{\{(?:-(?=[ \t\r\n]))?")
_COMMENT = re.compile(r"[ \t\r\n]*/\*.*?\*/(?:([ \t\r\n]+-)\}\}|\}\})", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<close>[ \t\r\n]+-\}\}|\}\})
      | (?P<space>[ \t\r\n]+)
      | (?P<string>"(?:[^"\\\n]++|\\.)*+"|`[^`]*`)
      | (?P<char>'(?:[^'\\\n]|\\[^\n][^'\n]*)')
      | (?P<number>[+-]?(?:0[xX][0-9a-fA-F_]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.]))
      | (?P<field>\.[^\W\d]\w*)
      | (?P<variable>\$\w*)
      | (?P<name>[^\W\d]\w*)
      | (?P<symbol>:=|[=|(),.])
    """,
    re.VERBOSE,
)
_NUMBER_START = re.compile(r"[+-.\d][^\s})|,]*")
_UNENDED = {'"': "unterminated quoted string", "`": "unterminated raw quoted string"}
_KEYWORDS = frozenset(("if", "else", "end", "range", "with", "break", "continue", "define", "block", "template"))
_CONSTANTS = {"true": True, "false": False, "nil": None}


class _Parser:
    def __init__(self, text: str, name: str, functions: Collection[str], variables: Collection[str]) -> None:
        self._text = text
        self._name = name
        self._functions = functions
        self._variables = list(variables)
        self._depth = 0
        self._loops = 0
        self._tokens: list[_Token] = []
        self._at = 0

    def template(self) -> tuple[Part, ...]:
        self._cut()
        parts, end = self._parts()
        if end is not None:
            raise self._error(f"unexpected {{{{{end.text}}}}}", end.at)
        return parts

    # Tokens.

    def _cut(self) -> None:
        at, trims = 0, False
        while True:
            opened = _OPEN.search(self._text, at)
            text = self._text[at : opened.start() if opened else len(self._text)]
            text = text.lstrip(_SPACE) if trims else text
            if opened is not None and opened.group().endswith("-"):
                text = text.rstrip(_SPACE)
            if text:
                self._tokens.append(_Token("text", text, at))
            if opened is None:
                break
            comment = _COMMENT.match(self._text, opened.end())
            if comment is not None:
                at, trims = comment.end(), comment.group(1) is not None
            else:
                at, trims = self._cut_action(opened.end())
        self._tokens.append(_Token("end", "", len(self._text)))

    def _cut_action(self, at: int) -> tuple[int, bool]:
        """Returns where the action ends, and whether it trims the text behind it."""
        start, glued = at, False
        while True:
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise self._cut_error(start, at)
            kind = match.lastgroup or ""
            if kind == "close":
                self._tokens.append(_Token("end of action", "", at))
                return match.end(), match.group() != "}}"
            if kind != "space":
                self._tokens.append(_Token(kind, match.group(), at, glued))
            glued = kind != "space"
            at = match.end()

    def _cut_error(self, start: int, at: int) -> TemplateError:
        if at == len(self._text):
            return self._error("unclosed action", start)
        char = self._text[at]
        if char in "\"`'":
            return self._error(_UNENDED.get(char, "unterminated character constant"), at)
        number = _NUMBER_START.match(self._text, at)
        if number is not None:
            return self._error(f'bad number syntax: "{number.group()}"', at)
        return self._error(f"unexpected {char!r} in command", at)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._token
        if token.kind != "end":
            self._at += 1
        return token

    def _skip(self, symbol: str) -> bool:
        if not self._token.is_symbol(symbol):
            return False
        self._take()
        return True

    def _error(self, problem: str, at: int) -> TemplateError:
        line = self._text.count("\n", 0, at) + 1
        return TemplateError(f"template: {self._name}:{line}: {problem}")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(f"nested more than {NESTING_MAX} levels deep", self._token.at)

    def _leave(self) -> None:
        self._depth -= 1

    # Parts.

    def _parts(self) -> tuple[tuple[Part, ...], _Token | None]:
        """Parts up to `else` or `end`, which is taken and returned, or up to the end of the text."""
        self._enter()
        parts: list[Part] = []
        end: _Token | None = None
        while end is None and self._token.kind != "end":
            token = self._token
            if token.kind == "text":
                parts.append(self._take().text)
            elif token.is_word("else", "end"):
                end = self._take()
            else:
                parts.append(self._action())
        self._leave()
        return tuple(parts), end

    def _action(self) -> Part:
        token = self._token
        if not (token.kind == "name" and token.text in _KEYWORDS):
            shown = Shown(self._pipeline("command"))
            self._end_of_action("command")
            return shown
        self._take()
        match token.text:
            case "if" | "with":
                return self._branch(token.text)
            case "range":
                return self._loop()
            case "break" | "continue":
                self._end_of_action(token.text)
                if not self._loops:
                    raise self._error(f"{{{{{token.text}}}}} outside {{{{range}}}}", token.at)
                return Leave(token.text == "break")
        raise self._error(f"unexpected {{{{{token.text}}}}}: a rule has no templates with a name", token.at)

    def _branch(self, word: str) -> Branch:
        declared = len(self._variables)
        pipeline = self._pipeline(word)
        self._end_of_action(word)
        parts, end = self._parts()
        otherwise: tuple[Part, ...] = ()
        if end is not None and end.text == "else" and self._token.is_word(word):
            self._take()
            self._enter()
            otherwise = (self._branch(word),)
            self._leave()
        else:
            otherwise = self._otherwise(end)
        del self._variables[declared:]
        return Branch(pipeline, parts, otherwise, sets_dot=word == "with")

    def _loop(self) -> Loop:
        declared = len(self._variables)
        pipeline = self._pipeline("range")
        self._end_of_action("range")
        self._loops += 1
        parts, end = self._parts()
        self._loops -= 1
        otherwise = self._otherwise(end)
        del self._variables[declared:]
        return Loop(pipeline, parts, otherwise)

    def _otherwise(self, end: _Token | None) -> tuple[Part, ...]:
        """The parts of `else`, if there are some, up to the end of the action."""
        parts: tuple[Part, ...] = ()
        if end is not None and end.text == "else":
            self._end_of_action("else")
            parts, end = self._parts()
        if end is None:
            raise self._error("unexpected EOF", len(self._text))
        if end.text != "end":
            raise self._error(f"expected end; found {{{{{end.text}}}}}", end.at)
        self._end_of_action("end")
        return parts

    def _end_of_action(self, where: str) -> None:
        if self._token.kind != "end of action":
            raise self._error(f"unexpected <{self._token.text}> in {where}", self._token.at)
        self._take()

    # Pipelines.

    def _pipeline(self, where: str) -> TemplatePipeline:
        names, is_new = self._declared(where)
        commands = [self._command(where)]
        while self._skip("|"):
            command = self._command(where)
            commands.append(command)
            if isinstance(command.operands[0], Literal | Dot | Variable):
                raise self._error(f"non executable command in pipeline stage {len(commands)}", command.at)
        if is_new:
            self._variables += names
        return TemplatePipeline(tuple(commands), names, is_new)

    def _declared(self, where: str) -> tuple[tuple[str, ...], bool]:
        """Variables before `:=` or `=`, and which of the two it is."""
        begin, names = self._at, [""][:0]
        while self._token.kind == "variable":
            names.append(self._take().text)
            if self._token.is_symbol(":=", "="):
                is_new = self._take().text == ":="
                if len(names) > (2 if where == "range" else 1):
                    raise self._error(f"too many declarations in {where}", self._token.at)
                for name in names if not is_new else ():
                    self._check_variable(name, self._token.at)
                return tuple(names), is_new
            if not self._skip(","):
                break
        self._at = begin
        return (), True

    def _command(self, where: str) -> Command:
        begin = self._token
        operands: list[Operand] = []
        while not (self._token.kind in ("end of action", "end") or self._token.is_symbol("|", ")")):
            operands.append(self._operand(where))
        if not operands:
            raise self._error(f"missing value for {where}", begin.at)
        return Command(tuple(operands), begin.at, self._text[begin.at : self._token.at].strip())

    def _operand(self, where: str) -> Operand:
        operand = self._term(where)
        names: list[str] = []
        while self._token.kind == "field" and self._token.glued:
            names.append(self._take().text[1:])
        if not names:
            return operand
        if isinstance(operand, Literal):
            raise self._error(f"unexpected . after term {operand.value!r}", self._token.at)
        if isinstance(operand, FieldAccess):
            return FieldAccess(operand.of, operand.names + tuple(names))
        return FieldAccess(operand, tuple(names))

    def _term(self, where: str) -> Operand:
        token = self._take()
        match token.kind:
            case "string" | "char":
                return Literal(self._text_of(token))
            case "number":
                return Literal(self._number(token))
            case "field":
                return FieldAccess(Dot(), (token.text[1:],))
            case "variable":
                self._check_variable(token.text, token.at)
                return Variable(token.text)
            case "name":
                return self._named(token)
        if token.is_symbol("."):
            return Dot()
        if token.is_symbol("("):
            self._enter()
            inner = self._pipeline("parenthesized pipeline")
            if not self._skip(")"):
                raise self._error("unclosed left paren", token.at)
            self._leave()
            return inner
        raise self._error(f"unexpected <{token.text}> in {where}", token.at)

    def _named(self, token: _Token) -> Operand:
        if token.text in _CONSTANTS:
            return Literal(_CONSTANTS[token.text])
        if token.text not in self._functions:
            raise self._error(f'function "{token.text}" not defined', token.at)
        return FunctionName(token.text)

    def _text_of(self, token: _Token) -> str | int:
        """A string, or the number of a character."""
        try:
            value = string_of(token.text)
        except ValueError as error:
            raise self._error(str(error), token.at) from None
        return value if token.kind == "string" else ord(value[0])

    def _number(self, token: _Token) -> int | float:
        plain = token.text.replace("_", "")
        if plain.lstrip("+-")[:2] in ("0x", "0X") and len(plain) <= INTEGER_DIGITS_MAX:
            return int(plain, 16)
        if any(char in plain for char in ".eE"):
            return float(plain)
        if len(plain) > INTEGER_DIGITS_MAX:
            raise self._error(f'bad number syntax: "{plain[:INTEGER_DIGITS_MAX]}..."', token.at)
        return int(plain)

    def _check_variable(self, name: str, at: int) -> None:
        if name != "$" and name not in self._variables:
            raise self._error(f'undefined variable "{name}"', at)
