"""Logs: writes structlog events to stderr, as coloured lines or as JSON, together with records of the standard library.

`get_logger` writes through `logging`, so a program that imports only our client keeps its own log configuration. Only
`main` calls `configure_logging`. Secrets are masked in every event, of ours or of a library; repeats are held back.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog
from pydantic import SecretBytes, SecretStr
from structlog.typing import Processor

from tsdb.model.secrets import MASK, masked
from tsdb.ops.log_repeats import RepeatFilter

LEVELS = ("debug", "info", "warning", "error")

# Libraries that log, with tracebacks, the same errors that they raise. Our code logs or reports those errors.
_SILENT = ("cassandra",)

_SECRET_KEY = re.compile(r"(^|_)(token|password|passwd|secret|authorization|api_key)$", re.IGNORECASE)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger for one module: `log = get_logger(__name__)`; `log.warning("record skipped", partition=3)`."""
    logger = structlog.wrap_logger(
        logging.getLogger(name), processors=_event_processors(), wrapper_class=structlog.stdlib.BoundLogger
    )
    return cast(structlog.stdlib.BoundLogger, logger)


def configure_logging(*, json: bool, level: str = "info", stream: TextIO | None = None) -> None:
    """Send all logs of the process to `stream` (default: stderr). `level`: one of LEVELS. Call once, from main."""
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    handler.setFormatter(_formatter(json=json, colors=out.isatty()))
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    structlog.configure(
        processors=_event_processors(),
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def mask_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor: hides values under secret names, secret types, bearer tokens and passwords in URLs."""
    for key, value in event.items():
        event[key] = MASK if _SECRET_KEY.search(key) and value is not None else _masked(value)
    return event


def _masked(value: Any) -> Any:
    if isinstance(value, SecretStr | SecretBytes):
        return MASK
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return mask_secrets(None, "", dict(value))
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    return value


def _shared_processors() -> list[Processor]:
    return [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.contextvars.merge_contextvars,
    ]


def _event_processors() -> list[Processor]:
    return [
        structlog.stdlib.filter_by_level,
        *_shared_processors(),
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ]


def _formatter(*, json: bool, colors: bool) -> logging.Formatter:
    processors: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        # The traceback becomes text before masking, so a secret in an exception's message is masked too.
        structlog.processors.format_exc_info,
        mask_secrets,
    ]
    if json:
        processors.append(structlog.processors.JSONRenderer(default=repr))
    else:
        plain = structlog.dev.plain_traceback
        processors.append(structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain))
    return structlog.stdlib.ProcessorFormatter(processors=processors, foreign_pre_chain=_shared_processors())
