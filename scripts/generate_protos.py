"""Generates tsdb/v1 (messages, services, type stubs) from proto/. Usage: generate_protos.py [FOLDER], default: here."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
# Installed beside this interpreter, whose folder may not be on the PATH.
PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def generate(out: Path) -> None:
    """Writes the generated modules of every .proto file below `out`. Raises SystemExit when protoc refuses one."""
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    well_known = resources.files("grpc_tools") / "_proto"
    code = protoc.main(
        [
            "protoc",
            *(f"--plugin={name}={Path(sys.executable).parent / name}" for name in PLUGINS),
            f"--proto_path={PROTO}",
            f"--proto_path={well_known}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out={out}",
            f"--mypy_grpc_out={out}",
            *sources,
        ]
    )
    if code:
        raise SystemExit(f"protoc failed with {code} on {', '.join(sources)}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
