#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves of tensors of torch on a GPU: behind kernels, with a snapshot and behind a fence, read back and compared.

usage: tests/python/gpu_save.py [ROUNDS]

The last line has the totals. Exit status 77: there is no GPU that torch can use.
"""

import os
import sys
import tempfile

import sluice


def state_of(torch, number):
    make = torch.Generator(device="cuda").manual_seed(number)
    return {
        "half": torch.full((3000, 1024), number, dtype=torch.bfloat16, device="cuda"),
        "random": torch.randint(-2**31, 2**31 - 1, (7, 1 << 20), dtype=torch.int32, device="cuda", generator=make),
        "strided": torch.full((300, 400), number, dtype=torch.float32, device="cuda").t(),
        "number": torch.tensor(float(number), dtype=torch.float64, device="cuda"),
        "empty": torch.empty((0, 7), dtype=torch.float32, device="cuda"),
        "host": torch.full((1000,), number, dtype=torch.int64),
    }


def same(torch, uri, number):
    found = sluice.load(uri, "cuda")
    expected = state_of(torch, number)
    equal = [torch.equal(found[name].cpu(), tensor.cpu()) for name, tensor in expected.items()]
    return set(found) == set(expected) and all(equal)


def run(torch, folder, number, snapshot, file):
    """Saves tensors that kernels on a stream fill, and fills them anew at once, or behind the fence."""
    uri = os.path.join(folder, "x.safetensors" if file else "saves")
    wanted, stream = state_of(torch, number), torch.cuda.Stream()
    state = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(30_000_000)
        for name, tensor in state.items():
            tensor.copy_(wanted[name])
        save = sluice.save(state, uri, snapshot=snapshot, shard_bytes="8 MiB")
        if not snapshot:
            save.fence()
        for tensor in state.values():
            tensor.fill_(1)
    save.wait()
    return same(torch, uri if file else os.path.join(uri, "model.safetensors.index.json"), number)


def on_two_devices(torch, folder, number):
    """Saves tensors that kernels of two devices fill later: the call waits for none of them, and the save for both."""
    state = {f"of {device}": torch.zeros(1 << 20, device=f"cuda:{device}") for device in (0, 1)}
    for device, tensor in enumerate(state.values()):
        torch.cuda.synchronize(device)
        with torch.cuda.device(device):
            torch.cuda._sleep(300_000_000)
            tensor.fill_(number + device)
    save = sluice.save(state, os.path.join(folder, "two"))
    late = not all(torch.cuda.current_stream(device).query() for device in (0, 1))
    save.wait()
    found = sluice.load(os.path.join(folder, "two", "model.safetensors.index.json"))
    return late and all((found[f"of {device}"] == number + device).all() for device in (0, 1))


def main():
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("there is no GPU that torch can use")
        sys.exit(77)
    failed, number = 0, 2
    with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
        for _ in range(int(sys.argv[1]) if sys.argv[1:] else 5):
            for snapshot in None, "device":
                for file in False, True:
                    right = run(torch, folder, number, snapshot, file)
                    failed += not right
                    number += 1
                    if not right:
                        print(f"save {number}, snapshot={snapshot}, {'a file' if file else 'a folder'}: it differs")
        if torch.cuda.device_count() > 1:
            number += 1
            right = on_two_devices(torch, folder, number)
            failed += not right
            if not right:
                print("tensors on two devices: the call waited, or they differ")
        torch.cuda.empty_cache()
        state = {"large": torch.empty(1 << 30, dtype=torch.uint8, device="cuda")}
        taken = torch.empty(torch.cuda.mem_get_info()[0] - (512 << 20), dtype=torch.uint8, device="cuda")
        number += 1
        try:
            sluice.save(state, os.path.join(folder, "none"), snapshot="device")
            failed += 1
            print("a snapshot without room was not refused")
        except MemoryError as error:
            print(f"a snapshot without room: {error}")
        del taken
    print(f"{number - 2 - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
