"""Passwords in URLs are shown nowhere, and URLs of ours that hold one are refused before anything is opened."""

from __future__ import annotations

import pytest

from tsdb.config import ROLES, load
from tsdb.history.open import open_history
from tsdb.log.open import open_log
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.model.secrets import masked, url_names_a_user

SECRETS = ["hunter2", "hunter2@x", "a:hunter2", "a/hunter2", "hunter2?#"]
URLS = ["kafka://me:{}@broker:9092", "kafka://a:1,me:{}@broker:9092", "cassandra://me:{}@node/tsdb"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("url", URLS)
def test_a_password_in_a_url_is_masked_in_any_text(url: str, secret: str) -> None:
    text = masked(f"cannot open '{url.format(secret)}': refused")
    assert "hunter2" not in text
    assert text.endswith(": refused")


def test_text_without_secrets_stays_as_it_is() -> None:
    shown = ("kafka://a:9092,b:9092", "sqlite:////data/a@b:c@d.db", "write to ops@example.org: 3 of 4", "bearer tokens")
    for text in shown:
        assert masked(text) == text
        assert not url_names_a_user(text)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(("key", "url"), [("log", URLS[0]), ("log", URLS[1]), ("history", URLS[2])])
def test_a_setting_with_a_user_in_its_url_is_refused_and_names_the_way_to_do_it(
    key: str, url: str, secret: str
) -> None:
    given = {"log": "kafka://a:1", key: url.format(secret)}
    with pytest.raises(InvalidRequest, match=r"_PASSWORD or .*_password_file") as refused:
        load(ROLES["querier"], given)
    assert refused.value.reason == "bad_setting"
    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("url", URLS)
def test_opening_refuses_it_too(url: str, secret: str) -> None:
    opening = open_log if url.startswith("kafka") else open_history
    with pytest.raises(ConfigMismatch, match="it names a user") as refused:
        opening(url.format(secret))
    assert "hunter2" not in refused.value.message
