"""Template expands the text of a label or annotation for one series.

Bounds: evaluated parts, characters of the output and of one value. A template over a bound fails, and the annotation
then has the error as text, as in Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tsdb.model.errors import TsdbError
from tsdb.rules.templates.functions import (
    FUNCTIONS,
    TEXT_CHARS_MAX,
    TemplateContext,
    TemplateFunction,
    TemplateSample,
    number_of,
    truth,
)
from tsdb.rules.templates.printing import TemplateHistogram, shown, type_name
from tsdb.rules.templates.syntax import (
    Branch,
    Command,
    Dot,
    FieldAccess,
    FunctionName,
    Leave,
    Literal,
    Loop,
    Operand,
    Part,
    Shown,
    TemplateError,
    TemplatePipeline,
    Variable,
    parse_template,
)

OUTPUT_CHARS_MAX = 64 << 10
STEPS_MAX = 100_000  # Evaluated parts and commands of one expansion: some 0.1 s.
CHARS_A_STEP = 64  # A long value counts as several steps.

# Prometheus puts these before each template, so columns in its messages count them.
_PREFIX = (
    "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
)
_VARIABLES = ("$labels", "$externalLabels", "$externalURL", "$value")
_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class TemplateData:
    """The values of an alert: labels of its series, value, and the labels that all alerts get."""

    labels: Mapping[str, str]
    value: float | TemplateHistogram
    external_labels: Mapping[str, str]
    external_url: str


class Template:
    """A parsed template. Several threads may use it at once."""

    def __init__(self, text: str, name: str) -> None:
        """name: for messages. Raises TemplateError."""
        self.text = text
        self._name = name
        self._parts = parse_template(text, name, FUNCTIONS, _VARIABLES) if "{{" in text else (text,)

    @property
    def is_plain(self) -> bool:
        """Whether the text is the same for all data."""
        return all(isinstance(part, str) for part in self._parts)

    def expand(self, data: TemplateData, context: TemplateContext) -> str:
        """The text for the data. Raises TemplateError."""
        if self.is_plain:
            return "".join(part for part in self._parts if isinstance(part, str))
        return _Expansion(self.text, self._name, data, context).text(self._parts)

    def expand_or_error(self, data: TemplateData, context: TemplateContext) -> tuple[str, str]:
        """The text for the data and "", or the text that stands for a failure and the error."""
        try:
            return self.expand(data, context), ""
        except TemplateError as error:
            return f"<error expanding template: {error.message}>", error.message


class _LoopEnd(Exception):
    def __init__(self, ends_loop: bool) -> None:
        super().__init__()
        self.ends_loop = ends_loop


class _Expansion:
    """One expansion: variables, output and what is left of the bounds."""

    def __init__(self, text: str, name: str, data: TemplateData, context: TemplateContext) -> None:
        self._text = text
        self._name = name
        self._data = data
        self._context = context
        self._variables: list[tuple[str, object]] = [
            ("$", data),
            ("$labels", data.labels),
            ("$externalLabels", data.external_labels),
            ("$externalURL", data.external_url),
            ("$value", data.value),
        ]
        self._out: list[str] = []
        self._chars = 0
        self._steps = 0

    def text(self, parts: Sequence[Part]) -> str:
        self._run(parts, self._data)
        return "".join(self._out)

    def _write(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > OUTPUT_CHARS_MAX:
            raise TemplateError(f"the text has more than {OUTPUT_CHARS_MAX} characters: shorten the template's output")
        self._out.append(text)

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise TemplateError(f"more than {STEPS_MAX} steps: loop over fewer series")

    def _run(self, parts: Sequence[Part], dot: object) -> None:
        for part in parts:
            self._step()
            match part:
                case str():
                    self._write(part)
                case Shown(pipeline):
                    value = self._pipeline(pipeline, dot)
                    if not pipeline.variables:
                        self._write("<no value>" if value is None else shown(value))
                case Branch():
                    self._branch(part, dot)
                case Loop():
                    self._loop(part, dot)
                case Leave(ends_loop):
                    raise _LoopEnd(ends_loop)

    def _branch(self, part: Branch, dot: object) -> None:
        declared = len(self._variables)
        value = self._pipeline(part.pipeline, dot)
        if truth(value):
            self._run(part.parts, value if part.sets_dot else dot)
        else:
            self._run(part.otherwise, dot)
        del self._variables[declared:]

    def _loop(self, part: Loop, dot: object) -> None:
        declared = len(self._variables)
        pipeline = TemplatePipeline(part.pipeline.commands)
        items = self._items(self._pipeline(pipeline, dot), part.pipeline.commands[-1])
        names = part.pipeline.variables
        for key, item in items:
            self._step()
            values = (item,) if len(names) == 1 else (key, item)
            for name, value in zip(names, values, strict=False):
                self._set(name, value, is_new=part.pipeline.is_new)
            try:
                self._run(part.parts, item)
            except _LoopEnd as end:
                if end.ends_loop:
                    break
            finally:
                del self._variables[declared:]
        if not items:
            self._run(part.otherwise, dot)

    def _items(self, value: object, command: Command) -> list[tuple[object, object]]:
        match value:
            case Mapping():
                return sorted(value.items())
            case list() | tuple():
                return list(enumerate(value))
            case bool():
                pass
            case int():
                return list(zip(range(min(value, STEPS_MAX)), range(min(value, STEPS_MAX)), strict=True))
        raise self._error(f"range can't iterate over {shown(value)}", command)

    def _set(self, name: str, value: object, *, is_new: bool) -> None:
        if is_new:
            self._variables.append((name, value))
            return
        place = max(place for place, (known, _) in enumerate(self._variables) if known == name)
        self._variables[place] = name, value

    # Values.

    def _pipeline(self, pipeline: TemplatePipeline, dot: object) -> object:
        value: object = None
        for place, command in enumerate(pipeline.commands):
            self._step()
            value = self._command(command, dot, [value] if place else [])
            if isinstance(value, str):
                self._step(len(value) // CHARS_A_STEP)
                if len(value) > TEXT_CHARS_MAX:
                    raise self._error(f"a value of more than {TEXT_CHARS_MAX} characters", command)
        for name in pipeline.variables:
            self._set(name, value, is_new=pipeline.is_new)
        return value

    def _command(self, command: Command, dot: object, piped: list[object]) -> object:
        head, *rest = command.operands
        if isinstance(head, FunctionName):
            return self._call(head.name, command, rest, dot, piped)
        if rest or piped:
            raise self._error(f"can't give argument to non-function {self._head(command)}", command)
        return self._operand(head, command, dot)

    def _call(self, name: str, command: Command, rest: Sequence[Operand], dot: object, piped: list[object]) -> object:
        if name in ("and", "or"):
            return self._short(name, command, rest, dot, piped)
        function = FUNCTIONS[name]
        given = [*(self._operand(operand, command, dot) for operand in rest), *piped]
        self._check_count(name, function, len(given), command)
        try:
            values = [
                self._fitting(value, kind, command) for value, kind in zip(given, _kinds(function, given), strict=True)
            ]
            return function.call(self._context, *values) if function.needs_context else function.call(*values)
        except TemplateError:
            raise
        except (ValueError, TsdbError) as error:
            problem = error.message if isinstance(error, TsdbError) else str(error)
            raise self._error(f"error calling {name}: {problem}", command) from None

    def _short(self, name: str, command: Command, rest: Sequence[Operand], dot: object, piped: list[object]) -> object:
        """`and` ends at the first value that is false, `or` at the first that is true."""
        self._check_count(name, FUNCTIONS[name], len(rest) + len(piped), command)
        value: object = None
        for operand in rest:
            value = self._operand(operand, command, dot)
            if truth(value) == (name == "or"):
                return value
        return piped[0] if piped else value

    def _check_count(self, name: str, function: TemplateFunction, count: int, command: Command) -> None:
        wanted = len(function.kinds)
        if function.rest is None and count != wanted:
            raise self._error(f"wrong number of args for {name}: want {wanted} got {count}", command)
        if count < wanted:
            raise self._error(f"wrong number of args for {name}: want at least {wanted} got {count}", command)

    def _fitting(self, value: object, kind: str, command: Command) -> object:
        if kind == "number":
            return number_of(value)
        if kind and type_name(value) != kind:
            raise self._error(f"wrong type for value; expected {kind}; got {type_name(value)}", command)
        return value

    def _operand(self, operand: Operand, command: Command, dot: object) -> object:
        match operand:
            case Literal(value):
                return value
            case Dot():
                return dot
            case Variable(name):
                return next(value for known, value in reversed(self._variables) if known == name)
            case FunctionName(name):
                return self._call(name, command, (), dot, [])
            case TemplatePipeline():
                return self._pipeline(operand, dot)
            case FieldAccess(of, names):
                value = self._operand(of, command, dot)
                for name in names:
                    value = self._field(value, name, command)
                return value

    def _field(self, value: object, name: str, command: Command) -> object:
        match value, name:
            case Mapping(), _:
                return value.get(name, "")
            case TemplateData(), "Labels":
                return value.labels
            case TemplateData(), "Value":
                return value.value
            case TemplateData(), "ExternalLabels":
                return value.external_labels
            case TemplateData(), "ExternalURL":
                return value.external_url
            case TemplateSample(), "Labels":
                return value.labels
            case TemplateSample(), "Value":
                return value.value
        kind = "struct" if isinstance(value, TemplateData) else type_name(value)
        raise self._error(f"can't evaluate field {name} in type {kind}", command)

    # Messages.

    def _head(self, command: Command) -> str:
        return command.source.split(None, 1)[0] if command.source else ""

    def _error(self, problem: str, command: Command) -> TemplateError:
        before = self._text[: command.at]
        line = before.count("\n") + 1
        column = len(before.rpartition("\n")[2].encode(errors="replace")) + (len(_PREFIX) if line == 1 else 0)
        source = command.source if len(command.source) <= _SHOWN_MAX else f"{command.source[:_SHOWN_MAX]}..."
        name = self._name
        return TemplateError(
            f'error executing template {name}: template: {name}:{line}:{column}: executing "{name}" at <{source}>: '
            f"{problem}"
        )


def _kinds(function: TemplateFunction, given: Sequence[object]) -> Sequence[str]:
    return (*function.kinds, *(function.rest or "" for _ in given[len(function.kinds) :]))
