#!/usr/bin/env bash
# Prints the first Python of 3.11 or newer; exit 1 when there is none.
set -euo pipefail

# Runs each candidate: a version manager may have a shim for a version that is not installed.
for candidate in python3.13 python3.12 python3.11 python3; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    command -v "$candidate"
    exit 0
  fi
done
exit 1
