# SPDX-License-Identifier: Apache-2.0
"""A trainer hands its weights to samplers, which begin and end without loading them.

usage: hand_over.py [VERSIONS]

They are processes that share a collection in the store; sluiced runs ($SLUICE_STORE, see docs/store.md). The trainer
publishes new weights under the same name; the sampler goes on with each that it sees. A sampler that comes later is
as quick: attaching maps what is there. Nothing is copied but the trainer's own weights.
"""

import subprocess
import sys
import time

import numpy
import sluice

NAME = "hand_over/model"


def train(versions):
    """Publish the weights after each step. Both weights of a version are the number of the step."""
    weights = {"embed": numpy.zeros((1000, 64), "f4"), "head": numpy.zeros((64, 10), "f4")}
    for step in range(1, versions + 1):
        for array in weights.values():
            array += 1
        sluice.publish(NAME, weights, replace=True, files={"step": str(step)}, framework="np").close()
        time.sleep(0.1)


def sample(last):
    """Use each version that is there in time, until that step."""
    begun = time.monotonic()
    model = sluice.attach(NAME, timeout=60, framework="np")
    print(f"the sampler has the weights {(time.monotonic() - begun) * 1e3:.1f} ms after it asked", file=sys.stderr)
    while (step := int(model.files["step"])) < last:
        assert all((array == step).all() for array in model.values()), "weights of two versions"
        model = model.newer(60).wait()
    assert all((array == step).all() for array in model.values()), "weights of two versions"
    print(f"the sampler has seen step {last}, or a later step")


def main():
    if sys.argv[1:2] == ["sample"]:
        sample(int(sys.argv[2]))
        return
    versions = int(sys.argv[1]) if sys.argv[1:] else 10
    samplers = [subprocess.Popen([sys.executable, __file__, "sample", str(last)]) for last in (versions // 2, versions)]
    train(versions)
    with sluice.Store() as store:
        failed = [sampler.wait() for sampler in samplers]
        store.delete(NAME)
    sys.exit(max(failed))


if __name__ == "__main__":
    main()
