#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a file into tensors of torch, on a GPU if there is one.

usage: read_into_torch.py FILE    a path, or a URI of http:, https: or store:
"""

import sys

import sluice
import torch


def main(uri):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if uri.endswith(".npy"):
        array = sluice.load_array(uri, device)  # type and shape are those of the file
        print(f"{array.dtype} {list(array.shape)} on {array.device}, sum {array.sum().item()}")
        return
    with sluice.open(uri) as file:
        whole = torch.empty(file.size, dtype=torch.uint8, device=device)
        file.read_into(whole)
        # Two reads at once, which wait for each other nowhere.
        head, tail = (torch.empty(min(16, file.size), dtype=torch.uint8, device=device) for _ in range(2))
        operations = [file.read_into_async(head), file.read_into_async(tail, file.size - tail.numel())]
        for operation in operations:
            operation.wait()
    assert torch.equal(head, whole[: head.numel()]) and torch.equal(tail, whole[-tail.numel() :])
    print(f"{whole.numel()} bytes on {whole.device}, sum {whole.sum(dtype=torch.int64).item()}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
