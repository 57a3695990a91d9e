#!/bin/sh
# Runs the fire pipeline on a wide-area network that this machine emulates: first with everything in the data centre,
# then where Headwater puts it, and says what that brings. Where nothing can be emulated (that takes root), it runs
# across three sites of this machine for a minute instead.
set -eu
cd "$(dirname "$0")/.."
HEADWATER=.venv/bin/headwater
mkdir -p out
begun=$(date +%s)

ended() {
    echo "the demo took $(($(date +%s) - begun)) s."
}

$HEADWATER inspect examples/fire --draw out/fire-project.png >out/fire-project.txt
code=0
$HEADWATER bench offload --scale 0.1 --repeat 1 --warm 20s --for 40s --out out/demo || code=$?
if [ "$code" = 0 ]; then
    echo "The pictures are in out/demo/offload.png (latency, thin link, processors) and out/fire-project.png (the pipeline);"
    ended
    exit 0
fi
[ "$code" = 4 ] || exit "$code"

STATE=out/demo-state
rm -rf "$STATE"
echo "No network is emulated here; the sites run on this machine as they are."
$HEADWATER feed examples/fire --state "$STATE" --wait 300s --rate 12.5/s --for 50s --set location_side=102 \
    >out/feed.txt 2>&1 &
feed=$!
trap 'kill "$feed" 2>/dev/null || true' EXIT
$HEADWATER run examples/fire --sites examples/fire/sites.yaml --state "$STATE" --for 60s --draw out/fire-run.png
wait "$feed" || true
trap - EXIT
cat out/feed.txt
rm -rf "$STATE"
echo "The pictures are in out/fire-run.png (rates and latencies) and out/fire-project.png (the pipeline);"
ended
