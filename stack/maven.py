"""Fetches the jars of a server once, by Maven.

Each server has a separate folder, since their logging libraries conflict. A folder appears complete or not at all.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / ".stack"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
FETCH_TIMEOUT_S = 600
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>stack</groupId><artifactId>{name}</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "    <dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version><scope>runtime</scope>"
    "</dependency>"
)


@dataclass(frozen=True, slots=True)
class JarSet:
    """A server's jars: name of the folder, Maven coordinates group:artifact:version."""

    name: str
    version: str
    coordinates: tuple[str, ...]


KAFKA = JarSet(
    "kafka",
    "4.3.1",
    (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.logging.log4j:log4j-core:2.25.5",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
    ),
)
CASSANDRA = JarSet("cassandra", "5.0.9", ("org.apache.cassandra:cassandra-all:5.0.9",))
# Libraries that the parallel consumer is compared with. Each set includes the Kafka client of its library.
DECATON = JarSet("decaton", "9.2.0", ("com.linecorp.decaton:decaton-processor:9.2.0", "org.slf4j:slf4j-nop:2.0.17"))
CONFLUENT_PARALLEL = JarSet(
    "confluent-parallel-consumer",
    "0.5.3.3",
    ("io.confluent.parallelconsumer:parallel-consumer-core:0.5.3.3", "org.slf4j:slf4j-nop:2.0.17"),
)
# Spark's own reader of Iceberg. It has no version for a newer Spark than 4.1 yet.
ICEBERG_SPARK = JarSet("iceberg-spark", "1.12.0", ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",))
JAR_SETS = {jars.name: jars for jars in (KAFKA, CASSANDRA)}


def jars(jar_set: JarSet) -> Path:
    """The folder of the jars; missing jars are fetched. Raises RuntimeError with Maven's output when that fails."""
    folder = ROOT / "jars" / f"{jar_set.name}-{jar_set.version}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(jar_set, folder)
    return folder


def _fetch(jar_set: JarSet, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise RuntimeError("mvn not found: install a JDK 17 and Maven")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        pom = Path(scratch) / "pom.xml"
        lines = [DEPENDENCY.format(*coordinate.split(":")) for coordinate in jar_set.coordinates]
        pom.write_text(POM.format(name=jar_set.name, dependencies="\n".join(lines)))
        built = Path(scratch) / "jars"
        command = [maven, "-q", "-B", "-f", str(pom), PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={built}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"fetching {jar_set.name} {jar_set.version} failed:\n{done.stdout}{done.stderr}")
        built.rename(folder)
