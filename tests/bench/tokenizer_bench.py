# SPDX-License-Identifier: Apache-2.0
"""The peer of bantam_tokenizer_bench: HF tokenizers on one thread, the same documents, the best CPU time of several rounds.

    python tokenizer_bench.py --make FOLDER      # english.txt and mixed.txt, of this Python's own documentation and code
    bantam_tokenizer_bench MODEL FOLDER/english.txt FOLDER/mixed.txt
    RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false python tokenizer_bench.py MODEL/tokenizer.json FOLDER/english.txt ...
"""
import os
import random
import sys
import time


def make(folder):
    from pydoc_data import topics
    english = "\n\n".join(topics.topics[k] for k in sorted(topics.topics))
    root = os.path.dirname(os.__file__)
    code = [open(os.path.join(root, n), errors="replace").read() for n in sorted(os.listdir(root)) if n.endswith(".py")]
    draw = random.Random(2)
    scripts = [(0x4E00, 0x9FA5), (0x3041, 0x3096), (0xAC00, 0xD7A3), (0x400, 0x44F), (0x5D0, 0x5EA), (0x627, 0x64A),
               (0x905, 0x939), (0xE01, 0xE2E), (0x391, 0x3C9)]

    def words(count):
        first, last = draw.choice(scripts)
        return " ".join("".join(chr(draw.randint(first, last)) for _ in range(draw.randint(1, 8))) for _ in range(count))

    paragraphs, parts = english.split("\n\n"), []
    while sum(map(len, parts)) < 1_500_000:
        kind = draw.random()
        if kind < 0.35:
            parts.append("\n\n".join(draw.choice(paragraphs) for _ in range(4)))
        elif kind < 0.6:
            parts.append(draw.choice(code)[:3000])
        elif kind < 0.9:
            parts.append(words(60))
        else:
            parts.append("".join(draw.choice("\U0001F600\U0001F389\U0001F44D\u200d0123456789   \t\n") for _ in range(80)))
    os.makedirs(folder, exist_ok=True)
    for name, text in (("english.txt", english), ("mixed.txt", "\n".join(parts))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            out.write(text)


if sys.argv[1] == "--make":
    make(sys.argv[2])
    sys.exit()

from tokenizers import Tokenizer  # noqa: E402

tok = Tokenizer.from_file(sys.argv[1])
tok.encode_special_tokens = True
for path in sys.argv[2:]:
    data = open(path, "rb").read()
    documents, at = [], 0
    while at < len(data):
        end = data.find(b"\n", at + min(4096, len(data) - at))
        end = len(data) if end < 0 else end + 1
        documents.append(data[at:end].decode("utf-8", "replace"))
        at = end
    best, ids = 1e9, 0
    for _ in range(3):
        start = time.process_time()
        ids = sum(len(e) for e in tok.encode_batch_fast(documents, add_special_tokens=False))
        best = min(best, time.process_time() - start)
    print(f"{path}: {len(data) * 1e-6:.1f} MB, {ids} ids, {len(data) * 1e-6 / best:.1f} MB/s")
