#!/usr/bin/env python3
"""Trains a small transformer on the CPU, to predict the next byte of text, and writes checkpoints for
bench/weights_density.py: after each of --every updates one, once --warm updates are over.

    PYTHONPATH=build/python bench/weights_transformer.py FOLDER [--rate 3e-4] [--text FILE ...]
    PYTHONPATH=build/python bench/weights_density.py FOLDER/000.safetensors FOLDER/001.safetensors ...

It needs torch. The text is this repository's documentation, unless --text names another one.
"""

import argparse
import pathlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from relive import safetensors

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONTEXT = 64  # bytes


class Transformer(nn.Module):
    """A causal one over bytes, with learned positions; its last layer is the embedding (tied)."""

    def __init__(self, width, layers, heads):
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1), persistent=False)

    def forward(self, text):
        hidden = self.bytes(text) + self.places.weight
        return self.norm(self.layers(hidden, mask=self.mask)) @ self.bytes.weight.T


def batches(text, size, seed):
    """Endless pairs of texts and the bytes that follow each of theirs."""
    rng = np.random.default_rng(seed)
    while True:
        at = rng.integers(0, len(text) - CONTEXT - 1, size)
        rows = torch.from_numpy(np.stack([text[i:i + CONTEXT + 1] for i in at]).astype(np.int64))
        yield rows[:, :-1], rows[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="where checkpoints are written")
    parser.add_argument("--text", nargs="+", type=pathlib.Path, default=sorted((ROOT / "docs").glob("*.md")))
    parser.add_argument("--rate", type=float, default=3e-4, help="Adam's (default 3e-4)")
    parser.add_argument("--warm", type=int, default=300, help="updates before the first checkpoint (default 300)")
    parser.add_argument("--every", type=int, default=1, help="updates between checkpoints (default 1)")
    parser.add_argument("--checkpoints", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    text = np.frombuffer(b"".join(path.read_bytes() for path in options.text), np.uint8)
    network = Transformer(options.width, options.layers, heads=4)
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    options.folder.mkdir(parents=True, exist_ok=True)
    last = options.warm + (options.checkpoints - 1) * options.every
    for update, (rows, following) in zip(range(last + 1), batches(text, 32, options.seed)):
        if update == options.warm:
            for group in adam.param_groups:
                group["lr"] = options.rate
        if update >= options.warm and (update - options.warm) % options.every == 0:
            number = (update - options.warm) // options.every
            safetensors.save(options.folder / ("%03d.safetensors" % number),
                             {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()})
        loss = functional.cross_entropy(network(rows).flatten(0, 1), following.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        if update % 100 == 0:
            print("update %d: loss %.3f" % (update, loss.item()), flush=True)


if __name__ == "__main__":
    main()
