#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The services that have credentials, as clouds have them, which give keys that s3_server.py knows.

The first folder of each path names a user, and is a list of words with '-' between them, which say how the services
behave for it:

  mortal    keys are good for six requests to S3, whatever Expiration says
  soon      keys expire in a minute, the first ones only
  auth      the container's service wants the Authorization AUTHORIZATION
  norole    the machine has no role
  broken    each answer is 500
  odd       keys come without a secret
  silent    nothing is answered
  away      each answer is a redirect to the same service of another user

  PUT /USER/latest/api/token                                 and GET /USER/latest/meta-data/iam/...: of machines (IMDSv2)
  GET /USER/container                                        of containers
  GET /USER/process                                          as a credential_process prints them
  POST /USER/, Action=AssumeRole..., signed                  of the Security Token Service
  POST /USER/, Action=AssumeRoleWithWebIdentity...           the same, for the token IDENTITY
  GET /USER/issued                                           so many keys were given to that user
  GET /slowed/NAME                                           so often S3 answered SlowDown for that object
"""

import collections
import http.server
import json
import sys
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True
import s3_server  # noqa: E402

MACHINE_TOKEN, AUTHORIZATION, IDENTITY = "machine-token/x==", "container-token x", "identity.token+x"
ROLE = "role of a test"

issued = collections.Counter()


def issue(user):
    issued[user] += 1
    first = issued[user] == 1
    name = f"ISSUED{len(s3_server.ISSUED)}"
    words = user.split("-")
    keys = s3_server.ISSUED[name] = s3_server.Issued(f"issued/secret{name}=", f"issued-token-{name}/+=",
                                                     6 if "mortal" in words else None)
    lasts = 60 if "soon" in words and first else 86400
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + lasts))
    return name, "" if "odd" in words else keys.secret, keys.token, ends


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, text, fields=()):
        body = text.encode()
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *fields):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def answer(self):
        user, _, rest = self.path[1:].partition("/")
        words = user.split("-")
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        if "silent" in words:
            self.rfile.read(1)
            self.close_connection = True
        elif "broken" in words:
            self.send(500, "broken")
        elif "away" in words:
            self.send(307, "", [("Location", f"/lasting/{rest}")])
        elif user == "slowed":
            self.send(200, str(s3_server.SLOWED[rest]))
        elif rest == "issued":
            self.send(200, str(issued[user]))
        elif rest.startswith("latest/"):
            self.machine(user, rest[len("latest/"):])
        elif rest.split("?")[0] in ("container", "process"):
            self.container(user, rest.split("?")[0])
        else:
            self.security(user, rest, body)

    do_GET = do_PUT = do_POST = answer

    def keys(self, user, token, extra):
        name, secret, session, ends = issue(user)
        self.send(200, json.dumps({**extra, "AccessKeyId": name, "SecretAccessKey": secret, token: session,
                                   "Expiration": ends}))

    def machine(self, user, path):
        roles = "meta-data/iam/security-credentials/"
        if path == "api/token":
            lasts = int(self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") or 0)
            self.send(*(200, MACHINE_TOKEN) if self.command == "PUT" and 0 < lasts <= 21600 else (400, ""))
        elif self.headers.get("X-aws-ec2-metadata-token") != MACHINE_TOKEN or self.command != "GET":
            self.send(401, "")
        elif path == roles and "norole" not in user.split("-"):
            self.send(200, ROLE + "\n")
        elif path == roles + urllib.parse.quote(ROLE):
            self.keys(user, "Token", {"Code": "Success", "Type": "AWS-HMAC"})
        else:
            self.send(404, "")

    def container(self, user, what):
        if "auth" in user.split("-") and self.headers.get("Authorization") != AUTHORIZATION:
            self.send(403, "")
        elif what == "process":
            self.keys(user, "SessionToken", {"Version": 1})
        else:
            self.keys(user, "Token", {"RoleArn": "x"})

    def security(self, user, rest, body):
        """Says AccessDenied with the reason, or gives keys."""
        why = ""
        asked = dict(urllib.parse.parse_qsl(body))
        if asked.get("Action") == "AssumeRole":
            request = s3_server.Request((self.requestline + "\r\n" + str(self.headers).replace("\n", "\r\n")).encode())
            request.words, request.body = ["sealed"], body.encode()
            try:
                request.check("sts")
            except s3_server.Refused as refused:
                why = f"{refused.code}: {refused.message}"
        elif asked.get("WebIdentityToken") != IDENTITY:
            why = "the token is wrong"
        if self.command != "POST" or asked.get("Action") not in ("AssumeRole", "AssumeRoleWithWebIdentity"):
            why = "the action is wrong"
        if asked.get("Version") != "2011-06-15" or not asked.get("RoleArn", "").startswith("arn:aws:iam::1:role/"):
            why = "the role is wrong"
        if asked.get("RoleArn", "").endswith("/checked") and \
                (asked.get("RoleSessionName"), asked.get("ExternalId"), asked.get("DurationSeconds")) != \
                ("a session", "an id", "900"):
            why = "session, external id or duration is wrong"
        if why:
            self.send(403, f"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>{why}</Message>"
                           "</Error></ErrorResponse>")
            return
        name, secret, token, ends = issue(user)
        self.send(200, f"<Response><Result><Credentials><AccessKeyId>{name}</AccessKeyId><SecretAccessKey>{secret}"
                       f"</SecretAccessKey><SessionToken>{token}</SessionToken><Expiration>{ends}</Expiration>"
                       "</Credentials></Result></Response>")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def start():
    """Starts the server on a thread. Returns its port."""
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
