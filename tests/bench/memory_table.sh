#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README's table "which model on how much memory": bantam plan for the shapes of well-known models, rank 16 on all
# linears, one sequence a micro-batch, at 2,048 and 8,192 tokens. A cell says what recompute adds to a step; "-" does not fit.
# Then the table of the longest example that a GPU's memory holds: without checkpointing / with `true` / and with its layer
# inputs in host memory.
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
lengths() { # memory
  local json
  json=$("$bantam" plan --config "$work/config.json" --max-seq-length 2048 --loss-chunk-bytes 64MiB --device cuda --assume-memory "$1" --assume-rate 100T --json 2> /dev/null) || true
  awk -F: '/"largest"/ { inside = 1 } inside && /"max_seq_length"/ { v = $2 + 0; out = out (out == "" ? "" : " / ") (v > 0 ? v : "-") }
           /"layer_inputs_bytes"/ { inside = 0 } END { printf("%s", out == "" ? "-" : out) }' <<< "$json"
}
models="Llama-3.2-3B 128256 3072 8192 28 24 8 true
Llama-3-8B 128256 4096 14336 32 32 8 false
Qwen3-14B 151936 5120 17408 40 40 8 false
Qwen3-32B 151936 5120 25600 64 64 8 false
Llama-3-70B 128256 8192 28672 80 64 8 false
"
table() { # function that fills a cell, memories
  local memory
  echo "| shape |$(for memory in "${@:2}"; do echo -n " ${memory/G/ G} |"; done)"
  echo "|---|$(for memory in "${@:2}"; do echo -n "---|"; done)"
  while read -r name vocab hidden ffn layers heads kv tied; do
    [ -n "$name" ] || continue
    shape "$vocab" "$hidden" "$ffn" "$layers" "$heads" "$kv" "$tied"
    echo -n "| $name |"
    for memory in "${@:2}"; do echo -n " $("$1" "$memory") |"; done
    echo
  done <<< "$models"
}
recompute() { echo -n "$(cell 2048 "$1") / $(cell 8192 "$1")"; }
table recompute 8GiB 12GiB 16GiB 24GiB 48GiB 80GiB
echo
table lengths 24GiB 48GiB 80GiB
