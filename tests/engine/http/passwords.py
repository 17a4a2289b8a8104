# SPDX-License-Identifier: Apache-2.0
"""Passwords of fault_server.py: auth=KINDS asks for that of "me", by the ways that it offers, separated by commas: basic,
digest, sha256; or "flip", Digest until that comes, and then Basic. Each answer of Digest (RFC 7616) is computed here. stale=N: a nonce is good for N requests. else=CODE:
requests without an Authorization get that status."""

import hashlib
import re
import secrets

USER, PASSWORD = "me", "s3cret!"
ALGORITHMS = {"digest": ("MD5", hashlib.md5), "sha256": ("SHA-256", hashlib.sha256)}
NONCES = {}  # how often each may still be used; its last count


class Passwords:
    """What an Answer does before it answers."""

    def lacks_password(self):
        if "auth" not in self.options:
            return False
        kinds = self.options["auth"].split(",")
        came = self.request.headers.get("authorization", "")
        if not came and "else" in self.options:
            self.error(int(self.options["else"]), "nothing for strangers", [("Location", "/login")])
            return True
        if kinds == ["flip"]:
            kinds = ["basic" if came.startswith("Digest ") else "digest"]
        stale = False
        if came.startswith("Digest "):
            good, stale = self.good_digest(came, kinds)
        else:
            good = "basic" in kinds and came == "Basic bWU6czNjcmV0IQ=="
        if good:
            return False
        if self.request.method == "PUT":
            self.connection.read_body(self.request)
        ways = [("WWW-Authenticate", 'Basic realm="here"')] if "basic" in kinds else []
        for kind in kinds:
            if kind in ALGORITHMS:
                nonce = secrets.token_hex(8)
                NONCES[nonce] = [self.request.number("stale", 1 << 30), 0]
                ways.append(("WWW-Authenticate", f'Digest realm="here", qop="auth", algorithm={ALGORITHMS[kind][0]}, '
                             f'nonce="{nonce}"' + ", stale=true" * stale))
        self.error(401, "who are you?", ways)
        return True

    def good_digest(self, came, kinds):
        said = {name: quoted or plain for name, quoted, plain in re.findall(r'(\w+)=(?:"([^"]*)"|([^,\s]*))', came)}
        kind = "sha256" if said.get("algorithm") == "SHA-256" else "digest"
        if kind not in kinds or said["username"] != USER or said["uri"] != self.request.target or said["nonce"] not in NONCES:
            return False, False

        def digest(*texts):
            return ALGORITHMS[kind][1](":".join(texts).encode()).hexdigest()
        right = digest(digest(USER, "here", PASSWORD), said["nonce"], said["nc"], said["cnonce"], said["qop"],
                       digest(self.request.method, said["uri"]))
        state = NONCES[said["nonce"]]
        good = said["response"] == right and int(said["nc"], 16) > state[1]
        state[1] = max(state[1], int(said["nc"], 16))
        state[0] -= good
        return good and state[0] >= 0, good and state[0] < 0
