#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bantam_gpu_bench with tiny shapes on an emulated device: every section runs, and without a device it says so.
# Usage: gpu_bench_tiny.sh PROGRAM LIBRARY
set -u
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0
fail() { echo "gpu_bench_tiny: $*"; failed=1; }

"$1" --backend "$2" --tiny --limit 200 >"$out" 2>&1 || fail "exit $?"
summary=$(sed -n '/^== Summary/,$p' "$out")
for name in "product 64^3" "copy of equal bytes" "NF4 decoding" "down_proj forward" "down_proj dx" \
  "attention d 128, T 16 forward" "attention d 64, T 16 backward" "loss V 128" "loss V 248 scratch" \
  "step, none" "step, selective" "step, auto" "step, true" "step, true memory" "LoRA, one layer" "LoRA, 32 layers"; do
  grep -qF -- "$name" <<<"$summary" || fail "no line '$name' in the table"
done
grep -qwE 'failed|left out|nan|inf' "$out" && fail "a section failed"
[ "$failed" -eq 0 ] || cat "$out"

COC_NO_DEVICE=1 "$1" --backend "$2" --tiny >"$out" 2>&1
[ $? -eq 77 ] || fail "without a device: not exit 77"
grep -q "no GPU: nothing measured" "$out" || { fail "without a device: not said"; cat "$out"; }
exit "$failed"
