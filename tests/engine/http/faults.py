# SPDX-License-Identifier: Apache-2.0
"""The wrong answers of fault_server.py, one function for each: fault_NAME(self, argument)."""

import email.utils
import gzip
import socket
import time


class Gone(Exception):
    """The connection is of no more use."""


class Faults:
    """What an Answer can do wrong."""

    def fault_status(self, argument):
        """status:CODE; retry_after=S or date:S, text=BODY, and a PUT is answered with unread=1
        before its body was read"""
        headers = []
        if "retry_after" in self.options:
            after = self.options["retry_after"]
            if after.startswith("date:"):
                after = email.utils.formatdate(time.time() + float(after[5:]), usegmt=True)
            headers.append(("Retry-After", after))
        if self.request.method == "PUT":
            if "unread" in self.options:
                self.last = True
            else:
                self.connection.read_body(self.request)
        self.error(int(argument), self.options.get("text", "as it was told\nsecond line\n"),
                   headers)

    def fault_expect(self, argument):
        """417 to a request that expects something, whose body is not read; the right answer to others"""
        if "expect" not in self.request.headers:
            return self.right()
        self.last = True
        return self.error(417, "no expectations", [("Connection", "close")])

    def fault_redirect(self, argument):
        """redirect:CODE; to=LOCATION, or without it to itself"""
        self.last = self.request.method == "PUT"  # its body is not read
        self.error(int(argument or 302), "elsewhere",
                   [("Location", self.options.get("to", self.request.target))])

    def fault_short(self, argument):
        """short:N: N bytes fewer than Content-Length says, then an orderly end"""
        part = [self.content_range()] if self.is_ranged() else []
        self.send_head(206 if part else 200, self.object_headers() + part, self.end - self.first)
        self.send_bytes(self.first, max(self.first, self.end - int(argument)))
        raise Gone

    def fault_cut(self, argument):
        """cut:N: Content-Length and body are N bytes shorter than Content-Range"""
        end = max(self.first, self.end - int(argument))
        self.send_head(self.status(), self.object_headers() + [self.content_range()], end - self.first)
        self.send_bytes(self.first, end)

    def fault_long(self, argument):
        """long:N: Content-Length and body are N bytes longer than Content-Range"""
        end = self.end + int(argument)
        self.send_head(self.status(), self.object_headers() + [self.content_range()], end - self.first)
        self.send_bytes(self.first, end)

    def fault_endless(self, argument):
        """the body has no length and no end"""
        self.send_head(206, self.object_headers() + [self.content_range()])
        self.send_bytes(self.first, 1 << 62)

    def fault_extra(self, argument):
        """extra:N: N bytes follow behind the end that Content-Length says"""
        self.send_head(206, self.object_headers() + [self.content_range()], self.end - self.first)
        self.send_bytes(self.first, self.end)
        self.sock.sendall(b"x" * int(argument))

    def fault_raw(self, argument):
        """raw:VERSION: the bytes of that version, chunked if the header says so, behind the header lines=LINES
        (separated by "|", the first one that of the status; the empty one is added), in which {first}, {last},
        {n}, {size} and {etag} stand for what would be right; then trailer=LINES. cut=N: only N bytes of all of
        it, and with cut or close=1 an orderly end"""
        right = {"first": self.first, "last": self.end - 1, "n": self.end - self.first,
                 "size": self.size, "etag": "".join(value for _, value in self.etag())}
        lines = self.options["lines"].format(**right).replace("|", "\r\n")
        self.version = int(argument or 0)
        body = b"".join(self.parts(self.first, self.end)) if self.request.method == "GET" else b""
        if body and "chunked" in lines:
            trailer = self.options.get("trailer", "").replace("|", "\r\n") + "\r\n"
            body = b"%x\r\n%s\r\n0\r\n%s" % (len(body), body, trailer.encode())
        everything = lines.encode("latin-1") + b"\r\n\r\n" + body
        self.leaves()
        self.sock.sendall(everything[:self.request.number("cut", len(everything))])
        if "cut" in self.options:
            raise Gone

    def parts(self, at, end):
        while at < end:
            yield self.part(at, end)
            at += len(self.part(at, end))

    def fault_range(self, argument):
        """range:WHAT: a Content-Range other than the one asked for, with a body of that length"""
        first, end, size = self.first, self.end, self.size
        headers = {
            "missing": [],
            "shifted": [self.content_range(first + 1, end + 1)],
            "earlier": [self.content_range(0, end - first)],
            "later": [self.content_range(first + 1, end)],
            "longer": [self.content_range(first, end + 10)],
            "shorter": [self.content_range(first, end - 1)],
            "total": [self.content_range(first, end, size + 1)],
            "star": [("Content-Range", f"bytes {first}-{end - 1}/*")],
            "unsatisfied": [("Content-Range", f"bytes */{size}")],
            "unit": [("Content-Range", f"lines {first}-{end - 1}/{size}")],
            "garbage": [("Content-Range", "bytes 1-x/99999999999999999999999999")],
            "twice": [self.content_range(), self.content_range(first + 1, end + 1)],
        }[argument]
        self.send_head(self.status(), self.object_headers() + headers, end - first)
        self.send_bytes(first, end)

    def fault_busy(self, argument):
        """an answer without a length, and nothing more on its connection until that is closed"""
        self.send_head(200, self.object_headers())
        self.connection.wait_for_the_other_end()

    def fault_whole(self, argument):
        """200 and the whole object, whatever was asked for"""
        self.send_head(200, self.object_headers(), self.size)
        self.send_bytes(0, self.size)

    def fault_partial(self, argument):
        """206 with the range for a request that asked for none, or a multipart body"""
        if argument == "multipart":
            body = b"--b\r\nContent-Range: " + self.content_range()[1].encode() + b"\r\n\r\n"
            headers = [("Content-Type", "multipart/byteranges; boundary=b")]
            self.send_head(206, headers, len(body))
            self.sock.sendall(body)
        else:
            self.end = self.size // 2
            self.send_head(206, self.object_headers() + [self.content_range()],
                           self.end - self.first)
            self.send_bytes(self.first, self.end)

    def fault_reset(self, argument):
        """reset:N: after N bytes of the body, or for reset:head before the headers"""
        if argument == "head":
            self.connection.reset()
        if self.request.method == "PUT":
            self.connection.read_exactly(int(argument or 0))
            self.connection.reset()
        self.stop_at, self.stop = int(argument or 0), self.connection.reset
        self.get()

    def fault_stall(self, argument):
        """stall:N: after N bytes of the body, or for stall:head before the headers, nothing comes
        until the other end closes; with stall_ms=MS it goes on then"""
        def stop():
            if self.request.number("stall_ms"):
                time.sleep(self.request.number("stall_ms") / 1000)
            else:
                self.connection.wait_for_the_other_end()

        if argument == "head":
            stop()
            return self.right()
        if self.request.method == "PUT":
            self.connection.read_exactly(int(argument or 0))
            # It must not be read, and the other end's close is only seen by reading.
            time.sleep(self.request.number("stall_ms", 20000) / 1000)
            raise Gone
        self.stop_at, self.stop = int(argument or 0), stop
        return self.get()

    def fault_hold(self, argument):
        """hold:N: after N bytes of the body nothing comes before GET /_/ID?release; others=FAULT: only the first is held,
        and the others have that fault"""
        if "others" in self.options and self.match:
            name, _, argument = self.options["others"].partition(":")
            return getattr(self, "fault_" + name)(argument)
        self.stop_at, self.stop = int(argument), self.ledger.released.wait
        return self.get()

    def fault_slow(self, argument):
        """slow:N: a body of a PUT is read in steps of N bytes, at 10 MiB/s at most"""
        receive = self.connection.receive
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)

        def slowly():
            time.sleep(int(argument) / (10 << 20))
            return self.sock.recv(int(argument))

        self.connection.receive = slowly
        self.put()
        self.connection.receive = receive

    def fault_gzip(self, argument):
        """the body is compressed, and says so; gzip:quiet has the length that was asked for;
        gzip:stored only says so, of the object's own bytes"""
        if argument == "stored":
            return self.stored_encoded()
        body = gzip.compress(bytes(self.part(self.first, self.end)))
        if argument == "quiet":
            body = body.ljust(self.end - self.first, b"\0")[:self.end - self.first]
        headers = self.object_headers() + [self.content_range(), ("Content-Encoding", "gzip")]
        self.send_head(206, headers, len(body))
        self.sock.sendall(body)

    def stored_encoded(self):
        headers = self.object_headers() + [("Content-Encoding", "gzip")]
        ranged = self.is_ranged()
        self.send_head(206 if ranged else 200, headers + [self.content_range()] * ranged,
                       self.end - self.first)
        if self.request.method == "GET":
            self.send_bytes(self.first, self.end)

    def fault_headers(self, argument):
        """headers:N: N bytes of headers more, in lines of 1000; headers:endless; headers:line is
        one endless line"""
        self.sock.sendall(b"HTTP/1.1 206 Partial Content\r\n")
        line = b"X-Filler: " + b"f" * 988 + b"\r\n"
        if argument == "line":
            self.sock.sendall(b"X-Filler: ")
            line = b"f" * 1000
        sent = 0
        while argument in ("endless", "line") or sent < int(argument):
            self.count(len(line))
            self.sock.sendall(line)
            sent += len(line)
        headers = self.object_headers() + [self.content_range()]
        headers += [("Content-Length", self.end - self.first)]
        self.sock.sendall("".join(f"{a}: {b}\r\n" for a, b in headers).encode() + b"\r\n")
        self.send_bytes(self.first, self.end)

    def fault_garbage(self, argument):
        """something that is not HTTP"""
        self.sock.sendall({
            "": bytes(range(256)) * 8,
            "line": b"220 mail.example ESMTP ready\r\n",
            "status": b"HTTP/1.1 abc Fine\r\nContent-Length: 0\r\n\r\n",
            "length": b"HTTP/1.1 206 Fine\r\nContent-Length: -5\r\n\r\n",
            "lengths": b"HTTP/1.1 206 Fine\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
            "empty": b"",
            "huge": b"HTTP/1.1 206 Fine\r\nContent-Length: 99999999999999999999\r\n\r\n",
        }[argument])
        raise Gone

    def fault_interim(self, argument):
        """an interim answer comes first"""
        self.sock.sendall(b"HTTP/1.1 103 Early Hints\r\nContent-Range: bytes 5-6/7\r\n\r\n")
        self.get()

    def fault_lower(self, argument):
        """header names in lower case, with blanks where they are allowed"""
        n = self.end - self.first
        self.sock.sendall(f"HTTP/1.1 206\r\ncontent-range:   bytes {self.first}-{self.end - 1}"
                          f"/{self.size}   \r\ncontent-length:{n}\r\netag:{self.etag()[0][1]}\r\n\r\n"
                          .encode())
        self.send_bytes(self.first, self.end)

    def fault_location(self, argument):
        """location:NAME: a redirect that leads nowhere"""
        where = {"missing": [], "empty": [("Location", "")], "ftp": [("Location", "ftp://x/y")],
                 "file": [("Location", "file:///etc/passwd")],
                 "malformed": [("Location", "http://[::1/x")]}[argument]
        self.error(302, "elsewhere", where)
