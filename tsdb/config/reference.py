"""Generates docs/config.md from the settings classes: `python -m tsdb.config.reference > docs/config.md`."""

from __future__ import annotations

import sys

from pydantic import BaseModel

from tsdb.config.canary import CanaryFields
from tsdb.config.chunker import ChunkerFields
from tsdb.config.common import HistoryFields, ServiceSettings, WorkerSettings
from tsdb.config.describe import default_text, is_secret, legal_range
from tsdb.config.gateway import GatewayFields
from tsdb.config.load import ROLES
from tsdb.config.loader import LoaderFields
from tsdb.config.promql import PromqlFields
from tsdb.config.querier import QuerierFields, RulersFields
from tsdb.config.ruler import RulerFields
from tsdb.config.standalone import StandaloneSettings
from tsdb.config.store import StoreFields
from tsdb.config.tables import TablesFields
from tsdb.config.trials import ExperimentFields, ShadowFields

INTRODUCTION = """# Settings

Generated from `tsdb/config`; do not edit (`make docs`).

A setting is taken from the first of these that has it: the flag (`--log-level debug`), the variable
(`TSDB_LOG_LEVEL=debug`), the TOML file that `--config` or `TSDB_CONFIG` names (`log_level = "debug"`), its default.
One file and one environment may serve all roles: a key of another role is passed over, a key that no role knows is
refused, with the nearest known one named. Secrets come from variables or from files that a `*_file` setting names,
never from flags or from the TOML file. `tsdb config show` prints what is in effect, secrets masked.
"""

SECTIONS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("All roles", "", WorkerSettings),
    ("gRPC", "Of `gateway`, `store`, `querier` and `standalone`.", ServiceSettings),
    ("History", "Of `loader`, `querier` and `standalone`.", HistoryFields),
    ("gateway", "Also of `standalone`.", GatewayFields),
    ("store", "Also of `standalone`.", StoreFields),
    ("chunker", "Also of `standalone`.", ChunkerFields),
    ("loader", "Also of `standalone`.", LoaderFields),
    ("Tables", "Of `loader`, `standalone`, `tsdb spark run`, `tsdb tables`; needs the extra `tables`.", TablesFields),
    ("querier", "And the `select_*` limits of a store.", QuerierFields),
    ("Rules of a cluster", "Of `querier`.", RulersFields),
    ("Shadow reads", "Of `querier`.", ShadowFields),
    ("Experiments", "Of `store` and `querier`.", ExperimentFields),
    ("PromQL", "Of `querier`, `ruler` and `standalone`.", PromqlFields),
    ("ruler", "Also of `standalone`; the role has those of `gateway` and `querier` too.", RulerFields),
    (
        "canary",
        "It opens neither log nor history: of the settings of all roles it has those of HTTP, tokens and logs.",
        CanaryFields,
    ),
    ("standalone", "All of the above; `log` defaults to a file in `data_dir`.", StandaloneSettings),
)


def render() -> str:
    parts = [INTRODUCTION]
    seen: set[str] = set()
    for title, note, section in SECTIONS:
        names = [name for name in section.model_fields if name not in seen]
        seen.update(names)
        parts.append(f"\n## {title}\n\n{note + chr(10) * 2 if note else ''}{_table(section, names)}")
    return "".join(parts)


def _table(section: type[BaseModel], names: list[str]) -> str:
    rows = ["| setting | default | legal | meaning |", "|---|---|---|---|"]
    return "\n".join(rows + [_row(section, name) for name in names]) + "\n"


def _row(section: type[BaseModel], name: str) -> str:
    field = section.model_fields[name]
    default = default_text(field)
    shown = "required" if default is None else f"`{default}`" if default else ""
    secret = "Secret: variable only. " if _secret(name) else ""
    return f"| `{name}` | {shown} | {legal_range(field)} | {secret}{field.description} |"


def _secret(name: str) -> bool:
    return any(is_secret(role, name) for role in ROLES.values())


if __name__ == "__main__":
    sys.stdout.write(render())
