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
    found = benchmarks()
    if not argv or argv[0] not in (*found, ALL):
        print(f"usage: python -m bench {{{','.join((*found, ALL))}}} [options]", file=sys.stderr)
        return 2
    if argv[0] == ALL:
        return _run_all(list(found), argv[1:])
    print(json.dumps(importlib.import_module(found[argv[0]]).main(argv[1:])))
    return 0


def benchmarks() -> dict[str, str]:
    """Name -> module of each module that has a `main(argv)`, by name."""
    modules = [module.name for module in pkgutil.walk_packages(bench.__path__, "bench.") if "__" not in module.name]
    found = {name.rpartition(".")[2]: name for name in modules if hasattr(importlib.import_module(name), "main")}
    return dict(sorted(found.items()))


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
