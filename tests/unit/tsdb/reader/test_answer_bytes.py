"""One budget for the memory of all answers: taken before it is used, fair between connections, given back."""

from __future__ import annotations

import threading

import pytest

from support.data.heads import Record, apply, new_head
from support.servers.queriers import Context, ServedHeads
from tsdb.model.errors import Overloaded
from tsdb.model.time_set import SliceLengths
from tsdb.reader.read_call import SMALL_BYTES, AnswerBytes, ReadCall, ReadCalls, ReservedBytes
from tsdb.v1 import common_pb2, reader_pb2

MIB = 1 << 20
WITHIN_S = 60.0


class Peer(Context):
    """A caller on a connection."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def peer(self) -> str:
        return self._name


def call_of(answers: AnswerBytes, peer: str = "a") -> ReadCall:
    return ReadCall(Peer(peer), 60.0, answers=answers)


def test_small_answers_need_no_room() -> None:
    answers = AnswerBytes(32 * MIB, wait_s=0.0)
    calls = [call_of(answers) for _ in range(100)]
    for call in calls:
        call.hold(SMALL_BYTES)


def test_a_connection_holds_at_most_half_and_another_finds_room() -> None:
    answers = AnswerBytes(32 * MIB, wait_s=0.0)
    calls = [call_of(answers, "a") for _ in range(4)]
    for call in calls:
        call.hold(4 * MIB)
    with pytest.raises(Overloaded, match="answers_bytes_max 33554432, half of it a connection: read answers") as error:
        call_of(answers, "a").hold(3 * MIB)
    assert (error.value.reason, error.value.retry_after_s) == ("answers_bytes", 1.0)
    call_of(answers, "b").hold(16 * MIB)
    with pytest.raises(Overloaded):
        call_of(answers, "c").hold(3 * MIB)


def test_an_answer_over_half_of_the_budget_is_refused_for_good() -> None:
    with pytest.raises(Overloaded, match="limit is 16777216, half of answers_bytes_max: ask for a shorter") as error:
        call_of(AnswerBytes(32 * MIB)).hold(17 * MIB)
    assert (error.value.reason, error.value.retry_after_s) == ("answer_too_large", None)


def test_a_read_waits_for_room_and_gets_it_when_an_answer_was_sent() -> None:
    answers = AnswerBytes(32 * MIB, wait_s=WITHIN_S)
    first, second = call_of(answers), call_of(answers)
    first.hold(16 * MIB)
    waiting = threading.Thread(target=second.hold, args=(10 * MIB,))
    waiting.start()
    assert waiting.is_alive()
    first.hold(6 * MIB)
    waiting.join(WITHIN_S)
    assert not waiting.is_alive()


def test_a_read_that_waits_for_room_ends_with_its_caller() -> None:
    answers = AnswerBytes(32 * MIB, wait_s=600.0)
    call_of(answers).hold(16 * MIB)
    caller = Peer("a")
    caller.leave()
    with pytest.raises(Exception, match="no longer waits"):
        ReadCall(caller, 60.0, answers=answers).hold(10 * MIB)


def test_every_end_of_a_read_releases_its_memory() -> None:
    answers = AnswerBytes(32 * MIB, wait_s=0.0)
    for _ in range(5):
        with pytest.raises(Overloaded), ReadCalls(60.0, answers).of(Peer("a")) as call:  # noqa: PT012
            call.hold(5 * MIB)
            call.hold(16 * MIB)
            call.hold(17 * MIB)
    held = ReservedBytes(answers, lambda: "a")
    held.hold(16 * MIB, lambda: None)
    held.release()


def test_finished_parts_of_an_answer_count_beside_the_work_on_the_next() -> None:
    answers = AnswerBytes(32 * MIB, wait_s=0.0)
    with ReadCalls(60.0, answers).of(Peer("a")) as call:
        call.hold(10 * MIB)
        call.keep(10 * MIB)
        call.hold(6 * MIB)
        with pytest.raises(Overloaded, match="the answer needs 17825792 bytes"):
            call.hold(7 * MIB)
        call.keep(0)
        call.hold(16 * MIB)
    call_of(answers).hold(16 * MIB)


def test_an_answer_of_one_message_is_given_back_when_its_call_has_ended() -> None:
    answers = AnswerBytes(32 * MIB, wait_s=0.0)
    caller = Peer("a")
    with ReadCalls(60.0, answers).of(caller) as call:
        call.hold(16 * MIB)
        call.release_when_sent()
    with pytest.raises(Overloaded):
        call_of(answers).hold(16 * MIB)
    caller.leave()
    call_of(answers).hold(16 * MIB)


SAMPLES, RECORD_SAMPLES = 300_000, 30_000


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [reader_pb2.RAW, reader_pb2.COLUMNS])
def test_an_answer_holds_its_bytes_until_it_was_sent(encoding: reader_pb2.Encoding.ValueType) -> None:
    head = new_head(series=1, slices=SliceLengths(1 << 20, 1 << 22))
    starts = range(0, SAMPLES, RECORD_SAMPLES)
    samples = [tuple((0, start + number, 1.0) for number in range(RECORD_SAMPLES)) for start in starts]
    apply(head, [Record(offset, SAMPLES, some) for offset, some in enumerate(samples)])
    answers = AnswerBytes(40 * MIB, wait_s=0.0)  # An answer has 4.6 MiB, and takes twice that to gather.
    served = ServedHeads({0: head}, calls=ReadCalls(60.0, answers))
    matchers = [common_pb2.Matcher(name="__name__", value="m_0")]
    request = reader_pb2.SelectRequest(matchers=matchers, start_ms=0, end_ms=SAMPLES, encoding=encoding)
    unread = []
    for _ in range(3):
        stream = served.service.Select(request, Peer("a"))  # type: ignore[arg-type]  # A Caller is enough.
        next(stream)
        unread.append(stream)
    with pytest.raises(Overloaded) as error:
        next(served.service.Select(request, Peer("a")))  # type: ignore[arg-type]
    assert error.value.reason == "answers_bytes"
    assert sum(map(len, served.service.Select(request, Peer("b")))) > SAMPLES * 16 // 2  # type: ignore[arg-type]
    unread.pop().close()
    assert len(list(served.service.Select(request, Peer("a")))) > 1  # type: ignore[arg-type]
    for stream in unread:
        stream.close()
    call_of(answers).hold(16 * MIB)
