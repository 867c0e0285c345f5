"""Run as a process: threads make the first call of a kernel together; prints how many later calls are slow."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tsdb.codec.crc32c import crc32c
from tsdb.codec.kernel_compiler import OneSignature

THREADS, CALLS = 8, 100


def main() -> None:
    together = threading.Barrier(THREADS)

    def call(_: int) -> int:
        together.wait()
        return crc32c(b"123456789")

    with ThreadPoolExecutor(THREADS) as threads:
        assert set(threads.map(call, range(THREADS))) == {0xE3069283}
    slow: list[object] = []
    settled = OneSignature._settled

    def counted(self: OneSignature, arguments: Any) -> tuple[Any, ...]:
        slow.append(arguments)
        return settled(self, arguments)

    OneSignature._settled = counted  # type: ignore[method-assign]
    for _ in range(CALLS):
        crc32c(b"123456789")
    print(json.dumps(len(slow)))


if __name__ == "__main__":
    main()
