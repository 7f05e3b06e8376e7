"""transformers' side of bench/generate: generate_torch.py FOLDER make | FOLDER DTYPE THREADS SHORT NEW LONG, a JSON object."""
import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel


def generate(model, prompt, new):
    ids = torch.full((1, prompt), 97)
    return model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new, min_new_tokens=new, pad_token_id=0, use_cache=True)


def timed(model, prompt, new):
    began = time.perf_counter()
    generate(model, prompt, new)
    return time.perf_counter() - began


def main():
    folder, what = sys.argv[1:3]
    if what == "make":
        torch.manual_seed(1)
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder, safe_serialization=True)
        return
    threads, short, new, long = map(int, sys.argv[3:7])
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.bfloat16 if what == "bf16" else torch.float32).eval()
    with torch.inference_mode():
        generate(model, long, 2)  # warm
        rate = new / timed(model, short, new)
        first = timed(model, long, 1)
    print(json.dumps({"tokens_per_s": rate, "first_token_s": first, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
