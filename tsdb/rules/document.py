"""Document: a YAML text as values with positions, read field by field. An unknown field is a problem, never ignored.

Problems are gathered, so that one check shows all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tsdb.model.errors import InvalidRequest
from tsdb.promql.syntax.literals import duration_ms_of

BYTES_MAX = 8 << 20  # 20,000 rules of 400 bytes.
VALUES_MAX = 1_000_000  # Bound of the values of a document with every alias written out.
PROBLEMS_MAX = 100
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a value, both from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    """place: None where the whole document is meant. text: without the name of the file."""

    place: Place | None
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class DocumentError(InvalidRequest):
    """A document with problems. The message has one on each line, with the name of the file."""

    default_reason = "bad_document"

    def __init__(self, file: str, problems: Sequence[DocumentProblem]) -> None:
        shown = [f"{file}: {problem}" for problem in problems[:PROBLEMS_MAX]]
        if len(problems) > PROBLEMS_MAX:
            shown.append(f"{file}: {len(problems) - PROBLEMS_MAX} more problems")
        super().__init__("\n".join(shown))
        self.file = file
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """text: as written, "" for null. kind: YAML's type of it, such as str, int, bool or null."""

    text: str
    kind: str
    place: Place


@dataclass(frozen=True, slots=True)
class YamlItems:
    """The items of a sequence, in order."""

    items: tuple[YamlNode, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class YamlFields:
    """A mapping. places: where each key begins."""

    fields: Mapping[str, YamlNode]
    places: Mapping[str, Place]
    place: Place


YamlNode: TypeAlias = YamlScalar | YamlItems | YamlFields
NOTHING = YamlScalar("", "null", Place(1, 1))


def parse_document(data: bytes, file: str) -> YamlNode:
    """The value of a document; null for an empty one. Raises DocumentError."""
    if len(data) > BYTES_MAX:
        problem = f"{len(data)} bytes; the limit is {BYTES_MAX}: split the file"
        raise DocumentError(file, [DocumentProblem(None, problem)])
    import yaml  # Imported here: only rules need it.

    try:
        root = yaml.compose(data.decode(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return NOTHING if root is None else _Conversion(file).node(root)
    except UnicodeDecodeError as error:
        raise DocumentError(file, [DocumentProblem(None, f"not UTF-8: byte {error.start}")]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = None if mark is None else Place(mark.line + 1, mark.column + 1)
        raise DocumentError(file, [DocumentProblem(place, f"yaml: {error.problem or error.context}")]) from None
    except yaml.YAMLError as error:
        raise DocumentError(file, [DocumentProblem(None, f"yaml: {' '.join(str(error).split())}")]) from None


class _Conversion:
    """Nodes of the library to ours. An alias is its value again."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._open: set[int] = set()
        self._left = VALUES_MAX

    def node(self, node: Any) -> YamlNode:
        place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
        self._left -= 1
        if id(node) in self._open:
            self._fail(place, "yaml: an alias contains itself")
        if self._left < 0:
            self._fail(place, f"yaml: more than {VALUES_MAX} values with all aliases written out: split the file")
        kind = node.tag.removeprefix(_TAG)
        if node.id == "scalar":
            return YamlScalar("" if kind == "null" else node.value, kind, place)
        self._open.add(id(node))
        found: YamlNode = self._items(node, place) if node.id == "sequence" else self._fields(node, place)
        self._open.discard(id(node))
        return found

    def _items(self, node: Any, place: Place) -> YamlItems:
        return YamlItems(tuple(self.node(item) for item in node.value), place)

    def _fields(self, node: Any, place: Place) -> YamlFields:
        fields: dict[str, YamlNode] = {}
        places: dict[str, Place] = {}
        merged: list[YamlFields] = []
        for key, value in node.value:
            at = Place(key.start_mark.line + 1, key.start_mark.column + 1)
            if key.tag == f"{_TAG}merge":
                merged += self._merged(self.node(value))
                continue
            if key.id != "scalar":
                self._fail(at, "yaml: a key that is not a scalar")
            if key.value in fields:
                self._fail(at, f'yaml: mapping key "{key.value}" already defined at line {places[key.value].line}')
            fields[key.value], places[key.value] = self.node(value), at
        for other in merged:
            for name, found in other.fields.items():
                if name not in fields:
                    fields[name], places[name] = found, other.places[name]
        return YamlFields(fields, places, place)

    def _merged(self, node: YamlNode) -> list[YamlFields]:
        nodes = node.items if isinstance(node, YamlItems) else (node,)
        found = [one for one in nodes if isinstance(one, YamlFields)]
        if len(found) != len(nodes):
            self._fail(node.place, "yaml: map merge requires map or sequence of maps as the value")
        return found

    def _fail(self, place: Place, problem: str) -> None:
        raise DocumentError(self._file, [DocumentProblem(place, problem)])


class Reading:
    """Reads typed values, and gathers the problems of all of them. A value with a problem is read as its default."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[DocumentProblem] = []

    def problem(self, place: Place | None, text: str) -> None:
        """Note a problem; reading goes on."""
        self.problems.append(DocumentProblem(place, text))

    def finish(self) -> None:
        """Raise DocumentError if there was a problem."""
        if self.problems:
            raise DocumentError(self.file, self.problems)

    def fields(self, node: YamlNode, what: str, names: Collection[str]) -> Mapping[str, YamlNode]:
        """The fields of a mapping; null has none. what: name of the mapping, for problems."""
        if isinstance(node, YamlScalar) and node.kind == "null":
            return {}
        if not isinstance(node, YamlFields):
            self._wrong(node, f"a mapping: {what}")
            return {}
        for name in node.fields:
            if name not in names:
                self.problem(node.places[name], f"field {name} not found in {what}; known are {', '.join(names)}")
        return {name: value for name, value in node.fields.items() if name in names}

    def items(self, node: YamlNode | None, what: str) -> tuple[YamlNode, ...]:
        """The items of a sequence; null and nothing have none."""
        if node is None or (isinstance(node, YamlScalar) and node.kind == "null"):
            return ()
        if isinstance(node, YamlItems):
            return node.items
        self._wrong(node, f"a sequence: {what}")
        return ()

    def text(self, node: YamlNode | None, what: str) -> str:
        """The text of a scalar of any type, as written."""
        if node is None:
            return ""
        if isinstance(node, YamlScalar):
            return node.text
        self._wrong(node, f"a text: {what}")
        return ""

    def texts(self, node: YamlNode | None, what: str) -> dict[str, str]:
        """A mapping of texts, such as labels."""
        if node is None or (isinstance(node, YamlScalar) and node.kind == "null"):
            return {}
        if not isinstance(node, YamlFields):
            self._wrong(node, f"a mapping: {what}")
            return {}
        return {name: self.text(value, f"{what} {name}") for name, value in node.fields.items()}

    def duration_ms(self, node: YamlNode | None, what: str) -> int | None:
        """A duration of Prometheus such as 1h30m, or 0; None for nothing and null."""
        if node is None or (isinstance(node, YamlScalar) and node.kind == "null"):
            return None
        text = self.text(node, what)
        if text == "0":
            return 0
        found: int | None = self._parsed(node, what, lambda: _duration_ms(text))
        return found

    def integer(self, node: YamlNode | None, what: str) -> int:
        """A whole number; 0 for nothing and null."""
        if node is None or (isinstance(node, YamlScalar) and node.kind == "null"):
            return 0
        text = self.text(node, what)
        return self._parsed(node, what, lambda: _integer(text)) or 0

    def number(self, node: YamlNode | None, what: str) -> float:
        """A number as PromQL writes it; 0 for nothing and null."""
        if node is None or (isinstance(node, YamlScalar) and node.kind == "null"):
            return 0.0
        text = self.text(node, what)
        return self._parsed(node, what, lambda: _number(text)) or 0.0

    def boolean(self, node: YamlNode | None, what: str) -> bool:
        """A truth value; False for nothing and null."""
        if node is None or (isinstance(node, YamlScalar) and node.kind == "null"):
            return False
        if isinstance(node, YamlScalar) and node.kind == "bool":
            return node.text.lower() in ("true", "yes", "on", "y")
        self._wrong(node, f"true or false: {what}")
        return False

    def _parsed(self, node: YamlNode, what: str, parse: Callable[[], Any]) -> Any:
        try:
            return parse()
        except ValueError as error:
            self.problem(node.place, f"{what}: {error}")
            return None

    def _wrong(self, node: YamlNode, expected: str) -> None:
        found = {YamlItems: "a sequence", YamlFields: "a mapping"}.get(type(node), f'"{getattr(node, "text", "")}"')
        self.problem(node.place, f"cannot unmarshal {found} into {expected}")


def _duration_ms(text: str) -> int:
    if not text:
        raise ValueError("empty duration string")
    return duration_ms_of(text)


def _integer(text: str) -> int:
    if len(text) > 18:
        raise ValueError(f'"{text[:18]}..." is out of range')
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a whole number') from None


def _number(text: str) -> float:
    try:
        return float(text.replace("_", "x"))
    except ValueError:
        raise ValueError(f'"{text}" is not a number') from None
