"""Clients of Kafka that end on a thread of ours. The log and the parallel consumer use them.

librdkafka aborts the process when a thread of the library destroys a client. Such a thread runs the callbacks of an
admin client's futures, so it may drop the last reference. Python may also collect garbage on it: the error of a failed
request, its traceback and its future hold each other and the client.
"""

from __future__ import annotations

import _thread
import gc
import sys
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

Settings = dict[str, Any]

ALONE = 2  # References to an object that only a list and the call that counts have.
LOOK_S = 0.1
LOOKS = 10  # Then garbage is collected once, and the looks become seldom.
SELDOM_S = 5.0


class EndsOnAThreadOfOurs:
    """Stands before a client class of the library among the bases of a class."""

    def __del__(self) -> None:
        # Not threading.Thread: a collection may begin while this very thread holds a lock of that module.
        with suppress(RuntimeError):  # When the interpreter ends, no thread starts any more.
            _thread.start_new_thread(_drop, ([self],))


def _drop(box: list[EndsOnAThreadOfOurs]) -> None:
    """Drop the object of the box once nobody else has it."""
    looks = 0
    while sys.getrefcount(box[0]) > ALONE:
        time.sleep(LOOK_S if looks < LOOKS else SELDOM_S)
        looks += 1
        if looks == LOOKS:
            gc.collect()
    box.clear()


class _Admin(EndsOnAThreadOfOurs, AdminClient):
    pass


class _Consumer(EndsOnAThreadOfOurs, Consumer):
    pass


class _Producer(EndsOnAThreadOfOurs, Producer):
    pass


def new_admin(settings: Settings) -> AdminClient:
    """A client for metadata, groups and topics."""
    return _Admin(settings)


def new_consumer(settings: Settings) -> Consumer:
    """A client for reads and lookups of offsets."""
    return _Consumer(settings)


def new_producer(settings: Settings) -> Producer:
    """A client for appends."""
    return _Producer(settings)
