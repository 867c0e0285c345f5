"""Clients of Kafka end on a thread of ours: librdkafka aborts a process in which a thread of the library ends one."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, os, threading, time
from tsdb.kafka_clients import new_admin

def request(done):
    clients = [new_admin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})]
    clients.append(clients)
    answer = clients[0].describe_cluster(request_timeout=0.2)
    answer.add_done_callback(lambda _: (DROP, done.set()))

gc.disable()
before, done = len(os.listdir("/proc/self/task")), threading.Event()
request(done)
assert done.wait(60)
while len(os.listdir("/proc/self/task")) > before:
    time.sleep(0.01)
print("all threads have ended")
"""


# The callback has the only reference and drops it, or it collects the garbage that the client is a part of.
@pytest.mark.parametrize("drop", ["clients.clear()", "gc.collect()"])
def test_a_client_dropped_on_a_thread_of_the_library_ends_on_one_of_ours(drop: str) -> None:
    program = PROGRAM.replace("DROP", drop)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout.strip(), done.returncode) == ("all threads have ended", 0), done.stderr
