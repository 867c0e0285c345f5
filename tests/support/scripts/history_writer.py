"""Run as a process: writes rows into an embedded history for ever, and prints the number of each acknowledged one."""

from __future__ import annotations

import sys
import threading

from support.servers.histories import row
from tsdb.history.open import open_history
from tsdb.model.errors import TsdbError


def main() -> None:
    lock = threading.Lock()
    with open_history(sys.argv[1]) as store:
        number = 0
        while True:
            one = row(number % 7, number // 7, value=b"%d" % number * 100)

            def told(error: TsdbError | None, number: int = number) -> None:
                with lock:
                    print(number if error is None else error, flush=True)

            store.write(one.key, one.value, told)
            number += 1


if __name__ == "__main__":
    main()
