"""tsdb/v1 is what proto/ gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_generated_code_is_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "generate_protos.py", tmp_path], check=True, capture_output=True)
    fresh = {path.name: path.read_bytes() for path in (tmp_path / "tsdb" / "v1").iterdir()}
    committed = {
        path.name: path.read_bytes()
        for path in (ROOT / "tsdb" / "v1").iterdir()
        if path.is_file() and path.name != "__init__.py"
    }
    assert sorted(fresh) == sorted(committed)
    assert [name for name in fresh if fresh[name] != committed[name]] == [], "run `make proto`"
