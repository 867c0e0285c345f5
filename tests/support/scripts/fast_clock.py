"""Runs a `tsdb` command whose wall clock is faster than the machine's; its waits and timeouts are not.

    python fast_clock.py BASE_MS BEGAN SPEED python -m tsdb.cli.main ARGUMENTS

BASE_MS, BEGAN and SPEED are those of a `support.servers.chunkers.FastClock`, so that the test and all starts of a role
have the same clock.
"""

from __future__ import annotations

import sys
import time
from unittest.mock import patch

from tsdb.model.clock import SystemClock

if __name__ == "__main__":
    base_ms, began, speed, _python, _module, _main, *arguments = sys.argv[1:]
    first_ms, since, times = int(base_ms), float(began), float(speed)

    def now_ms(_clock: SystemClock) -> int:
        return first_ms + int((time.monotonic() - since) * 1000 * times)

    sys.argv = ["tsdb", *arguments]
    with patch.object(SystemClock, "now_ms", now_ms):
        from tsdb.cli.main import main

        main()
