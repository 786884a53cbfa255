"""MiniStack as it is behind a server that ends TLS, and what it knows of its callers.

Beside MiniStack's own paths: `/_rig/caller?key=ACCESS-KEY` is the ARN for which it made a key, `/_rig/decisions` what it decided
so far: callers with the statements that allowed them something, and callers with what they may not do.
"""

import json
from urllib.parse import parse_qs

from ministack.app import app as plain
from ministack.core import iam_evaluator
from ministack.services import sts

allowed, refused = set(), set()
evaluate, enforce = iam_evaluator.evaluate, iam_evaluator.enforce


def evaluate_and_note(context, *policies):
    result = evaluate(context, *policies)
    if result.decision == "Allow":
        allowed.add((context.principal_arn, result.matched_sid))
    return result


def enforce_and_note(access_key_id, iam_action, service, region, resource_arn="*", service_context=None):
    problem = enforce(access_key_id, iam_action, service, region, resource_arn, service_context)
    if problem is not None:
        caller = sts._sessions.get(access_key_id, {}).get("Arn", access_key_id)
        refused.add((caller, iam_action, resource_arn))
    return problem


# A request is decided by `enforce`, which evaluates policies of its caller, and of a queue.
iam_evaluator.evaluate, iam_evaluator.enforce = evaluate_and_note, enforce_and_note


def known(path, query):
    if path == "/_rig/caller":
        key = parse_qs(query.decode()).get("key", [""])[0]
        return {"arn": sts._sessions.get(key, {}).get("Arn")}
    if path == "/_rig/decisions":
        return {"allowed": sorted(allowed), "refused": sorted(refused)}
    return None


async def app(scope, receive, send):
    if scope["type"] == "http":
        answer = known(scope["path"], scope["query_string"])
        if answer is not None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
            await send({"type": "http.response.body", "body": json.dumps(answer).encode()})
            return
        scope = {**scope, "headers": [*scope["headers"], (b"x-forwarded-proto", b"https")]}
    await plain(scope, receive, send)
