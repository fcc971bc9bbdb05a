#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README's table "which model on how much memory": bantam plan for the shapes of well-known models, rank 16 on all
# linears, one sequence a micro-batch, at 2,048 and 8,192 tokens. A cell says what recompute adds to a step; "-" does not fit.
# Usage: memory_table.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/../.."
bantam=${1:-build}/bin/bantam
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shape() {
  cat > "$work/config.json" <<J
{"model_type": "llama", "vocab_size": $1, "hidden_size": $2, "intermediate_size": $3, "num_hidden_layers": $4,
 "num_attention_heads": $5, "num_key_value_heads": $6, "head_dim": 128, "max_position_embeddings": 131072,
 "rms_norm_eps": 1e-5, "rope_theta": 500000, "tie_word_embeddings": $7}
J
}
cell() { # tokens, memory
  local json
  json=$("$bantam" plan --config "$work/config.json" --max-seq-length "$1" --loss-chunk-bytes 64MiB --assume-memory "$2" --assume-rate 100T --json 2> /dev/null) || { echo -n "-"; return; }
  awk -F: '/"recompute_overhead"/ { v = $2 + 0; if (v < 0) v = 0; printf(v > 1 ? "(+%.0f %%)" : "+%.0f %%", 100 * v); exit }' <<< "$json"
}
echo "| shape | 8 GiB | 12 GiB | 16 GiB | 24 GiB | 48 GiB | 80 GiB |"
echo "|---|---|---|---|---|---|---|"
while read -r name vocab hidden ffn layers heads kv tied; do
  shape "$vocab" "$hidden" "$ffn" "$layers" "$heads" "$kv" "$tied"
  echo -n "| $name |"
  for memory in 8GiB 12GiB 16GiB 24GiB 48GiB 80GiB; do
    echo -n " $(cell 2048 $memory) / $(cell 8192 $memory) |"
  done
  echo
done <<'T'
Llama-3.2-3B 128256 3072 8192 28 24 8 true
Llama-3-8B 128256 4096 14336 32 32 8 false
Qwen3-14B 151936 5120 17408 40 40 8 false
Qwen3-32B 151936 5120 25600 64 64 8 false
Llama-3-70B 128256 8192 28672 80 64 8 false
T
