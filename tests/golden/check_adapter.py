#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads an adapter folder that Bantam wrote onto its base in PEFT and compares logits. Needs the packages pinned in
make_llama_golden.py.

  python tests/golden/check_adapter.py --base tests/golden/llama/tied/base --adapter outputs/x --logits logits.json [--nf4]

--base      HF folder, or a .gguf file (needs the gguf package; its tensors are dequantised to f32)
--adapter   folder with adapter_config.json and adapter_model.safetensors
--logits    JSON written by Bantam: {"ids": [...], "logits": [[...], ...]}, logits [T, V] of the base with this adapter;
            or {"sequences": [{"ids": ..., "logits": ...}, ...]}
--nf4       the base's linear layers are replaced by bitsandbytes' dequantised NF4 (block 64, double quantisation)
--tolerance largest allowed difference of a logit, in units of the largest logit (default 1e-5: f32 rounding)
--out       where the outcome goes (default tests/golden/llama/adapter_check.json); names no folder of this machine

Exit 0 when every key is matched, the adapter has an effect and the logits agree; 1 otherwise.
"""
import argparse
import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def fail_early(message):
    print(f"check_adapter: {message}", file=sys.stderr)
    raise SystemExit(1)


def load_base(path, nf4):
    if path.suffix == ".gguf":
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                     attn_implementation="eager")
    else:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    if nf4:
        from make_llama_golden import quantise
        quantise(model)
    return model.eval()


def compare_keys(adapter, config, base_path, nf4):
    """What PEFT would expect in the file for this config against what is in it. Returns (report, clean)."""
    try:
        in_file = load_file(adapter / "adapter_model.safetensors")
    except (OSError, SafetensorError) as e:
        fail_early(f"adapter_model.safetensors cannot be read: {e}")
    expected = get_peft_model_state_dict(get_peft_model(load_base(base_path, nf4), config))
    shapes = {k: [list(in_file[k].shape), list(expected[k].shape)]
              for k in in_file.keys() & expected.keys() if in_file[k].shape != expected[k].shape}
    report = {
        "tensors_in_file": len(in_file), "tensors_expected": len(expected),
        "matched": len(in_file.keys() & expected.keys()) - len(shapes),
        "only_in_file": sorted(in_file.keys() - expected.keys()),
        "missing_in_file": sorted(expected.keys() - in_file.keys()),
        "other_shape": shapes,
        "not_finite": sorted(k for k, t in in_file.items() if not torch.isfinite(t).all()),
        "dtypes": sorted({str(t.dtype).removeprefix("torch.") for t in in_file.values()})}
    clean = not (report["only_in_file"] or report["missing_in_file"] or shapes or report["not_finite"])
    return report, clean and report["matched"] > 0


def read_sequences(path):
    data = json.loads(path.read_text())
    sequences = data["sequences"] if "sequences" in data else [data]
    if not sequences:
        fail_early(f"{path.name} holds no sequence")
    for i, s in enumerate(sequences):
        logits = torch.tensor(s["logits"], dtype=torch.float64)
        if logits.dim() != 2 or logits.shape[0] != len(s["ids"]):
            fail_early(f"{path.name}: sequence {i}: logits are {list(logits.shape)}, expected [{len(s['ids'])}, V]")
        s["logits"] = logits
    return sequences


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--adapter", type=Path, required=True)
    parser.add_argument("--logits", type=Path, required=True)
    parser.add_argument("--nf4", action="store_true")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "llama" / "adapter_check.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for path in (args.base, args.adapter / "adapter_config.json", args.adapter / "adapter_model.safetensors", args.logits):
        if not path.exists():
            fail_early(f"{path} does not exist")
    sequences = read_sequences(args.logits)

    # Keys of the config that PEFT does not know are only warned about by PEFT: they are an error here.
    raw = json.loads((args.adapter / "adapter_config.json").read_text())
    unknown = sorted(raw.keys() - {*LoraConfig.__dataclass_fields__, "peft_version"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig.from_pretrained(args.adapter)
    keys, keys_clean = compare_keys(args.adapter, config, args.base, args.nf4)

    base = load_base(args.base, args.nf4)
    with torch.no_grad():
        bare = [base(input_ids=torch.tensor([s["ids"]])).logits[0].double() for s in sequences]
    model, load_error = None, None
    try:
        model = PeftModel.from_pretrained(base, args.adapter).eval()
    except (RuntimeError, ValueError) as e:
        load_error = str(e).splitlines()[0]

    outcome = {
        "packages": {p: version(p) for p in ("torch", "transformers", "peft")},
        "base": args.base.name if args.base.suffix == ".gguf" else "/".join(args.base.parts[-2:]),
        "nf4": args.nf4, "r": config.r, "lora_alpha": config.lora_alpha,
        "unknown_config_keys": unknown, "keys": keys, "load_error": load_error,
        "tokens": sum(len(s["ids"]) for s in sequences), "tolerance": args.tolerance}
    passed = keys_clean and not unknown and load_error is None
    if model is not None:
        difference = effect = largest = 0.0
        with torch.no_grad():
            for s, without in zip(sequences, bare):
                ours, theirs = s["logits"], model(input_ids=torch.tensor([s["ids"]])).logits[0].double()
                if ours.shape != theirs.shape:
                    fail_early(f"logits are {list(ours.shape)}, PEFT gives {list(theirs.shape)}")
                # A NaN must not slip through a maximum.
                difference = max(difference, float((ours - theirs).abs().nan_to_num(nan=float("inf")).max()))
                effect = max(effect, float((theirs - without).abs().max()))
                largest = max(largest, float(theirs.abs().max()))
        outcome.update(max_abs_difference=difference, largest_logit=largest, adapter_effect=effect,
                       same_greedy_token=all(bool((s["logits"].argmax(-1) == model(
                           input_ids=torch.tensor([s["ids"]])).logits[0].argmax(-1)).all()) for s in sequences))
        # An adapter without effect would agree with anything: its effect must stand far above the tolerance.
        passed = passed and difference <= args.tolerance * largest and effect > 10 * args.tolerance * largest
        print(f"largest difference {difference:.3g} (largest logit {largest:.4g}, effect of the adapter {effect:.4g})")
    outcome["passed"] = passed
    args.out.write_text(json.dumps(outcome, indent=1) + "\n")

    print(f"keys: {keys['matched']} of {keys['tensors_expected']} matched")
    for what in ("only_in_file", "missing_in_file", "not_finite"):
        for key in keys[what]:
            print(f"  {what}: {key}")
    for key, (ours, theirs) in keys["other_shape"].items():
        print(f"  other shape: {key}: {ours} in the file, {theirs} expected")
    for key in unknown:
        print(f"  unknown in adapter_config.json: {key}")
    if load_error:
        print(f"PEFT does not load it: {load_error}")
    print("PASS" if passed else "FAIL")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
