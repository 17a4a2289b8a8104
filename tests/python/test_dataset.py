# SPDX-License-Identifier: Apache-2.0
"""Samples for torch.utils.data, in this process and in workers."""
import gc
import multiprocessing
import pickle
import warnings

import numpy
import pytest
import sluice
from conftest import pattern

DATA = pattern(100_000)
EXTENTS = numpy.array([(i * 100, 20) for i in range(1000)])


def test_samples_are_the_extents_of_files(path, file_server):
    samples = sluice.Samples(path, EXTENTS, bytes)
    assert len(samples) == 1000 and samples[3] == DATA[300:320]
    assert samples.__getitems__([5, 1, 5]) == [DATA[500:520], DATA[100:120], DATA[500:520]]
    several = sluice.Samples([path, f"{file_server.uri}/pattern"], [(0, 3, 2), (1, 99_999, 1), (0, 7, 0)], bytes,
                             headers={"X-Key": "a"}, settings={"workers": 2})
    assert several.__getitems__([2, 1, 0]) == [b"", DATA[99_999:], DATA[3:5]]
    several.close()
    assert several[0] == DATA[3:5]


def test_a_batch_of_a_server_is_few_requests(path, file_server):
    samples = sluice.Samples(f"{file_server.uri}/pattern", [(i * 100, 100) for i in range(1000)], bytes)
    samples[0]
    asked = len(file_server.asked)
    assert samples.__getitems__(range(199, 99, -1)) == [DATA[i * 100:i * 100 + 100] for i in range(199, 99, -1)]
    assert len(file_server.asked) < asked + 10


def test_samples_that_are_not_in_their_file_are_named(path):
    for extent in ((99_990, 20), (-1, 5), (5, -1)):
        with pytest.raises(ValueError, match=r"sample 1 .*pattern"):
            sluice.Samples(path, [(0, 1), extent], bytes).__getitems__([0, 1])
    for n, row in ((1, (1, 0, 5)), (1, (-1, 0, 5)), (1, (5,)), (2, (0, 5)), (2, (0, 0, 0, 5))):
        with pytest.raises(ValueError, match=f"sample 0 is .* no extent of {n} files"):
            list(sluice.Samples([path] * n, [row], bytes))
    with pytest.raises(FileNotFoundError):
        sluice.Samples(str(path) + "-not", EXTENTS)[0]
    with pytest.raises(IndexError):
        sluice.Samples(path, [(0, 1)], bytes)[1]


def work(samples, results):
    results.put(samples.__getitems__(range(10)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_opens_the_files_for_itself(path, method):
    samples = sluice.Samples(path, EXTENTS, bytes)
    expected = samples.__getitems__(range(10))
    context = multiprocessing.get_context(method)
    results = context.Queue()
    worker = context.Process(target=work, args=(samples, results), daemon=True)
    worker.start()
    assert results.get(timeout=60) == expected
    worker.join(60)
    assert worker.exitcode == 0 and samples[0] == expected[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(samples))
        assert again[0] == expected[0]
        del again, samples
        gc.collect()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_gives_batches(path, workers):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    loader = torch.utils.data.DataLoader(sluice.Samples(path, EXTENTS), batch_size=100, num_workers=workers)
    batches = torch.cat(list(loader))
    assert batches.numpy().tobytes() == b"".join(DATA[i * 100:i * 100 + 20] for i in range(1000))


def test_an_array_is_read_alone(tmp_path):
    numpy.save(tmp_path / "a.npy", numpy.arange(6).reshape(2, 3))
    found = sluice.load_array(tmp_path / "a.npy", framework="np")
    assert found.shape == (2, 3) and (found == numpy.arange(6).reshape(2, 3)).all()
    numpy.savez(tmp_path / "two.npz", a=numpy.zeros(1), b=numpy.zeros(1))
    with pytest.raises(ValueError, match=r"2 arrays.*a, b"):
        sluice.load_array(tmp_path / "two.npz", framework="np")
    numpy.savez(tmp_path / "one.npz", a=numpy.ones(1))
    assert sluice.load_array(tmp_path / "one.npz", framework="np") == 1
