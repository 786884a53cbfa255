"""Checks tokens for API servers as AWS would: the presigned request for the caller's identity that each of them is.

usage: tokens.py TOKENS

TOKENS has one token a line, as JSON: token, region, cluster, accessKey, secret, session. Its request is compared with the one that botocore signs
for the same cluster, moment and credentials, for the endpoint that botocore's tables have for the region; and sent to moto, which answers who
the caller is. A token must be worth nothing for another cluster. Findings are printed one a line; their number decides the exit status.
"""

import base64
import json
import pathlib
import sys
import urllib.parse
from datetime import datetime, timezone
from unittest import mock

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.session
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.test import Client

PREFIX = "k8s-aws-v1."
# EKS refuses a longer validity.
EXPIRES_MAX = 60


def decoded(token: str) -> str:
    encoded = token.removeprefix(PREFIX)
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()


def signature(sent: dict, cluster: str, moment: datetime, expires: int) -> dict:
    """The fields of the request that botocore signs."""
    region = sent["region"]
    endpoint = botocore.session.Session().create_client("sts", region_name=region, aws_access_key_id="none", aws_secret_access_key="none")
    url = f"{endpoint.meta.endpoint_url}/?Action=GetCallerIdentity&Version={endpoint.meta.service_model.api_version}"
    request = botocore.awsrequest.AWSRequest(method="GET", url=url, headers={"x-k8s-aws-id": cluster})
    credentials = botocore.credentials.Credentials(sent["accessKey"], sent["secret"], sent["session"])
    signer = botocore.auth.SigV4QueryAuth(credentials, "sts", region, expires)
    with mock.patch("botocore.auth.get_current_datetime", lambda remove_tzinfo=True: moment.replace(tzinfo=None) if remove_tzinfo else moment):
        signer.add_auth(request)
    return fields(request.url)


def fields(url: str) -> dict:
    split = urllib.parse.urlsplit(url)
    return {"(endpoint)": f"{split.scheme}://{split.netloc}{split.path}", **dict(urllib.parse.parse_qsl(split.query, strict_parsing=True))}


def check(sent: dict) -> list:
    url = decoded(sent["token"])
    ours = fields(url)
    expires = int(ours["X-Amz-Expires"])
    moment = datetime.strptime(ours["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    theirs = signature(sent, sent["cluster"], moment, expires)
    found = [f"{key} is {ours.get(key)!r} and not {theirs.get(key)!r}" for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
    if expires > EXPIRES_MAX:
        found.append(f"it is valid for {expires} seconds, and EKS accepts {EXPIRES_MAX}")
    if signature(sent, sent["cluster"] + "-2", moment, expires)["X-Amz-Signature"] == ours["X-Amz-Signature"]:
        found.append("it is valid for another cluster")
    answer = Client(create_backend_app("sts")).get("/?" + urllib.parse.urlsplit(url).query)
    if answer.status_code != 200 or "<GetCallerIdentityResult>" not in answer.text:
        found.append(f"moto answers {answer.status_code}: {answer.text[:200]}")
    return [f"{sent['region']} {sent['cluster']}: {each}" for each in found]


def main() -> int:
    tokens = [json.loads(line) for line in pathlib.Path(sys.argv[1]).read_text().splitlines() if line]
    found = [each for sent in tokens for each in check(sent)]
    print("\n".join(found + [f"{len(tokens)} tokens are as AWS signs them, {len(found)} findings"]))
    return 1 if found else 0


sys.exit(main())
