"""Runs a `tsdb` command and counts the Python calls of this project's functions, on all threads.

    python counted_calls.py COUNTS python -m tsdb.cli.main ARGUMENTS

A line of COUNTS for each second: the calls of that second, and as JSON the functions with the most. The profile
callback slows the process, so that its latencies mean nothing.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = str(Path(__file__).resolve().parents[3]) + "/"
SHOWN = 15


def count_to(path: Path) -> None:
    """Count the calls of all threads that start from now on, and of this one."""
    calls: Counter[Any] = Counter()

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    def write() -> None:
        with path.open("a") as out:
            while True:
                time.sleep(1.0)
                counted = calls.copy()
                calls.clear()
                ours: Counter[str] = Counter()
                for code, number in counted.items():
                    if code.co_filename.startswith(ROOT) and "/.venv/" not in code.co_filename:
                        ours[f"{code.co_filename.removeprefix(ROOT)}:{code.co_qualname}"] += number
                print(ours.total(), json.dumps(ours.most_common(SHOWN)), file=out, flush=True)

    threading.Thread(target=write, name="counted-calls", daemon=True).start()
    threading.setprofile(called)
    sys.setprofile(called)


if __name__ == "__main__":
    counts, _python, _module, _main, *arguments = sys.argv[1:]
    count_to(Path(counts))
    sys.argv = ["tsdb", *arguments]
    from tsdb.cli.main import main

    main()
