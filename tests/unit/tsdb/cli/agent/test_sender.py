"""The sender keeps order through outages, and counts whatever it cannot deliver."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

import pytest

from support.fakes.fake_reader import FakeServer
from support.servers.logs import wait_until
from tsdb.cli.agent.sender import BatchSender
from tsdb.client import Client, WriteBatch, connect
from tsdb.model.errors import InvalidRequest, Overloaded, Unavailable

X = b"__name__\xffx"


def batch(ts_ms: int, samples: int = 1) -> WriteBatch:
    made = WriteBatch()
    made.add(X, [ts_ms] * samples, [float(ts_ms)] * samples)
    return made


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with connect(server.address) as opened:
        yield opened


def send(sender: BatchSender, count: int) -> None:
    sender.start()
    for ts_ms in range(count):
        sender.put(batch(ts_ms))
    sender.close()
    sender.join(60.0)


def test_everything_arrives_in_order_through_an_outage(server: FakeServer, client: Client) -> None:
    # The first hint does not fit into an attempt, so the sender itself tries again; the second is the client's to wait.
    server.fail = [Unavailable("away", retry_after_s=1.2), Overloaded("full", retry_after_s=0.01)]
    sender = BatchSender(client, attempt_s=1.0, retry_s=0.01)
    send(sender, 5)
    # An attempt that a pause of this process cuts short is one more failure, and its batch may arrive twice.
    arrived = [ts for ts, _ in server.samples[X]]
    assert (sorted(arrived), list(dict.fromkeys(arrived))) == (arrived, [0, 1, 2, 3, 4])
    assert (sender.sent.samples, sender.sent.dropped, sender.sent.requests) == (5, 0, 5 + sender.sent.failures)
    assert sender.sent.failures >= 1


def test_what_the_gateway_never_takes_is_dropped_and_counted(server: FakeServer, client: Client) -> None:
    server.fail = [InvalidRequest("labels"), Overloaded("too many samples", reason="samples_limit")]
    sender = BatchSender(client, attempt_s=60.0, retry_s=0.01)
    send(sender, 4)
    assert [ts for ts, _ in server.samples[X]] == [2, 3]
    assert (sender.sent.samples, sender.sent.dropped, sender.sent.failures) == (2, 2, 2)


def test_refused_samples_are_counted_apart(server: FakeServer, client: Client) -> None:
    server.refuse = lambda labels: "too old"
    sender = BatchSender(client)
    send(sender, 2)
    assert (sender.sent.samples, sender.sent.refused, sender.sent.dropped) == (0, 2, 0)


def test_a_full_buffer_drops_the_oldest(server: FakeServer, client: Client) -> None:
    sender = BatchSender(client, batches_max=3)
    for ts_ms in range(5):
        sender.put(batch(ts_ms, samples=2))
    sender.start()
    sender.close()
    sender.join(60.0)
    assert sorted({ts for ts, _ in server.samples[X]}) == [2, 3, 4]
    assert (sender.sent.samples, sender.sent.dropped) == (6, 4)


def test_what_an_outage_outlasts_is_counted_at_the_end() -> None:
    class Away:
        def write(self, _batch: WriteBatch, *, partial: bool, timeout_s: float) -> None:
            raise Unavailable("away")

    sender = BatchSender(Away(), attempt_s=60.0, retry_s=0.01)  # type: ignore[arg-type]
    sender.start()
    for ts_ms in range(3):
        sender.put(batch(ts_ms))
    sender.close()
    sender.join(0.1)
    assert (sender.sent.samples, sender.sent.dropped) == (0, 3)


def test_a_gateway_that_never_answers_holds_up_the_end_for_no_longer_than_asked() -> None:
    asked: list[float] = []

    class Silent:
        def write(self, _batch: WriteBatch, *, partial: bool, timeout_s: float) -> None:
            asked.append(timeout_s)
            if len(asked) == 1:  # The first call ends once `join` waits, so that the second one comes after that.
                wait_until(lambda: sender._end_at < math.inf)
            else:
                time.sleep(timeout_s)
            raise Unavailable("no answer in time", reason="deadline")

    sender = BatchSender(Silent(), attempt_s=600.0, retry_s=0.01)  # type: ignore[arg-type]
    for ts_ms in range(5):
        sender.put(batch(ts_ms))
    sender.start()
    sender.close()
    sender.join(0.6)
    assert asked[0] == 600.0
    assert all(timeout_s <= 0.6 for timeout_s in asked[1:])
    assert sender.sent.dropped == 5


def test_a_buffer_over_its_samples_drops_the_oldest(server: FakeServer, client: Client) -> None:
    sender = BatchSender(client, samples_max=5)
    for ts_ms in range(5):
        sender.put(batch(ts_ms, samples=2))
    sender.start()
    sender.close()
    sender.join(60.0)
    assert sorted({ts for ts, _ in server.samples[X]}) == [3, 4]
    assert (sender.sent.samples, sender.sent.dropped) == (4, 6)


def test_a_bug_in_the_sender_reaches_who_hands_over() -> None:
    broken = threading.Event()

    class Broken:
        def write(self, *args: object, **kwargs: object) -> None:
            broken.set()
            raise AssertionError("a bug")

    sender = BatchSender(Broken())  # type: ignore[arg-type]
    sender.start()
    sender.put(batch(0))
    assert broken.wait(60.0)
    sender.close()
    with pytest.raises(AssertionError, match="a bug"):
        sender.join(60.0)
    with pytest.raises(AssertionError, match="a bug"):
        sender.put(batch(1))
