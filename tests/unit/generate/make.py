#!/usr/bin/env python3
"""Writes fixtures/gpt2: a tiny GPT-2 in Hugging Face's form with a byte-level tokenizer, and golden.txt: what transformers (4.44, torch 1.13)
generates from it, greedily.

usage: make.py   (needs torch, transformers, tokenizers)
"""
import json
import pathlib

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = pathlib.Path(__file__).resolve().parent / "fixtures" / "gpt2"
PROMPTS = ["Once", "a", "the quick brown", "\n", "caf\u00e9 ", "0123456789"]


def tokenizer():
    text = "".join(chr(c) for c in range(33, 127)) + "\u0120\u010a\u00c3\u00a9"  # space, new line, the bytes of an e with an accent
    vocabulary = {character: i for i, character in enumerate(text)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    return made


def main():
    torch.manual_seed(4)
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = tokenizer()
    text.save(str(FOLDER / "tokenizer.json"))
    end = text.token_to_id("<|endoftext|>")
    config = GPT2Config(vocab_size=text.get_vocab_size(), n_embd=16, n_layer=2, n_head=2, n_positions=48, initializer_range=0.35, bos_token_id=end,
                        eos_token_id=end)
    model = GPT2LMHeadModel(config).eval()
    model.save_pretrained(FOLDER, safe_serialization=True)
    (FOLDER / "generation_config.json").unlink(missing_ok=True)
    with open(FOLDER / "golden.txt", "w", encoding="utf-8") as out:
        for prompt in PROMPTS:
            ids = torch.tensor([text.encode(prompt).ids])
            made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=20, pad_token_id=end)[0, ids.shape[1]:]
            out.write(json.dumps({"prompt": prompt, "ids": [int(i) for i in made if i != end], "text": text.decode(made.tolist())}) + "\n")


if __name__ == "__main__":
    main()
