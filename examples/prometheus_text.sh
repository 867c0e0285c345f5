#!/bin/sh
# Write a file in the Prometheus text format, and read its samples back.
#
#   examples/prometheus_text.sh [HOST:PORT]
#
# `tsdb` must be on the PATH: PATH=.venv/bin:$PATH. The times of the file are moved, so that the newest sample is now.
set -eu
address=${1:-127.0.0.1:7410}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

cat > "$folder/page.prom" <<END
# HELP example_jobs_total Finished jobs.
# TYPE example_jobs_total counter
example_jobs_total{job="prometheus_text",instance="worker-1"} 1027 1704067200000
example_jobs_total{job="prometheus_text",instance="worker-2"} 3 1704067200000
END

tsdb write "$folder/page.prom" --address "$address" --shift-to-now
# A write becomes visible within about a second.
until tsdb series 'example_jobs_total{job="prometheus_text"}' --address "$address" | grep -q worker-2; do sleep 0.2; done
tsdb query --raw 'example_jobs_total{job="prometheus_text"}' --address "$address" --last 5m --output csv
