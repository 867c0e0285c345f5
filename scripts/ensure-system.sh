#!/usr/bin/env bash
# Installs missing system packages: "python" (3.11 or newer, with venv), "java" (a JDK 17 or newer and Maven, for the
# real servers of the tests) or "promtool" (checks alerts; only this file of Debian's package "prometheus", into FOLDER).
# Uses apt-get; on other systems it prints the packages to install by hand.
# Usage: scripts/ensure-system.sh python|java|promtool FOLDER
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }

# Sets as_root, and refreshes the lists of packages.
begin() {
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { say "missing: $*. Install them as root, or install sudo and run this again."; exit 1; }
    as_root=(sudo)
  fi
  command -v apt-get >/dev/null || { say "missing: $*. There is no apt-get here: install the packages of your system by hand."; exit 1; }
  "${as_root[@]}" apt-get update -qq >&2
}

install() {
  say "installing: $*"
  begin "$@"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# The package would start a server too, so it is unpacked and not installed.
unpack_promtool() {
  local folder
  folder=$(cd "$1" && pwd)
  say "installing: promtool into $folder"
  begin promtool
  (
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch"
    chmod 755 .
    apt-get download -qq -o APT::Sandbox::User=root prometheus >&2
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
    mv usr/bin/promtool "$folder/promtool"
  )
}

java_major() {
  java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'
}

case "${1:-}" in
  python)
    python=$("$(dirname "$0")/find-python.sh" || true)
    # Debian's python3 has venv without ensurepip until python3-venv is there.
    if [ -z "$python" ] || ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      install python3 python3-venv
      python=$("$(dirname "$0")/find-python.sh") || { say "python 3.11 or newer is needed; this system has older"; exit 1; }
      "$python" -c 'import ensurepip, venv' || { say "$python cannot make virtual environments: install its venv package"; exit 1; }
    fi
    ;;
  java)
    missing=()
    command -v javac >/dev/null && [ "$(java_major)" -ge 17 ] || missing+=(openjdk-17-jdk-headless)
    command -v mvn >/dev/null || missing+=(maven)
    if [ ${#missing[@]} -gt 0 ]; then install "${missing[@]}"; fi
    ;;
  promtool)
    command -v promtool >/dev/null || [ -x "$2/promtool" ] || unpack_promtool "$2"
    ;;
  *)
    say "usage: $0 python|java|promtool FOLDER"
    exit 2
    ;;
esac
