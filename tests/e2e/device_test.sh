#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `device:` from a user's side, with the emulated CUDA device as the GPU. Usage: device_test.sh BUILD_DIR TOKENIZER.json
. "$(dirname "$0")/common.sh"
library=$build/lib/bantam/libbantam_cuda_on_cpu.so
gpu() { BANTAM_CUDA_LIBRARY=$library "$@"; }
last_loss() { grep -o '"loss":[0-9.]*' "$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
t() { "$bantam" train "$work/recipe.yaml" --max-steps 3 --save-steps 2 --val-set-size 2 "$@"; }

# The same training on both: equal within rounding; on the GPU again, with checkpointing: the same bytes.
expect 0 "" t --device cpu --output-dir "$work/cpu"
expect 0 "device: cuda_on_cpu:0, emulated device 0" gpu t --device cuda --output-dir "$work/gpu"
grep -q "device memory: .* planned, .* measured" "$work/stdout" || fail "no device memory in the report: $(cat "$work/stdout")"
grep -q '"device_bytes":' "$work/gpu/metrics.jsonl" || fail "no device memory in the metrics"
awk -v a="$(last_loss "$work/cpu")" -v b="$(last_loss "$work/gpu")" 'BEGIN { d = a / b - 1; exit !(d < 0.02 && d > -0.02 && a > 0) }' || fail "loss $(last_loss "$work/cpu") on the CPU, $(last_loss "$work/gpu") on the GPU"
expect 0 "" gpu t --device auto --gradient-checkpointing true --output-dir "$work/gpu2"
cmp "$work/gpu/adapter_model.safetensors" "$work/gpu2/adapter_model.safetensors" || fail "checkpointing changed the result on the GPU"

# Quantising: the GPU makes the CPU's files, in the folder and in the cache, with memory that it names and gives back.
expect 0 "" "$bantam" quantize "$work/model" -o "$work/nf4_cpu" --device cpu
expect 0 "" gpu "$bantam" quantize "$work/model" -o "$work/nf4_gpu" --device cuda
grep -q "on cuda_on_cpu:0, with .* of its memory" "$work/stdout" || fail "quantize does not say where: $(cat "$work/stdout")"
cmp "$work/nf4_cpu/model.safetensors" "$work/nf4_gpu/model.safetensors" || fail "the GPU quantises to other bytes"
cp -r "$work/cache" "$work/cache_cpu"
cached() { (cd "$1" && find . -name model.safetensors -exec sha256sum {} +); }
[ -n "$(cached "$work/cache_cpu")" ] || fail "the CPU's training left no store in the cache"
other() { BANTAM_CACHE=$work/cache_gpu gpu "$@"; }
expect 0 "" other "$bantam" plan "$work/recipe.yaml" --device cuda
grep -q "quantising, once and before all else, takes .* of the device's memory" "$work/stdout" || fail "the plan does not tell of quantising: $(cat "$work/stdout")"
grep -q "upload staging .*pinned host memory" "$work/stdout" || fail "no pinned memory in the plan: $(cat "$work/stdout")"
expect 6 "quantising 'model.layers.0." env COC_FAIL=cudaEventRecord:1 BANTAM_CACHE="$work/cache_gpu" BANTAM_CUDA_LIBRARY="$library" "$bantam" generate "$work/model" --device cuda --prompt a --max-new-tokens 1
[ -z "$(cached "$work/cache_gpu")" ] || fail "a failed device left a store, or the CPU made one"
expect 0 "quantizing to NF4 on cuda_on_cpu:0, with 1 MiB of its memory, once" other "$bantam" generate "$work/model" --device cuda --prompt a --max-new-tokens 1
[ "$(cached "$work/cache_cpu")" = "$(cached "$work/cache_gpu")" ] || fail "the cache has other bytes, or another key, on the GPU"
expect 0 "" other "$bantam" plan "$work/recipe.yaml" --device cuda
grep -q "quantising, once" "$work/stdout" && fail "the plan tells of quantising what is in the cache"

# Layer inputs in host memory: the same bytes, and a run that stopped goes on with its schedule.
expect 0 "" gpu t --device cuda --output-dir "$work/gpu6"
grep -q "layer inputs in host memory" "$work/stdout" && fail "the report has inputs in host memory that nobody put there: $(cat "$work/stdout")"
tight() { gpu "$bantam" plan "$work/recipe.yaml" --device cuda --gradient-checkpointing true --memory-limit 8GiB --memory-reserve 1TiB "$@"; }
expect 0 "" tight
expect 5 "" tight --activation-offloading
grep -qE "It does not fit: [0-9.]+ [KM]?i?B over what the host has free" "$work/stdout" || fail "the host's memory: $(cat "$work/stdout")"
off() { gpu t --device cuda --gradient-checkpointing true --activation-offloading "$@"; }
expect 0 "in host memory until they are needed: the inputs of" off --output-dir "$work/gpu4"
grep -q "layer inputs in host memory: " "$work/stdout" || fail "no host memory in the report: $(cat "$work/stdout")"
cmp "$work/gpu/adapter_model.safetensors" "$work/gpu4/adapter_model.safetensors" || fail "offloading changed the result"
grep -q '"o 1 ' "$work/gpu4/plan.json" || fail "plan.json does not say whose input goes to the host"
rm -r "$work/gpu4/finished.json" "$work/gpu4/adapter_model.safetensors"
expect 0 "as the run began" off --output-dir "$work/gpu4"
cmp "$work/gpu/adapter_model.safetensors" "$work/gpu4/adapter_model.safetensors" || fail "a resumed run with offloading differs"
expect 0 "" gpu t --device auto --activation-offloading --output-dir "$work/gpu5"
cmp "$work/gpu/adapter_model.safetensors" "$work/gpu5/adapter_model.safetensors" || fail "auto with offloading changed the result"
expect 2 "found true, but device cpu computes in host memory itself" t --device cpu --activation-offloading --output-dir "$work/none"
expect 2 "computes in host memory itself" env COC_NO_DEVICE=1 BANTAM_CUDA_LIBRARY="$library" "$bantam" train "$work/recipe.yaml" --device auto --activation-offloading --output-dir "$work/none"
expect 2 "use device: cuda" "$bantam" plan "$work/recipe.yaml" --device cpu --enable-activation-offloading

# What the device holds is what was planned, within 3 % and 64 MiB.
expect 0 "" gpu t --device cuda --output-dir "$work/gpu3" --json
planned=$(grep -o '"planned_device_bytes":[0-9]*' "$work/stdout" | cut -d: -f2)
peak=$(grep -o '"peak_device_bytes":[0-9]*' "$work/stdout" | cut -d: -f2)
awk -v p="$planned" -v m="$peak" 'BEGIN { d = m - p; exit !(p > 0 && d * d < (0.03 * p + 67108864) ^ 2) }' || fail "device memory: $planned planned, $peak measured"

expect 0 "" gpu "$bantam" plan "$work/recipe.yaml" --max-steps 3 --val-set-size 2 --device cuda --json
[ "$(grep -o '"total_bytes": [0-9]*' "$work/stdout" | head -1 | cut -d' ' -f2)" = "$planned" ] || fail "the plan without weights is not the run's, $planned bytes: $(grep total_bytes "$work/stdout")"

# Begun on the CPU, gone on with on a GPU: said where device is auto, another run where it is named.
expect 0 "" t --device auto --output-dir "$work/both"
resume() { gpu t --output-dir "$work/on" --resume-from-checkpoint "$work/both/checkpoint-2" "$@"; }
expect 0 "numbers will differ in the last digits" resume --device auto
expect 2 "of another run" resume --device cuda --overwrite

# Begun with the built-in attention, gone on with through cuDNN.
expect 0 "cuDNN 9.28.1: numbers will differ in the last digits" env COC_CUDNN=92801 COC_SM=90 BANTAM_CUDA_LIBRARY="$library" "$bantam" train "$work/recipe.yaml" \
  --max-steps 3 --save-steps 2 --val-set-size 2 --device cuda --output-dir "$work/on2" --resume-from-checkpoint "$work/gpu/checkpoint-2"

# Plan, selftest, generate, doctor.
expect 0 "" gpu "$bantam" plan "$work/recipe.yaml" --device cuda
grep -q "free memory of cuda_on_cpu:0" "$work/stdout" || fail "the plan does not name the device's memory"
grep -q "program, tokenizer" "$work/stdout" && fail "host memory in a device's plan"
expect 0 "" gpu "$bantam" selftest "$work/recipe.yaml" --device cuda --steps 1
grep -q "equal to the bit" "$work/stdout" || fail "selftest: $(cat "$work/stdout")"
expect 0 "" gpu "$bantam" selftest "$work/recipe.yaml" --device cuda --steps 1 --activation-offloading
grep -q "^true, offloaded .* equal " "$work/stdout" || fail "selftest with offloading: $(cat "$work/stdout")"
expect 0 "" gpu "$bantam" plan "$work/recipe.yaml" --device cuda --gradient-checkpointing true --activation-offloading
for text in "offloaded layer inputs" "host memory beside it" "true, offloaded" "with (true, offloaded)" "activation_offloading keeps that in host memory"; do
  grep -qF "$text" "$work/stdout" || fail "plan lacks '$text': $(cat "$work/stdout")"
done
expect 0 "" gpu "$bantam" plan "$work/recipe.yaml" --device cuda --gradient-checkpointing true --activation-offloading --json
grep -q '"offloaded_layer_inputs": [1-9]' "$work/stdout" || fail "plan --json: $(cat "$work/stdout")"
expect 0 "" gpu "$bantam" generate "$work/gpu" --prompt "Q5: which" --max-new-tokens 2
expect 0 "" env COC_CUDNN=92801 COC_SM=90 BANTAM_CUDA_LIBRARY="$library" "$bantam" doctor
for text in "emulated device 1, compute capability 9.0" "auto is cuda:0" "cuda_on_cpu:0" "good: f32: loss off by" \
  "attention: cuDNN 9.28.1 where it can, else built in"; do
  grep -qF "$text" "$work/stdout" || fail "doctor lacks '$text': $(cat "$work/stdout")"
done

# What is not there.
expect 6 "no device 7; this machine has 2" gpu t --device cuda:7 --output-dir "$work/none"
export COC_NO_DEVICE=1
expect 6 "no usable CUDA device" gpu t --device cuda --output-dir "$work/none"
expect 0 "" gpu t --device auto --output-dir "$work/none"
cmp "$work/none/adapter_model.safetensors" "$work/cpu/adapter_model.safetensors" || fail "auto without a GPU is not the CPU"
expect 0 "" gpu "$bantam" doctor
grep -q "no usable CUDA device" "$work/stdout" || fail "doctor does not say why: $(cat "$work/stdout")"
unset COC_NO_DEVICE
expect 6 "this build has no code for it" env COC_NO_CODE=1 BANTAM_CUDA_LIBRARY="$library" "$bantam" plan "$work/recipe.yaml" --device cuda
expect 6 "/nowhere.so" env BANTAM_CUDA_LIBRARY=/nowhere.so "$bantam" plan "$work/recipe.yaml" --device cuda
expect 5 "free memory of cuda_on_cpu:0" env COC_MEM_LIMIT=600000000 BANTAM_CUDA_LIBRARY="$library" "$bantam" plan "$work/recipe.yaml" --device cuda --max-seq-length 65536 --memory-reserve 598MiB
done_testing
