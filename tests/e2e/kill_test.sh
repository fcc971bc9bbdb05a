#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ten kills with SIGKILL at random moments of a tiny training: each resumes, and the result equals an unbroken run.
. "$(dirname "$0")/common.sh"
# An array, not a function: a kill must reach the program, not a subshell.
run=("$bantam" train "$work/recipe.yaml" --num-epochs 60 --save-steps 2 --quiet)
start=$(date +%s%N)
"${run[@]}" --output-dir "$work/unbroken" > /dev/null
total=$((($(date +%s%N) - start) / 1000000))
RANDOM=20260101  # fixed seed; where a kill hits still varies with the machine
kills=0
for _ in $(seq 60); do
  [ "$kills" -ge 10 ] && break
  "${run[@]}" --output-dir "$work/killed" > /dev/null 2> "$work/stderr" < /dev/null & pid=$!
  sleep "$(awk -v r="$RANDOM" -v t="$total" 'BEGIN { printf "%.3f", (0.05 + 0.35 * r / 32768) * t / 1000 }')"
  kill -KILL "$pid" 2> /dev/null || true
  got=0; wait "$pid" 2> /dev/null || got=$?
  if [ "$got" -eq 137 ]; then kills=$((kills + 1)); elif [ "$got" -ne 0 ]; then fail "exit $got"; cat "$work/stderr" >&2; break; fi
  if [ -e "$work/killed/finished.json" ]; then  # got to the end: compare, and begin again
    cmp "$work/killed/adapter_model.safetensors" "$work/unbroken/adapter_model.safetensors" || fail "resumed run differs"
    rm -rf "$work/killed"
  fi
done
[ "$kills" -ge 10 ] || fail "only $kills kills hit"
[ -e "$work/killed/finished.json" ] || "${run[@]}" --output-dir "$work/killed" > /dev/null || fail "the last resume failed"
cmp "$work/killed/adapter_model.safetensors" "$work/unbroken/adapter_model.safetensors" || fail "killed and resumed differs from unbroken"
done_testing
