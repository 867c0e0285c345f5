"""Rules: the settings of the mapping, with the names and defaults of Prometheus's `otlp` section."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tsdb.model.errors import ConfigMismatch


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
    """Each field is Prometheus's setting of that name; `native_histograms` (classic or refuse) is ours.

    Raises ConfigMismatch (otlp_rules) when they contradict each other.
    """

    translation_strategy: TranslationStrategy = TranslationStrategy.UNDERSCORES_WITH_SUFFIXES
    promote_resource_attributes: frozenset[str] = frozenset()
    promote_all_resource_attributes: bool = False
    ignore_resource_attributes: frozenset[str] = frozenset()
    keep_identifying_resource_attributes: bool = False
    promote_scope_metadata: bool = False
    native_histograms: str = "classic"

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
