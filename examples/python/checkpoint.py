# SPDX-License-Identifier: Apache-2.0
"""A training loop that saves its state while it goes on, and continues where it was when it is started again.

usage: checkpoint.py FOLDER [STEPS]

FOLDER is a path or s3://BUCKET/PREFIX. Kill the program at any moment and start it again: the line that it prints at
the end is the same as without an interruption, since parameters, the optimizer's state and that of the random numbers
come back.
"""

import json
import sys

import numpy
import sluice


def restore(folder):
    """The state of the last complete checkpoint, or a new one: arrays, step and random numbers."""
    random = numpy.random.default_rng(1)
    try:
        with sluice.safe_open(f"{folder}/model.safetensors.index.json", "np") as saved:
            state, metadata = saved.get_tensors(), saved.metadata()
    except FileNotFoundError:
        return {"weight": random.standard_normal((256, 64)), "momentum": numpy.zeros((256, 64))}, 0, random
    random.bit_generator.state = json.loads(metadata["random"])
    return state, int(metadata["step"]), random


def step_once(state, random):
    """A step of gradient descent with momentum towards a weight of ones."""
    batch = random.standard_normal((32, 256))
    gradient = batch.T @ (batch @ (state["weight"] - 1)) / 32
    state["momentum"] *= 0.9
    state["momentum"] += gradient
    state["weight"] -= 0.002 * state["momentum"]


def main():
    sys.argv[1:] or sys.exit(__doc__)
    folder, steps = sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 300
    state, begin, random = restore(folder)
    print(f"begins at step {begin}", file=sys.stderr)
    save = None
    for step in range(begin, steps):
        step_once(state, random)
        if step % 10 == 9 and (save is None or save.done):  # else the last one is still on its way
            if save:
                save.wait()  # raises its error
            metadata = {"step": str(step + 1), "random": json.dumps(random.bit_generator.state)}
            save = sluice.save(state, folder, metadata=metadata)
            save.fence()  # with snapshot="device" the loop would not wait here, and need memory for a copy
    if save:
        save.wait()
    print(f"step {steps}: weight {state['weight'].sum():.12f}, next number {random.random():.12f}")


if __name__ == "__main__":
    main()
