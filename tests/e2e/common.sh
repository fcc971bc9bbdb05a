# SPDX-License-Identifier: Apache-2.0
# Sourced by the end-to-end tests. Usage of each: test.sh BUILD_DIR TOKENIZER.json
set -euo pipefail
build=$1
tokenizer=$2
bantam=$build/bin/bantam
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BANTAM_CACHE=$work/cache NO_COLOR=1
"$build/bin/make_model" "$tokenizer" "$work/model"
for i in $(seq 1 40); do
  printf '{"prompt": "Q%d: which colour?\\nA:", "completion": " blue and %d"}\n' "$i" "$((i % 3))"
done > "$work/data.jsonl"
cat > "$work/recipe.yaml" <<R
model:
  base_model: $work/model
  num_threads: 2
lora: {lora_r: 4, lora_alpha: 8, lora_dropout: 0.1}
data:
  datasets:
    - {path: $work/data.jsonl, type: prompt_completion}
  val_set_size: 8
  max_seq_length: 64
training: {gradient_accumulation_steps: 2, num_epochs: 3, learning_rate: 1.0e-2}
output:
  output_dir: $work/out
  save_steps: 3
R
failures=0
fail() { echo "FAIL: $*" >&2; failures=$((failures + 1)); }
# expect CODE TEXT command...: exit code and a text that stderr must hold, in one error line
expect() {
  local code=$1 text=$2 got=0
  shift 2
  "$@" > "$work/stdout" 2> "$work/stderr" < /dev/null || got=$?
  [ "$got" -eq "$code" ] || { fail "exit $got, expected $code: $*"; cat "$work/stderr" >&2; }
  [ -z "$text" ] || grep -qF -- "$text" "$work/stderr" || { fail "stderr lacks '$text': $*"; cat "$work/stderr" >&2; }
  if [ "$code" -ne 0 ] && [ "$code" -lt 100 ] && [ "$(grep -c '^error: ' "$work/stderr")" -ne 1 ]; then fail "not one error: $*"; cat "$work/stderr" >&2; fi
}
done_testing() { [ "$failures" -eq 0 ] && echo "all right"; exit $((failures > 0)); }
