"""Loads a role's settings: merges all sources, and refuses unknown keys and values out of range by name.

Here are the roles, and the names of the settings that jobs on Spark use.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from tsdb.config.canary import CanarySettings
from tsdb.config.chunker import ChunkerSettings
from tsdb.config.common import CommonSettings, ProcessSettings
from tsdb.config.describe import is_secret
from tsdb.config.gateway import GatewaySettings
from tsdb.config.loader import LoaderSettings
from tsdb.config.querier import QuerierSettings
from tsdb.config.ruler import RulerSettings
from tsdb.config.sources import ENV_PREFIX, environment, read_file
from tsdb.config.standalone import StandaloneSettings
from tsdb.config.store import StoreSettings
from tsdb.model.errors import InvalidRequest
from tsdb.model.secrets import masked

ROLES: dict[str, type[ProcessSettings]] = {
    "gateway": GatewaySettings,
    "store": StoreSettings,
    "chunker": ChunkerSettings,
    "loader": LoaderSettings,
    "querier": QuerierSettings,
    "ruler": RulerSettings,
    "canary": CanarySettings,
    "standalone": StandaloneSettings,
}

# Settings of the log, of history, and those that must match the log. A job without history leaves it empty.
PLACE_SETTINGS = (
    *("config", "log", "log_prefix", "time_set", "placement_labels"),
    *(name for name in CommonSettings.model_fields if name.startswith("kafka_")),
    *("history", "history_write_timeout_s", "history_read_timeout_s", "history_inflight_bytes_max"),
    *(name for name in CommonSettings.model_fields if name.startswith("cassandra_")),
)
SPARK_SETTINGS = (*PLACE_SETTINGS, "log_level", "log_format")
# A program may set them, but not a secret: programs and notebooks get shown and committed.
KEYWORDS = frozenset(name for name in PLACE_SETTINGS if not is_secret(CommonSettings, name))

Settings = TypeVar("Settings", bound=ProcessSettings)

GOT_MAX = 100  # Most characters of a bad value in a message.
# Variables of the client commands.
CLIENT_KEYS = frozenset(("address", "tls_ca", "tls_cert", "tls_key"))
# Kubernetes sets such variables in each pod for every Service, also for one named "tsdb" or "tsdb-store".
_SERVICE_LINK = re.compile(r"(^|_)(service_host|service_port(_\w+)?|port(_\d+_(tcp|udp)(_(proto|port|addr))?)?)$")


def known_keys() -> frozenset[str]:
    """Names of all settings of all roles."""
    return frozenset(name for settings in ROLES.values() for name in settings.model_fields)


def flag_name(key: str) -> str:
    """A setting as a user writes it on a command line."""
    return f"--{key.replace('_', '-')}"


def load(
    role: type[Settings], flags: Mapping[str, Any] | None = None, spelled: Callable[[str], str] = flag_name
) -> Settings:
    """Settings of a role. flags: values by field name; None means not given. spelled: gives the spelling of a flag in
    an error's text.

    A flag wins over a TSDB_* variable, a variable over the file of `config`, and the file over the default. Raises
    InvalidRequest: unknown_setting (with the nearest known key), bad_setting (key, value, legal range), secret_in_flag,
    secret_in_file, config_file.

    """
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    variables = environment()
    _refuse_secrets(role, given, "secret_in_flag", "a flag: other users of the machine can read it")
    refuse_unknown(given, frozenset(role.model_fields), "flag --{dashed}")
    refuse_unknown(
        (key for key in variables if not _SERVICE_LINK.search(key)),
        known_keys() | CLIENT_KEYS,
        f"variable {ENV_PREFIX}{{upper}}",
    )
    file = given.get("config") or variables.get("config")
    in_file = _checked_file(role, Path(file)) if file else {}
    # Messages contain the source of a value, except for flags.
    places = dict.fromkeys(in_file, f" in {file}") | {key: f" from {ENV_PREFIX}{key.upper()}" for key in variables}
    places |= dict.fromkeys(given, "")
    try:
        return role(**given)
    except ValidationError as error:
        lines = (_line(role, detail, places, spelled) for detail in error.errors(include_url=False))
        raise InvalidRequest("; ".join(lines), reason="bad_setting") from None


def _checked_file(role: type[ProcessSettings], path: Path) -> dict[str, Any]:
    values = read_file(path)
    for section in (key for key, value in values.items() if isinstance(value, dict)):
        raise InvalidRequest(
            f"[{section}] in {path} is a section, and settings have none: write the keys of all roles without one",
            reason="unknown_setting",
            key=section,
        )
    _refuse_secrets(role, values, "secret_in_file", f"{path}: settings get shown and committed")
    refuse_unknown(values, known_keys() - {"config"}, f"key {{key}} in {path}")
    for key, value in values.items():
        field = role.model_fields.get(key)
        if isinstance(value, bool) and field is not None and field.annotation is not bool:
            # Python's true equals 1.
            raise InvalidRequest(f"{key} = {str(value).lower()} in {path}: it is no switch", reason="bad_setting")
    return values


def _refuse_secrets(role: type[ProcessSettings], keys: Iterable[str], reason: str, place: str) -> None:
    for key in keys:
        if is_secret(role, key):
            raise InvalidRequest(
                f"{key} must not be given in {place}; use {ENV_PREFIX}{key.upper()} or {key}_file",
                reason=reason,
                key=key,
            )


def refuse_unknown(keys: Iterable[str], known: frozenset[str], form: str) -> None:
    """Raise InvalidRequest (unknown_setting) for a key that is not known. form: a text with {key}, {upper} or
    {dashed}.
    """
    for key in keys:
        if key not in known:
            name = form.format(key=key, upper=key.upper(), dashed=key.replace("_", "-"))
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidRequest(f"{name} is not a setting{hint}", reason="unknown_setting", key=key)


def _line(role: type[ProcessSettings], detail: Any, places: Mapping[str, str], spelled: Callable[[str], str]) -> str:
    message = str(detail["msg"]).removeprefix("Value error, ")
    if not detail["loc"]:
        return message
    key = str(detail["loc"][0])
    if detail["type"] == "missing":
        return f"{key} is required: give {spelled(key)} or {ENV_PREFIX}{key.upper()}"
    got = "" if is_secret(role, key) else f" = {masked(str(detail['input']))[:GOT_MAX]!r}"
    message = message.replace("Input should be ", "it must be ")
    return f"{key}{got}{places.get(key, '')}: {message[:1].lower()}{message[1:]}"
