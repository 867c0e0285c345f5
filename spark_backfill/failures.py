"""Failures: turn Spark's report of a failed task back into the error that the task raised.

A worker is a Python process that Spark reuses from task to task.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tsdb.model import errors
from tsdb.model.errors import TsdbError

# The last line of a Python traceback in a text of Spark. It has the class, the reason of `quoted_errors` and the text.
_RAISED = re.compile(r"^(?:tsdb\.model\.errors\.)(\w+): (?:\[(\w+)\] )?(.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Interrupt)): (.*)$", re.MULTILINE)
TEXT_MAX = 2_000
WORKER_LATE = "worker_late"
_CONNECT_BACK = "Python worker failed to connect back"  # A text of Spark, which waits 10 s. That time is a constant.

UNFROZEN_OBJECTS_MAX = 5_000  # Collecting 5,000 objects takes 2 ms.


@contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Raise errors of PySpark and of the JVM as a TsdbError; other exceptions pass unchanged."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise error_of(str(error)) from error


@contextmanager
def quoted_errors() -> Iterator[None]:
    """Around a task: write the reason of a TsdbError into its text, because Spark passes on the text only.

    At the end of the task `keep_loaded` runs.
    """
    try:
        yield
    except TsdbError as error:
        raise type(error)(f"[{error.reason}] {error.message}", reason=error.reason) from error
    finally:
        keep_loaded()


def error_of(text: str) -> TsdbError:
    """The TsdbError quoted in a failure's text, else a TsdbError (spark_failed) with the text of Python or Spark."""
    found = list(_RAISED.finditer(text))
    # A Python traceback prints the cause first, without a reason; the error that `quoted_errors` raised comes after it.
    raised = next((one for one in found if one[2]), found[0] if found else None)
    if raised is not None:
        kind = getattr(errors, raised[1], TsdbError)
        known = isinstance(kind, type) and issubclass(kind, TsdbError)
        return (kind if known else TsdbError)(raised[3].strip(), reason=raised[2])
    if _CONNECT_BACK in text:
        return errors.Unavailable(
            "a Python process of Spark did not connect within 10 s: the machine is busy; begin again",
            reason=WORKER_LATE,
        )
    # Lines of the JVM have the same form, but begin with a Java package.
    python = next((line for line in _PYTHON.finditer(text) if not line[1].startswith(("org.", "java."))), None)
    quoted = (python[0] if python else text).strip()
    return TsdbError(quoted[:TEXT_MAX] or "Spark gave no reason", reason="spark_failed")


def keep_loaded() -> None:
    """Exclude all objects loaded so far from later garbage collections. Called at the end of a task.

    PySpark collects garbage after every task. With pyarrow and PySpark in memory, 200,000 objects, each
    collection takes 90 ms of CPU, more than many tasks. Garbage is collected before the freeze. A worker loads more
    modules with each new kind of task, so the freeze is repeated when more than UNFROZEN_OBJECTS_MAX objects are new.
    """
    if _in_task() and len(gc.get_objects()) > UNFROZEN_OBJECTS_MAX:
        gc.collect()
        gc.freeze()


def _in_task() -> bool:
    pyspark = sys.modules.get("pyspark")  # A task has imported pyspark. Other processes do not need it.
    return pyspark is not None and pyspark.TaskContext.get() is not None
