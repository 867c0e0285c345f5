"""Chooses the folder of a module's compiled kernels: a folder of the cache for each version of the sources.

numba's cache knows the source of the kernel's own file only, so a kernel would go on calling an old version of a
kernel in another file. Here the compiled code of a module is filed under a hash of its source and of the sources it
imports: an edit anywhere below gives a new folder, and two versions of the code never share one. Copies of the same
sources share it, wherever they lie.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

CACHE_DIR_VARIABLE = "NUMBA_CACHE_DIR"
STALE_CACHE_DAYS = 30  # A folder that no process has opened for this long belongs to an older version of the code.


@functools.cache
def cache_root() -> Path:
    """Folder of the compiled kernels: NUMBA_CACHE_DIR, else the user's cache folder, else a private temporary one."""
    asked = os.environ.get(CACHE_DIR_VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for candidate in [Path(asked)] if asked else [Path(home) / "kafka-tsdb" / "kernels"]:
        try:
            candidate.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=candidate).close()
            return candidate
        except OSError:
            continue
    # Compiled code is loaded and run, so a shared folder under a guessable name would be a way in.
    return Path(tempfile.mkdtemp(prefix="kafka-tsdb-kernels-"))


@functools.cache
def cached_folder(module: str) -> Path:
    """The folder of a module's compiled code in the cache. It exists."""
    folder = cache_root() / module_folder(module)
    if not folder.exists():
        _remove_stale(folder.parent)
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    return folder


@functools.cache
def module_folder(module: str) -> str:
    """The folder of a module below the root of a cache: it changes with the sources of the module and those below."""
    return f"{module}/{_stamp(module)}"


def _remove_stale(parent: Path) -> None:
    oldest = time.time() - STALE_CACHE_DAYS * 86_400
    for folder in parent.iterdir() if parent.exists() else ():
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def _stamp(module: str) -> str:
    """Hash of the sources of `module` and of all modules of ours below it."""
    digests: dict[str, bytes] = {}
    ours = {__name__.split(".")[0], module.split(".")[0]}  # Packages above this one have kernels too.
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if name in digests or path is None:
            continue
        digests[name], imported = _source(path)
        waiting.extend(name for name in imported if name.split(".")[0] in ours)
    digest = hashlib.sha256()
    for name in sorted(digests):
        digest.update(name.encode() + b"\0" + digests[name])
    return digest.hexdigest()[:16]


@functools.cache
def _path(module: str) -> str | None:
    """The source file of a module; None for a name that is not a module. The same whether the module is
    loaded or not.
    """
    package, _, rest = module.partition(".")
    for folder in getattr(sys.modules.get(package), "__path__", ()):
        stem = os.path.join(folder, *rest.split("."))
        for path in (f"{stem}.py", os.path.join(stem, "__init__.py")):
            if os.path.exists(path):
                return path
    loaded = getattr(sys.modules.get(module), "__file__", None)
    return loaded if loaded and os.path.exists(loaded) else None


# Parsed once: a module near the top imports thirty others, and many modules import the same ones.
@functools.cache
def _source(path: str) -> tuple[bytes, list[str]]:
    """(hash of a file, modules named in its import statements)."""
    source = Path(path).read_bytes()
    return hashlib.sha256(source).digest(), _imports(source.decode())


# A regular expression is 20 x as quick as a syntax tree, at each start. A name that it takes from a text costs a stat.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]+))", re.MULTILINE
)


def _imports(source: str) -> list[str]:
    """Modules named in import statements; `from tsdb.codec import x` may name a module or a thing in one."""
    found: list[str] = []
    for package, names, modules in _IMPORT.findall(source):
        named = [words[0] for part in (names or modules).strip("()").split(",") if (words := part.split())]
        found += [package, *(f"{package}.{name}" for name in named)] if package else named
    return found
