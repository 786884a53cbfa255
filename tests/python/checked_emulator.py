"""MiniStack as it is behind a server that ends TLS, and what it knows of its callers.

Beside MiniStack's own paths: `/_rig/caller?key=ACCESS-KEY` is the ARN for which it made a key, `/_rig/decisions` what it decided
so far: callers with the statements that allowed them something, and callers with what they may not do.

CloudWatch would have metrics of what it does: `/_rig/runs?after=N` are the invocations of functions after the first N, with what they
printed as metrics, `/_rig/queues` what waits in queues and for how long, and `/_rig/age?queue=NAME&seconds=N` has waited for longer then.
"""

import json
import time
from urllib.parse import parse_qs

from ministack.app import app as plain
from ministack.core import iam_evaluator
from ministack.services import lambda_svc, sqs, sts

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


runs = []
dispatch, acquire, drop = lambda_svc._execute_function_dispatch, lambda_svc._acquire_execution_slot, lambda_svc._recursive_loop_drop


def note(kind, function, **more):
    runs.append({"at": int(time.time() * 1000), "kind": kind, "function": function, **more})


def dispatch_and_note(func, config, event, request_id, started):
    result = dispatch(func, config, event, request_id, started)
    name = config.get("FunctionName", "")
    if result.get("throttle"):
        note("throttle", name)
        return result
    printed = (result.get("log") or "").splitlines()
    lines = [line for line in printed if line.startswith("{") and '"_aws"' in line]
    note("run", name, error=bool(result.get("error")), duration=(time.time() - started) * 1000, lines=lines)
    return result


def acquire_and_note(func, config):
    slot, limit = acquire(func, config)
    if slot is None:
        note("throttle", config.get("FunctionName", ""))
    return slot, limit


def drop_and_note(name, func, depth):
    dropped = drop(name, func, depth)
    if dropped is not None:
        note("drop", name)
    return dropped


# Each invocation passes these, whatever invokes the function; MiniStack's own metrics leave out those by queues.
lambda_svc._execute_function_dispatch, lambda_svc._acquire_execution_slot = dispatch_and_note, acquire_and_note
lambda_svc._recursive_loop_drop = drop_and_note


def queues():
    now, waiting = time.time(), {}
    with sqs._queues_lock:
        for (_, _, url), queue in list(sqs._queues._data.items()):
            messages = queue["messages"]
            waiting[url.rsplit("/", 1)[-1]] = {
                "visible": sum(message.get("visible_at", 0) <= now for message in messages),
                "oldest": max((now - message.get("sent_at", now) for message in messages), default=0),
            }
    return waiting


def age(name, seconds):
    with sqs._queues_lock:
        for (_, _, url), queue in list(sqs._queues._data.items()):
            if url.rsplit("/", 1)[-1] == name:
                for message in queue["messages"]:
                    message["sent_at"] -= seconds
    return {}


def known(path, query):
    if not path.startswith("/_rig/"):
        return None
    asked = {name: values[0] for name, values in parse_qs(query.decode()).items()}
    if path == "/_rig/runs":
        begun = int(asked.get("after", 0))
        return {"runs": runs[begun:]}
    if path == "/_rig/queues":
        return queues()
    if path == "/_rig/age":
        return age(asked["queue"], float(asked["seconds"]))
    if path == "/_rig/caller":
        return {"arn": sts._sessions.get(asked.get("key", ""), {}).get("Arn")}
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
