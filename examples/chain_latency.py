"""Chain headers: the end-to-end latency of a message over two services, carried in its headers. No server is needed.

    python examples/chain_latency.py

Each service reads the headers of the message that it consumes, and puts new ones on the message that it produces.
Layout and arithmetic: docs/formats/chain-headers.md.
"""

from __future__ import annotations

import time

from tsdb.chain import Chain, Headers


def order_service(chain: Chain) -> Headers:
    """Produces the first message of a chain."""
    return chain.first()


def billing_service(chain: Chain, headers: Headers) -> Headers:
    """Consumes one message, works for a while, and produces the next one."""
    stage = chain.begin(chain.read(headers))
    time.sleep(0.03)
    return stage.produce()


def main() -> None:
    orders, billing, mail = (Chain("shop", service) for service in ("orders", "billing", "mail"))
    first = order_service(orders)
    time.sleep(0.02)  # The message waits in a topic.
    second = billing_service(billing, first)
    link = mail.read(second)
    print(f"{link.hop_count} hops, {link.total_ms} ms: {link.processing_ms} ms of work, {link.wait_ms} ms of waiting")
    for name, value in second:
        print(name, (value or b"").decode())


if __name__ == "__main__":
    main()
