#!/usr/bin/env python3
"""Models of Hugging Face's transformers against ours.

usage: hf.py make FOLDER              writes the fixtures: small models with the logits that transformers gives
       hf.py compare TRIREME LOGITS   fresh random models: logits of our program (LOGITS is the test of logits), and
                                      convert there and back, whole and in shards, f32 and bf16; runs from nothing
                                      handed over

Exit 77 where torch or transformers is absent (pip install torch transformers).
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SAMPLE = 7  # tokens


def models(seed):
    """Name, model, keywords of save_pretrained. Weights far from 0, so that each of them shows in the logits."""
    gpt2 = transformers.GPT2Config(vocab_size=19, n_positions=16, n_embd=8, n_layer=2, n_head=2, eos_token_id=18,
                                   bos_token_id=18)
    sizes = dict(vocab_size=19, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=16)
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8}
    rows = [
        ("gpt2", transformers.GPT2LMHeadModel(gpt2), {}),
        ("gpt2_shards", transformers.GPT2LMHeadModel(gpt2), {"max_shard_size": "4KB"}),
        ("llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)), {"max_shard_size": "6KB"}),
        ("llama_tied", transformers.LlamaForCausalLM(transformers.LlamaConfig(
            **sizes, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_theta=500000.0,
            rope_scaling=rope)), {}),
    ]
    torch.manual_seed(seed)
    for name, model, keywords in rows:
        for key, parameter in model.named_parameters():
            parameter.data.normal_(0, 0.3)
            if parameter.dim() == 1 and "bias" not in key:
                parameter.data += 1
        yield name, model.eval(), keywords


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0]


def read(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()


def write_logits(folder, model, seed):
    """tokens, targets, loss summed over the targets, one line of logits a token."""
    generator = torch.Generator().manual_seed(seed)
    words = model.config.vocab_size
    tokens = torch.randint(words, (SAMPLE,), generator=generator).tolist()
    targets = torch.randint(words, (SAMPLE,), generator=generator).tolist()
    logits = logits_of(model, tokens)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="sum").item()
    lines = [" ".join(map(str, [SAMPLE, words])), " ".join(map(str, tokens)), " ".join(map(str, targets)), f"{loss:.8g}"]
    lines += [" ".join(f"{value:.8g}" for value in row) for row in logits.tolist()]
    (folder / "logits.txt").write_text("\n".join(lines) + "\n")


def save(folder, seed, bf16=False):
    for name, model, keywords in models(seed):
        target = folder / name
        shutil.rmtree(target, ignore_errors=True)
        model = model.to(torch.bfloat16) if bf16 else model
        model.save_pretrained(target, safe_serialization=True, **keywords)
        (target / "generation_config.json").unlink(missing_ok=True)
        for file in target.iterdir():
            os.chmod(file, 0o644)
        # Read again: Llama's angles would be those of a model that was in bf16 for a while.
        write_logits(target, read(target), seed + 1)


def tensors_of(folder):
    from safetensors.torch import load_file
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        found.update(load_file(file))
    return found


def expect_same(one, other):
    first, second = tensors_of(one), tensors_of(other)
    assert first.keys() == second.keys(), first.keys() ^ second.keys()
    for name, value in first.items():
        assert value.dtype == second[name].dtype and torch.equal(value, second[name]), f"{one.name}: {name}"


def convert(trireme, *words):
    run = subprocess.run([trireme, "convert", *map(str, words)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


TRAINED = {
    "gpt2": "{name: gpt2, n_layer: 2, n_head: 2, n_embd: 8}",
    "gpt2_untied": "{name: gpt2, n_layer: 1, n_head: 4, n_embd: 16, n_inner: 24, tie_word_embeddings: false, "
                   "activation_function: gelu, resid_pdrop: 0.1}",
    "llama": "{name: llama, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, hidden_size: 16}",
    "llama_tied": "{name: llama, num_hidden_layers: 1, num_attention_heads: 2, hidden_size: 16, mlp_bias: true, "
                  "intermediate_size: 20, tie_word_embeddings: true, attention_bias: true}",
}


def compare_trained(trireme, logits):
    """Models that began here: transformers takes them, without a word missing, and computes the same."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "theirs")
        folder.mkdir()
        for name, model in TRAINED.items():
            config = pathlib.Path(temporary, f"{name}.yaml")
            config.write_text(f"model: {model}\ndata: {{name: synthetic, synthetic_tokens: true, synthetic_count: 64, "
                              f"synthetic_width: {SAMPLE}, classes: 19}}\ntrain: {{batch: 8, epochs: 1}}\n"
                              "optim: {name: adamw, lr: 0.02}\n")
            subprocess.run([trireme, "train", config, "-n", "2", "--out", f"{temporary}/{name}"], check=True,
                           capture_output=True)
            convert(trireme, f"{temporary}/{name}", folder / name)
            read_model, report = transformers.AutoModelForCausalLM.from_pretrained(folder / name, output_loading_info=True)
            assert not any(report.values()), report
            write_logits(folder / name, read_model.eval(), 3)
            print(f"trained {name}: transformers reads all of it")
        subprocess.run([logits, folder], check=True)


def compare(trireme, logits):
    with tempfile.TemporaryDirectory() as temporary:
        for bf16 in False, True:
            folder = pathlib.Path(temporary) / ("bf16" if bf16 else "f32")
            save(folder, 100 + bf16, bf16)
            subprocess.run([logits, folder], check=True)
            for source in sorted(folder.iterdir()):
                ours, back, shards = (pathlib.Path(temporary) / f"{folder.name}-{source.name}-{what}"
                                      for what in ("ours", "back", "shards"))
                convert(trireme, source, ours)
                convert(trireme, ours, back)
                convert(trireme, ours, shards, "--shard-size", "2k")
                expect_same(source, back)
                expect_same(source, shards)
                assert (source / "config.json").read_bytes() == (back / "config.json").read_bytes()
                assert len(json.loads((shards / "model.safetensors.index.json").read_text())["weight_map"]) > 4
                tokens = list(range(SAMPLE))
                wanted = logits_of(read(source), tokens)
                for folder_back in back, shards:
                    got = logits_of(read(folder_back), tokens)
                    assert torch.equal(wanted, got), folder_back
                print(f"{folder.name} {source.name}: logits as transformers', there and back to the bit")


if len(sys.argv) == 3 and sys.argv[1] == "make":
    save(pathlib.Path(sys.argv[2]), 7)
elif len(sys.argv) == 4 and sys.argv[1] == "compare":
    compare(sys.argv[2], sys.argv[3])
    compare_trained(sys.argv[2], sys.argv[3])
else:
    sys.exit(__doc__)
