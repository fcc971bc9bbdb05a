#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/llama/: loss, adapter gradients and five AdamW steps of a tiny Llama, computed by HF
transformers + PEFT in float32, for a tied and an untied head, unquantised and on bitsandbytes' NF4.

Pinned: torch 2.15.0, transformers 5.24.0, peft 0.21.2, bitsandbytes 0.50.2, safetensors 0.8.0, numpy 2.
Run from anywhere:  python tests/golden/make_llama_golden.py [--out FOLDER]

  batch.json                 sequences: ids and HF labels (labels[i] == ids[i] where trained, else -100: NOT shifted)
  {tied,untied}/base/        plain HF folder, f32. tied: one file, config as transformers 5 writes it (rope_parameters).
                             untied: three shards and an index, config in the older form (rope_theta at the top level).
  {tied,untied}/adapter/     initial adapter as PEFT saves it, r 8, alpha 16, A and B non-zero
  {tied,untied}/{f32,nf4}/golden.json        loss, token_losses[sequence][position] (0 where not trained), losses of the
                             five steps (each before its update), loss after the fifth, and the reference's own
                             rounding error against the same run in float64: tolerances derive from it
  .../grads.safetensors      gradient of the first loss for every lora_A and lora_B, under the adapter file's names
  .../after5.safetensors     the adapter after five steps
  .../logits.safetensors     logits [9, 320] of the second sequence with the initial adapter
  {tied,untied}/nf4/quant.safetensors        bitsandbytes' packed codes and scales of every quantised weight, named as in
                             its own checkpoints (weight, weight.absmax, weight.quant_state.bitsandbytes__nf4, ...)

The nf4 variants run on bitsandbytes' dequantised weights (block 64, double quantisation). Its offset is torch's f32
mean of the scales; golden.json records per weight where the f64 mean, rounded once, differs from it, and by how much.
"""
import argparse
import json
import math
import shutil
from importlib.metadata import version
from pathlib import Path

import bitsandbytes.functional as bnb
import torch
import transformers.models.llama.modeling_llama as modeling_llama
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

PINNED = {"torch": "2.15.0", "transformers": "5.24.0", "peft": "0.21.2", "bitsandbytes": "0.50.2",
          "safetensors": "0.8.0"}
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
VOCAB, HIDDEN, INTERMEDIATE, LAYERS = 320, 64, 160, 2
STEPS = 5
ADAMW = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def random_base(tied, generator):
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=tied,
        bos_token_id=1, eos_token_id=2, use_cache=False)
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 1:
                p.copy_(1 + 0.1 * noise)
            elif "embed_tokens" in name or "lm_head" in name:
                p.copy_(noise * 0.15)  # logits of about unit variance: the loss is near ln(320), the softmax not flat
            else:
                p.copy_(noise / math.sqrt(p.shape[1]))
    return model


def save_base(model, folder, tied):
    if tied:
        model.save_pretrained(folder)
    else:
        model.save_pretrained(folder, max_shard_size="200KB")
        config = json.loads((folder / "config.json").read_text())
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
        config["rope_scaling"] = None
        config["torch_dtype"] = config.pop("dtype")
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)


def make_batch(generator):
    sequences = []
    for length, prompt in ((17, 6), (9, 3), (30, 11)):
        ids = [1] + torch.randint(3, VOCAB, (length - 2,), generator=generator).tolist() + [2]
        sequences.append({"ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    return sequences


def token_losses(model, sequences):
    """Per sequence [length] losses; entry i belongs to the target at position i, 0 where it is not trained."""
    out = []
    for s in sequences:
        logits = model(input_ids=torch.tensor([s["ids"]])).logits[0]
        target = torch.tensor(s["labels"])
        loss = torch.nn.functional.cross_entropy(logits[:-1], target[1:], ignore_index=-100, reduction="none")
        out.append(torch.cat([loss.new_zeros(1), loss]))
    return out


def batch_loss(model, sequences):
    losses = token_losses(model, sequences)
    trained = sum(1 for s in sequences for label in s["labels"][1:] if label != -100)
    return torch.cat(losses).sum() / trained, losses


def padded_loss(model, sequences):
    """The same loss through HF's own path: one right-padded batch with labels."""
    width = max(len(s["ids"]) for s in sequences)
    pad = lambda values, fill: values + [fill] * (width - len(values))
    return model(input_ids=torch.tensor([pad(s["ids"], 0) for s in sequences]),
                 attention_mask=torch.tensor([pad([1] * len(s["ids"]), 0) for s in sequences]),
                 labels=torch.tensor([pad(s["labels"], -100) for s in sequences])).loss


def lora_parameters(model):
    """Adapter parameters under the names of the adapter file."""
    return {name.replace(".default.", "."): p for name, p in model.named_parameters() if "lora_" in name}


def quantise(model):
    """Replaces the linear weights of the layers by bitsandbytes' dequantised NF4. Returns (stored tensors, report)."""
    stored, report = {}, {}
    for name, module in model.named_modules():
        if name.split(".")[-1] not in LINEARS:
            continue
        weight = module.weight.data
        codes, state = bnb.quantize_4bit(weight, blocksize=64, compress_statistics=True, quant_type="nf4")
        value = bnb.dequantize_4bit(codes, state)
        assert value.dtype == torch.float32 and value.shape == weight.shape
        key = f"{name}.weight"
        stored[key] = codes
        for part, tensor in state.as_dict(packed=True).items():
            stored[f"{key}.{part}"] = tensor.clone()

        # The same scales with the offset that is the mean in float64, rounded once.
        _, plain = bnb.quantize_4bit(weight, blocksize=64, compress_statistics=False, quant_type="nf4")
        offset64 = plain.absmax.double().mean().float()
        codes64, state64 = bnb.quantize_blockwise(plain.absmax - offset64, blocksize=256)
        absmax64 = bnb.dequantize_blockwise(codes64, state64) + offset64
        absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
        report[key] = {
            "nested_offset": float(state.offset), "nested_offset_f64_mean": float(offset64),
            "nested_offset_equal": bool(state.offset == offset64),
            "nested_codes_that_differ": int((codes64 != state.absmax).sum()),
            "absmax_max_difference": float((absmax64 - absmax).abs().max())}
        module.weight.data.copy_(value)
    assert len(report) == len(LINEARS) * LAYERS
    return stored, report


def run(base_folder, adapter_folder, quant, sequences, dtype):
    base = AutoModelForCausalLM.from_pretrained(
        base_folder, dtype=torch.float32, attn_implementation="eager" if dtype == torch.float32 else "sdpa")
    stored, report = quantise(base) if quant else ({}, {})
    model = PeftModel.from_pretrained(base, adapter_folder, is_trainable=True)
    model = model.to(dtype).eval()  # eval: nothing in the model is random
    parameters = lora_parameters(model)
    optimizer = torch.optim.AdamW(parameters.values(), **ADAMW)
    result = {"stored": stored, "report": report, "losses": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, per_token = batch_loss(model, sequences)
        loss.backward()
        if step == 0:
            result["token_losses"] = [t.detach().double() for t in per_token]
            result["grads"] = {k: p.grad.clone() for k, p in parameters.items()}
            with torch.no_grad():
                result["logits"] = model(input_ids=torch.tensor([sequences[1]["ids"]])).logits[0].clone()
                result["padded_loss"] = float(padded_loss(model, sequences))
        result["losses"].append(float(loss.detach()))
        optimizer.step()
    with torch.no_grad():
        result["loss_after"] = float(batch_loss(model, sequences)[0])
    result["adapter"] = {k: p.detach().clone() for k, p in parameters.items()}
    return result


class Float64:
    """transformers' Llama computes norms and rope tables in f32 whatever the dtype; within this block, in f64."""

    def __enter__(self):
        self.norm, self.rope = modeling_llama.LlamaRMSNorm.forward, modeling_llama.LlamaRotaryEmbedding.forward

        def norm(module, x):
            return module.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon))

        def rope(module, x, position_ids):
            exponent = torch.arange(0, 16, 2, dtype=torch.float64) / 16
            angle = position_ids[..., None].double() * (10000.0 ** -exponent)
            both = torch.cat((angle, angle), dim=-1)
            return both.cos(), both.sin()

        modeling_llama.LlamaRMSNorm.forward, modeling_llama.LlamaRotaryEmbedding.forward = norm, rope

    def __exit__(self, *_):
        modeling_llama.LlamaRMSNorm.forward, modeling_llama.LlamaRotaryEmbedding.forward = self.norm, self.rope


def worst(a, b):
    """Largest difference over a set of tensors, absolute and relative to the largest element of its tensor."""
    absolute = max(float((a[k].double() - b[k].double()).abs().max()) for k in b)
    relative = max(float((a[k].double() - b[k].double()).abs().max() / b[k].abs().max()) for k in b)
    return {"max_abs": absolute, "max_abs_over_tensor_max": relative}


def save_tensors(tensors, path):
    save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, path, metadata={"format": "pt"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "llama")
    out = parser.parse_args().out
    for package, wanted in PINNED.items():
        if version(package).split("+")[0] != wanted:
            raise SystemExit(f"{package} is {version(package)}, the golden files are made with {wanted}")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    out.mkdir(parents=True, exist_ok=True)
    sequences = make_batch(torch.Generator().manual_seed(7))
    (out / "batch.json").write_text(json.dumps({"sequences": sequences}) + "\n")

    for index, head in enumerate(("tied", "untied")):
        shutil.rmtree(out / head, ignore_errors=True)
        base_folder, adapter_folder = out / head / "base", out / head / "adapter"
        generator = torch.Generator().manual_seed(11 + index)
        save_base(random_base(head == "tied", generator), base_folder, head == "tied")

        model = get_peft_model(
            AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32),
            LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=LINEARS, task_type="CAUSAL_LM"))
        with torch.no_grad():
            for name, p in lora_parameters(model).items():
                scale = 1 / math.sqrt(p.shape[1]) if "lora_A" in name else 0.05
                p.copy_(torch.randn(p.shape, generator=generator) * scale)
        model.save_pretrained(adapter_folder)
        (adapter_folder / "README.md").unlink(missing_ok=True)
        config = json.loads((adapter_folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = f"{head}/base"
        config["target_modules"] = sorted(config["target_modules"])
        (adapter_folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

        for quant in (False, True):
            r = run(base_folder, adapter_folder, quant, sequences, torch.float32)
            with Float64():
                exact = run(base_folder, adapter_folder, quant, sequences, torch.float64)
            assert set(r["grads"]) == set(load_file(adapter_folder / "adapter_model.safetensors"))
            assert abs(r["padded_loss"] - r["losses"][0]) < 1e-5, "the padded batch gives another loss"
            assert all(float(g.abs().max()) > 0 for g in r["grads"].values())
            folder = out / head / ("nf4" if quant else "f32")
            folder.mkdir()
            save_tensors(r["grads"], folder / "grads.safetensors")
            save_tensors(r["adapter"], folder / "after5.safetensors")
            save_tensors({"logits": r["logits"]}, folder / "logits.safetensors")
            if quant:
                save_tensors(r["stored"], folder / "quant.safetensors")
            grads64 = torch.cat([g.flatten() for g in exact["grads"].values()])
            golden = {
                "loss": r["losses"][0], "losses": r["losses"], "loss_after": r["loss_after"],
                "token_losses": [t.tolist() for t in r["token_losses"]],
                "trained_tokens": sum(1 for s in sequences for label in s["labels"][1:] if label != -100),
                "optimizer": {"name": "AdamW", **ADAMW, "steps": STEPS},
                "float64": {
                    "loss": exact["losses"][0], "losses": exact["losses"], "loss_after": exact["loss_after"],
                    "token_losses_max_abs": max(float((a - b).abs().max())
                                                for a, b in zip(r["token_losses"], exact["token_losses"])),
                    "logits": worst({"x": r["logits"]}, {"x": exact["logits"]}),
                    "grads": worst(r["grads"], exact["grads"]),
                    "adapter_after": worst(r["adapter"], exact["adapter"]),
                    "smallest_abs_grad": float(grads64.abs().min())},
                "quantisation": r["report"]}
            (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
            print(f"{head}/{folder.name}: losses {r['losses']} -> {r['loss_after']:.6f}")
            print("   against f64:", json.dumps(golden["float64"]))
            differ = [k for k, v in r["report"].items() if not v["nested_offset_equal"]]
            codes = sum(v["nested_codes_that_differ"] for v in r["report"].values())
            if quant:
                print(f"   nested offset is not the rounded f64 mean in {len(differ)} of {len(r['report'])} weights; "
                      f"{codes} nested codes would differ")
    files = [f for f in out.rglob("*") if f.is_file()]
    for f in files:
        f.chmod(0o644)
    size = sum(f.stat().st_size for f in files)
    print(f"{size / 1e6:.2f} MB in {out}")


if __name__ == "__main__":
    main()
