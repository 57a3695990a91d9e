#!/bin/sh
# Runs the fire pipeline across three sites of this machine for a minute: a live table, a summary, a picture.
set -eu
cd "$(dirname "$0")/.."
STATE=out/demo
mkdir -p out
rm -rf "$STATE"
begun=$(date +%s)
.venv/bin/headwater inspect examples/fire --draw out/fire-project.png >out/fire-project.txt
.venv/bin/headwater feed examples/fire --state "$STATE" --wait 300s --rate 12.5/s --for 50s --set location_side=102 \
    >out/feed.txt 2>&1 &
feed=$!
trap 'kill "$feed" 2>/dev/null || true' EXIT
.venv/bin/headwater run examples/fire --sites examples/fire/sites.yaml --state "$STATE" --for 60s \
    --draw out/fire-run.png
wait "$feed" || true
trap - EXIT
cat out/feed.txt
rm -rf "$STATE"
echo "The pictures are in out/fire-run.png (rates and latencies) and out/fire-project.png (the pipeline);"
echo "the demo took $(($(date +%s) - begun)) s."
