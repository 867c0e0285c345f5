"""`python -m bench NAME [options]` runs one benchmark, `python -m bench all [--quick]` all of them, each in a separate
process. Progress goes to stderr; the last line of stdout is one JSON object.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Sequence

import bench
from bench.measure import machine

ALL = "all"


def main(argv: Sequence[str]) -> int:
    """Run the benchmark. Exit code: 0 good, 1 a benchmark failed, 2 misused."""
    names = benchmarks()
    if not argv or argv[0] not in (*names, ALL):
        print(f"usage: python -m bench {{{','.join((*names, ALL))}}} [options]", file=sys.stderr)
        return 2
    if argv[0] == ALL:
        return _run_all(names, argv[1:])
    print(json.dumps(importlib.import_module(f"bench.{argv[0]}").main(argv[1:])))
    return 0


def benchmarks() -> list[str]:
    """Names of the modules that have a `main(argv)`, in alphabetical order."""
    found = [module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_")]
    return sorted(name for name in found if hasattr(importlib.import_module(f"bench.{name}"), "main"))


def _run_all(names: Sequence[str], options: Sequence[str]) -> int:
    results: dict[str, object] = {"machine": machine()}
    failed = False
    for name in names:
        print(f"-- {name}", file=sys.stderr)
        done = subprocess.run([sys.executable, "-m", "bench", name, *options], stdout=subprocess.PIPE, check=False)
        lines = done.stdout.splitlines()
        failed = failed or done.returncode != 0
        results[name] = json.loads(lines[-1]) if done.returncode == 0 and lines else {"failed": done.returncode}
        print(json.dumps({name: results[name]}), file=sys.stderr)
    print(json.dumps(results))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
