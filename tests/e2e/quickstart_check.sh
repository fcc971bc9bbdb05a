#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the quickstart promises, held against a finished run of it: the held-out loss fell by at least 25 %, and of 20 unseen
# prompts, answered greedily, at most 1 has the style before and at least 16 after. Memory stays within 3 % + 64 MiB of the plan.
# Usage: quickstart_check.sh [BUILD_DIR [RUN_FOLDER [MODEL]]], after recipes/quickstart.sh. Skips (exit 77) when there is no run.
set -euo pipefail
cd "$(dirname "$0")/../.."
bantam=${1:-build}/bin/bantam
run=${2:-outputs/quickstart}
model=${3:-models/SmolLM2-135M-Instruct.Q4_1.gguf}
[ -e "$run/finished.json" ] && [ -e "$model" ] || { echo "skipped: no finished quickstart run in $run"; exit 77; }
answers() {
  while IFS= read -r line; do
    "$bantam" generate "$1" --quiet --max-new-tokens 90 --chat --prompt "$line" | head -c 2000 | awk '{ printf "%s\\n", $0 }' | sed 's/\(\\n\)*$//'
    echo
  done < recipes/data/quickstart_style_prompts.txt
}
status=0
read -r first last planned peak < <(awk '
  match($0, /"eval_loss":[0-9.]+/) { v = substr($0, RSTART + 12, RLENGTH - 12); if (first == "") first = v; last = v }
  match($0, /"anonymous_bytes":[0-9]+/) { v = substr($0, RSTART + 18, RLENGTH - 18) + 0; if (v > peak) peak = v }
  END { print first, last, 0, peak }' "$run/metrics.jsonl")
planned=$(sed -n 's/.*"anonymous_bytes": \([0-9]*\).*/\1/p' "$run/plan.json")
echo "held-out loss $first -> $last"
awk -v a="$first" -v b="$last" 'BEGIN { exit !(b <= 0.75 * a) }' || { echo "FAIL: it fell by less than 25 %"; status=1; }
echo "memory without the mapped weights: planned $planned, measured $peak"
awk -v p="$planned" -v m="$peak" 'BEGIN { exit !(m <= 1.03 * p + 67108864) }' || { echo "FAIL: measured is over the plan by more than 3 % + 64 MiB"; status=1; }
before=$(answers "$model" | sh tests/e2e/style_check.sh | grep -o '^[0-9]* of [0-9]*')
after=$(answers "$run" | sh tests/e2e/style_check.sh | tee /dev/stderr | grep -o '^[0-9]* of [0-9]*')
echo "style before: $before, after: $after"
[ "${before%% *}" -le 1 ] && [ "${after%% *}" -ge 16 ] || { echo "FAIL: expected at most 1 before and at least 16 after"; status=1; }
exit "$status"
