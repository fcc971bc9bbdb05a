#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program from a user's side: train, learn, plan, generate, resume, refuse, bad input with its exit code.
. "$(dirname "$0")/common.sh"

# Trains and learns; the run folder is complete.
expect 0 "held-out loss" "$bantam" train "$work/recipe.yaml"
for f in adapter_model.safetensors adapter_config.json tokenizer.json recipe.resolved.yaml plan.json data_report.json metrics.jsonl; do
  [ -s "$work/out/$f" ] || fail "run folder lacks $f"
done
before=$(grep -o '"eval_loss":[0-9.]*' "$work/out/metrics.jsonl" | head -1 | cut -d: -f2)
after=$(grep -o '"eval_loss":[0-9.]*' "$work/out/metrics.jsonl" | tail -1 | cut -d: -f2)
awk -v a="$before" -v b="$after" 'BEGIN { exit !(b < 0.75 * a) }' || fail "held-out loss $before -> $after"
cp "$work/out/adapter_model.safetensors" "$work/reference"

# The same command again is refused; --overwrite gives the same bytes; so do other checkpointing, threads and packing of the loss.
expect 2 "holds a finished run" "$bantam" train "$work/recipe.yaml"
expect 0 "" "$bantam" train "$work/recipe.yaml" --overwrite
cmp "$work/out/adapter_model.safetensors" "$work/reference" || fail "a repeated run differs"
for flags in "--no-gradient-checkpointing" "--gradient-checkpointing=selective" "--num-threads 1" "--num-threads 3" "--loss-chunk-bytes 1KiB"; do
  # shellcheck disable=SC2086
  expect 0 "" "$bantam" train "$work/recipe.yaml" $flags --output-dir "$work/out2" --overwrite
  cmp "$work/out2/adapter_model.safetensors" "$work/reference" || fail "differs with $flags"
done

# Without a recipe; plan; generate from model, run and adapter.
expect 0 "" "$bantam" train --base-model "$work/model" --data "$work/data.jsonl" --max-steps 2 --output-dir "$work/plain"
expect 0 "" "$bantam" plan "$work/recipe.yaml"
grep -q "saved activations" "$work/stdout" || fail "plan has no line for activations"
expect 0 "" "$bantam" plan "$work/recipe.yaml" --json
expect 0 "" "$bantam" generate "$work/out" --prompt "Q5: which colour?
A:" --max-new-tokens 8
grep -q "blue" "$work/stdout" || fail "the answer was not learned: $(cat "$work/stdout")"
expect 0 "" "$bantam" generate "$work/model" --adapter "$work/out" --prompt "Q5: which colour?
A:" --max-new-tokens 8
grep -q "blue" "$work/stdout" || fail "the adapter has no effect"

# Quantised folder: the same numbers as the model that it was made from.
expect 0 "" "$bantam" quantize "$work/model" -o "$work/nf4"
expect 2 "holds a model already" "$bantam" quantize "$work/model" -o "$work/nf4"
expect 0 "" "$bantam" train "$work/recipe.yaml" --base-model "$work/nf4" --output-dir "$work/out3"
cmp "$work/out3/adapter_model.safetensors" "$work/reference" || fail "training on the quantised folder differs"

# Bad input: one clear error, the right code.
t() { "$bantam" train "$work/recipe.yaml" --output-dir "$work/bad" "$@"; }
expect 2 "" "$bantam" train "$work/nothing.yaml"
expect 4 "" t --base-model "$work/nothing"
sed 's/learning_rate/lerning_rate/' "$work/recipe.yaml" > "$work/typo.yaml"
expect 2 "learning_rate" "$bantam" train "$work/typo.yaml"
expect 2 "" t --no-such-flag 3
printf '{"prompt": "a", "completion": "b"}\n{"prompt": oops}\n' > "$work/broken.jsonl"
expect 3 "broken.jsonl:2" t --data "$work/broken.jsonl"
: > "$work/empty.jsonl"
expect 3 "empty.jsonl" t --data "$work/empty.jsonl"
printf '{"prompt": "a long prompt that fills all of it and more than that, word after word after word after word", "completion": "b"}\n' > "$work/no_target.jsonl"
expect 3 "" t --data "$work/no_target.jsonl" --max-seq-length 8 --max-excess-fraction 1 --val-set-size 0
expect 3 "nowhere.jsonl" t --data "$work/nowhere.jsonl"
: > "$work/a_file"
expect 8 "output_dir" "$bantam" train "$work/recipe.yaml" --output-dir "$work/a_file/out"
expect 2 "matches no linear module" t --lora-target-modules nonsense_proj
expect 2 "one of auto, cpu, cuda, cuda:N" t --device gpu0
expect 6 "/nowhere.so" env BANTAM_CUDA_LIBRARY=/nowhere.so "$bantam" train "$work/recipe.yaml" --output-dir "$work/bad" --device cuda
expect 5 "more than memory_limit" t --memory-limit 1MiB
expect 5 "more than memory_limit" "$bantam" plan "$work/recipe.yaml" --memory-limit 1MiB
cp -r "$work/model" "$work/cut"
head -c 20000 "$work/model/model.safetensors" > "$work/cut/model.safetensors"
expect 4 "model.safetensors" t --base-model "$work/cut"
# A disk that is full: files may not grow beyond 20 KiB.
full() { (trap '' XFSZ; ulimit -f 20; exec "$bantam" train "$work/recipe.yaml" --output-dir "$work/full" --quiet); }
expect 8 "" full

# Ctrl-C stops after the micro-batch, says how to go on, and the next start does.
t2() { "$bantam" train "$work/recipe.yaml" --output-dir "$work/stop" --num-epochs 40 --save-steps 1000 "$@"; }
"$bantam" train "$work/recipe.yaml" --output-dir "$work/stop" --num-epochs 40 --save-steps 1000 > "$work/stdout" 2> "$work/stderr" < /dev/null & pid=$!
for _ in $(seq 200); do [ -s "$work/stop/metrics.jsonl" ] && break; sleep 0.05; done
sleep 0.2
kill -INT "$pid"
got=0; wait "$pid" || got=$?
[ "$got" -eq 130 ] || fail "exit $got after SIGINT"
ls -d "$work"/stop/checkpoint-* > /dev/null || fail "no checkpoint after SIGINT"
expect 2 "holds an unfinished run of another recipe" "$bantam" train "$work/recipe.yaml" --output-dir "$work/stop" --num-epochs 40 --save-steps 1000 --learning-rate 1e-3
cp -r "$work/stop" "$work/stop2"
again() { "$bantam" train "$work/recipe.yaml" --output-dir "$work/stop2" --save-steps 1000 --learning-rate 1e-3 --num-epochs 12 "$@"; }
expect 2 "learning_rate" again
expect 0 "going on from step" again --resume
expect 2 "lora_r" "$bantam" train "$work/recipe.yaml" --output-dir "$work/stop" --num-epochs 40 --save-steps 1000 --lora-r 8 --resume
expect 0 "going on from step" t2
expect 0 "" "$bantam" train "$work/recipe.yaml" --output-dir "$work/unbroken" --num-epochs 40 --save-steps 1000
cmp "$work/stop/adapter_model.safetensors" "$work/unbroken/adapter_model.safetensors" || fail "stopped and resumed differs from unbroken"

# Help, version.
expect 0 "" "$bantam" --version
expect 0 "" "$bantam" train --help
done_testing
