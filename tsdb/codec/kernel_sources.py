"""The sources of kernels: which modules have some, and a hash that changes with a module and those that it imports."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("tsdb", "ingest", "spark_backfill")  # Packages with kernels.
SUFFIX = "_kernels"
# The files of kernel_build that make machine code of a module.
COMPILING = frozenset({"compiler.py", "intrinsics.py", "levels.py", "objects.py", "signatures.py"})


def is_checkout() -> bool:
    """Whether the sources of the build are beside the package, which an installed package lacks."""
    return (CHECKOUT / "kernel_build" / "caller.c").exists()


def kernel_modules() -> list[str]:
    """The modules of the packages that may have kernels, by name."""
    found = []
    for package in PACKAGES:
        for folder, folders, files in os.walk(CHECKOUT / package):
            folders[:] = [name for name in folders if name != "__pycache__"]
            parts = Path(folder).relative_to(CHECKOUT).parts
            found += [".".join((*parts, name[:-3])) for name in files if name.endswith(f"{SUFFIX}.py")]
    return sorted(found)


def stamp(modules: Iterable[str], *, linked: bool = True) -> str:
    """Hash of the sources of the modules, of all modules of ours below them, and of the compiler. linked: also of what
    is linked with them."""
    digests: dict[str, bytes] = {}
    waiting = list(modules)
    ours = {*PACKAGES, *(name.partition(".")[0] for name in waiting)}
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if name in digests or path is None:
            continue
        digests[name], imported = _source(path)
        waiting.extend(name for name in imported if name.partition(".")[0] in ours)
    digest = hashlib.sha256(_build(linked))
    for name in sorted(digests):
        digest.update(name.encode() + b"\0" + digests[name])
    return digest.hexdigest()[:20]


@cache
def _build(linked: bool) -> bytes:
    digest = hashlib.sha256()
    for path in sorted((CHECKOUT / "kernel_build").iterdir()):
        if path.name in COMPILING or (linked and path.suffix in {".py", ".c", ".h"}):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


@cache
def _path(module: str) -> str | None:
    """The source file of a module; None for a name that is not a module. No package of ours is imported for it."""
    top, _, rest = module.partition(".")
    roots = [os.path.join(CHECKOUT, top)] if top in PACKAGES else _roots(top)
    for root in roots:
        stem = os.path.join(root, *rest.split(".")) if rest else root
        for path in (f"{stem}.py", os.path.join(stem, "__init__.py")):
            if os.path.exists(path):
                return path
    return None


def _roots(package: str) -> list[str]:
    """Where a package or module outside the packages is, without `.py`."""
    found = importlib.util.find_spec(package)
    if found is None or found.submodule_search_locations is not None:
        return list(found.submodule_search_locations or ()) if found else []
    return [str(found.origin).removesuffix(".py")]


# Parsed once: a module near the top imports thirty others, and many modules import the same ones.
@cache
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
