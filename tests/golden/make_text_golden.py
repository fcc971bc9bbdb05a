# SPDX-License-Identifier: Apache-2.0
"""Small vocabularies, and the ids that the reference implementations give with them.

Writes text_golden.json beside itself and, where a folder of shared test data is found, text_shared_golden.json: ids with
its vocabularies. Made with tokenizers 0.23.3 and sentencepiece 0.2.3.
"""
import base64
import io
import json
import os
import tempfile

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = """
The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it's used to it. We'll see what they've done,
I'm sure you'd agree. A letter, a number, 12 or 1234567, a price of 3.50; 2026-11-29 is a day. Where's the river?
The river runs through the valley, past the old mill and the new bridge, down to the sea. She said "hello there" and he
said nothing. Trees, leaves, rivers, stones, winds, clouds and rains: these are the words of the valley and the sea.
def add(a, b):
    return a + b
for i in range(10):
        print(i, add(i, i))
Grüße aus Köln, déjà vu, naïve café, señor, smørrebrød. Привет, мир. 你好，世界。これは本です。 한국어 문장. 😀 👩‍👩‍👧‍👦
the the the and and of to in is was that it for on with as his they be at one have this from or had by
"""

TEXTS = [
    "", " ", "  ", "a", "Hello", " hello", "  hello", "hello ", "hello  ", "The quick brown fox, isn't it?",
    "I'M SURE WE'LL see they've DON'T it's 's 't 're", "'\u017fhort and 'Sharp", "12345 1 22 333 4444 3.14 \u0664\u0662 \u2167 \u00bd x2y3",
    "line\nbreak\r\nand\n\n\nmore \n \n\t\ttabs\t", "trailing spaces   ", "   \n   leading", "a\u00a0b\u2009c\u3000d\u0085e\u180ef",
    "para\u2029graph\u2028line", "Grüße, naïve café", "e\u0301 cafe\u0301 \u1100\u1161\u11a8 \u212b \u00c5 A\u030a", "你好，世界。これは本です。",
    "한국어 문장", "😀👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈", "control \u0000\u0001\u0004\u007f end", "<|im_start|>user\nhi<|im_end|>", "<|im_start",
    " <|im_end|> x<tool>  y <pad> z", "a <trim>  b<trim>c", "<|endoftext|><|endoftext|>", "\ufeffBOM", "x" * 100, "ab" * 90, "the " * 40,
    "   " * 30 + "z", "\u0301\u0301", "\U0010ffff\U000e0001", "mixed😀text你好and123\u00e9nd", "def add(a, b):\n    return a + b\n",
    "\u2581under\u2581line", "_a__b___", "?!...---***", "(see) [this] {that}", "don\u2019t", "\u0130stanbul \u00df \ufb01",
]


def train_bpe(alphabet):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(CORPUS.split("\n"), trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=alphabet, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], show_progress=False))
    return json.loads(tok.to_str())


GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(regex):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def byte_level():
    full = train_bpe(sorted(pre_tokenizers.ByteLevel.alphabet()))
    few = train_bpe([])
    size = 1 + max(full["model"]["vocab"].values())

    def added(i, content, special=False, **kw):
        return {"id": size + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": not special, "special": special} | kw

    def variant(base, **changes):
        t = json.loads(json.dumps(base))
        for key, value in changes.items():
            if key in ("ignore_merges", "merges", "unk_token"):
                t["model"][key] = value
            else:
                t[key] = value
        return t

    pairs = full["model"]["merges"]
    bos = {"type": "TemplateProcessing",
           "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                      {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
           "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]},
                              "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}}}
    more = full["added_tokens"] + [added(0, "<tool>"), added(1, "<trim>", lstrip=True, rstrip=True), added(2, "cafe\u0301"),
                                   added(3, "<pad>", special=True)]
    out = {
        "smollm": variant(full, merges=[" ".join(p) for p in pairs]),
        "few_bytes": few,
        "llama3": variant(full, pre_tokenizer=split(GPT4 % "{1,3}"), ignore_merges=True, post_processor=bos),
        "qwen2": variant(full, pre_tokenizer=split(GPT4 % ""), normalizer={"type": "NFC"}, added_tokens=more),
        "gpt2": variant(full, pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}),
        "prefix_space": variant(full, pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}),
        "unk": variant(few, unk_token="<|endoftext|>"),
        "literal": variant(full, pre_tokenizer={"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": False},
            {"type": "Split", "pattern": {"String": "the"}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}),
    }
    result = []
    for name, t in out.items():
        tok = Tokenizer.from_str(json.dumps(t))
        cases = []
        for text in TEXTS:
            tok.encode_special_tokens = True
            plain = tok.encode(text, add_special_tokens=False).ids
            with_special = tok.encode(text, add_special_tokens=True).ids
            tok.encode_special_tokens = False
            parsed = tok.encode(text, add_special_tokens=False).ids
            cases.append({"plain": plain, "special": with_special, "parsed": parsed})
        result.append({"name": name, "json": t, "cases": cases})
    return result


def sentencepiece_models():
    result = []
    with tempfile.TemporaryDirectory() as d:
        rules = os.path.join(d, "rules.tsv")
        with open(rules, "w") as f:
            f.write("41\t61\nFB01\t66 69\n2028\t20\n")  # A -> a, fi ligature -> f i, U+2028 -> space
        for name, extra in {
            "llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                          split_digits=True),
            "rules": dict(model_type="bpe", byte_fallback=False, normalization_rule_tsv=rules, remove_extra_whitespaces=True,
                          user_defined_symbols=["<tool>"]),
            "unigram": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=False),
        }.items():
            out = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter([s for s in CORPUS.split("\n") if s]), model_writer=out, vocab_size=480 if extra["byte_fallback"] else 230,
                character_coverage=0.98, minloglevel=2, num_threads=1, hard_vocab_limit=False, **extra)
            sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
            cases = [{"plain": sp.encode(t), "decoded": sp.decode(sp.encode(t))} for t in TEXTS]
            result.append({"name": name, "model": base64.b64encode(out.getvalue()).decode(), "bos": sp.bos_id(), "eos": sp.eos_id(),
                           "cases": cases})
    return result


here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "text_golden.json"), "w") as f:
    json.dump({"texts": TEXTS, "byte_level": byte_level(), "sentencepiece": sentencepiece_models()}, f, separators=(",", ":"), ensure_ascii=True)

shared = os.path.join(here, "..", "..", "..", "shared", "data", "tokenizers")
if os.path.isdir(shared):
    out = []
    for name in ["gpt2/tokenizer.json", "tiny/torchtune_tiny_bpe_tokenizer.json", "tiny/torchtune_tokenizer.json",
                 "llama2/tokenizer.model", "mistral/tokenizer.model.v1", "torchtune/m.model", "sentencepiece/test_model.model"]:
        path = os.path.join(shared, name)
        if name.endswith(".json"):
            tok = Tokenizer.from_file(path)
            tok.encode_special_tokens = True
            ids = [tok.encode(t, add_special_tokens=False).ids for t in TEXTS]
        else:
            sp = sentencepiece.SentencePieceProcessor(model_file=path)
            ids = [sp.encode(t) for t in TEXTS]
        out.append({"file": name, "ids": ids})
    with open(os.path.join(here, "text_shared_golden.json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
