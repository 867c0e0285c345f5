"""`python -m kernel_build`: builds the library of kernels of the present sources, and prints where it is."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import sys
import time
from pathlib import Path

from tsdb.codec.kernel_library import asked_level, built_path, cache_root
from tsdb.codec.kernel_sources import kernel_modules


def build(module: str | None = None) -> Path:
    """Build the library, unless the cache has it. module: one outside the packages whose kernels come with it."""
    library = built_path(module)
    folder = cache_root() / "objects"
    for needed in (folder, library.parent):
        needed.mkdir(parents=True, exist_ok=True)
    with (cache_root() / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Of two processes that need a library, the second finds it.
        if not library.exists():
            _build(module, library, folder)
    return library


def _build(module: str | None, library: Path, folder: Path) -> None:
    # numba takes a second to import; a build that has nothing to do is a step of each `make`.
    from kernel_build.levels import level_named
    from kernel_build.link import link
    from kernel_build.objects import objects_of, remove_stale

    began = time.monotonic()
    level = level_named(asked_level())
    modules = [*kernel_modules(), *([module] if module else [])]
    objects = []
    for one in objects_of(modules, level, folder):
        objects.append(one)
        if one.compiled:
            print(f"kernels: {one.module}, {len(objects)} of {len(modules)}", file=sys.stderr, flush=True)
    link(objects, level, library)
    remove_stale(folder)
    remove_stale(library.parent)
    kernels = sum(len(one.rows) for one in objects)
    print(f"kernels: {kernels} for {level.name} in {time.monotonic() - began:.1f} s", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kernel_build", description="Build the library of kernels.")
    parser.add_argument("module", nargs="?", help="a module outside the packages whose kernels come with it")
    parser.add_argument("--into", type=Path, help="copy the library into this folder, as <level>.abi3.so")
    arguments = parser.parse_args()
    library = build(arguments.module)
    if arguments.into:
        arguments.into.mkdir(parents=True, exist_ok=True)
        library = Path(shutil.copyfile(library, arguments.into / f"{asked_level()}.abi3.so"))
    print(library)


if __name__ == "__main__":
    main()
