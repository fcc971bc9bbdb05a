# SPDX-License-Identifier: Apache-2.0
"""Loads quantised folders with transformers and bitsandbytes, and notes the outcome in store_check.json.

Checked with torch 2.15.0, transformers 5.24.0, bitsandbytes 0.50.2 on the CPU. The folders are those that
weight_store_test writes (which then compares its files with the hash noted here):

    BANTAM_KEEP_STORE=DIR weight_store_test; python check_store.py DIR
"""
import json
import sys
from pathlib import Path

import bitsandbytes as bnb
import bitsandbytes.functional as F
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from make_nf4_golden import reference_values

torch.set_num_threads(1)


def tiny_llama():
    """The tensors of quant/store_testing.h."""
    shapes = {"model.embed_tokens.weight": (40, 64), "model.norm.weight": (64,), "lm_head.weight": (40, 64)}
    for i in range(2):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (64,), p + "post_attention_layernorm.weight": (64,)}
        for name, shape in {"q": (64, 64), "k": (32, 64), "v": (32, 64), "o": (64, 64)}.items():
            shapes[f"{p}self_attn.{name}_proj.weight"] = shape
        for name, shape in {"gate": (96, 64), "up": (96, 64), "down": (64, 96)}.items():
            shapes[f"{p}mlp.{name}_proj.weight"] = shape
    out = {}
    for seed, name in enumerate(sorted(shapes), start=100):
        v = reference_values(int(np.prod(shapes[name])), seed, 0.05)
        if len(shapes[name]) == 1:
            v = v + np.float32(1)
        out[name] = torch.tensor(v).reshape(shapes[name])
    return out


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 % 2**64
    return f"{h:x}"


def check(folder, nested):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    source = tiny_llama()
    worst, matrices, others = 0.0, 0, 0
    for name, want in source.items():
        module = model.get_submodule(name.removesuffix(".weight"))
        have = module.weight
        if isinstance(module, bnb.nn.Linear4bit):
            matrices += 1
            state = have.quant_state
            assert state is not None and state.nested == nested and state.quant_type == "nf4", name
            have = F.dequantize_4bit(have.data, state)
            # What bitsandbytes itself makes of the source, with the offset of the file where scales are nested.
            codes, own = F.quantize_4bit(want, blocksize=64, compress_statistics=False, quant_type="nf4")
            if nested:
                absmax, state2 = F.quantize_blockwise(own.absmax - state.offset, blocksize=256)
                own.absmax = F.dequantize_blockwise(absmax, state2) + state.offset
            want = F.dequantize_4bit(codes, own)
        else:
            others += 1
        assert have.shape == want.shape, name
        worst = max(worst, (have.detach() - want).abs().max().item())
    logits = model(torch.arange(1, 9).reshape(1, 8)).logits
    assert torch.isfinite(logits).all()
    return {
        "file_hash": fnv1a((folder / "model.safetensors").read_bytes()),
        "quantised_matrices": matrices,
        "other_tensors": others,
        "max_difference_of_weights": worst,
        "forward_is_finite": True,
    }


def main():
    root = Path(sys.argv[1])
    result = {"plain": check(root / "plain", False), "nested": check(root / "nested", True)}
    (Path(__file__).parent / "store_check.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
