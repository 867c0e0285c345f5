"""Names of metrics and labels, as Prometheus makes them of OTLP's (its otlptranslator library).

The settings of the mapping have the names and defaults of Prometheus's `otlp` section.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from ingest.otlp.wire.field_kernels import GAUGE, SUM
from tsdb.model.errors import ConfigMismatch, InvalidRequest

UNITS = {
    "d": "days", "h": "hours", "min": "minutes", "s": "seconds", "ms": "milliseconds", "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes", "KiBy": "kibibytes", "MiBy": "mebibytes", "GiBy": "gibibytes", "TiBy": "tibibytes",
    "KBy": "kilobytes", "MBy": "megabytes", "GBy": "gigabytes", "TBy": "terabytes",
    "m": "meters", "V": "volts", "A": "amperes", "J": "joules", "W": "watts", "g": "grams",
    "Cel": "celsius", "Hz": "hertz", "1": "", "%": "percent",
}  # fmt: skip
PER_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_NOT_IN_TOKENS = re.compile("[^a-zA-Z0-9:]+")
_NOT_IN_NAMES = re.compile("[^a-zA-Z0-9:_]+")
_NOT_IN_LABELS = re.compile("[^a-zA-Z0-9_]")


def metric_name(name: str, unit: str, kind: int, monotonic: bool, strategy: TranslationStrategy) -> str:
    """The name of a metric's family. Raises InvalidRequest (labels_malformed) when nothing is left of the name."""
    counter = kind == SUM and monotonic
    ratio = kind == GAUGE and unit == "1"
    if not strategy.escapes:
        built = _with_suffixes(name, unit, counter, ratio) if strategy.adds_suffixes else name
    elif strategy.adds_suffixes:
        built = _from_tokens(name, unit, counter, ratio)
    else:
        built = "_".join(filter(None, _NOT_IN_NAMES.split(name)))
    if strategy.escapes and built[:1].isdigit():
        built = f"_{built}"
    if not built or (strategy.escapes and built != name and not built.strip("_")):
        raise InvalidRequest(f"metric name {name[:100]!r} has no letter or digit", reason="labels_malformed")
    return built


def label_name(key: str, strategy: TranslationStrategy) -> str:
    """The label of an attribute. Raises InvalidRequest (labels_malformed) when nothing is left of the key."""
    name = key
    if strategy.escapes:
        name = _NOT_IN_LABELS.sub("_", key)
        if name[:1].isdigit():
            name = f"key_{name}"
        elif name.startswith("_") and not name.startswith("__"):
            name = f"key{name}"
    if not name or (name != key and not name.strip("_")):
        raise InvalidRequest(f"attribute key {key[:100]!r} has no letter or digit", reason="labels_malformed")
    return name


def unit_name(unit: str) -> str:
    """The unit of a family's metadata: `seconds` for `s`, `bytes_per_second` for `By/s`."""
    main, per = map(_clean_unit, _unit_suffixes(unit))
    joined = "_".join(filter(None, (main, per)))
    return joined.removeprefix("_").removesuffix("_")


def _from_tokens(name: str, unit: str, counter: bool, ratio: bool) -> str:
    tokens = [token for token in _NOT_IN_TOKENS.split(name) if token]
    tokens += _unit_tokens(tokens, *map(_clean_unit, _unit_suffixes(unit)))
    if counter:
        tokens = [token for token in tokens if token != "total"] + ["total"]
    if ratio:
        tokens = [token for token in tokens if token != "ratio"] + ["ratio"]
    return "_".join(tokens)


def _unit_tokens(tokens: list[str], main: str, per: str) -> list[str]:
    """The unit's tokens that the name does not have."""
    main = "" if main in tokens else main
    per = "" if per == "per_" else per.removesuffix("_")
    per = "" if per in tokens else per
    return [token for token in (main.removesuffix("_") if per else main, per) if token]


def _with_suffixes(name: str, unit: str, counter: bool, ratio: bool) -> str:
    """Does `_from_tokens` for names that keep their characters. A suffix that the name already has moves to the end."""
    main, per = _unit_suffixes(unit)
    suffixes = []
    if ratio:
        name = _without_suffix(name, "ratio")
        suffixes.append("ratio")
    if counter:
        name = _without_suffix(name, "total")
        suffixes.append("total")
    if per:
        name = _without_suffix(name, per)
        suffixes.append(per)
    if main and not name.endswith(main):
        suffixes.append(main)
    return "_".join([name, *reversed(suffixes)])


def _without_suffix(name: str, suffix: str) -> str:
    """Remove the suffix and the character before it."""
    return name[: -len(suffix) - 1] if name.endswith(suffix) and len(name) > len(suffix) + 1 else name


def _unit_suffixes(unit: str) -> tuple[str, str]:
    """Words of a unit, and `per_` with those behind its `/`. Text in braces is a comment."""
    main, _, per = unit.partition("/")
    main, per = main.strip(), per.strip()
    main = "" if "{" in main or "}" in main else UNITS.get(main, main)
    per = "" if "{" in per or "}" in per else PER_UNITS.get(per, per)
    return main, f"per_{per}" if per else ""


def _clean_unit(unit: str) -> str:
    return re.sub("_+", "_", _NOT_IN_NAMES.sub("_", unit)).removeprefix("_")


class TranslationStrategy(StrEnum):
    """How names become those of Prometheus: with `_` for what its classic names may not have, and with suffixes."""

    UNDERSCORES_WITH_SUFFIXES = "UnderscoreEscapingWithSuffixes"
    UNDERSCORES_WITHOUT_SUFFIXES = "UnderscoreEscapingWithoutSuffixes"
    UTF8_WITH_SUFFIXES = "NoUTF8EscapingWithSuffixes"
    NO_TRANSLATION = "NoTranslation"

    @property
    def escapes(self) -> bool:
        """Whether characters other than letters, digits and `_` (in metric names also `:`) become `_`."""
        return self in (self.UNDERSCORES_WITH_SUFFIXES, self.UNDERSCORES_WITHOUT_SUFFIXES)

    @property
    def adds_suffixes(self) -> bool:
        """Whether a metric's name gets its unit, `_total` and `_ratio`."""
        return self in (self.UNDERSCORES_WITH_SUFFIXES, self.UTF8_WITH_SUFFIXES)


@dataclass(frozen=True, slots=True)
class OtlpRules:
    """Each field is Prometheus's setting of that name; `native_histograms` (keep, classic or refuse) and `delta`
    (native or refuse, the setting `otlp_delta`) are ours. With keep, start times stay too.

    Raises ConfigMismatch (otlp_rules) when they contradict each other.
    """

    translation_strategy: TranslationStrategy = TranslationStrategy.UNDERSCORES_WITH_SUFFIXES
    promote_resource_attributes: frozenset[str] = frozenset()
    promote_all_resource_attributes: bool = False
    ignore_resource_attributes: frozenset[str] = frozenset()
    keep_identifying_resource_attributes: bool = False
    promote_scope_metadata: bool = False
    native_histograms: str = "classic"
    delta: str = "native"

    def __post_init__(self) -> None:
        if self.promote_all_resource_attributes and self.promote_resource_attributes:
            raise _contradiction("promote_all_resource_attributes and promote_resource_attributes exclude each other")
        if self.ignore_resource_attributes and not self.promote_all_resource_attributes:
            raise _contradiction("ignore_resource_attributes needs promote_all_resource_attributes")

    def promotes(self, key: str) -> bool:
        """Whether a resource attribute becomes a label of all series of the resource."""
        if self.promote_all_resource_attributes:
            return key not in self.ignore_resource_attributes
        return key in self.promote_resource_attributes


def _contradiction(text: str) -> ConfigMismatch:
    return ConfigMismatch(text, reason="otlp_rules")
