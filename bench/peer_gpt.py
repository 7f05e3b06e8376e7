"""A GPT in PyTorch, of GPT-2's blocks and tied embeddings, for peer_torch.py and peer_fsdp.py; also for PyTorch 1.13, which has no
scaled_dot_product_attention."""
import math

import torch
from torch import nn
from torch.nn import functional as F


def attend(q, k, v, dropout):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    length = q.shape[-2]
    unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]))
    return F.dropout(F.softmax(scores.masked_fill(unseen, float("-inf")), -1), dropout) @ v


class Block(nn.Module):
    def __init__(self, width, heads, dropout, attention_dropout):
        super().__init__()
        self.heads, self.dropout, self.attention_dropout = heads, dropout, attention_dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def drop(self, x):
        return F.dropout(x, self.dropout) if self.dropout > 0 else x

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(c, dim=2))
        x = x + self.drop(self.c_proj(attend(q, k, v, self.attention_dropout).transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")))


class Gpt(nn.Module):
    """forward(tokens, targets), both [batch][context]: the mean loss."""

    def __init__(self, layers, heads, width, context, words, dropout=0.0, attention_dropout=0.0):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, attention_dropout) for _ in range(layers))
        self.ln_f, self.dropout = nn.LayerNorm(width), dropout
        for weights in self.parameters():
            if weights.dim() > 1:
                nn.init.normal_(weights, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        x = F.dropout(x, self.dropout) if self.dropout > 0 else x
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), targets.reshape(-1))
