"""Checks the signatures of posts to Function URLs against those that botocore makes of the same requests.

usage: posts.py POSTS

POSTS has one post a line, as JSON: url, region, body, headers, accessKey, secret, session. Findings are printed one a line; their number decides
the exit status.
"""

import json
import pathlib
import sys
from datetime import datetime, timezone
from unittest import mock

import botocore.auth
import botocore.awsrequest
import botocore.credentials


def signed(sent: dict) -> dict:
    """The headers that botocore adds to the request."""
    moment = datetime.strptime(sent["headers"]["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    given = {name: value for name, value in sent["headers"].items() if name in ("host", "content-type")}
    request = botocore.awsrequest.AWSRequest(method="POST", url=sent["url"], headers=given, data=sent["body"].encode())
    credentials = botocore.credentials.Credentials(sent["accessKey"], sent["secret"], sent["session"])
    with mock.patch("botocore.auth.get_current_datetime", lambda remove_tzinfo=True: moment.replace(tzinfo=None) if remove_tzinfo else moment):
        botocore.auth.SigV4Auth(credentials, "lambda", sent["region"]).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def parts(authorization: str) -> dict:
    """The credential, the names of the signed headers, and the signature."""
    return dict(part.strip().split("=", 1) for part in authorization.removeprefix("AWS4-HMAC-SHA256 ").split(","))


def check(sent: dict) -> list:
    ours, theirs = parts(sent["headers"]["authorization"]), parts(signed(sent)["authorization"])
    # A session token is sent, and need not be among the signed headers.
    same = ours["SignedHeaders"] == theirs["SignedHeaders"]
    found = [f"{key} is {ours.get(key)!r} and not {theirs.get(key)!r}" for key in sorted(theirs) if ours.get(key) != theirs[key]]
    if not same:
        found.insert(0, "other headers are signed")
    if sent["headers"].get("x-amz-security-token") != sent["session"]:
        found.append("it has another session token")
    return [f"{sent['url']}: {each}" for each in found]


def main() -> int:
    posts = [json.loads(line) for line in pathlib.Path(sys.argv[1]).read_text().splitlines() if line]
    found = [each for sent in posts for each in check(sent)]
    print("\n".join(found + [f"{len(posts)} posts are as botocore signs them, {len(found)} findings"]))
    return 1 if found else 0


sys.exit(main())
