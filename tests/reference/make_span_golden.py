# SPDX-License-Identifier: Apache-2.0
"""The bytes that each token stands for by HF tokenizers' offsets, for the vocabularies and texts of ../golden/tokenizer_golden.json.

Writes ../golden/span_golden.json: for each case and text either the ends of spans that follow one another from byte 0, or a flat list of
begin and end of each (marked by -1 in front). Control tokens are parsed, none is added; trim_offsets is off, which else takes white
space out of the offsets. "scripts" has ids: of a part that is not in the other file. Made with tokenizers 0.22.2:
    pip install tokenizers==0.22.2 && python make_span_golden.py
"""
import json
import os

from tokenizers import Tokenizer

SCRIPT_TEXTS = [
    "  the  Привет the", "どこで生れ。Yes", "   ", "a\u0378b", "\u0378я a", "theпривет", "the.the,the", "ー漢ひらカタ한국어", "abc שלום عربى the", "1the2 the",
    "e\u0301the", "\u0301the", "αβγthe ΑΒΓ", "the\U0001f600the", "\u1e00\u0400\u0370", "กขthe", "the\nthe \n the", "\U00012000the\U00020000漢", "ªthe", "\u3000the",
]
LONGEST = 18  # characters of a text: longer ones add size, nothing new


def without_trimming(part):
    if isinstance(part, dict):
        return {k: False if k == "trim_offsets" else without_trimming(v) for k, v in part.items()}
    return [without_trimming(p) for p in part] if isinstance(part, list) else part


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
    with open(os.path.join(folder, "tokenizer_golden.json")) as f:
        golden = json.load(f)
    chosen = [i for i, t in enumerate(golden["texts"]) if 0 < len(t) <= LONGEST]
    spans = {}
    for case in golden["cases"]:
        t = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": golden["added"][case["model"]], "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": golden["models"][case["model"]] | case["options"]}
        tok = Tokenizer.from_str(json.dumps(without_trimming(t | case["json"])))
        rows = []
        for i in chosen:
            text = golden["texts"][i]
            e = tok.encode(text, add_special_tokens=False)
            assert e.ids == (case["parsed"][i] or case["plain"][i]), (case["name"], text)
            at = [0]
            for c in text:
                at.append(at[-1] + len(c.encode()))
            flat = [at[x] for o in e.offsets for x in o]
            follow = all(b == (flat[2 * k - 1] if k else 0) for k, b in enumerate(flat[::2]))
            rows.append(flat[1::2] if follow else [-1] + flat)
        spans[case["name"]] = rows
    # Each piece gets a space in front, so that every cut shows.
    pre = {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
                                                                              "use_regex": False}]}
    scripts = {"model": "bytes", "options": {}, "json": {"pre_tokenizer": pre}, "texts": SCRIPT_TEXTS, "ids": []}
    tok = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": golden["added"]["bytes"], "normalizer": None,
        "pre_tokenizer": pre, "post_processor": None, "decoder": None, "model": golden["models"]["bytes"]}))
    for text in SCRIPT_TEXTS + golden["texts"]:
        scripts["ids"].append(tok.encode(text, add_special_tokens=False).ids)
    with open(os.path.join(folder, "span_golden.json"), "w") as f:
        json.dump({"texts": chosen, "spans": spans, "scripts": scripts}, f, separators=(",", ":"), ensure_ascii=False)


main()
