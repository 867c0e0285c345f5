"""Descriptions of settings: values as text, secrets masked."""

from __future__ import annotations

from tsdb.config import StandaloneSettings
from tsdb.config.describe import changed, described, effective
from tsdb.model.secrets import MASK


def test_all_settings_are_described_and_secrets_are_masked() -> None:
    settings = StandaloneSettings.model_validate({"data_dir": "data", "token": "do-not-show", "ui_rows_max": 50})
    found = {one.name: one for one in described(settings)}
    assert list(found) == list(effective(settings))
    assert found["token"].value == MASK
    assert "do-not-show" not in str(found)
    assert (found["ui_rows_max"].value, found["ui_rows_max"].default) == ("50", "1000")
    assert found["ui_rows_max"].help.startswith("Rows of one table")
    assert all(one.help for one in found.values())


def test_the_line_at_start_has_the_settings_that_were_changed() -> None:
    settings = StandaloneSettings.model_validate({"data_dir": "data", "token": "do-not-show", "ui_rows_max": 50})
    derived = {"log", "history", "snapshot_dir"}  # They follow data_dir.
    found = {name: value for name, value in changed(settings).items() if name not in derived}
    assert found == {"data_dir": "data", "token": MASK, "ui_rows_max": 50}
