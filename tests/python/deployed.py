"""Starts each function of a deployed stack by its own events and reads its answer.

usage: deployed.py STACK ENDPOINT CLUSTER

Every queue gets a message, every rule's target an event that its pattern matches, every tick's input is handed to its
function, the relay is called at its URL; one tick is waited for. Karpenter's own stack is deployed beside it and removed. A function has answered when its invocation ended by
itself: an error that names a back end which is not there is an answer, a crash or a time-out is none.
"""

import hmac
import json
import sys
import time
import urllib.error
import urllib.request

import boto3

# An emulated tick comes within a minute and some seconds.
TICK_MAX = 90
# A message is delivered, and worked off, well within this.
ANSWER_MAX = 60
# What an invocation that did not end by itself leaves in its log or its answer.
NO_ANSWER = ["Runtime.ExitError", "Runtime.InitError", "Task timed out", "panicked at", "Runtime exited"]
SECRET = "test-secret"
INSTANCE = "i-0aaaaaaaaaaaaaaa1"
# The stack that clusters with Karpenter have.
KARPENTER = "tests/seeds/004-cloudformation.yaml"


def envelope(rule: str, detail_type: str, source: str, detail: dict) -> dict:
    return {
        "version": "0",
        "id": f"7d1c0a52-0000-4000-8000-{abs(hash(rule)) % 10**12:012d}",
        "detail-type": detail_type,
        "source": source,
        "account": "111122223333",
        "time": "2026-03-01T12:00:00Z",
        "region": "us-west-2",
        "resources": [],
        "detail": detail,
    }


ENVELOPES = {
    "SpotInterruptionRule": (
        "EC2 Spot Instance Interruption Warning",
        "aws.ec2",
        {"instance-id": INSTANCE, "instance-action": "terminate"},
    ),
    "RebalanceRule": ("EC2 Instance Rebalance Recommendation", "aws.ec2", {"instance-id": INSTANCE}),
    "InstanceStoppedRule": (
        "EC2 Instance State-change Notification",
        "aws.ec2",
        {"instance-id": INSTANCE, "state": "stopping"},
    ),
    "InstanceRunningRule": (
        "EC2 Instance State-change Notification",
        "aws.ec2",
        {"instance-id": INSTANCE, "state": "running"},
    ),
    "ReservationInterruptionRule": (
        "EC2 Capacity Reservation Instance Interruption Warning",
        "aws.ec2",
        {"instance-id": INSTANCE, "instance-action": "terminate"},
    ),
    "ScheduledChangeRule": (
        "AWS Health Event",
        "aws.health",
        {
            "eventArn": "arn:aws:health:us-west-2::event/EC2/EXAMPLE",
            "service": "EC2",
            "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "affectedEntities": [{"entityValue": INSTANCE}],
        },
    ),
}


def bells(cluster: str) -> dict:
    """A doorbell for each queue that carries doorbells."""
    claim = "default-aaaaa"
    return {
        "PlanQueue": {"bell": "schedule", "cluster": cluster},
        "ConsolidateQueue": {"bell": "consolidate", "cluster": cluster},
        "LaunchQueue": {"bell": "launch", "cluster": cluster, "claims": [claim]},
        "TerminateQueue": {"bell": "terminate", "cluster": cluster, "claim": claim},
        "NodesQueue": {"bell": "register", "cluster": cluster},
        "RefreshQueue": {"bell": "refresh", "cluster": cluster},
        "SweepQueue": {"bell": "sweep", "cluster": cluster},
    }


class Stack:
    def __init__(self, name: str, endpoint: str, cluster: str) -> None:
        session = boto3.Session(region_name="us-west-2")
        make = lambda service: session.client(service, endpoint_url=endpoint)
        self.formation, self.functions, self.queues = make("cloudformation"), make("lambda"), make("sqs")
        self.identities = make("iam")
        self.logs, self.events, self.scheduler = make("logs"), make("events"), make("scheduler")
        self.name, self.endpoint, self.cluster = name, endpoint, cluster
        self.resources = {}
        for page in self.formation.get_paginator("list_stack_resources").paginate(StackName=name):
            for resource in page["StackResourceSummaries"]:
                logical = resource["LogicalResourceId"]
                self.resources[logical] = (resource["ResourceType"], resource["PhysicalResourceId"])
        self.failures = []

    def physical(self, logical: str) -> str:
        return self.resources[logical][1]

    def of_type(self, kind: str) -> list:
        return sorted(name for name, (its_kind, _) in self.resources.items() if its_kind == kind)

    def lines(self, function: str) -> list:
        """Everything that a function has logged."""
        group = self.physical(f"{function}Logs")
        lines = []
        for stream in self.logs.describe_log_streams(logGroupName=group)["logStreams"]:
            events = self.logs.get_log_events(
                logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
            )
            lines += [event["message"].rstrip() for event in events["events"]]
        return lines

    def runs(self, function: str) -> int:
        return sum(line.startswith("REPORT ") for line in self.lines(function))

    def wait(self, function: str, runs_before: int, seconds: int) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.runs(function) > runs_before:
                return True
            time.sleep(0.5)
        return False

    def tell(self, function: str, event: str, answer: str) -> None:
        if any(mark in answer for mark in NO_ANSWER):
            self.failures.append(f"{function}, started by {event}: {answer}")
        print(f"{function:<12} {event:<30} {answer[:160]}", flush=True)

    def expect_run(self, function: str, event: str, seconds: int, action) -> None:
        before, said = self.runs(function), len(self.lines(function))
        action()
        if not self.wait(function, before, seconds):
            self.failures.append(f"{function} did not run within {seconds} s of {event}")
            return
        own = [
            line
            for line in self.lines(function)[said:]
            if not line.startswith(("START ", "END ", "REPORT ")) and line
        ]
        self.tell(function, event, own[-1] if own else "(ended without a word)")

    def send(self, queue: str, body: dict) -> None:
        url = self.physical(queue)
        extra = {}
        if url.endswith(".fifo"):
            extra = {"MessageGroupId": self.cluster, "MessageDeduplicationId": f"{queue}-{time.time_ns()}"}
        self.queues.send_message(QueueUrl=url, MessageBody=json.dumps(body), **extra)

    def logical(self, function: str) -> str:
        """A function's logical name by its ARN."""
        name = function.rsplit(":", 1)[1]
        return next(logical for logical in self.of_type("AWS::Lambda::Function") if self.physical(logical) == name)

    def invoke(self, function: str, event: dict) -> None:
        """As EventBridge does, which waits for no answer."""
        self.functions.invoke(FunctionName=function, InvocationType="Event", Payload=json.dumps(event))


def consumers(stack: Stack) -> dict:
    """From each queue's logical name to the function that its mapping feeds."""
    found = {}
    for mapping in stack.functions.list_event_source_mappings()["EventSourceMappings"]:
        queue = mapping["EventSourceArn"].rsplit(":", 1)[1]
        queue_name = next(name for name in stack.of_type("AWS::SQS::Queue") if stack.physical(name).endswith("/" + queue))
        found[queue_name] = stack.logical(mapping["FunctionArn"])
    return found


def check_queues(stack: Stack, feeds: dict) -> None:
    for queue, body in bells(stack.cluster).items():
        stack.expect_run(feeds[queue], queue, ANSWER_MAX, lambda: stack.send(queue, body))


def check_rules(stack: Stack, feeds: dict) -> None:
    for rule in stack.of_type("AWS::Events::Rule"):
        name = stack.physical(rule)
        event = envelope(rule, *ENVELOPES[rule])
        pattern = stack.events.describe_rule(Name=name)["EventPattern"]
        if not stack.events.test_event_pattern(EventPattern=pattern, Event=json.dumps(event))["Result"]:
            stack.failures.append(f"{rule} does not match its event")
            continue
        arn = stack.events.list_targets_by_rule(Rule=name)["Targets"][0]["Arn"]
        if ":lambda:" in arn:
            stack.expect_run(stack.logical(arn), rule, ANSWER_MAX, lambda: stack.invoke(arn, event))
            continue
        queue = next(name for name in feeds if stack.physical(name).endswith("/" + arn.rsplit(":", 1)[1]))
        # The emulator takes no events of AWS's own sources, so that the target gets it directly.
        stack.expect_run(feeds[queue], rule, ANSWER_MAX, lambda: stack.send(queue, event))


def check_beside_karpenter(stack: Stack) -> None:
    """S4.1: Karpenter's own stack stands beside ours, and ours hears every kind of event that its four rules hear."""
    with open(KARPENTER, encoding="utf-8") as file:
        body = file.read()
    other = f"Karpenter-{stack.cluster}"
    stack.formation.create_stack(
        StackName=other,
        TemplateBody=body,
        Parameters=[{"ParameterKey": "ClusterName", "ParameterValue": stack.cluster}],
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )
    stack.formation.get_waiter("stack_create_complete").wait(StackName=other, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    theirs = Stack(other, stack.endpoint, stack.cluster)
    rules = theirs.of_type("AWS::Events::Rule")
    if (len(theirs.resources), len(rules)) != (9, 4):
        stack.failures.append(f"Karpenter's stack has {len(theirs.resources)} resources and {len(rules)} rules, not 9 and 4")
    role = f"KarpenterNodeRole-{stack.cluster}"
    policies = stack.identities.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    profile = stack.identities.get_instance_profile(InstanceProfileName=f"KarpenterNodeInstanceProfile-{stack.cluster}")
    if len(policies) != 4 or [held["RoleName"] for held in profile["InstanceProfile"]["Roles"]] != [role]:
        stack.failures.append(f"the node role has {len(policies)} policies, its profile is {profile['InstanceProfile']}")
    events = [envelope(rule, *parts) for rule, parts in ENVELOPES.items()]
    ours = [stack.events.describe_rule(Name=stack.physical(rule))["EventPattern"] for rule in stack.of_type("AWS::Events::Rule")]
    matches = lambda pattern, event: stack.events.test_event_pattern(EventPattern=pattern, Event=json.dumps(event))["Result"]
    for rule in rules:
        pattern = stack.events.describe_rule(Name=theirs.physical(rule))["EventPattern"]
        heard = [event for event in events if matches(pattern, event)]
        deaf = [event["detail-type"] for event in heard if not any(matches(own, event) for own in ours)]
        if not heard or deaf:
            stack.failures.append(f"Karpenter's {rule} hears {len(heard)} of the events, ours miss {deaf}")
        print(f"{'Karpenter':<12} {rule:<30} heard by our rules too: {len(heard)} kinds of event", flush=True)
    stack.formation.delete_stack(StackName=other)
    stack.formation.get_waiter("stack_delete_complete").wait(StackName=other, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def check_ticks(stack: Stack) -> None:
    for schedule in stack.of_type("AWS::Scheduler::Schedule"):
        target = stack.scheduler.get_schedule(Name=stack.physical(schedule))["Target"]
        function = target["Arn"].rsplit(":", 1)[1]
        logical = next(name for name in stack.of_type("AWS::Lambda::Function") if stack.physical(name) == function)
        answer = stack.functions.invoke(FunctionName=function, Payload=target["Input"].encode())
        stack.tell(logical, f"{schedule} {target['Input']}", answer["Payload"].read().decode())


def check_relay(stack: Stack) -> None:
    outputs = stack.formation.describe_stacks(StackName=stack.name)["Stacks"][0]["Outputs"]
    url = next(output["OutputValue"] for output in outputs if output["OutputKey"] == "RelayUrl")
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "events.k8s.io", "version": "v1", "kind": "Event"},
            "resource": {"group": "events.k8s.io", "version": "v1", "resource": "events"},
            "operation": "CREATE",
            "object": {"reason": "FailedScheduling", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}},
        },
    }
    own = hmac.new(SECRET.encode(), stack.cluster.encode(), "sha256").hexdigest()
    for kind, secret, wanted in [("wrong", "wrong", range(400, 500)), ("stored", SECRET, range(400, 500)), ("own", own, range(200, 300))]:
        request = urllib.request.Request(
            f"{stack.endpoint}/{secret}/{stack.cluster}",
            data=json.dumps(review).encode(),
            headers={"Host": url.split("/")[2], "Content-Type": "application/json"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_MAX) as response:
                status, body = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read().decode()
        stack.tell("Relay", f"its URL, {kind} secret", f"{status} {body}")
        if status not in wanted:
            stack.failures.append(f"Relay answered {status} to the {kind} secret")


def main() -> None:
    name, endpoint, cluster = sys.argv[1:]
    stack = Stack(name, endpoint, cluster)
    feeds = consumers(stack)
    ticked = stack.runs("Sweep")
    check_relay(stack)
    check_queues(stack, feeds)
    check_rules(stack, feeds)
    check_beside_karpenter(stack)
    check_ticks(stack)
    # What the checks themselves started (a message, and a tick, which works for the only cluster), besides a tick that may have come already.
    own = 2
    if not stack.wait("Sweep", ticked + own, TICK_MAX):
        stack.failures.append(f"no tick reached Sweep within {TICK_MAX} s")
    stack.tell("Sweep", "the schedule itself", f"{stack.runs('Sweep') - ticked - own} ticks came")
    started = [name for name in stack.of_type("AWS::Lambda::Function") if stack.runs(name) == 0]
    stack.failures += [f"{name} never ran" for name in started]
    for failure in stack.failures:
        print(f"FAILED: {failure}")
    print(f"{len(stack.of_type('AWS::Lambda::Function'))} functions, {len(stack.failures)} failures")
    sys.exit(1 if stack.failures else 0)


if __name__ == "__main__":
    main()
