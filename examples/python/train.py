#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on samples that workers read by extents, a batch by a single read.

usage: train.py FILE [PICTURE]    FILE: of train.py --make FILE; PICTURE: an SVG of the loss of each epoch
"""

import sys

import _picture
import numpy as np
import sluice
import torch

INPUTS = 16
BYTES = 4 * (INPUTS + 1)  # of a sample: the inputs, and the number that follows from them


def make(path, count=4096):
    inputs = np.random.default_rng(1).normal(size=(count, INPUTS)).astype("f4")
    outcome = inputs @ np.arange(INPUTS, dtype="f4")
    np.column_stack([inputs, outcome]).astype("f4").tofile(path)


def sample(raw):
    numbers = torch.frombuffer(raw, dtype=torch.float32)
    return numbers[:INPUTS], numbers[INPUTS:]


def train(uri, epochs=5):
    with sluice.open(uri) as file:
        count = file.size // BYTES
    extents = np.column_stack([np.arange(count) * BYTES, np.full(count, BYTES)])
    loader = torch.utils.data.DataLoader(sluice.Samples(uri, extents, sample), batch_size=64, shuffle=True,
                                         num_workers=2, persistent_workers=True)
    model = torch.nn.Linear(INPUTS, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    losses = []
    for _ in range(epochs):
        for inputs, outcome in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), outcome)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(float(loss))
    return losses


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(sys.argv[2])
    elif not sys.argv[1:]:
        sys.exit(__doc__)
    else:
        losses = train(sys.argv[1])
        print("loss of each epoch:", *(f"{loss:.4f}" for loss in losses))
        if sys.argv[2:]:
            _picture.bars(sys.argv[2], {f"epoch {i + 1}": [(0, loss)] for i, loss in enumerate(losses)}, "(loss)")
