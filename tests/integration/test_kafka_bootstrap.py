"""Attacks the promise that clients find their brokers again: all known brokers are gone, and the bootstrap address
leads to others. An outage of the known brokers can end the same way: the first answer after it may list no broker."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from contextlib import closing, suppress

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not marked as exported

from stack.kafka import KafkaCluster
from support.servers.logs import wait_until
from support.shared_servers import SharedBroker
from tsdb.log.kafka import config
from tsdb.log.settings import LogSettings

SETTINGS = LogSettings(request_timeout_s=3.0, delivery_timeout_s=3.0)
TOPIC = f"moved-{uuid.uuid4().hex[:12]}"
FOUND_WITHIN_S = 30.0


class Front:
    """A TCP address in front of one of several brokers, as a load balancer has it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.target = ("", 0)
        self._open: list[socket.socket] = []
        self._copies: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def lead_to(self, bootstrap: str) -> None:
        """Lead new connections to this broker, and cut those to the last one."""
        host, port = bootstrap.split(":")
        self.target = (host, int(port))
        self._cut()

    def close(self) -> None:
        """Nothing is left: a socket that ends later is a warning in another test."""
        self._listener.shutdown(socket.SHUT_RDWR)  # It ends the accept; a close alone does not.
        self._accepting.join()
        self._listener.close()
        self._cut()
        for copy in self._copies:
            copy.join()
        for connection in self._open:
            connection.close()

    def _cut(self) -> None:
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                try:
                    server = socket.create_connection(self.target)
                except OSError:
                    client.close()
                    continue
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    copy = threading.Thread(target=_copy, args=(source, sink), daemon=True)
                    copy.start()
                    self._copies.append(copy)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)


def end_of(consumer: Consumer) -> int | None:
    """The end of the topic; None while no broker answers."""
    try:
        [answer] = consumer.offsets_for_times([TopicPartition(TOPIC, 0, OFFSET_END)], timeout=1.0)
    except KafkaException:
        return None
    return None if answer.error else answer.offset


def appended(producer: Producer) -> bool:
    """Whether a record reaches a broker."""
    errors: list[object] = []
    producer.produce(TOPIC, b"value", on_delivery=lambda error, _: errors.append(error))
    give_up_at = time.monotonic() + 10.0
    while not errors and time.monotonic() < give_up_at:
        producer.poll(0.1)
    return errors == [None]


def test_clients_whose_brokers_are_gone_begin_again_from_the_bootstrap_address(
    broker: KafkaCluster, kafka: SharedBroker
) -> None:
    make_topic(broker.bootstrap)
    make_topic(kafka.bootstrap)
    with closing(Front()) as front:
        front.lead_to(broker.bootstrap)
        producer = Producer(config.producer(front.address, SETTINGS))
        lookup = Consumer(config.consumer(front.address, SETTINGS, group_id="lookup"))
        reader = Consumer(config.consumer(front.address, SETTINGS, group_id="reader"))
        reader.assign([TopicPartition(TOPIC, 0, 0)])
        with closing(lookup), closing(reader):
            wait_until(lambda: appended(producer))
            assert end_of(lookup) == 1
            wait_until(lambda: (message := reader.poll(0.1)) is not None and message.value() == b"value")
            front.lead_to(kafka.bootstrap)
            broker.kill_broker(0)
            wait_until(lambda: appended(producer), FOUND_WITHIN_S)
            wait_until(lambda: end_of(lookup) is not None, FOUND_WITHIN_S)
            reader.assign([TopicPartition(TOPIC, 0, 0)])
            wait_until(
                lambda: (message := reader.poll(0.1)) is not None and message.value() == b"value", FOUND_WITHIN_S
            )
    broker.start_broker(0)
    broker.wait_ready()
