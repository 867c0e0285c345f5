"""Secrets in text: masks them before the text is shown, and finds URLs that carry a user."""

from __future__ import annotations

import re

MASK = "***"

_BEARER = re.compile(r"(?i)\b(bearer)\s+(?!tokens?\b)\S+")  # Skips text that only mentions bearer tokens.
# Up to the last @ of the word, because a password may contain : / and @. A file's URL has no authority and may contain
# an @.
_URL_PASSWORD = re.compile(r"(://(?!/)[^\s:/@]*):\S*@")
_URL_USER = re.compile(r"://(?!/)\S*@")


def masked(text: str) -> str:
    """The text with bearer tokens and the passwords of URLs replaced."""
    return _URL_PASSWORD.sub(rf"\1:{MASK}@", _BEARER.sub(rf"\1 {MASK}", text))


def url_names_a_user(url: str) -> bool:
    """Whether a URL has a user, and so perhaps a password, before its host: `kafka://user:password@host:9092`."""
    return _URL_USER.search(url) is not None
