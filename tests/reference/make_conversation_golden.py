#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/conversation_golden.json: what transformers renders of rows of real datasets with real templates.

    python3 -m venv venv && venv/bin/pip install transformers==4.57.1 jinja2==3.1.6
    venv/bin/python tests/reference/make_conversation_golden.py ../shared/data

Rows become messages here by what LLaMA-Factory and transformers document of their formats, apart from Bantam's reader.
The texts are long and not ours, so that only their length and 64-bit FNV-1a hash are kept.
"""
import json
import os
import sys

from transformers.utils.chat_template_utils import render_jinja_template

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TEXT_ARGUMENTS = {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja"}  # concatenates them
NO_NULL = {"Qwen-Qwen3-0.6B.jinja"}  # looks into the content of a call, which servers make empty text for it
PLAIN = [
    "Qwen-Qwen3-0.6B.jinja",
    "Qwen-Qwen2.5-7B-Instruct.jinja",
    "meta-llama-Llama-3.1-8B-Instruct.jinja",
    "microsoft-Phi-3.5-mini-instruct.jinja",
    "trl-gemma3.jinja",
    "axolotl-chatml.jinja",
]
TOOLS = [
    "Qwen-Qwen3-0.6B.jinja",
    "Qwen-Qwen2.5-7B-Instruct.jinja",
    "Qwen3-Coder.jinja",
    "meta-llama-Llama-3.1-8B-Instruct.jinja",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja",
    "Apertus-8B-Instruct.jinja",
]


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & (2**64 - 1)
    return f"{h:016x}"


def tools_of(row):
    tools = json.loads(row["tools"]) if row.get("tools") else []
    return [t if t.get("type") == "function" else {"type": "function", "function": t} for t in tools] or None


def calls_of(texts):
    return [{"type": "function", "function": json.loads(t)} for t in texts]


def sharegpt(row):
    names = {"system": "system", "human": "user", "gpt": "assistant", "observation": "tool"}
    for m in row["conversations"]:
        if m["from"] == "function_call":
            yield {"role": "assistant", "content": None, "tool_calls": calls_of([m["value"]])}
        else:
            yield {"role": names[m["from"]], "content": m["value"]}


def parts(row):
    for m in row["messages"]:
        of = lambda kind: [p["value"] for p in m["content"] if p["type"] == kind]
        out = {"role": m["role"], "content": "".join(of("text")) if of("text") else None}
        if of("reasoning"):
            out["reasoning_content"] = "".join(of("reasoning"))
        if of("tool_call"):
            out["tool_calls"] = calls_of(of("tool_call"))
        yield out


def openai(row):
    return row["messages"]


def alpaca(row):
    text = "\n".join(t for t in (row["instruction"], row["input"]) if t)
    return [{"role": "user", "content": text}, {"role": "assistant", "content": row["output"]}]


FILES = [
    ("llamafactory/glaive_toolcall_en_demo.json", sharegpt, [0, 1, 2, 3, 17, 150, 299], TOOLS),
    ("llamafactory/reason_tool_use_demo_50.jsonl", parts, [0, 1, 2, 3, 20, 49], TOOLS),
    ("llamafactory/v1_sft_demo.jsonl", parts, [0, 100, 250, 499], PLAIN),
    ("llamafactory/kto_en_demo.json", openai, [0, 10, 299], PLAIN),
    ("llamafactory/identity.json", alpaca, [0, 90], PLAIN),
    ("axolotl_fixtures/conversation.json", sharegpt, [0], PLAIN),
    ("axolotl_fixtures/conversation.missingturns.json", sharegpt, [0], PLAIN),
    ("axolotl_fixtures/alpaca.json", alpaca, [0, 1], PLAIN),
    ("torchtune_tiny/chat_tiny.json", sharegpt, [0], PLAIN),
]


def rows_of(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.split("\n") if line]
    rows = json.loads(text)
    return rows if isinstance(rows, list) else [rows]


def as_text(messages):
    for m in messages:
        for call in m.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return messages


def main(data):
    out = []
    for name, convert, picked, templates in FILES:
        rows = rows_of(os.path.join(data, "datasets", name))
        for template in templates:
            with open(os.path.join(data, "chat_templates", template), encoding="utf-8") as f:
                source = f.read()
            for i in picked:
                messages = list(convert(rows[i]))
                if template in TEXT_ARGUMENTS:
                    messages = as_text(messages)
                if template in NO_NULL:
                    messages = [{**m, "content": m["content"] or ""} for m in messages]
                entry = {"file": name, "row": i, "template": template}
                try:
                    texts, _ = render_jinja_template(
                        conversations=[messages], tools=tools_of(rows[i]), chat_template=source, **SPECIAL
                    )
                    text = texts[0].encode()
                    entry.update(bytes=len(text), fnv=fnv1a(text))
                except Exception as e:  # what a template refuses is compared too
                    entry.update(error=str(e))
                out.append(entry)
    path = os.path.join(os.path.dirname(__file__), "..", "golden", "conversation_golden.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(e, ensure_ascii=False) for e in out) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
