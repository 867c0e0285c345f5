"""Logs: writes structlog events to stderr, as coloured lines or as JSON, together with records of the standard library.

`get_logger` writes through `logging`, so a program that imports only our client keeps its own log configuration. Only
`main` calls `configure_logging`. Secrets are masked in every event, of ours or of a library.

Of repeated lines with one cause the first is written, and repeats within the next minute are only counted: the repeats
of an attack or an outage would fill the disk and hide the line that explains it. The next line of the same cause
contains the number of lines held back; metrics have the exact counts.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO, cast

from pydantic import SecretBytes, SecretStr

from tsdb.model.secrets import MASK, masked

# structlog imports rich, and pygments with it, for tracebacks that we do not use: 81 modules, 4 MiB in each process.
_rich = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]  # An import of it fails, and structlog goes on without it.
import structlog  # noqa: E402
from structlog.typing import Processor  # noqa: E402

if _rich is None:
    del sys.modules["rich"]
else:
    sys.modules["rich"] = _rich

LEVELS = ("debug", "info", "warning", "error")

# Libraries that log, with tracebacks, the same errors that they raise. Our code logs or reports those errors.
_SILENT = ("cassandra",)

_SECRET_KEY = re.compile(r"(^|_)(token|password|passwd|secret|authorization|api_key)$", re.IGNORECASE)

EVERY_S = 60.0
CAUSES_MAX = 1000  # Above this number the cause that was written longest ago is dropped.
HELD_BACK = "held_back"
# Fields that identify a cause, beside logger, level and event. Other fields change from line to line.
_FIELDS = (
    "reason",
    "source",
    "partition",
    "topic",
    "store",
    "target",
    "name",
    "component",
    "thread",
    "method",
    "path",
    "caller",
    "server",
)


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


class RepeatFilter(logging.Filter):
    """Passes one warning or error of each cause every `every_s` seconds. Lower levels always pass. Thread-safe."""

    def __init__(self, every_s: float = EVERY_S, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s = every_s
        self._monotonic = monotonic
        # Guards _written; an innermost lock.
        self._lock = threading.Lock()
        # Causes, those that were written longest ago first.
        self._written: OrderedDict[tuple[object, ...], _Cause] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the record. Adds the number of records of its cause that were held back before it."""
        if record.levelno < logging.WARNING:
            return True
        key, now = _cause(record), self._monotonic()
        with self._lock:
            cause = self._written.get(key)
            if cause is not None and now - cause.at < self._every_s:
                cause.held_back += 1
                return False
            self._written[key] = _Cause(now)
            self._written.move_to_end(key)
            if len(self._written) > CAUSES_MAX:
                self._written.popitem(last=False)
        if cause is not None and cause.held_back:
            _say(record, cause.held_back)
        return True


class _Cause:
    __slots__ = ("at", "held_back")

    def __init__(self, at: float) -> None:
        self.at = at
        self.held_back = 0


def _cause(record: logging.LogRecord) -> tuple[object, ...]:
    message: Any = record.msg  # An event of structlog is a dict until it is formatted.
    if not isinstance(message, dict):
        return record.name, record.levelno, str(message)
    fields = (str(message[field]) for field in _FIELDS if field in message)
    return record.name, record.levelno, message.get("event"), *fields


def _say(record: logging.LogRecord, held_back: int) -> None:
    message: Any = record.msg
    if isinstance(message, dict):
        message[HELD_BACK] = held_back
    else:
        record.msg = f"{message} ({HELD_BACK}={held_back})"
