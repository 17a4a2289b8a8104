# SPDX-License-Identifier: Apache-2.0
"""A hub for fault_server.py: an origin that keeps no bytes, but redirects to a signed place, and has a quota.

Options of the origin:

  fault=hub[:CODE]    a redirect (default 302); commonly with on=HEAD,GET
    to=LOCATION       where to; a new signature=METHOD-N is added, METHOD being that of the request
    then=LOCATION     where to from the second GET on; or a status instead
    late_ms=MS        the second GET is answered so much later
    fresh=1           LOCATION gets a new port of this server, which listens for this redirect alone
  quota=N[:SECONDS]   N requests are answered, and 429 from then on until SECONDS after the first of them (default 3600)
    says=HEADER       how the 429 says how long that is: retry (Retry-After, the default), ratelimit (RateLimit and
                      RateLimit-Policy), reset (RateLimit-Reset), xreset (X-RateLimit-Reset) or none

Options of the place, which the origin puts into LOCATION:

  signed=GET|own      403 to a request whose signature is not for GET, or not for its own method; GET: also to HEAD
    lives=N           a signature is good for N requests
    expired=CODE      and then gets that (default 403), or for refuse no answer, and nothing listens there any longer

The ledger of the origin counts "signatures" that it gave.
"""

import math
import time
import urllib.parse

from faults import Gone

HOUR = 3600


class Hub:
    """The part of an Answer that concerns hubs."""

    def fault_hub(self, argument):
        with self.ledger.lock:
            self.ledger.signatures += 1
            number, gets = self.ledger.signatures, self.ledger.methods["GET"]
        again = self.request.method == "GET" and gets > 1
        if again and gets == 2:
            time.sleep(self.request.number("late_ms") / 1000)
        to = self.options.get("then", self.options["to"]) if again else self.options["to"]
        if to.isdigit():
            return self.error(int(to), "no more")
        place = urllib.parse.urlsplit(to)
        if "fresh" in self.options:
            place = place._replace(netloc=f"{place.hostname}:{self.server.listen(place.hostname)}")
        query = f"{place.query}&" * bool(place.query) + f"signature={self.request.method}-{number}"
        self.last = self.request.method == "PUT"  # its body is not read
        return self.error(int(argument or 302), "elsewhere", [("Location", place._replace(query=query).geturl())])

    def over_quota(self):
        """Whether this request is answered with 429."""
        if "quota" not in self.options:
            return False
        most, _, window = self.options["quota"].partition(":")
        window = float(window or HOUR)
        with self.ledger.lock:
            now = time.monotonic()
            if now >= self.ledger.quota_ends:
                self.ledger.quota_used, self.ledger.quota_ends = 0, now + window
            self.ledger.quota_used += 1
            used, rest = self.ledger.quota_used, math.ceil(self.ledger.quota_ends - now)
        if used <= int(most):
            return False
        self.last = self.request.method == "PUT"
        self.error(429, "the quota is used up", {
            "retry": [("Retry-After", rest)],
            "ratelimit": [("RateLimit", f'"hub";r=0;t={rest}'),
                          ("RateLimit-Policy", f'"hub";q={most};w={math.ceil(window)}')],
            "reset": [("RateLimit-Limit", most), ("RateLimit-Remaining", 0), ("RateLimit-Reset", rest)],
            "xreset": [("X-RateLimit-Reset", math.ceil(time.time()) + rest)],
            "none": [],
        }[self.options.get("says", "retry")])
        return True

    def badly_signed(self):
        """Whether this request lacks a signature that is good, which has been answered then."""
        if "signed" not in self.options:
            return False
        signature = self.options.get("signature", "")
        wanted = "GET" if self.options["signed"] == "GET" else self.request.method
        if self.request.method != wanted or signature.partition("-")[0] != wanted:
            self.error(403, "not signed for this")
            return True
        with self.ledger.lock:
            self.ledger.signed[signature] += 1
            used = self.ledger.signed[signature]
        if used <= self.request.number("lives", 1 << 60):
            return False
        expired = self.options.get("expired", "403")
        if expired == "refuse":
            self.server.leave(self.sock.getsockname()[1])
            raise Gone
        self.error(int(expired), "the signature has expired")
        return True
