# SPDX-License-Identifier: Apache-2.0
"""Collections that a node lacks and a server of S3 has, asked for by many processes: of each byte once for each node,
and whole, whoever dies and whatever the server does."""

import collections
import errno
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

import pytest
import sluice
from conftest import Daemon
from origin_nodes import (
    Node,
    Origin,
    Process,
    Refusal,
    attached,
    got,
    mapped,
    model_bytes,
    newer,
    pushed,
    released,
    reserved,
    sealed,
)
from sluice import _core

URI = "s3://bucket/models"
KEY = "models/"
MANY = 8
AHEAD = 256 << 10  # bytes that come with the opening of an object
FULL = bool(os.environ.get("STRESS"))
SLUICE = pathlib.Path(_core.__file__).parents[2] / "sluice"


@pytest.fixture(scope="module")
def origin():
    made = Origin()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def two(origin):
    daemons = [Daemon(), Daemon()]
    for daemon in daemons:
        daemon.open().close()
    made = [Node(name, daemon, origin, MANY) for name, daemon in zip(("north", "south"), daemons, strict=True)]
    yield made
    for node in made:
        node.stop()
        node.daemon.stop()


@pytest.fixture
def nodes(two, origin):
    """Both nodes, of which nothing is left afterwards."""
    origin.log.clear()
    origin.objects.clear()
    origin.rule, origin.pace = None, 0
    yield two
    origin.rule, origin.pace = None, 0
    for node in two:
        node.all(released)
        with node.daemon.open() as store:
            deadline = time.monotonic() + 20
            while store.list(".sluice/"):  # the end of a lease has no answer
                assert time.monotonic() < deadline
            for row in store.list():
                if row.state == "sealed":
                    store.delete(row.name)
        assert_idle(node.daemon.path)


@pytest.fixture
def node(nodes):
    return nodes[0]


def assert_idle(path):
    """Nothing is made, held or leased by processes but those that are there, soon."""
    deadline = time.monotonic() + 20
    while True:
        command = [SLUICE, "store", "stat", "--json", "--socket", path]
        counts = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        if not any(counts[name] for name in ("created", "dying", "sealed", "blob_bytes", "waiting")):
            return
        assert time.monotonic() < deadline, counts
        time.sleep(0.01)


def servers_of(daemon):
    """The process of the server, which is the child of the one that was started."""
    pid = daemon.program.pid
    return map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def errnos(results):
    return {result[1] for result in results if isinstance(result[0], str)}


def assert_whole(results, *tags):
    """Each is a whole collection of one of the tags."""
    for result in results:
        assert not isinstance(result[0], str) and result[1] == 20 and result[2] in [[tag] for tag in tags], result


def local_publish(store, replace=True):
    tensors = {f"layer.{i}": b"\x09" for i in range(20)}
    return sluice.publish("m", tensors, framework="dlpack", replace=replace, store=store)


def times_of_each(origin, key, node):
    """How often the node got the bytes of the object: all that there is of them, as a set."""
    changes = collections.Counter({0: 0, len(origin.objects[KEY + key][0]): 0})
    for served in origin.asked(method="GET", key=KEY + key, node=node):
        changes[served.begin] += 1
        changes[served.begin + served.sent] -= 1
    return set(list(itertools.accumulate(changes[at] for at in sorted(changes)))[:-1])


def bodies(origin, key, **of):
    return sum(served.sent for served in origin.asked(method="GET", key=KEY + key, **of))


# ------------------------------------------------------------------------------------------------ fetches


def test_each_byte_comes_once_to_each_node(nodes, origin):
    data = model_bytes(1, each=400_000)
    origin.put(KEY + "m", data)
    for node in nodes:
        for process in node.processes:
            process.begin(attached, "m", 60, URI, True)
    for node in nodes:
        results = [process.end() for process in node.processes]
        assert_whole(results, 1)
        assert len({result[0] for result in results}) == 1
        assert times_of_each(origin, "m", node.name) == {1}
    asked = len(origin.log)
    for node in nodes:  # a hit asks nothing, held or not
        assert_whole(node.all(attached, "m", 60, URI, False), 1)
        node.all(released)
        assert_whole(node.all(attached, "m", 60, URI, False), 1)
    assert len(origin.log) == asked


def test_a_leader_that_dies_is_followed(node, origin):
    deaths, rounds, chance = 0, 0, random.Random(7)
    origin.pace = 0.003
    with node.daemon.open() as store:
        while deaths < (200 if FULL else 50):
            rounds += 1
            assert rounds < 2000
            name = f"m{rounds}"
            origin.put(KEY + name, model_bytes(rounds % 200 + 1))
            for process in node.processes:
                process.begin(attached, name, 60, URI, False)
            time.sleep(chance.random() * 0.05)
            leaders = [row.process for row in store.list(".sluice/fetch/")]
            killed = [process for process in node.processes if process.pid in leaders[:1]]
            for process in killed:
                process.kill()
                deaths += 1
            results = [process.end() for process in node.processes if process not in killed]
            assert_whole(results, rounds % 200 + 1)
            assert len({result[0] for result in results}) == 1
            for process in killed:
                node.processes[node.processes.index(process)] = Process(node)
            store.delete(name)
    print(f"{deaths} deaths in {rounds} rounds")


def test_the_daemon_s_processes_die_during_fetches(node, origin):
    """Who fetches begins again, as often as a server dies; who waits goes on waiting."""
    chance = random.Random(11)
    origin.pace = 0.002
    with node.daemon.open() as store:
        for turn in range(60 if FULL else 8):
            name, tag = f"m{turn}", turn % 200 + 1
            origin.put(KEY + name, model_bytes(tag))
            for process in node.processes:
                process.begin(attached, name, 60, URI, False)
            time.sleep(chance.random() * 0.05)
            for pid in servers_of(node.daemon):
                os.kill(pid, signal.SIGKILL)
            results = [process.end() for process in node.processes]
            assert_whole(results, tag)
            assert len({result[0] for result in results}) == 1
            store.delete(name)


def test_an_object_that_changes_meanwhile_comes_in_one_version(node, origin):
    for at in range(1, 12):
        name, asked = f"m{at}", []
        origin.put(KEY + name, model_bytes(1, each=600_000))

        def rule(_node, method, key, _begin, at=at, asked=asked):
            asked.append(method)
            if len(asked) == at:
                origin.put(key, model_bytes(2, each=600_000))

        origin.rule = rule
        results = node.all(attached, name, 60, URI, False)
        assert_whole(results, 1, 2)
        assert len({result[0] for result in results}) == 1
        origin.rule = None
        with node.daemon.open() as store:
            store.delete(name)


def test_an_object_that_changes_all_the_time_is_given_up(node, origin):
    origin.put(KEY + "m", model_bytes(1, each=600_000))
    turn = iter(range(1, 10**6))

    def rule(_node, method, key, _begin):
        origin.put(key, model_bytes(next(turn) % 200, each=600_000))

    origin.rule = rule
    assert errnos(node.all(attached, "m", 60, URI, False)) == {errno.ESTALE}
    with node.daemon.open() as store, pytest.raises(FileNotFoundError):
        store.get("m")


@pytest.mark.parametrize("status, expected", [(403, errno.EACCES), (404, errno.ENOENT)])
def test_what_the_server_refuses_is_refused(node, origin, status, expected):
    origin.put(KEY + "m", model_bytes(1))

    def rule(*_):
        raise Refusal(status)

    origin.rule = rule
    assert errnos(node.all(attached, "m", 60, URI, False)) == {expected}


def test_what_is_not_there_is_asked_for_once_a_second(node, origin):
    process = node.processes[0]
    begun = time.monotonic()
    while time.monotonic() < begun + 0.5:
        result = process.call(attached, "none", 60, URI, False)
        assert result[:2] == ("FileNotFoundError", errno.ENOENT)
    assert len({served.at for served in origin.log}) <= 2
    origin.put(KEY + "none", model_bytes(3))
    time.sleep(max(0, begun + 1.1 - time.monotonic()))
    assert_whole([process.call(attached, "none", 60, URI, False)], 3)


@pytest.mark.parametrize("fault", ["503", "cut", "closed"])
@pytest.mark.parametrize("always", [False, True])
def test_a_server_that_fails(node, origin, fault, always):
    data = model_bytes(1, each=400_000)
    origin.put(KEY + "m", data)
    failed = set()

    def rule(_node, method, _key, begin):
        if not always and (method, begin) in failed:
            return None
        failed.add((method, begin))
        if fault == "cut":
            return 1000 if method == "GET" else None
        raise Refusal(503 if fault == "503" else None)

    origin.rule = rule
    if always and fault == "cut":
        origin.rule = lambda _node, method, _key, begin: 0 if method == "GET" and begin else None
    if not always and fault == "cut":
        origin.rule = lambda _node, method, _key, begin: 1000 if method == "GET" and len(failed) < 9 and not failed.add(
            len(failed)) else None
    results = node.all(attached, "m", 60, URI, False)
    if always:
        assert errnos(results) and len(errnos(results)) == 1 and all(isinstance(result[0], str) for result in results)
    else:
        assert_whole(results, 1)


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_local_publish_that_is_faster_wins(node, origin, when):
    go, came = threading.Event(), threading.Event()
    origin.put(KEY + "m", model_bytes(1, each=600_000))

    def rule(_node, method, _key, _begin):
        if method == "GET":
            came.set()
            go.wait(30)

    origin.rule = rule
    for process in node.processes:
        process.begin(attached, "m", 60, URI, False)
    assert came.wait(30)
    with node.daemon.open() as store:
        with local_publish(store, replace=False) as made:
            version = made.version
    waiting, deadline = set(node.processes), time.monotonic() + 30
    while when == "later" and len(waiting) > 1:  # all but the leader have it already
        assert time.monotonic() < deadline
        waiting = {process for process in waiting if not process.connection.poll(0.005)}
    go.set()
    results = [process.end() for process in node.processes]
    assert_whole(results, 9)
    assert {result[0] for result in results} == {version}


def test_what_is_too_large_is_refused_before_its_first_byte(node, origin):
    data = model_bytes(1, each=5_000_000)  # of a daemon with 64 MiB
    origin.put(KEY + "m", data)
    results = node.all(attached, "m", 60, URI, False)
    assert errnos(results) == {errno.ENOSPC} and all(isinstance(result[0], str) for result in results)
    assert "beside" in results[0][2] or "bytes" in results[0][2]
    assert bodies(origin, "m") <= MANY * AHEAD  # of each process that leads


# -------------------------------------------------------------------------------------------------- names

NAMES = ["a/b", "a//b", "/a", "a/", "é ü", "a+b", "a%20b", "a?b=c", "a#b", "a&b", "..", "../a", "a/../b", "a/./b",
         ".", "~", "sluice/a", ".sluice", "a.index.jsonx", "n" * 255, "é" * 127 + "n", "a" * 240 + "/" + "b" * 14]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_keys_as_they_are(node, origin, name):
    origin.put(KEY + name, model_bytes(5, each=1000))
    results = node.all(attached, name, 60, URI, False)
    assert {served.key for served in origin.log} == {KEY + name}
    assert_whole(results, 5)
    assert times_of_each(origin, name, node.name) == {1}


def test_two_names_that_are_too_long_for_a_lease_do_not_meet(node, origin):
    names = ["n" * 254 + end for end in "ab"]
    for tag, name in enumerate(names):
        origin.put(KEY + name, model_bytes(tag + 1, each=1000))
    for i, process in enumerate(node.processes):
        process.begin(attached, names[i % 2], 60, URI, False)
    for i, process in enumerate(node.processes):
        assert_whole([process.end()], i % 2 + 1)


def test_hidden_names_are_neither_fetched_nor_pushed(node, origin):
    for name in (".sluice/a", ".sluice/fetch/m", ".sluice/"):
        origin.put(KEY + name, model_bytes(5))
        assert node.processes[0].call(attached, name, 0.05, URI, False)[0] == "TimeoutError"
        assert node.processes[0].call(pushed, name, b"bytes", URI)[:2] == ("OSError", errno.EINVAL)
        assert origin.objects[KEY + name][0] == model_bytes(5)
    assert not origin.log


def test_a_time_out_of_0_and_a_get_ask_nobody(node, origin):
    origin.put(KEY + "m", model_bytes(5))
    assert node.processes[0].call(attached, "m", 0, URI, False)[0] == "FileNotFoundError"
    assert node.processes[0].call(got, "m", 0.02)[0] == "TimeoutError"
    assert not origin.log


# ------------------------------------------------------------------------------------- local publishes


def test_a_name_that_is_being_made_is_waited_for(node, origin):
    """The object is not read while a process of the node makes what has reserved its name."""
    origin.put(KEY + "m", model_bytes(1, each=100_000))
    maker, *others = node.processes
    assert maker.call(reserved, "m") is None
    for process in others:
        process.begin(attached, "m", 60, URI, False)
    time.sleep(0.3)
    assert maker.call(sealed, 9) is None
    results = [process.end() for process in others]
    assert {result[0] for result in results} == {"OSError"} and errnos(results) == {errno.EPROTO}  # it is no collection
    assert bodies(origin, "m") <= MANY * (AHEAD + 1000)
    # One that is given up is no obstacle.
    with node.daemon.open() as store:
        store.delete("m")
    origin.put(KEY + "k", model_bytes(2))
    assert maker.call(reserved, "k") is None
    for process in others:
        process.begin(attached, "k", 60, URI, False)
    time.sleep(0.1)
    assert maker.call(released) is None
    assert_whole([process.end() for process in others], 2)


def test_what_was_fetched_is_held_whoever_replaces_it(node, origin):
    """Local publishes come right behind the seal of the leader."""
    stop, chance = threading.Event(), random.Random(5)

    def publish():
        with node.daemon.open() as store:
            while not stop.wait(0.004 * chance.random()):
                local_publish(store).close()
                time.sleep(0.004 * chance.random())
                store.delete("m")

    origin.put(KEY + "m", model_bytes(1, each=100))
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        results = [result for _ in range(400 if FULL else 50) for result in node.all(attached, "m", 60, URI, False)]
    finally:
        stop.set()
        thread.join()
    assert_whole(results, 1, 9)
    assert {tag for _, _, tags in results for tag in tags} == {1, 9}


def test_what_was_fetched_cannot_be_written_to_by_its_leader(node, origin):
    origin.put(KEY + "m", model_bytes(1))
    assert node.processes[0].call(mapped, "m", 60, URI) == ["r--s"]
    assert node.processes[1].call(mapped, "m", 60, URI) == ["r--s"]


def test_refreshes_and_local_publishes_lose_nothing(node, origin):
    """What was published here is never replaced by what comes from there; of what came from there the newest stays."""
    chance = random.Random(3)
    for turn in range(100 if FULL else 8):
        origin.put(KEY + "m", model_bytes(1, each=1000))
        assert_whole(node.all(attached, "m", 60, URI, True), 1)
        origin.put(KEY + "m", model_bytes(2, each=1000))
        for process in node.processes:
            process.begin(newer)
        local = None
        if turn % 4:
            time.sleep(chance.random() * 0.02)
            with node.daemon.open() as store, local_publish(store) as made:
                local = made.version
        results = [process.end() for process in node.processes]
        assert all(result and result[2] in ([2], [9]) for result in results), results
        final = node.processes[0].call(attached, "m", 0, URI, False)
        assert (final[0], final[2]) == (local, [9]) if local else final[2] == [2]
        asked = len(origin.log)
        if local:  # and the server is not asked about it
            assert [result[0] for result in node.all(newer)] == [local] * MANY
            assert len(origin.log) == asked
        node.all(released)
        with node.daemon.open() as store:
            store.delete("m")

