"""Family: TYPE, HELP and UNIT of a metric family, as senders state them."""

from __future__ import annotations

from dataclasses import dataclass

NAME_BYTES_MAX = 1024
TEXT_BYTES_MAX = 4096  # Bytes of a help text and of a unit; longer texts are cut.


@dataclass(frozen=True, slots=True)
class Family:
    """`kind` is Prometheus's TYPE in lower case, "" when unknown."""

    name: str
    kind: str = ""
    help: str = ""
    unit: str = ""

    @property
    def stated(self) -> bool:
        """Whether it states anything of a family that has a name."""
        return bool(self.name and (self.kind or self.help or self.unit))
