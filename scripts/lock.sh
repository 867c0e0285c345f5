#!/usr/bin/env bash
# Writes deploy/requirements*.lock: every package of the images with its version and the hashes of its files, for Linux
# and the Python of the images. A version that a lock has stays, unless UPGRADE=1 asks for the newest ones.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=(scripts/run-tool.sh "uv==0.13.9" uv)
python=$(sed -n 's/^FROM docker.io\/library\/python:\([0-9.]*\).*/\1/p' deploy/Containerfile | head -1)
upgrade=()
[ "${UPGRADE:-}" != 1 ] || upgrade=(--upgrade)

# compile LOCK ARGUMENT..: the first lines name the command and not a place of this machine.
compile() {
  local lock=deploy/$1
  shift
  touch "$lock"
  "${uv[@]}" pip compile --quiet --generate-hashes --no-header --no-annotate --no-emit-find-links \
    --python-platform linux --python-version "$python" "${upgrade[@]}" --output-file "$lock" "$@" > /dev/null
  sed -i '1i # Made by `make lock` from pyproject.toml; do not edit.' "$lock"
}

compile requirements.lock --extra ui --extra tables pyproject.toml
# The same versions in both images.
compile requirements-spark.lock --extra ui --extra tables --extra spark --constraint deploy/requirements.lock pyproject.toml
# Of the build alone, which makes the kernels.
"$(scripts/find-python.sh)" -c '
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
' | compile requirements-build.lock --constraint deploy/requirements.lock -
