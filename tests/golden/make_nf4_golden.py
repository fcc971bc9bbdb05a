# SPDX-License-Identifier: Apache-2.0
"""Writes nf4_bnb.safetensors: tensors quantised by bitsandbytes on the CPU, as it serialises them; and
nf4_maps.safetensors: its map of 8-bit scales, and from which cell of 65536 on each code is used.

Made with torch 2.15.0, bitsandbytes 0.50.2, safetensors 0.8.0, numpy 2. Run in this folder; takes a second.
Inputs are not stored: reference_values() here and in quant/quant_testing.h give the same floats.
"""
import bitsandbytes.functional as F
import numpy as np
import torch
from safetensors.torch import save_file

torch.set_num_threads(1)


def reference_values(n, seed, scale):
    """Sums of four uniform values from a linear congruential generator, every step exact or a single f32 rounding."""
    out = np.zeros(n, np.float32)
    s = seed
    for i in range(n):
        v = np.float32(0)
        for _ in range(4):
            s = (s * 1664525 + 1013904223) % 2**32
            v = np.float32(v + np.float32(((s >> 8) - 2**23) * 2.0**-23))
        out[i] = v * np.float32(scale)
    return out


def cases():
    zero_block = reference_values(200, 6, 0.5)
    zero_block[64:128] = 0
    zero_tail = reference_values(70, 7, 0.5)
    zero_tail[64:] = 0
    return {
        "normal": (reference_values(64 * 64, 1, 0.02), (64, 64)),
        "large": (reference_values(200 * 130, 2, 0.04), (200, 130)),
        "one": (np.array([-0.3], np.float32), (1, 1)),
        "odd": (reference_values(65, 3, 1.0), (5, 13)),
        "wide": (reference_values(300, 4, 3.0), (3, 100)),
        "tall": (reference_values(300, 5, 3.0), (100, 3)),
        "constant": (np.full(128, 0.25, np.float32), (2, 64)),
        "zero": (np.zeros(130, np.float32), (2, 65)),
        "zero_block": (zero_block, (4, 50)),
        "zero_tail": (zero_tail, (7, 10)),
        "tiny": (reference_values(150, 8, 1e-39), (3, 50)),
        "huge": (reference_values(150, 9, 3e37), (3, 50)),
    }


def main():
    tensors = {}
    for layer, nested in enumerate((False, True)):
        for name, (values, shape) in cases().items():
            a = torch.tensor(values).reshape(shape)
            codes, state = F.quantize_4bit(a, blocksize=64, compress_statistics=nested, quant_type="nf4")
            base = f"model.layers.{layer}.{name}_proj.weight"
            tensors[base] = codes
            for part, t in state.as_dict(packed=True).items():
                tensors[f"{base}.{part}"] = t.contiguous().clone()
    # The 8-bit code of the middle of each cell of [-1, 1]: where the next code begins.
    cells = (np.arange(65536, dtype=np.float32) / np.float32(65535)) * np.float32(2) - np.float32(1)
    codes = []
    for i in range(0, 65536, 255):
        block = np.zeros(256, np.float32)
        block[0] = 1
        part = cells[i : i + 255]
        block[1 : 1 + len(part)] = part
        q, _ = F.quantize_blockwise(torch.tensor(block), blocksize=256)
        codes.append(q.numpy()[1 : 1 + len(part)])
    codes = np.concatenate(codes)
    assert (np.diff(codes.astype(int)) >= 0).all()
    first_cell = torch.tensor(np.searchsorted(codes, np.arange(256)).astype(np.int32))
    save_file(tensors, "nf4_bnb.safetensors", {"format": "pt"})
    save_file({"dynamic_map": F.create_dynamic_map(), "first_cell": first_cell}, "nf4_maps.safetensors")


if __name__ == "__main__":
    main()
