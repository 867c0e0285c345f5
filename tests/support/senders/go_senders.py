"""Programs written in Go, built from their modules into the user's cache: minutes the first time, nothing afterwards.

Senders of samples, and programs that ask for them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

BUILD_WITHIN_S = 3600.0  # Time of the largest build on a busy machine.

COLLECTOR_CONFIG = """\
dist: {{name: otelcol, output_path: {output}, version: 0.160.0}}
receivers:
  - gomod: go.opentelemetry.io/collector/receiver/otlpreceiver v0.160.0
exporters:
  - gomod: github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusremotewriteexporter v0.160.0
  - gomod: go.opentelemetry.io/collector/exporter/otlphttpexporter v0.160.0
  - gomod: go.opentelemetry.io/collector/exporter/otlpexporter v0.160.0
processors:
  - gomod: go.opentelemetry.io/collector/processor/batchprocessor v0.160.0
extensions:
  - gomod: github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage v0.160.0
"""


@dataclass(frozen=True, slots=True)
class GoSender:
    """package: the package of its main function. tags: build tags.

    source: a main package of ours in one file, which imports `package`; None: that is the main package. module: the
    module of the package, where it replaces others; a build takes these replacements over. published: the version of
    modules that it takes from folders of its repository. stamps: variables that the linker sets, for programs that
    learn their version from it.
    """

    name: str
    version: str
    package: str
    tags: str = ""
    source: Path | None = None
    module: str = ""
    published: str = ""
    stamps: tuple[tuple[str, str], ...] = ()

    @property
    def file_name(self) -> str:
        """Folder of the built program. Each version and source has another one."""
        digest = "" if self.source is None else f"-{hashlib.sha256(self.source.read_bytes()).hexdigest()[:12]}"
        return f"{self.name}-{self.version}{digest}"


TELEGRAF = GoSender(
    "telegraf",
    "v1.37.2",
    "github.com/influxdata/telegraf/cmd/telegraf",
    # With `custom` it has these plugins alone, and builds in 2 minutes.
    "custom,inputs.cpu,inputs.mem,inputs.internal,processors.rename,outputs.influxdb,outputs.influxdb_v2,outputs.http,"
    "outputs.file,serializers.influx,serializers.prometheusremotewrite",
)
VMAGENT = GoSender("vmagent", "v1.140.0", "github.com/VictoriaMetrics/VictoriaMetrics/app/vmagent")
VMALERT = GoSender("vmalert", "v1.140.0", "github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert")
COLLECTOR = GoSender("otelcol", "v0.160.0", "go.opentelemetry.io/collector/cmd/builder")


def built(sender: GoSender) -> Path:
    """The program, built if the cache has none. Skips the test on a machine without Go."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(home) / "kafka-tsdb" / "senders"
    program = folder / sender.file_name
    if program.exists():
        return program
    if shutil.which("go") is None:
        pytest.skip("Go is not installed; it builds the sender")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = _collector(Path(scratch), sender) if sender is COLLECTOR else _program(Path(scratch), sender)
        made.rename(program)
    return program


def _program(scratch: Path, sender: GoSender) -> Path:
    """A new module that requires the one of the sender; `go install` refuses modules with replacements."""
    _go(scratch, "mod", "init", "senders")
    if sender.module:
        facts = json.loads(_go(scratch, "mod", "download", "-json", f"{sender.module}@{sender.version}"))
        replaced = replacements(Path(facts["GoMod"]).read_text(), sender.published)
        _go(scratch, "mod", "edit", *(f"-replace={one}" for one in replaced))
    _go(scratch, "get", f"{sender.package}@{sender.version}")
    package = sender.package
    if sender.source is not None:
        shutil.copy(sender.source, scratch)
        package = "."
    linked = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in sender.stamps)])
    _go(scratch, "build", "-mod=mod", "-tags", sender.tags, "-ldflags", linked, "-o", sender.name, package)
    return scratch / sender.name


def replacements(module: str, published: str) -> Iterator[str]:
    """Replacements in a go.mod, as `go mod edit` takes them: `old=new@version`. Those without a version are folders."""
    for old, new, version in re.findall(r"^(?:replace)?\s*(\S+) => (\S+)[ \t]*(\S*)", module, re.MULTILINE):
        yield f"{old}={new}@{version}" if version else f"{old}={old}@{published}"


def _collector(scratch: Path, sender: GoSender) -> Path:
    """The Collector's builder writes a main package with the chosen components, and builds it."""
    config = scratch / "build.yaml"
    config.write_text(COLLECTOR_CONFIG.format(output=scratch / "dist"))
    _go(scratch, "run", f"{sender.package}@{sender.version}", "--config", str(config), "--skip-strict-versioning")
    return scratch / "dist" / "otelcol"


def _go(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["nice", "go", *arguments], cwd=folder, capture_output=True, timeout=BUILD_WITHIN_S, check=False
    )
    assert done.returncode == 0, f"go {' '.join(arguments)}\n{done.stderr.decode()[-4000:]}"
    return done.stdout.decode()
