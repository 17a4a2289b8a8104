#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks the fault server's hub as a client would, and checks each answer and each count."""

import http.client
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True
import fault_server

ports = fault_server.start(fault_server.arguments().parse_args(["--pattern", __file__]))
ids = 0


def address(options, port="plain"):
    """A new object."""
    global ids
    ids += 1
    return f"http://127.0.0.1:{ports[port]}/h{ids}/object?{options}"


def hub(to, options=""):
    return address(f"fault=hub&on=HEAD,GET&to={urllib.parse.quote(to, safe='')}{options}")


def ask(url, method="GET", **headers):
    """The status, the headers and the body."""
    url = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
    try:
        connection.request(method, f"{url.path}?{url.query}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def status(url, method="GET"):
    return ask(url, method)[0]


def place(url, method="GET"):
    """Where a hub sends a request."""
    code, headers, _ = ask(url, method)
    assert code == 302, code
    return headers["Location"]


def counted(url, name):
    number = url.split("/")[3]
    text = ask(f"http://127.0.0.1:{ports['plain']}/_/{number}")[2].decode()
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(name + " ")), 0)


def signatures_are_for_a_method():
    target = address("size=100&signed=GET", "other")
    origin = hub(target)
    assert status(target) == 403
    assert status(place(origin, "HEAD"), "HEAD") == 403
    assert status(place(origin, "HEAD"), "GET") == 403
    assert status(place(origin, "GET"), "HEAD") == 403
    code, _, body = ask(place(origin), Range="bytes=10-19")
    assert (code, len(body)) == (206, 10), code
    assert [counted(origin, n) for n in ("requests", "GET", "HEAD", "signatures")] == [4, 2, 2, 4]
    assert [counted(target, n) for n in ("requests", "status_403", "status_206")] == [5, 4, 1]

    target = address("size=100&signed=own")
    origin = hub(target)
    assert status(place(origin, "HEAD"), "HEAD") == 200
    assert status(place(origin, "HEAD"), "GET") == 403
    assert status(place(origin), "GET") == 200


def a_signature_expires():
    for code in 401, 403, 404, 410:
        target = address(f"size=100&signed=GET&lives=3&expired={code}")
        origin = hub(target)
        for _ in range(2):
            signed = place(origin)
            assert [status(signed) for _ in range(5)] == [200, 200, 200, code, code]
        assert counted(origin, "requests") == 2


def a_place_is_left():
    origin = hub(address("size=100&signed=GET&lives=2&expired=refuse"), "&fresh=1")
    first, second = place(origin), place(origin)
    assert urllib.parse.urlsplit(first).port != urllib.parse.urlsplit(second).port
    assert [status(first), status(first)] == [200, 200]
    try:
        status(first)
        raise AssertionError("an answer")
    except http.client.RemoteDisconnected:
        pass
    try:
        status(first)
        raise AssertionError("a connection")
    except ConnectionRefusedError:
        pass
    assert status(second) == 200


def a_quota_ends():
    waits = {
        "": lambda h: h["Retry-After"],
        "&says=ratelimit": lambda h: h["RateLimit"].rpartition("t=")[2],
        "&says=reset": lambda h: h["RateLimit-Reset"],
    }
    for says, wait in waits.items():
        origin = hub(address("size=100"), "&quota=3:1" + says)
        assert [status(origin), status(origin, "HEAD"), status(origin)] == [302] * 3
        code, headers, _ = ask(origin)
        assert (code, wait(headers)) == (429, "1"), headers.items()
        time.sleep(int(wait(headers)))
        assert status(origin) == 302
        assert [counted(origin, n) for n in ("status_302", "status_429")] == [4, 1]
    origin = hub(address("size=100"), "&quota=0&says=none")
    code, headers, _ = ask(origin)
    assert code == 429 and {name.lower() for name in headers} == {"server", "content-length"}, headers.items()


for test in signatures_are_for_a_method, a_signature_expires, a_place_is_left, a_quota_ends:
    test()
