#!/usr/bin/env bash
# On a machine with a GPU: run what needs one, and leave everything in a folder. Ends within five minutes.
#
#   scripts/cuda_check.sh reports/my-gpu
set -uo pipefail
out=$(realpath -m "${1:?say where the results go: scripts/cuda_check.sh FOLDER}")
cd "$(dirname "$0")/.."
mkdir -p "$out"

timeout 100 python3 -m pytest -q -m cuda tests 2>&1 | tee "$out/tests.txt"
tests=${PIPESTATUS[0]}

timeout 190 python3 -m precision run sdpa --device cuda --store "$out/store.sqlite" --out "$out/report" 2>&1 |
    tee "$out/run.txt"
run=${PIPESTATUS[0]}
if [ "$run" -ne 0 ] && [ -f "$out/store.sqlite" ]; then
    # What was measured before the time was up is in the store.
    timeout 10 python3 -m precision report --store "$out/store.sqlite" --out "$out/report"
fi

echo "tests ended with $tests, the run with $run; everything is in $out"
exit $((tests || run))
