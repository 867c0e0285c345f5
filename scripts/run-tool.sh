#!/usr/bin/env bash
# Runs a program of a Python package in an environment for it alone, which the first run makes: its dependencies never
# meet those of the project. The project's uv makes it in a tenth of pip's time; pip where uv is not or finds no packages.
# Usage: scripts/run-tool.sh PACKAGE==VERSION PROGRAM [ARGUMENT..]
set -euo pipefail

[ $# -ge 2 ] || { printf '%s\n' "usage: $0 PACKAGE==VERSION PROGRAM [ARGUMENT..]" >&2; exit 2; }
package=$1 program=$2
shift 2
own=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin
folder=${XDG_CACHE_HOME:-$HOME/.cache}/kafka-tsdb/tools/$package

if ! [ -x "$folder/bin/$program" ]; then
  printf '%s\n' "installing: $package into $folder" >&2
  python=$own/python
  [ -x "$python" ] || python=$("$(dirname "$0")/find-python.sh")
  rm -rf "$folder"
  if ! { "$own/uv" venv --quiet --python "$python" "$folder" \
    && "$own/uv" pip install --quiet --python "$folder/bin/python" "$package"; } 2>/dev/null; then
    rm -rf "$folder"
    "$python" -m venv "$folder"
    "$folder/bin/python" -m pip --disable-pip-version-check --no-input install --quiet "$package" >&2
  fi
fi
exec "$folder/bin/$program" "$@"
