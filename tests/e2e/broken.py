"""Breaks an installation in ten ways, one after the other: `whittle doctor` has to name each, and what it says of the remedy is done as it says it.

Whoever breaks something here uses `aws`, `kubectl` and `sam`; only the policy that denies CreateFleet is put into the simulated AWS by its owner's
API. After each remedy `doctor` must find nothing wrong, and in the end pods get a node.
"""

import contextlib
import json
import re
import time

import migration
from session import ACCOUNT, CLUSTER, STATE, adapted, claim, control, machines, objects, shell, until

HOOK = "validatingwebhookconfiguration whittle-doorbell"
DENIES = [{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"},
                                                  {"Effect": "Deny", "Action": "ec2:CreateFleet", "Resource": "*"}]}]


def findings(folder):
    """What `doctor` finds wrong, by check."""
    report = json.loads(shell(f"whittle doctor {CLUSTER} -o json 2>/dev/null", folder, None)[0])
    return {finding["check"]: finding for finding in report["findings"] if finding["status"] != "ok"}


def mended(folder, done, later):
    """The seconds until nothing is wrong any more, but for what comes later or stays longer."""
    left = {}

    def nothing_else():
        left.clear()
        left.update(findings(folder))
        return not set(left) - later

    begun = time.monotonic()
    while not nothing_else():
        # A node class is looked up every five minutes.
        if time.monotonic() - begun > 420:
            claim(f"nothing is wrong after {done!r}", False, json.dumps(left, indent=1))
            break
    return time.monotonic() - begun


def output(name):
    told = shell(f"aws cloudformation describe-stacks --stack-name whittle --query 'Stacks[0].Outputs[?OutputKey==`{name}`].OutputValue' --output text")
    return told[0].strip()


def add(finding, folder):
    """The remedy of what `cluster add` makes."""
    line = finding["remedy"]
    shell(adapted(line), folder, None)
    return line


def command(pattern):
    """A remedy that is a command among the words."""
    def run(finding, folder):
        line = re.search(pattern, finding["remedy"]).group(0)
        shell(line, folder)
        return line
    return run


@contextlib.contextmanager
def without_access_entry(_folder):
    shell(f"aws eks delete-access-entry --cluster-name {CLUSTER} --principal-arn {output('LaunchRoleArn')}")
    yield


@contextlib.contextmanager
def with_a_wrong_secret(_folder):
    hook = json.loads(shell(f"kubectl get {HOOK} -o json")[0])
    url = hook["webhooks"][0]["clientConfig"]["url"]
    host, secret, cluster = url.removeprefix("https://").split("/")
    patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": f"https://{host}/{secret[::-1]}/{cluster}"}]
    shell(f"kubectl patch {HOOK} --type json -p '{json.dumps(patch)}'")
    yield


@contextlib.contextmanager
def without_tags(_folder):
    tagged = f"--filters Name=tag:karpenter.sh/discovery,Values={CLUSTER}"
    subnets = shell(f"aws ec2 describe-subnets {tagged} --query 'Subnets[].SubnetId' --output text")[0]
    shell(f"aws ec2 delete-tags --resources {' '.join(subnets.split())} --tags Key=karpenter.sh/discovery")
    yield


@contextlib.contextmanager
def without_a_crd(_folder):
    shell("kubectl delete crd nodepools.karpenter.sh --timeout 120s")
    yield


@contextlib.contextmanager
def with_a_wrong_name(folder):
    shell(f"sam deploy --parameter-overrides Clusters={CLUSTER}p", folder)
    yield


@contextlib.contextmanager
def denied(_folder):
    control({"policies": {ACCOUNT: DENIES}})
    shell("kubectl scale deployment web --replicas=1")
    until("EC2 has refused a launch", 120, lambda: any(event["reason"] == "LaunchRefused" for event in objects("events")))
    yield


def allow(finding, _folder):
    claim("the remedy names who may have denied it", "service control policy" in finding["remedy"], finding)
    control({"policies": {ACCOUNT: None}})
    until("the pod runs that was denied a machine", 300, lambda: " 1/1 " in shell("kubectl get deployment web --no-headers")[0])
    # What was refused is told for as long as its event is young.
    shell("kubectl delete events -A --field-selector reason=LaunchRefused")
    return finding["remedy"]


@contextlib.contextmanager
def without_spot_role(_folder):
    shell("aws iam delete-role --role-name AWSServiceRoleForEC2Spot")
    yield


@contextlib.contextmanager
def beside_karpenter(_folder):
    with migration.karpenter():
        shell("kubectl -n kube-system scale deployment karpenter --replicas=1")
        time.sleep(8)
        yield


@contextlib.contextmanager
def of_an_old_release(folder):
    template = folder / "template.yaml"
    text = template.read_text()
    older, outputs = re.subn(r"(?m)^(  Version:\n(?:    .*\n)*?    Value: ).*$", r"\g<1>0.0.9", text)
    # Another output alone is no change to the emulator.
    older, functions = re.subn(r"(?m)^(      Timeout:) 5$", r"\1 6", older, count=1)
    assert outputs == 1 and functions == 1, "the template has one output Version, and a function with five seconds"
    template.write_text(older)
    shell("sam deploy", folder)
    template.write_text(text)
    yield


def deploy(finding, folder):
    claim("the remedy is to deploy", "sam deploy" in finding["remedy"], finding)
    shell("sam deploy", folder)
    return "sam deploy"


@contextlib.contextmanager
def with_dead_letters(_folder):
    resources = json.loads(shell("aws cloudformation list-stack-resources --stack-name whittle --output json")[0])["StackResourceSummaries"]
    url = next(one["PhysicalResourceId"] for one in resources if one["LogicalResourceId"] == "LaunchDeadLetters")
    shell(f"aws sqs send-message --queue-url {url} --message-body '{{}}'")
    yield


# What is wrong, the check that has to say so, words of what it says, and how its remedy is done.
WAYS = [
    ("a function's role has no access entry", "access", "has no access entry", without_access_entry, add),
    ("the webhook has another secret", "doorbell", "the secret in the webhook's path", with_a_wrong_secret, add),
    ("no subnet has the tag", "subnets", f"none has the tag karpenter.sh/discovery={CLUSTER}", without_tags, add),
    ("a CRD is missing", "CRDs", "missing: nodepools.karpenter.sh", without_a_crd, add),
    ("the stack has a wrong cluster name", "clusters", f"names {CLUSTER}p, not {CLUSTER}", with_a_wrong_name, command("sam deploy .*")),
    ("CreateFleet is denied", "launches", "CreateFleet failed: UnauthorizedOperation", denied, allow),
    ("the account has no spot role", "spot role", "AWSServiceRoleForEC2Spot", without_spot_role,
     command("aws iam create-service-linked-role .*")),
    ("Karpenter runs beside it", "Karpenter", "in namespace kube-system", beside_karpenter, command("kubectl .*? --replicas=0")),
    ("the functions are of an old release", "version", "0.0.9", of_an_old_release, deploy),
    ("messages are in a dead-letter queue", "dead letters", "1 message in LaunchDeadLetters", with_dead_letters,
     command("aws sqs purge-queue [^;]+(; aws sqs purge-queue [^;]+)*")),
]

# What else is wrong then, in truth: the NodePools went with their CRD, and a class without subnets is not ready as soon as it is looked up.
FOLLOWS = {"CRDs": {"NodePools"}, "subnets": {"node classes", "NodePools"}}
# What is wrong only later, and stays: each tick for a cluster that is not there ends in a dead-letter queue, after its retries.
LATER = {"clusters": {"dead letters"}}


def in_ten_ways(folder):
    shell("kubectl scale deployment web --replicas=0")
    until("no machine is left", 400, lambda: not machines() and not objects("nodeclaims"))
    # Alarms stay for as long as the period lasts in which something failed.
    later = {"alarms"}
    for wrong, check, words, broken, mend in WAYS:
        later |= LATER.get(check, set())
        with broken(folder):
            found = {}

            def named():
                found.update(findings(folder))
                return check in found

            # A count of SQS, a Lease and an alarm come a little later.
            took = until(f"doctor says that {wrong}", 120, named)
            about = found[check]
            claim(f"{wrong}: doctor names it", words in about["what"], json.dumps(found, indent=1))
            odd = set(found) - {check} - later - FOLLOWS.get(check, set())
            claim(f"{wrong}: and blames nothing else", not odd, json.dumps(found, indent=1))
            done = mend(about, folder)
            print(f"{took:7.1f} s  named; {mended(folder, done, later - {check}):.1f} s until nothing is wrong after: {done}", flush=True)
    shell("kubectl scale deployment web --replicas=4")
    until("pods get a node after all of this", 300, lambda: " 4/4 " in shell("kubectl get deployment web --no-headers")[0])
    claim(f"{len(WAYS)} broken installations are mended by what doctor says: pods run", True)
