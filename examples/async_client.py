"""The asyncio client: one write, then several concurrent reads over one connection.

python examples/async_client.py [HOST:PORT]
"""

from __future__ import annotations

import asyncio
import sys
import time

from tsdb.client import ReadOptions, WriteBatch, connect_async

HOSTS = ("a", "b", "c")


async def main(address: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    async with connect_async(address) as client:
        batch = WriteBatch()
        for host in HOSTS:
            labels = {"__name__": "example_requests_total", "job": "async_client", "instance": host}
            batch.add(labels, [now_ms - 1000, now_ms], [10.0, 12.0])
        written = await client.write(batch)

        async def newest(host: str) -> float:
            selector = f'example_requests_total{{job="async_client",instance="{host}"}}'
            options = ReadOptions(after=written.tokens)
            answer = await client.select(selector, now_ms - 60_000, now_ms + 1, last_n=1, options=options)
            return float(answer[0].values[-1])

        for host, value in zip(HOSTS, await asyncio.gather(*map(newest, HOSTS)), strict=True):
            print(host, value)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7410"))
