"""`make sbom`: the bill of each image has every package of its lock, with its hashes, and is the same twice."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from support.deploy_files import DEPLOY, ROOT

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
IMAGES = {"kafka-tsdb": "requirements.lock", "kafka-tsdb-spark": "requirements-spark.lock"}


def test_a_bill_has_the_packages_of_its_image_and_is_the_same_twice(tmp_path: Path) -> None:
    for name in ("first", "second"):
        subprocess.run([ROOT / "scripts/sbom.sh", tmp_path / name], check=True, timeout=1000)
    for image, lock in IMAGES.items():
        text = (tmp_path / f"first/{image}.cdx.json").read_text()
        assert text == (tmp_path / f"second/{image}.cdx.json").read_text()
        bill = json.loads(text)
        assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "kafka-tsdb")
        named = {(one["name"], one["version"]) for one in bill["components"]}
        pinned = re.findall(r"^([\w.-]+)==(\S+)", (DEPLOY / lock).read_text(), re.MULTILINE)
        assert named == set(pinned)
        assert all(one["externalReferences"][0]["hashes"] for one in bill["components"])
