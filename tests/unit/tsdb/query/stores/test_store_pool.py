"""The pool follows the addresses of its names, and uses only recent states of each store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fakes.fake_reader import TOPIC_ID as READER_TOPIC_ID
from support.fakes.fake_reader import FakeServer
from tsdb.client.channel import open_channel
from tsdb.model.clock import ManualClock
from tsdb.query.stores.pool import RESOLVE_EVERY_S, StoreAddress, StorePool, resolve
from tsdb.query.stores.remote import STATES_AGE_MAX_S, RemoteStore

NAME = StoreAddress("store.test", 7410)
GONE = StoreAddress("127.0.0.1", 1)  # Port 1 has no listener.


class World:
    """The addresses of names, and a pool that follows them."""

    def __init__(self, reader: FakeServer) -> None:
        host, _, port = reader.address.rpartition(":")
        self.reader = StoreAddress(host, int(port))
        self.clock = ManualClock()
        self.stands_for: dict[StoreAddress, list[StoreAddress]] = {NAME: [self.reader]}
        self.opened: list[tuple[StoreAddress, StoreAddress]] = []
        self.pool = StorePool([NAME], self._open, self.clock, resolve=self._resolve)

    def _resolve(self, name: StoreAddress) -> list[StoreAddress]:
        if name not in self.stands_for:
            raise OSError("no such name")
        return self.stands_for[name]

    def _open(self, name: StoreAddress, address: StoreAddress) -> RemoteStore:
        self.opened.append((name, address))
        return RemoteStore(str(address), open_channel(str(address), None), (), self.clock)


@pytest.fixture
def world() -> Iterator[World]:
    with FakeServer() as reader:
        made = World(reader)
        yield made
        made.pool.close()
        assert made.pool.join(60.0)


def answering(world: World) -> dict[str, list[int]]:
    return {store.name: sorted(store.states()) for store in world.pool.all()}


def test_a_store_has_the_states_of_its_last_answer(world: World) -> None:
    world.pool.poll()
    assert answering(world) == {str(world.reader): [0]}
    (store,) = world.pool.all()
    assert store.states()[0].topic_id == READER_TOPIC_ID
    assert world.opened == [(NAME, world.reader)]


def test_a_store_that_does_not_answer_has_no_states(world: World) -> None:
    world.stands_for[NAME] = [GONE, world.reader]
    world.pool.poll()
    assert answering(world) == {str(GONE): [], str(world.reader): [0]}


def test_old_states_are_dropped(world: World) -> None:
    world.pool.poll()
    world.clock.advance(round(STATES_AGE_MAX_S * 1000))
    assert answering(world) == {str(world.reader): [0]}
    world.clock.advance(1)
    assert answering(world) == {str(world.reader): []}
    world.pool.refresh(2.0)
    assert answering(world) == {str(world.reader): [0]}


def test_addresses_that_come_and_go_are_followed(world: World) -> None:
    world.pool.poll()
    world.stands_for[NAME] = [GONE]
    world.pool.poll()
    assert list(answering(world)) == [str(world.reader)], "not resolved again so soon"
    world.clock.advance(round(RESOLVE_EVERY_S * 1000))
    world.pool.poll()
    assert list(answering(world)) == [str(GONE)]
    world.stands_for[NAME] = [GONE, world.reader]
    world.clock.advance(round(RESOLVE_EVERY_S * 1000))
    world.pool.poll()
    assert len(world.opened) == 3, "one that stayed is not opened again"


def test_a_name_that_does_not_resolve_keeps_its_stores(world: World) -> None:
    world.pool.poll()
    del world.stands_for[NAME]
    world.clock.advance(round(RESOLVE_EVERY_S * 1000))
    world.pool.poll()
    assert answering(world) == {str(world.reader): [0]}


def test_stores_that_do_not_answer_and_names_that_do_not_resolve_are_away(world: World) -> None:
    world.pool.poll()
    assert list(world.pool.away()) == []
    world.stands_for[NAME] = [GONE, world.reader]
    world.clock.advance(round(RESOLVE_EVERY_S * 1000))
    world.pool.poll()
    ((address, error),) = world.pool.away()
    assert address == str(GONE)
    assert error
    del world.stands_for[NAME]
    world.clock.advance(round(RESOLVE_EVERY_S * 1000))
    world.pool.poll()
    assert (str(NAME), "the name does not resolve: no such name") in world.pool.away()


def test_an_address_resolves_to_itself_and_a_name_to_one_family() -> None:
    assert resolve(StoreAddress("127.0.0.1", 7)) == [StoreAddress("127.0.0.1", 7)]
    assert resolve(StoreAddress("::1", 7)) == [StoreAddress("::1", 7)]
    assert resolve(StoreAddress("localhost", 7)) in ([StoreAddress("127.0.0.1", 7)], [StoreAddress("::1", 7)])
    assert str(StoreAddress("::1", 7)) == "[::1]:7"
