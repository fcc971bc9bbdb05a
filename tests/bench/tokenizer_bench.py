# SPDX-License-Identifier: Apache-2.0
"""The peer of bantam_tokenizer_bench: HF tokenizers on one thread, the same documents, the best CPU time of several rounds.

    RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false python tokenizer_bench.py MODEL/tokenizer.json FILE...
"""
import sys
import time

from tokenizers import Tokenizer

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
