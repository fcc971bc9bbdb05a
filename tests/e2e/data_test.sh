#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Data from outside: chat rows through the model's template, formats, the report, the cache, what is shown, and errors.
. "$(dirname "$0")/common.sh"
contains() { grep -qF -- "$2" "$1" || { fail "$1 lacks '$2'"; cat "$1" >&2; }; }
lacks() { ! grep -qF -- "$2" "$1" || { fail "$1 has '$2'"; cat "$1" >&2; }; }

cat > "$work/model/chat_template.jinja" <<'T'
{%- for m in messages %}<|im_start|>{{ m['role'] }}
{{ m['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
T
for i in $(seq 1 60); do
  printf '{"messages": [{"role": "user", "content": "Q%d: which colour?"}, {"role": "assistant", "content": "blue and %d"}]}\n' "$i" "$((i % 3))"
done > "$work/chat.jsonl"

# The same rows in other containers are the same samples.
{ echo '['; sed '$!s/$/,/' "$work/chat.jsonl"; echo ']'; } > "$work/chat.json"
gzip -k "$work/chat.jsonl"
python_free_csv() { echo 'instruction,output'; for i in $(seq 1 60); do echo "Q$i: which colour?,blue and $((i % 3))"; done; }
python_free_csv > "$work/alpaca.csv"
preprocess() { expect 0 "" "$bantam" preprocess --base-model "$work/model" --data "$1" --output-dir "$work/p" --max-seq-length 128 "${@:2}"; }
preprocess "$work/chat.jsonl"
contains "$work/stderr" "looks like type chat"
contains "$work/stdout" "60 rows read, 60 kept, 0 dropped"
contains "$work/stdout" "packing: "
tokens=$(grep -o '^[0-9,]* tokens, [0-9,]* trained' "$work/stdout")
for f in chat.json chat.jsonl.gz alpaca.csv; do
  preprocess "$work/$f"
  contains "$work/stdout" "$tokens"
done
contains "$work/stderr" "looks like type alpaca"
grep -q '"rows_kept": 60' "$work/p/data_report.json" || fail "data_report.json"

# The second time nothing is read: the data file may even be slow; a changed byte is read again.
entries() { find "$work/cache/tokens" -type f | wc -l; }
before=$(entries)
preprocess "$work/chat.jsonl"
[ "$(entries)" -eq "$before" ] || fail "prepared again: $before entries, then $(entries)"
sed 's/blue/cyan/' "$work/chat.jsonl" > "$work/chat2.jsonl"
preprocess "$work/chat2.jsonl"
[ "$(entries)" -gt "$before" ] || fail "changed data were taken from the cache"
before=$(entries)
preprocess "$work/chat.jsonl" --train-on-eos none
[ "$(entries)" -gt "$before" ] || fail "another mask was taken from the cache"
preprocess "$work/chat.jsonl" --dataset-prepared-path "$work/prepared"
[ -n "$(find "$work/prepared" -type f)" ] || fail "nothing in dataset_prepared_path"
chmod 500 "$work/prepared"; [ "$(id -u)" -eq 0 ] || { preprocess "$work/chat2.jsonl" --dataset-prepared-path "$work/prepared"; contains "$work/stderr" "not kept"; }
chmod 700 "$work/prepared"

# What the model will see.
preprocess "$work/chat.jsonl" --debug 1
contains "$work/stdout" "context | <|im_start|>user"
contains "$work/stdout" "trained | blue and 1<|im_end|>"
lacks "$work/stdout" "row 2:"
expect 0 "" "$bantam" tokenize "$work/model" --chat --file "$work/chat.jsonl" --rows 1
[ "$(grep -c '  +  ' "$work/stdout")" -ge 4 ] || fail "no trained tokens are marked"
expect 0 "" "$bantam" tokenize "$work/model" --text 'a <|im_end|> b' --json
lacks "$work/stdout" '"<|im_end|>"'   # text makes no control token
expect 0 "" "$bantam" tokenize "$work/model" --text 'a <|im_end|> b' --parse-special --json
contains "$work/stdout" '"<|im_end|>"'
expect 0 "" "$bantam" inspect "$work/model" --prompt 'Why?'
printf '<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n' | cmp - "$work/stdout" || fail "the prompt"
expect 0 "" "$bantam" inspect "$work/model"
contains "$work/stdout" "answers end    "
contains "$work/stdout" "<|im_end|>"

# What ends an answer is one token of the model, or that is said; all that the model stops at is kept.
printf '{"eos_token_id": [0, 5]}' > "$work/model/generation_config.json"
expect 0 "" "$bantam" inspect "$work/model"
grep -q 'answers end .*(0).*(5).*<|im_end|>' "$work/stdout" || fail "stop tokens: $(cat "$work/stdout")"
rm "$work/model/generation_config.json"
preprocess "$work/chat.jsonl" --chat-template chatml
lacks "$work/stderr" "warning: the chat template"
preprocess "$work/chat.jsonl" --chat-template llama3
contains "$work/stderr" "warning: the chat template ends an answer with '<|eot_id|>', which is no token of this vocabulary ("
contains "$work/stderr" "name another chat_template, such as the one of the model"
[ "$(grep -c warning "$work/stderr")" -eq 1 ] || fail "more than one warning"
preprocess "$work/chat.jsonl" --chat-template llama3 --train-on-eos none
lacks "$work/stderr" "warning: the chat template"
preprocess "$work/data.jsonl" --chat-template llama3   # no chat rows
lacks "$work/stderr" "warning: the chat template"

# A run on chat rows: its folder answers in its template, and stops where training taught it to.
sed "s#- {path: .*#- {path: $work/chat.jsonl, type: chat, weight: 2}#; s#max_seq_length: 64#max_seq_length: 128#; s#num_epochs: 3#num_epochs: 6#; s#lora_dropout: 0.1#lora_dropout: 0#" \
  "$work/recipe.yaml" > "$work/chat.yaml"
expect 0 "" "$bantam" train "$work/chat.yaml" --output-dir "$work/run"
contains "$work/stderr" "weight 2"
cmp "$work/model/chat_template.jinja" "$work/run/chat_template.jinja" || fail "the run's template"
expect 0 "" "$bantam" inspect "$work/run" --prompt 'Why?'
printf '<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n' | cmp - "$work/stdout" || fail "the run's prompt"
expect 0 "written with the run's chat template" "$bantam" generate "$work/run" --prompt 'Q5: which colour?' --max-new-tokens 30
contains "$work/stdout" "blue and"
[ "$(wc -c < "$work/stdout")" -lt 30 ] || fail "the answer does not end: $(cat "$work/stdout")"

# A run goes on with the date that its rows were written with, not with that of the day.
printf '%s\n' '{%- for m in messages %}<|im_start|>{{ m.role }} on {{ strftime_now("%d %b %Y") }}' '{{ m.content }}<|im_end|>' \
  '{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant on {{ strftime_now("%d %b %Y") }}' '{% endif %}' > "$work/dated.jinja"
dated() { expect "$1" "$2" "$bantam" train "$work/chat.yaml" --chat-template "$work/dated.jinja" --output-dir "$work/dated" --max-steps 2; }
day=$(date +%F)
dated 0 ""
today=$(sed -n 's/.*"today": "\([0-9-]*\)".*/\1/p' "$work/dated/data_report.json")
[ "$today" = "$day" ] || [ "$today" = "$(date +%F)" ] || fail "the report's date: '$today'"
rm "$work/dated/finished.json"   # as if it had been stopped
sed -i "s/$today/2001-02-03/" "$work/dated/data_report.json"
dated 2 "another run"
sed -i "s/2001-02-03/$today/" "$work/dated/data_report.json"
dated 0 "going on from step 2 of 2"

# Errors: one line each, with the place and what to do.
echo '{"messages": [{"role": "user", "content": 5}]}' > "$work/bad.jsonl"
expect 3 "bad.jsonl:1: messages[0].content" "$bantam" preprocess --base-model "$work/model" --data "$work/bad.jsonl" --type chat
{ head -3 "$work/chat.jsonl"; echo '{"messages": ['; head -2 "$work/chat.jsonl"; } > "$work/broken.jsonl"
expect 3 "broken.jsonl:4:" "$bantam" preprocess --base-model "$work/model" --data "$work/broken.jsonl"
preprocess "$work/broken.jsonl" --max-malformed-rows 1
contains "$work/stdout" "6 rows read, 5 kept, 1 dropped (1 malformed)"
contains "$work/stdout" "broken.jsonl:4 dropped: malformed"
printf 'PAR1 and so on' > "$work/d.parquet"
expect 3 "Parquet" "$bantam" preprocess --base-model "$work/model" --data "$work/d.parquet"
expect 2 "did you mean chatml?" "$bantam" preprocess --base-model "$work/model" --data "$work/chat.jsonl" --chat-template chatm
rm "$work/model/chat_template.jinja"
expect 4 "no chat template" "$bantam" preprocess --base-model "$work/model" --data "$work/chat.jsonl"
contains "$work/stderr" "chat_template: chatml"
preprocess "$work/chat.jsonl" --chat-template chatml
contains "$work/stdout" "$tokens"   # chatml is what the model's own template wrote
preprocess "$work/alpaca.csv"      # without a template: the Alpaca prompt
preprocess "$work/alpaca.csv" --debug 1
contains "$work/stdout" "### Instruction:"
done_testing
