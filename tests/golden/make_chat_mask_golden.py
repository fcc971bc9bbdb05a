# SPDX-License-Identifier: Apache-2.0
"""Ids and loss masks of conversations under chat templates, as transformers gives them.

    python make_chat_mask_golden.py

Writes chat_mask_golden.json beside itself: templates in the style of known families (written here), each with and without
{% generation %} tags, and what transformers 4.57.1 makes of the tagged one with return_assistant_tokens_mask. The tokenizer is the first
byte-level one of text_golden.json with the families' control tokens added.
"""
import json
import os
import re
import sys
import tempfile

from transformers import AddedToken, PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reference"))
import compare_chat_masks  # noqa: E402  (the conversations)

CONTROL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|h|>", "<|/h|>", "<|eot|>", "<turn>", "</turn>", "<|user|>", "<|assistant|>", "<|system|>",
           "<|end|>", "[INST]", "[/INST]", "[CALLS]", "[RESULT]", "[/RESULT]", "[TOOLS]", "[/TOOLS]", "<|start|>", "<|channel|>", "<|message|>", "<|call|>"]

TAGGED = {
    "im": """{%- for m in messages %}
{%- if loop.first and m.role != 'system' %}{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}
{%- if m.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}{% generation %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}{{ '\\n<tool_call>\\n' + c.function.name + ' ' + c.function.arguments | tojson + '\\n</tool_call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endgeneration %}
{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "header": """{{- bos_token }}
{%- for m in messages %}
{{- '<|h|>' + m.role + '<|/h|>\\n\\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ (m.content or '') | trim + '<|eot|>' }}{% endgeneration %}
{%- else %}{{ m.content | trim + '<|eot|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|h|>assistant<|/h|>\\n\\n' }}{% endif %}""",
    "turn": """{{- bos_token }}
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{%- if m.role == 'assistant' %}{{ '<turn>model\\n' }}{% generation %}{{ m.content | trim + '</turn>\\n' }}{% endgeneration %}
{%- else %}{{ '<turn>' + m.role + '\\n' + m.content | trim + '</turn>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<turn>model\\n' }}{% endif %}""",
    "end of text": """{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|assistant|>\\n' }}{% generation %}{{ (m.content or '') + '<|end|>\\n' }}{% endgeneration %}
{%- elif m.role in ['user', 'system'] %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}
{%- elif messages[-1].role == 'assistant' %}{% generation %}{{ eos_token }}{% endgeneration %}
{%- else %}{{ eos_token }}{% endif %}""",
    "inst": """{{- bos_token }}
{%- set users = messages | selectattr('role', 'equalto', 'user') | list %}
{%- for m in messages %}
{%- if m.role == 'user' %}
{%- if tools and m == users[-1] %}{{ '[TOOLS]' + tools | tojson + '[/TOOLS]' }}{% endif %}
{{- '[INST]' }}
{%- if loop.last and messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
{{- m.content + '[/INST]' }}
{%- elif m.role == 'assistant' %}{% generation %}
{%- if m.tool_calls %}{{ '[CALLS]' + m.tool_calls | map(attribute='function') | list | tojson }}{% else %}{{ m.content }}{% endif %}
{{- eos_token }}{% endgeneration %}
{%- elif m.role == 'tool' %}{{ '[RESULT]' + m.content + '[/RESULT]' }}
{%- endif %}
{%- endfor %}""",
    "instruction": """{{- bos_token }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content + '\\n\\n' }}
{%- elif m.role == 'user' %}{{ '### Instruction:\\n' + m.content + '\\n\\n' }}
{%- elif m.role == 'assistant' %}{{ '### Response:\\n' }}{% generation %}{{ (m.content or '') + eos_token }}{% endgeneration %}{{ '\\n\\n' if not loop.last }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}""",
    "channels": """{%- set ns = namespace(name='') %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|start|>assistant' }}{% generation %}
{%- if m.tool_calls %}{% set ns.name = m.tool_calls[0].function.name %}
{{- '<|channel|>call to=' + ns.name + '<|message|>' + m.tool_calls[0].function.arguments | tojson + '<|call|>' }}
{%- else %}{{ '<|channel|>final<|message|>' + (m.content or '') + '<|end|>' }}{% endif %}{% endgeneration %}
{%- elif m.role == 'tool' %}{{ '<|start|>' + ns.name + ' to=assistant<|message|>' + m.content | tojson + '<|end|>' }}
{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}""",
}
# Reasoning of all but the last answer is left out, and the last one has a block even when it is empty; the tags are part of both, so that
# the texts are the same.
TAGGED["think"] = """{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{%- set content = m.content or '' %}{% set thought = m.reasoning_content or '' %}
{%- if '</think>' in content %}
{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>assistant\\n' }}{% generation %}
{%- if loop.index0 > ns.last and (loop.last or thought) %}{{ '<think>\\n' + thought + '\\n</think>\\n\\n' }}{% endif %}
{{- content }}
{%- for c in m.tool_calls or [] %}{{ '\\n<tool_call>\\n' + c.function.name + ' ' + c.function.arguments | tojson + '\\n</tool_call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endgeneration %}
{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def main():
    with open(os.path.join(HERE, "text_golden.json"), encoding="utf-8") as f:
        base = json.load(f)["byte_level"][0]["json"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(base, f)
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=path, bos_token="<s>", eos_token="</s>")
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(t, normalized=False, special=True) for t in CONTROL]})
    used = {"long", "agent", "parts", "same texts"}
    cases = [(name, messages, (more[0] if more else None)) for name, messages, *more in compare_chat_masks.cases()
             if name not in used and len(more) < 2]
    rows = []
    for family, source in TAGGED.items():
        for name, messages, tools in cases:
            try:
                out = tokenizer.apply_chat_template(messages, tools=tools, chat_template=source, return_dict=True, return_assistant_tokens_mask=True)
            except Exception as e:
                rows.append({"template": family, "case": name, "error": str(e)})
                continue
            mask = out["assistant_masks"]
            mask[0] = 0
            trained, at = [], 0
            while at < len(mask):
                if mask[at]:
                    end = at
                    while end < len(mask) and mask[end]:
                        end += 1
                    trained.append([at, end])
                    at = end
                at += 1
            rows.append({"template": family, "case": name, "ids": out["input_ids"], "trained": trained})
    added = [t for t in json.loads(tokenizer.backend_tokenizer.to_str())["added_tokens"] if t not in base["added_tokens"]]
    golden = {
        "tokenizer": "byte_level[0] of text_golden.json", "added_tokens": added,
        "templates": {name: {"tagged": s, "own": re.sub(r"\{% (end)?generation %\}", "", s)} for name, s in TAGGED.items()},
        "cases": {name: {"messages": messages, "tools": tools} for name, messages, tools in cases}, "rows": rows,
    }
    with open(os.path.join(HERE, "chat_mask_golden.json"), "w", encoding="utf-8") as f:
        f.write("{\n")
        for i, (key, value) in enumerate(golden.items()):
            if key == "rows":
                f.write('"rows": [\n' + ",\n".join(json.dumps(r, separators=(",", ":")) for r in value) + "\n]")
            else:
                f.write(json.dumps(key) + ": " + json.dumps(value, separators=(",", ":")) + ",")
            f.write("\n")
        f.write("}\n")
    print(len(rows), "rows,", sum("error" in r for r in rows), "refused")


if __name__ == "__main__":
    main()
