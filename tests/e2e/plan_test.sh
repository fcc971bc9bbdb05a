#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Memory from a user's side: plan, limits, auto, adjust, selftest, and a run that keeps to its plan.
. "$(dirname "$0")/common.sh"
number() { sed -n "s/^  \"$1\": \([0-9]*\),*$/\1/p" "${2:-$work/stdout}" | head -1; }

# Rows enough that activations weigh more than the program itself.
for i in $(seq 1 1200); do
  printf '{"prompt": "Q%d: which colour has the house at the end of the long road?\\nA:", "completion": " blue and %d, as the houses beside it"}\n' "$i" "$((i % 3))"
done > "$work/many.jsonl"
big() { local command=$1; shift; "$bantam" "$command" "$work/recipe.yaml" --data "$work/many.jsonl" --max-seq-length 128 --micro-batch-size 256 --gradient-accumulation-steps 1 --max-steps 2 --loss-chunk-bytes 4MiB --output-dir "$work/big" "$@"; }

# What a plan says, for people and machines.
expect 0 "" big plan
for text in "saved activations" "loss chunk" "program, tokenizer, data" "limit" "fits" "selective" "auto at 50 %" "sqrt" "largest that fits" "without checkpointing" "are not allocated" "time, planned"; do
  grep -qF "$text" "$work/stdout" || fail "plan lacks '$text'"
done
expect 0 "" big plan --json --gradient-checkpointing false
none=$(number total_bytes)
expect 0 "" big plan --json --gradient-checkpointing true
full=$(number total_bytes)
[ "$none" -gt $((full + 10000000)) ] || fail "checkpointing frees nothing: $none, $full"
[ ! -e "$work/big/plan.json" ] || fail "plan wrote into the run folder"

# auto under a limit between the two: within it, and the same bytes as without one.
limit=$(((none + full) / 2))
expect 0 "" big train
grep -q "recompute: none" "$work/stdout" || fail "recompute with memory to spare"
cp "$work/big/adapter_model.safetensors" "$work/free"
expect 0 "" big train --overwrite --memory-limit "$limit"
cmp "$work/big/adapter_model.safetensors" "$work/free" || fail "a memory limit changed the result"
[ "$(number total_bytes "$work/big/plan.json")" -le "$limit" ] || fail "the plan is over its limit"
grep -q "planned, .* measured" "$work/stdout" || fail "no planned and measured recompute: $(cat "$work/stdout")"
for mode in sqrt every_n:2 selective; do
  expect 0 "" big train --overwrite --gradient-checkpointing="$mode"
  cmp "$work/big/adapter_model.safetensors" "$work/free" || fail "$mode changed the result"
done

# A whole training, evaluation and saves included, in 5 % more than its plan. The kernel's limit also counts what is reserved
# and never touched, of libraries, heaps and stacks: 8 MiB.
expect 0 "" big plan --json --memory-limit "$limit"
planned=$(number anonymous_bytes)
within() { (ulimit -s 512; ulimit -d $((planned / 1024 * $1 / 100 + 8192)); big train --overwrite --memory-limit "$limit" --save-steps 1 --eval-steps 1); }
expect 0 "" within 105
expect 5 "" within 60

# Does not fit: exit 5, by how much, and what would; nothing is begun. adjust does it.
tight=$((full - (none - full) / 4))
expect 5 "more than memory_limit" big train --overwrite --gradient-checkpointing true --memory-limit $((full - 1000000))
grep -q "gradient_checkpointing: auto" "$work/stderr" || fail "no way out named: $(cat "$work/stderr")"
expect 5 "micro_batch_size" big train --overwrite --memory-limit $((full * 55 / 100))
[ ! -e "$work/big/recipe.resolved.yaml" ] || fail "a run that does not fit was begun"
expect 5 "" big plan --memory-limit $((full * 55 / 100))
grep -q "What would, in this order" "$work/stdout" || fail "plan names no changes"
expect 0 "adjusted to fit" big train --overwrite --memory-limit $((full * 55 / 100)) --on-does-not-fit adjust
[ "$(number micro_batch_size "$work/big/plan.json")" -lt 256 ] || fail "the micro-batch was not adjusted"

# micro_batch_size: auto is chosen once and kept.
auto() { "$bantam" train "$work/recipe.yaml" --data "$work/many.jsonl" --micro-batch-size auto --effective-batch-size 48 --max-steps 2 --memory-limit $((full * 3 / 5)) --output-dir "$work/auto" "$@"; }
sed -i '/gradient_accumulation_steps/s/gradient_accumulation_steps: 2, //' "$work/recipe.yaml"
expect 0 "micro_batch_size auto is" auto
m=$(number micro_batch_size "$work/auto/plan.json")
a=$(number gradient_accumulation_steps "$work/auto/plan.json")
[ $((m * a)) -eq 48 ] || fail "$m x $a is not 48"

# A resumed run keeps the schedule that it was planned with, and ends with the bytes of an unbroken one.
long() { "$bantam" train "$work/recipe.yaml" --gradient-accumulation-steps 1 --num-epochs 60 --save-steps 1000 "$@"; }
expect 0 "" long --output-dir "$work/unbroken"
"$bantam" train "$work/recipe.yaml" --gradient-accumulation-steps 1 --num-epochs 60 --save-steps 1000 --output-dir "$work/stop" > "$work/stdout" 2> "$work/stderr" < /dev/null & pid=$!
for _ in $(seq 200); do [ -s "$work/stop/metrics.jsonl" ] && break; sleep 0.05; done
kill -INT "$pid"
wait "$pid" || true
expect 0 "as the run began" long --output-dir "$work/stop"
cmp "$work/stop/adapter_model.safetensors" "$work/unbroken/adapter_model.safetensors" || fail "resumed with the old plan differs"

# selftest: equal, and says so; the picture; a model that is not here.
expect 0 "" big selftest --steps 2
grep -q "equal to the bit" "$work/stdout" || fail "selftest does not say equal"
[ "$(grep -c "  equal  " "$work/stdout")" -eq 5 ] || fail "selftest ran other than five schedules: $(cat "$work/stdout")"
expect 0 "" big selftest --steps 1 --json
grep -q '"equal": true' "$work/stdout" || fail "selftest --json"
expect 0 "" big plan --svg "$work/plan.svg"
grep -q "^<svg" "$work/plan.svg" && grep -q "^</svg>" "$work/plan.svg" || fail "no picture"
cat > "$work/8b.json" <<'J'
{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000, "tie_word_embeddings": false}
J
expect 0 "" "$bantam" plan --config "$work/8b.json" --max-seq-length 2048 --assume-memory 16GiB --assume-rate 90T
grep -q "weights  *5.3" "$work/stdout" || fail "8B: $(grep weights "$work/stdout")"
expect 5 "assumed memory" "$bantam" plan --config "$work/8b.json" --max-seq-length 2048 --assume-memory 6GiB --assume-rate 90T
expect 4 "nothing.json" "$bantam" plan --config "$work/nothing.json"
done_testing
