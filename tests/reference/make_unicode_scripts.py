# SPDX-License-Identifier: Apache-2.0
"""The scripts of characters as the UnicodeScripts pre-tokenizer of HF tokenizers has them, found by asking it for each character.

Writes ../../finetune/text/unicode_scripts.h. Made with tokenizers 0.22.2:
    pip install tokenizers==0.22.2 && python make_unicode_scripts.py
"""
import os

from tokenizers import pre_tokenizers

HEAD = """// SPDX-License-Identifier: Apache-2.0
// The scripts of characters as the UnicodeScripts pre-tokenizer of HF tokenizers 0.22.2 has them: a table of its own,
// older than the current Unicode's. Written by tests/reference/make_unicode_scripts.py.
#pragma once
#include <cstdint>

namespace bantam {

struct ScriptRange {
  uint32_t first, last;
  uint8_t script;  ///< a number for each script; Hiragana and Katakana count as Han
};

/// In order. The space and characters that the table does not know are in none: they go with what is around them.
inline constexpr ScriptRange kScripts[] = {
"""


def main():
    split = pre_tokenizers.UnicodeScripts().pre_tokenize_str
    known = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and split(chr(c))]
    runs, at = [], 0
    for piece, _ in split("".join(map(chr, known))):
        runs.append(known[at:at + len(piece)])
        at += len(piece)
    samples, ranges = [], []
    for run in runs:
        number = next((i for i, s in enumerate(samples) if len(split(s + chr(run[0]))) == 1), len(samples))
        if number == len(samples):
            samples.append(chr(run[0]))
        for c in run:
            if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == number:
                ranges[-1][1] = c
            else:
                ranges.append([c, c, number])
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "finetune", "text", "unicode_scripts.h")
    with open(path, "w") as f:
        f.write(HEAD + ", ".join(f"{{0x{a:X}, 0x{b:X}, {s}}}" for a, b, s in ranges) + "};\n\n}  // namespace bantam\n")
    print(f"{len(ranges)} ranges, {len(samples)} scripts")


main()
