from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from pydantic import SecretStr

from tsdb.ops.logs import configure_logging, get_logger


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def logged(json_lines: bool = True, level: str = "info") -> io.StringIO:
    out = io.StringIO()
    configure_logging(json=json_lines, level=level, stream=out)
    return out


def test_an_event_is_one_json_object_with_its_fields() -> None:
    out = logged()
    get_logger("tsdb.x").warning("record skipped", partition=3, record_offset=1812)
    event = json.loads(out.getvalue())
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "record skipped",
        "level": "warning",
        "logger": "tsdb.x",
        "partition": 3,
        "record_offset": 1812,
    }


def test_levels_below_the_chosen_one_are_silent() -> None:
    out = logged(level="warning")
    get_logger("tsdb.x").info("quiet")
    logging.getLogger("uvicorn").info("quiet")
    assert out.getvalue() == ""


def test_records_of_libraries_come_in_the_same_form() -> None:
    out = logged()
    logging.getLogger("uvicorn.error").warning("port %d is busy", 80)
    assert json.loads(out.getvalue())["event"] == "port 80 is busy"


def test_events_of_bare_structlog_come_in_the_same_form() -> None:
    out = logged()
    structlog.get_logger("other").warning("hello", n=1)
    assert json.loads(out.getvalue())["n"] == 1


@pytest.mark.parametrize("json_lines", [True, False])
def test_secrets_are_masked_wherever_they_hide(json_lines: bool) -> None:
    out = logged(json_lines)
    log = get_logger("tsdb.x")
    log.warning("x", token="hunter2", kafka_sasl_password="hunter2", Authorization="hunter2")
    log.warning("y", value=SecretStr("hunter2"), nested={"password": "hunter2"}, many=[SecretStr("hunter2")])
    log.warning("z", header="Bearer hunter2", url="https://user:hunter2@host/x")
    logging.getLogger("lib").warning("sent Authorization: Bearer %s", "hunter2")
    try:
        raise ValueError("refused Bearer hunter2")
    except ValueError:
        log.exception("failed")
    assert "hunter2" not in out.getvalue()
    assert out.getvalue().count("***") >= 9


def test_names_that_only_look_like_secrets_are_shown() -> None:
    out = logged()
    get_logger("tsdb.x").info("x", token_file="/etc/tokens", tokens=3)
    event = json.loads(out.getvalue())
    assert (event["token_file"], event["tokens"]) == ("/etc/tokens", 3)


def test_a_value_that_json_does_not_know_does_not_lose_the_event() -> None:
    out = logged()
    get_logger("tsdb.x").info("x", what={1, 2}, data=b"\xff")
    assert json.loads(out.getvalue())["event"] == "x"


def test_without_configuration_a_library_user_sees_plain_logging_records(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("tsdb.client").warning("answer cut", partition=3)
    assert "answer cut" in caplog.text
