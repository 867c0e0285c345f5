"""Bearer token with which a role calls other processes: from a variable, or from a file that is read at the start."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from tsdb.model.errors import ConfigMismatch


def caller_token(token: SecretStr | None, file: Path | None, setting: str, reason: str) -> str | None:
    """The token of a role for its calls; None when neither is given. setting: name of the file's setting.

    Raises ConfigMismatch (reason) for a file that cannot be read.

    """
    if token is not None:
        return token.get_secret_value()
    if file is None:
        return None
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigMismatch(f"{setting}: {error}", reason=reason) from error
