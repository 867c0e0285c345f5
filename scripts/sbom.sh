#!/usr/bin/env bash
# Writes a bill of materials for each image, in CycloneDX JSON, from the locks of deploy/: names, versions, hashes. The
# same locks give the same bytes.
# Usage: scripts/sbom.sh FOLDER
set -euo pipefail

[ $# = 1 ] || { printf '%s\n' "usage: $0 FOLDER" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"

# bill LOCK IMAGE
bill() {
  "$root/scripts/run-tool.sh" "cyclonedx-bom==7.5.0" cyclonedx-py requirements "$root/deploy/$1" \
    --pyproject "$root/pyproject.toml" --mc-type application --output-reproducible --spec-version 1.6 --of JSON \
    -o "$folder/$2.cdx.json"
}

folder=$(cd "$1" && pwd)
bill requirements.lock kafka-tsdb
bill requirements-spark.lock kafka-tsdb-spark
