# SPDX-License-Identifier: Apache-2.0
"""Small tokenizer.json files of every part and option, with the ids and texts that HF tokenizers give for them.

Writes ../golden/tokenizer_golden.json. Made with tokenizers 0.23.3, sentencepiece 0.2.3 and tiktoken 0.14.0:
    pip install tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0 && python make_tokenizer_golden.py
"""
import base64
import io
import json
import os
import tempfile

import sentencepiece
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CORPUS = """
The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it's used to it. We'll see what they've done.
A letter, a number, 12 or 1234567, a price of 3.50; 2026-11-29 is a day. Where's the river?
The river runs through the valley, past the old mill and the new bridge, down to the sea. She said "hello there" and he
said nothing.  Trees, leaves, rivers,  stones, winds, clouds and rains: these are the words of the valley and the sea.
def add(a, b):
    return a + b
for i in range(10):
        print(i, add(i, i))
Grüße aus Köln, déjà vu, naïve café, señor. Привет, мир. 你好，世界。これは本です。 한국어 문장. 😀 👩‍👩‍👧‍👦
the the the and and of to in is was that it for on with as his they be at one have this from or had by -- -- !! ??
"""

TEXTS = [
    "", " ", "  ", "a", "the", " the", "  the", "the ", "the  ", " the river ", "The quick brown fox, isn't it?", "THE DOG",
    "I'M SURE WE'LL see they've DON'T", "'s 't 're", "'\u017fhort", "12345 1 22 333 4444 3.14", "\u0664\u0662 \u2167 \u00bd x2y3",
    "line\nbreak\r\nand\n\n\nmore \n \n\t\ttabs\t", "   \n   leading", "a\u00a0b\u2009c\u3000d\u0085e\u180ef\u200bg", "para\u2029graph\u2028line",
    "Grüße, naïve café", "e\u0301 cafe\u0301", "\u1100\u1161\u11a8 \u212b A\u030a", "\u1e9b\u0323 \ufb01 \u2460 \u3392 \uff21", "你好，世界。これは本です。", "한국어 문장",
    "😀👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈", "control \u0001\u0004\u007f\u008f\u009f end\ufeff", "\u0000", "<s>", "</s>", "<s> hi</s>  the", "<unk>",
    "x<tool>y", "x <tool> y", "  <tool>  ", "a <trim>  b<trim>c", " <trim><trim> ", "<trim> <right> a", "the word or sword word", "word", "_word_", "(word)",
    "wordword", "<a<tool>", "<<tool>", "<s", "<0x41>", "<0x0A><0xE2>", "Day day DAY", "Caf\u00e9X cafe\u0301x", "\u2581the\u2581\u2581river", "the\u2581", "\u2581",
    "x" * 60, "ab" * 30, "the " * 12, "   " * 8 + "z", "\u0301\u0301", "\U0010ffff\U000e0001\U0001f468\U0001f3fd", "mixed😀text你好and123\u00e9nd",
    "def add(a, b):\n    return a + b\n", "_a__b___", "?!...---***", "(see) [this] {that}", "don\u2019t", "\u0130stanbul \u00df \u03a3\u03c3\u03c2 \u01c5",
    "a-b--c---d", "--start", "end--", "-- --", "--", "a,b, c ,d", "1a2b3c", "a1", "1", "12-34", "\u00b2\u00b3 \u00b9", "\u0e01\u0e33 \u0915\u094d\u0937\u093f", "\U00012000\U0001d400",
    "\u3042\u30fc\u30a2", "\u05e9\u05dc\u05d5\u05dd \u0633\u0644\u0627\u0645", "\tx", "x\t", "\n", "\r\n\r\n", "a\u0308\u0323", "\u0344\u0958", "$5 + 3 = 8 ^ ~`|<>", "\u00ab\u00bb\u2014\u2026\u00a1", "said  \"hello  there\"",
    "\u0eba\u0ecb\u0eb1 \u0f72\u0c3c\u0334", "\u32ff\ua7f2 \u2460\U0001f16c", "a\u2e52b\u00bfc\u0bf0", "\u0eba",
]


def bpe(vocab_size, pre=None, alphabet=(), special=("<unk>", "<s>", "</s>"), lines=None, unk="<unk>", **kw):
    trainer_kw = {k: kw.pop(k) for k in ("continuing_subword_prefix", "end_of_word_suffix") if k in kw}
    tok = Tokenizer(models.BPE(unk_token=unk, **trainer_kw))
    if pre is not None:
        tok.pre_tokenizer = pre
    tok.train_from_iterator(lines or CORPUS.split("\n"), trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=sorted(alphabet), special_tokens=list(special), show_progress=False, **trainer_kw, **kw))
    return json.loads(tok.to_str())["model"]


def drop_rare(model, most):
    """A vocabulary that lacks characters: the last ones that no merge needs."""
    used = {p for m in model["merges"] for p in m} | {"".join(m) for m in model["merges"]}
    lone = [t for t in model["vocab"] if t not in used and not t.startswith("<")]
    for t in lone[:most]:
        del model["vocab"][t]
    ids = {t: i for i, t in enumerate(sorted(model["vocab"], key=model["vocab"].get))}
    model["vocab"] = ids
    return model


def with_bytes(model):
    vocab = model["vocab"]
    base = max(vocab.values()) + 1
    for b in range(256):
        vocab[f"<0x{b:02X}>"] = base + b
    return model


def charsmap():
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as d:
        rules = os.path.join(d, "rules.tsv")
        with open(rules, "w") as f:  # A -> a, fi ligature -> f i, U+2028 -> space, e + accent -> é, U+200B -> nothing, a family -> F
            f.write("41\t61\nFB01\t66 69\n2028\t20\n65 301\te9\n200B\t\n78 78\t79\n1F600\t3A 29\n")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([s for s in CORPUS.split("\n") if s]), model_writer=out, vocab_size=250, model_type="bpe",
            normalization_rule_tsv=rules, minloglevel=2, num_threads=1, hard_vocab_limit=False, character_coverage=0.98)
    # The field precompiled_charsmap (2) of normalizer_spec (3).
    def fields(data):
        at = 0
        def varint():
            nonlocal at
            value, shift = 0, 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = varint()
            if key & 7 == 2:
                n = varint()
                yield key >> 3, data[at:at + n]
                at += n
            elif key & 7 == 0:
                varint()
            elif key & 7 == 5:
                at += 4
            else:
                at += 8
    spec = next(v for k, v in fields(out.getvalue()) if k == 3)
    return base64.b64encode(next(v for k, v in fields(spec) if k == 2)).decode()


def unigram(byte_fallback):
    tok = Tokenizer(models.Unigram())
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.train_from_iterator(CORPUS.split("\n"), trainers.UnigramTrainer(
        vocab_size=230, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    model = json.loads(tok.to_str())["model"]
    vocab = [[t, round(s, 6)] for t, s in model["vocab"]]
    if byte_fallback:
        vocab = [v for v in vocab if ord(max(v[0])) < 0x3000 or v[0] == "\u2581"] + [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": byte_fallback}


MODELS = {
    "bytes": bpe(330, pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.ByteLevel.alphabet()),
    "free": bpe(420),  # merges across words, so that every cut shows
    "few": dict(drop_rare(bpe(300, pre_tokenizers.WhitespaceSplit()), 60), fuse_unk=True),
    "some_bytes": dict(drop_rare(bpe(260, pre_tokenizers.WhitespaceSplit()), 60), byte_fallback=True),
    "spm": dict(with_bytes(drop_rare(bpe(300, lines=["\u2581" + s.replace(" ", "\u2581") for s in CORPUS.split("\n")]), 60)),
                byte_fallback=True, fuse_unk=True),
    "affixes": bpe(320, pre_tokenizers.WhitespaceSplit(), continuing_subword_prefix="##", end_of_word_suffix="</w>"),
    "unigram": unigram(False),
    "unigram_bytes": unigram(True),
}
for b in (0x0A, 0xE2, 0x41, 0xF0, 0x9F, 0x98, 0x80):
    MODELS["some_bytes"]["vocab"][f"<0x{b:02X}>"] = len(MODELS["some_bytes"]["vocab"])


def seq(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def regex(s):
    return {"Regex": s}


def string(s):
    return {"String": s}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def kind(name, **kw):
    return {"type": name} | kw


def metaspace(**kw):
    return {"type": "Metaspace", "replacement": "\u2581"} | kw


def byte_level(prefix=False, use_regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


NFC, NFD, NFKC, NFKD, LOWER, ACCENTS, NMT = (kind(n) for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"))
SPM_NORM = seq("normalizers", kind("Prepend", prepend="\u2581"), replace(string(" "), "\u2581"))
SPM_DECODER = seq("decoders", replace(string("\u2581"), " "), kind("ByteFallback"), kind("Fuse"), kind("Strip", content=" ", start=1, stop=0))
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+")
KIMI = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|[^\S\r\n]+|\s+$|[a-c[x-z]]+"
BOS = {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
       "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}

# name: (model, {stage: value}, the model's options). Stages left out are null.
CASES = {
    # byte-level
    "bytes": ("bytes", {"pre": byte_level(), "decoder": byte_level()}, {}),
    "bytes_llama3": ("bytes", {"pre": seq("pretokenizers", split(regex(LLAMA3), "Isolated"), byte_level(use_regex=False)), "decoder": byte_level(),
                               "post": seq("processors", byte_level(), BOS)}, {"ignore_merges": True}),
    "bytes_deepseek": ("bytes", {"pre": seq("pretokenizers", split(regex(r"\p{N}{1,3}"), "Isolated"), split(regex("[一-龥぀-ゟ゠-ヿ]+"), "Isolated"),
                                            split(regex(DEEPSEEK), "Isolated"), byte_level(use_regex=False)), "norm": seq("normalizers"), "decoder": byte_level()}, {}),
    "bytes_falcon": ("bytes", {"pre": seq("pretokenizers", kind("Punctuation", behavior="Contiguous"), byte_level(), kind("Digits", individual_digits=False),
                                          split(regex("[0-9][0-9][0-9]"), "Isolated")), "decoder": byte_level()}, {}),
    "bytes_prefix": ("bytes", {"norm": NFC, "pre": byte_level(prefix=True), "decoder": byte_level(),
                               "post": kind("RobertaProcessing", sep=["</s>", 2], cls=["<s>", 1], trim_offsets=True, add_prefix_space=True)}, {}),
    "bytes_normalizer": ("bytes", {"norm": kind("ByteLevel"), "decoder": byte_level()}, {}),
    # SentencePiece-style
    "llama2": ("spm", {"norm": SPM_NORM, "decoder": SPM_DECODER, "post": BOS}, {}),
    "mistral": ("spm", {"pre": metaspace(prepend_scheme="first", split=False), "decoder": SPM_DECODER, "post": BOS}, {}),
    "ignore_merges": ("spm", {}, {"ignore_merges": True}),
    "gemma": ("spm", {"norm": replace(string(" "), "\u2581"), "pre": split(string(" "), "MergedWithPrevious"),
                      "decoder": seq("decoders", replace(string("\u2581"), " "), kind("ByteFallback"), kind("Fuse"))}, {}),
    "metaspace": ("spm", {"pre": metaspace(), "decoder": metaspace()}, {}),
    "metaspace_first": ("spm", {"pre": seq("pretokenizers", kind("WhitespaceSplit"), metaspace(prepend_scheme="first")), "decoder": metaspace(prepend_scheme="first")}, {}),
    "metaspace_never": ("spm", {"pre": metaspace(prepend_scheme="never", split=True), "decoder": metaspace(prepend_scheme="never")}, {"byte_fallback": False, "fuse_unk": False}),
    "metaspace_old": ("spm", {"pre": metaspace(add_prefix_space=True), "decoder": metaspace(add_prefix_space=True)}, {"byte_fallback": False}),
    # options of BPE
    "unk": ("few", {"pre": kind("Whitespace")}, {"fuse_unk": False}),
    "unk_fused": ("few", {"pre": kind("WhitespaceSplit"), "post": kind("BertProcessing", sep=["</s>", 2], cls=["<s>", 1])}, {}),
    "no_unk": ("few", {"pre": kind("BertPreTokenizer")}, {"unk_token": None}),
    "some_bytes": ("some_bytes", {"pre": kind("WhitespaceSplit"), "decoder": kind("ByteFallback")}, {}),
    "some_bytes_fused": ("some_bytes", {"decoder": kind("ByteFallback")}, {"fuse_unk": True}),
    "affixes": ("affixes", {"pre": kind("WhitespaceSplit"), "decoder": kind("BPEDecoder", suffix="</w>")}, {}),
    # normalisers
    "lower": ("free", {"norm": seq("normalizers", NFD, LOWER, ACCENTS), "decoder": kind("Fuse")}, {}),
    "nfkc": ("free", {"norm": NFKC, "decoder": seq("decoders", kind("Fuse"), kind("Strip", content="e", start=2, stop=0))}, {}),
    "nfkd_nmt": ("free", {"norm": seq("normalizers", NMT, seq("normalizers", NFKD))}, {}),
    "nfc_strip": ("free", {"norm": seq("normalizers", NFC, kind("Strip", strip_left=True, strip_right=False))}, {}),
    "strip_right": ("free", {"norm": seq("normalizers", kind("Strip", strip_left=False, strip_right=True), replace(regex(r"\s+"), " ")),
                             "decoder": seq("decoders", replace(regex("[aeiou]+"), "*"), kind("Fuse"))}, {}),
    "strip_both": ("free", {"norm": seq("normalizers", kind("Strip", strip_left=True, strip_right=True), replace(string("the"), "a\u2581b"), replace(regex("x*"), "-"))}, {}),
    "precompiled": ("free", {"norm": seq("normalizers", kind("Precompiled", precompiled_charsmap=charsmap()), replace(regex(" {2,}"), " "))}, {}),
    # pre-tokenisers
    "removed": ("free", {"pre": split(regex(r"\s*-+|o"), "Removed")}, {}),
    "removed_inverted": ("free", {"pre": split(regex(r"\w+|[^\w\s]+"), "Removed", True)}, {}),
    "isolated_empty": ("free", {"pre": split(regex(r"(?=e)|\b"), "Isolated")}, {}),
    "previous": ("free", {"pre": split(regex("-| |e*"), "MergedWithPrevious")}, {}),
    "previous_inverted": ("free", {"pre": split(string("e"), "MergedWithPrevious", True)}, {}),
    "next": ("free", {"pre": split(regex("-| |the"), "MergedWithNext")}, {}),
    "next_inverted": ("free", {"pre": split(regex(r"[^\W\d]+"), "MergedWithNext", True)}, {}),
    "contiguous": ("free", {"pre": split(regex(r"[-.,]"), "Contiguous")}, {}),
    "contiguous_inverted": ("free", {"pre": split(string("--"), "Contiguous", True)}, {}),
    "classes": ("free", {"pre": split(regex(KIMI), "Isolated")}, {}),
    "anchors": ("free", {"pre": split(regex(r"^ +|.$|\At|e\z|(?<=h)e(?!r)|[\d&&[^2]]|(?m:\n.)"), "Isolated")}, {}),
    "digits": ("free", {"pre": seq("pretokenizers", kind("Digits", individual_digits=True), kind("Punctuation"))}, {}),
    "digit_runs": ("free", {"pre": seq("pretokenizers", kind("Digits", individual_digits=False), kind("Punctuation", behavior="MergedWithNext"))}, {}),
    "delimiter": ("free", {"pre": seq("pretokenizers", kind("CharDelimiterSplit", delimiter="e"), kind("FixedLength", length=3))}, {}),
    "punctuation": ("free", {"pre": kind("Punctuation", behavior="Removed"), "decoder": replace(string("t"), "TT")}, {}),
    # Unigram
    "unigram": ("unigram", {"norm": NFKC, "pre": metaspace(), "decoder": metaspace(), "post": BOS}, {}),
    "unigram_whole": ("unigram", {"norm": replace(string(" "), "\u2581"), "decoder": SPM_DECODER}, {}),
    "unigram_bytes": ("unigram_bytes", {"norm": SPM_NORM, "decoder": SPM_DECODER}, {}),
    "unigram_words": ("unigram", {"pre": seq("pretokenizers", kind("WhitespaceSplit"), metaspace(prepend_scheme="always"))}, {}),
}


def tiktoken_case():
    """The byte-level vocabulary as ranks, in an order of bytes of its own, with ids by tiktoken."""
    alphabet = {}
    spare = 0
    for b in range(256):
        plain = 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE
        alphabet[chr(b) if plain else chr(256 + spare)] = b
        spare += not plain
    tokens = [bytes([b]) for b in [*range(33, 256), *range(33)]]
    tokens += [bytes(alphabet[c] for c in "".join(m)) for m in MODELS["bytes"]["merges"]]
    ranks = {t: i for i, t in enumerate(dict.fromkeys(tokens))}
    special = {"<s>": len(ranks), "</s>": len(ranks) + 1, "<tool>": len(ranks) + 5}
    enc = tiktoken.Encoding("ours", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens=special)
    return {"file": "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in ranks.items()),
            "beside": {"pattern": LLAMA3, "special_tokens": special, "bos_token": "<s>", "add_bos_token": True, "eos_token": "</s>"},
            "plain": [enc.encode(t, disallowed_special=()) for t in TEXTS], "parsed": [enc.encode(t, allowed_special="all") for t in TEXTS]}


def added_tokens(size):
    def token(i, content, special=False, **kw):
        return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special, "special": special} | kw
    return [token(0, "<unk>", True), token(1, "<s>", True), token(2, "</s>", True)] + [
        token(size + i, *a, **kw) for i, (a, kw) in enumerate([
            (("<tool>",), {}), (("<trim>",), dict(lstrip=True, rstrip=True, normalized=False)), (("word",), dict(single_word=True, normalized=False)),
            (("Day",), {}), (("Cafe\u0301X",), {}), (("<right>", True), dict(rstrip=True)), (("<a<tool>", True), {}),
        ])]


def without_control_text(t):
    """The same file, with control tokens whose texts nobody writes: the reference's Unigram, and BPE with ignore_merges, take
    a control token's text within a text for the token."""
    t = json.loads(json.dumps(t))
    hidden = {a["content"]: f"\ue000{i}" for i, a in enumerate(t["added_tokens"][:3])}
    m = t["model"]
    if m["type"] == "Unigram":
        m["vocab"] = [[hidden.get(p, p), s] for p, s in m["vocab"]]
    else:
        m["vocab"] = {hidden.get(p, p): i for p, i in m["vocab"].items()}
        m["unk_token"] = m["unk_token"] and hidden[m["unk_token"]]
    t["added_tokens"] = t["added_tokens"][3:] + t["added_tokens"][:3]
    t["post_processor"] = None
    return Tokenizer.from_str(json.dumps(t))


def main():
    cases, added = [], {}
    for name, (model, stages, options) in CASES.items():
        m = MODELS[model] | options
        size = len(m["vocab"]) if isinstance(m["vocab"], list) else 1 + max(m["vocab"].values())
        t = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(size), "normalizer": stages.get("norm"),
             "pre_tokenizer": stages.get("pre"), "post_processor": stages.get("post"), "decoder": stages.get("decoder"), "model": m}
        tok, hidden = Tokenizer.from_str(json.dumps(t)), without_control_text(t)
        hidden.encode_special_tokens = True
        case = {"name": name, "model": model, "options": options, "plain": [], "parsed": [], "decoded": []}
        case["json"] = {k: t[k] for k in ("normalizer", "pre_tokenizer", "post_processor", "decoder") if t[k] is not None}
        added[model] = t["added_tokens"]
        case["around"] = tok.encode("a", add_special_tokens=True).ids
        for text in TEXTS:
            plain = hidden.encode(text, add_special_tokens=False).ids
            parsed = tok.encode(text, add_special_tokens=False).ids
            case["plain"].append(plain)
            case["parsed"].append(parsed if parsed != plain else 0)
            decoded = tok.decode(plain, skip_special_tokens=False) if plain else ""
            # Where bytes make no character Bantam keeps them; such text is not compared.
            case["decoded"].append(0 if decoded == text else None if "\ufffd" in decoded else decoded)
        if t["decoder"] is None and name != "unk":
            del case["decoded"]
        cases.append(case)
    ranks = tiktoken_case()
    for m in MODELS.values():  # the older spelling of merges, half of the time
        if m["type"] == "BPE" and len(m["merges"]) % 2 == 0:
            m["merges"] = [" ".join(p) for p in m["merges"]]
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "golden", "tokenizer_golden.json"), "w") as f:
        json.dump({"texts": TEXTS, "models": MODELS, "added": added, "cases": cases, "tiktoken": ranks}, f, separators=(",", ":"), ensure_ascii=False)


main()
