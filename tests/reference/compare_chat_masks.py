# SPDX-License-Identifier: Apache-2.0
"""Ids and loss masks of Bantam against transformers, on the chat templates that trl carries.

    python compare_chat_masks.py PROGRAM [--data shared/data] [--only FAMILY] [--verbose]

PROGRAM is build/bin/bantam_chat_masks. For each family trl 1.16.0 has the model's own template and one with {% generation %} tags.
Reference: transformers 4.57.1, apply_chat_template(return_assistant_tokens_mask=True) with the tagged template, and a byte-level
tokenizer that has the family's control tokens. Compared with `==`: (tags) Bantam with the tagged template; (own) Bantam with the
model's own template, where both templates write the same text. Counted apart, because they differ on purpose:
- other text: the two templates do not write the same (the tagged ones keep the reasoning of earlier turns), or content parts are joined
  here because the template takes text only, or null content is no text here where the template would write "None";
- head: the tags of some families hold the end of the generation prompt ("\\n", "<think>\\n", "<|start|>assistant"), which the served model
  never has to say. Only tokens of that prompt may differ, and only there;
- KNOWN: single cases, with the reason.
Exit 1 when something else differs.
"""
import argparse
import copy
import json
import os
import re
import subprocess
import sys
import tempfile

import trl
from transformers import AddedToken, PreTrainedTokenizerFast

TRL = os.path.join(os.path.dirname(trl.__file__), "chat_templates")
# family: bos, eos
FAMILIES = {
    "qwen2_5": ("<|endoftext|>", "<|im_end|>"),
    "qwen3": ("<|endoftext|>", "<|im_end|>"),
    "qwen3_instruct_2507": ("<|endoftext|>", "<|im_end|>"),
    "qwen3_vl": ("<|endoftext|>", "<|im_end|>"),
    "qwen2_5_vl": ("<|endoftext|>", "<|im_end|>"),
    "qwen3_5_think": ("<|endoftext|>", "<|im_end|>"),
    "qwen3_5_nothink": ("<|endoftext|>", "<|im_end|>"),
    "qwen3_6": ("<|endoftext|>", "<|im_end|>"),
    "qwen3_8": ("<|endoftext|>", "<|im_end|>"),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
    "phi3": ("<s>", "<|endoftext|>"),
    "phi3_5": ("<s>", "<|endoftext|>"),
    "gemma": ("<bos>", "<eos>"),
    "gemma3": ("<bos>", "<eos>"),
    "cohere": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "cohere2": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "deepseekv3": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "deepseek_r1_distill": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "glm4moe": ("<sop>", "<|endoftext|>"),
    "gptoss": ("<|startoftext|>", "<|return|>"),
    "lfm2": ("<|startoftext|>", "<|im_end|>"),
    "lfm2_v2": ("<|startoftext|>", "<|im_end|>"),
    "llava_next": ("<s>", "</s>"),
    "idefics3": ("<|begin_of_text|>", "<end_of_utterance>"),
    "smolvlm": ("<|im_start|>", "<end_of_utterance>"),
    "nemotron_3_nano": ("<s>", "<|im_end|>"),
    "nemotron_3_super": ("<s>", "<|im_end|>"),
    "nemotron_3_ultra": ("<s>", "<|im_end|>"),
    "nemotron_3_5_lightning": ("<s>", "<|im_end|>"),
    "muse_glimmer": ("<|begin_of_text|>", "<|eot|>"),
}
KNOWN = {
    ("glm4moe", "own", "ends with the user"): "the tagged template counts <|user|>, the head of the next turn, as the end of the answer",
    **{("llava_next", kind, "assistant first"): "transformers drops a span whose first character is a space that no token's offsets hold"
       for kind in ("tags", "own")},
    **{("deepseek_r1_distill", "own", name): "the template leaves calls out where content is not null; the tagged one has an empty answer there"
       for name in ("tools, empty content", "two calls", "arguments without text", "system and tools", "call is last", "tools, turns", "agent")},
}
CONTROL = re.compile(r"<\|[a-zA-Z0-9_]+\|>|<｜[^｜<>']+｜>|<(?:start|end)_of_turn>|<end_of_utterance>|\[gMASK\]|<sop>|<image>")

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Its name."}}, "required": ["city"]}}}


def call(name, arguments, n=0):
    return {"id": f"call{n:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


def cases():
    def chat(*texts, system=None):
        out = [{"role": "system", "content": system}] if system is not None else []
        for i, text in enumerate(texts):
            out.append({"role": "assistant" if i % 2 else "user", "content": text})
        return out

    yield "single", chat("What is 2 + 2?", "It is 4.")
    yield "turns", chat("Hello", "Hi! How can I help?", "Tell me a joke", "Why did the chicken cross the road?", "Why?", "To get away.")
    yield "same texts", chat("ok", "ok", "ok", "ok", "ok", "ok")
    yield "answer is in the question", chat("say: It is 4.", "It is 4.", "assistant", "assistant")
    yield "system", chat("Hi", "Hello.", "Bye", "Goodbye.", system="You are terse.")
    yield "empty system", chat("Hi", "Hello.", system="")
    yield "unicode", chat("Grüße 👩‍👩‍👧 日本", "こんにちは 🎉 é e\u0301", "עברית", "مرحبا\u2029x")
    yield "white space", chat("  spaces \n", "\n\n  indented\n  code\n\n", "\t", " trailing ")
    yield "only white space", chat("Hi", "  \n ")
    yield "empty answer", chat("Hi", "", "Still there?", "Yes.")
    yield "empty last answer", chat("Hi", "Yes.", "And?", "")
    yield "empty question", chat("", "Something.")
    yield "ends with the user", chat("Hi", "Hello.", "Bye")
    yield "consecutive assistants", [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "One."},
                                     {"role": "assistant", "content": "Two."}, {"role": "user", "content": "On"}, {"role": "assistant", "content": "Three."}]
    yield "consecutive users", [{"role": "user", "content": "A"}, {"role": "user", "content": "B"}, {"role": "assistant", "content": "C"}]
    yield "assistant first", [{"role": "assistant", "content": "Welcome."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    yield "reasoning", chat("2+2?", "<think>\nTwo and two.\n</think>\n\nFour.")
    yield "reasoning in turns", chat("2+2?", "<think>\nTwo and two.\n</think>\n\nFour.", "3+3?", "<think>\nThree twice.\n</think>\n\nSix.")
    yield "reasoning field", [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "Four.", "reasoning_content": "Two and two."},
                              {"role": "user", "content": "3+3?"}, {"role": "assistant", "content": "Six.", "reasoning_content": "Three twice."}]
    yield "thinking field", [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "Four.", "thinking": "Two and two."}]
    tool_chat = [{"role": "user", "content": "Weather in Rome?"},
                 {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"city": "Rome"})]},
                 {"role": "tool", "content": "{\"sky\": \"clear\"}", "name": "get_weather", "tool_call_id": "call00000"},
                 {"role": "assistant", "content": "It is clear in Rome."}]
    yield "tools", tool_chat, [TOOL]
    empty = copy.deepcopy(tool_chat)
    empty[1]["content"] = ""
    yield "tools, empty content", empty, [TOOL]
    both = copy.deepcopy(tool_chat)
    both[1]["content"] = "Let me look."
    yield "tools and text", both, [TOOL]
    yield "tools, turns", tool_chat + [{"role": "user", "content": "And Oslo?"},
                                       {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Oslo"}, 1)]},
                                       {"role": "tool", "content": "rain", "name": "get_weather", "tool_call_id": "call00001"},
                                       {"role": "assistant", "content": "Rain in Oslo."}], [TOOL]
    two = copy.deepcopy(empty)
    two[1]["tool_calls"].append(call("get_weather", {"city": "Oslo"}, 1))
    two.insert(3, {"role": "tool", "content": "rain", "name": "get_weather", "tool_call_id": "call00001"})
    yield "two calls", two, [TOOL]
    plain = copy.deepcopy(empty)
    plain[1]["tool_calls"][0]["function"]["arguments"] = {"n": 3, "deep": {"list": [1, 2.5, None, True]}}
    yield "arguments without text", plain, [TOOL]
    yield "system and tools", [{"role": "system", "content": "Be brief."}] + empty, [TOOL]
    yield "call is last", empty[:2], [TOOL]
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
             {"role": "user", "content": [{"type": "text", "text": "Bye"}]}, {"role": "assistant", "content": [{"type": "text", "text": "Goodbye."}]}]
    yield "parts", parts
    yield "not thinking", chat("2+2?", "Four.", "3+3?", "Six."), None, {"enable_thinking": False}
    long = []
    for i in range(30):
        long += [{"role": "user", "content": f"Question {i}"}, {"role": "assistant", "content": f"Answer {i}"}]
    yield "long", long
    agent = [{"role": "user", "content": "Count."}]
    for i in range(20):
        agent += [{"role": "assistant", "content": "" if i % 3 else f"Step {i}.", "tool_calls": [call("count", {"to": str(i)}, i)]},
                  {"role": "tool", "content": f"result {i}", "name": "count", "tool_call_id": f"call{i:05d}"}]
    yield "agent", agent + [{"role": "assistant", "content": "Done."}], [TOOL]


def make_tokenizer(base, family, sources, folder):
    bos, eos = FAMILIES[family]
    control = sorted({bos, eos, *(t for s in sources for t in CONTROL.findall(s))})
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=base, bos_token=bos, eos_token=eos)
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(t, normalized=False, special=True) for t in control]})
    words = [w for w in ("<think>", "</think>", "<tool_call>", "</tool_call>") if any(w in s for s in sources)]
    tokenizer.add_tokens([AddedToken(w, normalized=False, special=False) for w in words])
    os.makedirs(folder, exist_ok=True)
    tokenizer.backend_tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"bos_token": bos, "eos_token": eos, "tokenizer_class": "PreTrainedTokenizerFast"}, f)
    return tokenizer


def generation_prompts(tokenizer, own, parts):
    """What add_generation_prompt adds, with and without thinking."""
    text = [{"type": "text", "text": "Hi"}] if parts else "Hi"
    out = set()
    for variables in ({}, {"enable_thinking": False}):
        a, b = (tokenizer.apply_chat_template([{"role": "user", "content": text}], chat_template=own, tokenize=False, add_generation_prompt=p,
                                              **variables) for p in (False, True))
        out.add(b[len(a):] if b.startswith(a) else "")
    return out


def only_heads(tokenizer, ids, mask, got, heads, prompts):
    at = 0
    while at < len(ids):
        if got[at] == mask[at]:
            at += 1
            continue
        if got[at]:
            return False
        end = at
        while end < len(ids) and mask[end] and not got[end]:
            end += 1
        text = tokenizer.decode(ids[at:end])
        if not any(text in head for head in heads) and not any(p.endswith(text) and tokenizer.decode(ids[:end]) == p for p in prompts):
            return False
        at = end
    return True


def difference(tokenizer, ids, mask, got):
    """The first places where the masks differ, with a little of what stands around them."""
    if got["ids"] != ids:
        return "other ids"
    places = [i for i in range(len(ids)) if got["trained"][i] != mask[i]]
    out = []
    for i in places:
        if i - 1 in places:
            continue
        n = next(k for k in range(i, len(ids) + 1) if k not in places)
        text = lambda a, b: tokenizer.decode(ids[max(a, 0):b])
        out.append(("only here" if got["trained"][i] else "only there") + f" {text(i - 8, i)!r} -> {text(i, n)!r} <- {text(n, n + 4)!r}")
    return f"{len(out)}: " + "; ".join(out[:3])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    base = os.path.join(args.data, "tokenizers", "tiny", "torchtune_tokenizer.json")
    bad = 0
    for family in FAMILIES:
        if args.only and family != args.only:
            continue
        own, tagged = (open(os.path.join(TRL, family + end + ".jinja"), encoding="utf-8").read() for end in ("", "_training"))
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = make_tokenizer(base, family, (own, tagged), folder)
            rows, wanted = [], []
            need_parts = "vl" in family or family in ("llava_next", "idefics3", "smolvlm")
            heads = generation_prompts(tokenizer, own, need_parts)
            for name, messages, *more in cases():
                tools = more[0] if more else None
                variables = more[1] if len(more) > 1 else {}
                given = copy.deepcopy(messages)
                if need_parts:
                    for m in given:
                        if isinstance(m["content"], str):
                            m["content"] = [{"type": "text", "text": m["content"]}]
                if family == "deepseekv3" or family == "deepseek_r1_distill":
                    for m in given:
                        for c in m.get("tool_calls") or []:
                            if family == "deepseek_r1_distill":
                                c["function"]["arguments"] = json.dumps(c["function"]["arguments"])
                try:
                    out = tokenizer.apply_chat_template(given, tools=tools, chat_template=tagged, return_dict=True,
                                                        return_assistant_tokens_mask=True, **variables)
                    text = tokenizer.apply_chat_template(given, tools=tools, chat_template=tagged, tokenize=False, **variables)
                    want = {"text": text, "ids": out["input_ids"], "trained": out["assistant_masks"]}
                except Exception as e:
                    want = {"error": str(e)}
                prompts = []  # what is served for each answer
                for i, m in enumerate(given):
                    if m["role"] == "assistant" and "error" not in want and len(given) < 50:
                        before = copy.deepcopy(given[:i])
                        for c in (c for b in before for c in b.get("tool_calls") or []):
                            if family == "deepseekv3":  # its own template takes text only
                                c["function"]["arguments"] = json.dumps(c["function"]["arguments"])
                        try:
                            prompts.append(tokenizer.apply_chat_template(before, tools=tools, chat_template=own, tokenize=False,
                                                                         add_generation_prompt=True, **variables))
                        except Exception:
                            pass
                for kind, source in (("tags", tagged), ("own", own)):
                    rows.append({"template": source, "messages": given, "tools": tools, "variables": variables})
                    wanted.append((kind, name, want, prompts))
            with open(os.path.join(folder, "cases"), "w", encoding="utf-8") as f:
                for row in rows:
                    f.write(json.dumps(row, ensure_ascii=False) + "\n")
            subprocess.run([args.program, folder, os.path.join(folder, "cases"), os.path.join(folder, "out")], check=True)
            found = [json.loads(line) for line in open(os.path.join(folder, "out"), encoding="utf-8")]
        counts = {"tags": [0, 0, 0, 0], "own": [0, 0, 0, 0]}  # equal, other text or refused, bad, equal but for the head
        notes = []
        for (kind, name, want, prompts), got in zip(wanted, found):
            if "error" in want:
                counts[kind][1] += 1
                if args.verbose:
                    notes.append(f"  {kind} {name}: reference refuses: {want['error'][:100]}; here {got.get('error', 'rendered')[:100]}")
                continue
            if "error" in got:
                if kind == "own" and ("template:" in got["error"] or (family, kind, name) in KNOWN):
                    counts[kind][1] += 1
                    notes.append(f"  {kind} {name}: refused: {got['error'][:150]}")
                else:
                    counts[kind][2] += 1
                    notes.append(f"  {kind} {name}: BAD error {got['error'][:300]}")
                continue
            if got["text"] != want["text"]:
                counts[kind][1 if kind == "own" or name == "parts" or "None" in want["text"] else 2] += 1
                notes.append(f"  {kind} {name}: other text" + (f"\n{got['text']!r}\n{want['text']!r}" if args.verbose else ""))
                continue
            mask = list(want["trained"])
            mask[0] = 0
            if got["ids"] == want["ids"] and got["trained"] == mask:
                counts[kind][0] += 1
                continue
            if (family, kind, name) in KNOWN:
                counts[kind][1] += 1
                notes.append(f"  {kind} {name}: KNOWN {KNOWN[family, kind, name]}")
                continue
            if kind == "own" and got["ids"] == want["ids"] and only_heads(tokenizer, want["ids"], mask, got["trained"], heads, prompts):
                counts[kind][3] += 1
                continue
            counts[kind][2] += 1
            notes.append(f"  {kind} {name}: BAD " + difference(tokenizer, want["ids"], mask, got))
        bad += counts["tags"][2] + counts["own"][2]
        print(f"{family}: tags {counts['tags'][0]} equal, {counts['tags'][1]} refused by both, {counts['tags'][2]} bad; "
              f"own {counts['own'][0]} equal, {counts['own'][3]} equal but for the head, {counts['own'][1]} other text or refused, "
              f"{counts['own'][2]} bad")
        for note in notes:
            print(note)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
