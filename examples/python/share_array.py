#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes share an array of NumPy without a copy, by the store:

    sluiced &
    share_array.py

The parent makes an array in the store, and each of its workers reads it where it is. The workers put their results
beside it, and the parent learns of them by a watch.
"""

import multiprocessing

import numpy
import sluice

WORKERS, COUNT = 4, 1_000_000


def work(number):
    with sluice.Store() as store:
        squares = store.get("squares", timeout=60).numpy()  # read-only, and not a copy
        part = squares[number * COUNT // WORKERS : (number + 1) * COUNT // WORKERS]
        store.put(f"sums/{number}", part.sum())


def main():
    context = multiprocessing.get_context("spawn")
    with sluice.Store() as store, store.watch("sums/") as watch:
        workers = [context.Process(target=work, args=(i,)) for i in range(WORKERS)]
        for worker in workers:
            worker.start()
        # Sealed at the end of the block: no process sees it before, and it never changes again.
        with store.create("squares", COUNT, "int64") as blob:
            numpy.square(numpy.arange(COUNT), out=blob.numpy())
        total = 0
        for _ in workers:
            while (event := watch.next(timeout=60)).kind != "sealed":
                pass
            total += int(store.get(event.name).numpy())
            store.delete(event.name)
        for worker in workers:
            worker.join()
        store.delete("squares")
        print(total)


if __name__ == "__main__":
    main()
