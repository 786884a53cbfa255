#!/usr/bin/env python3
"""`whittle cluster` and `whittle doctor` from an empty account and an empty cluster to an installation, eleven ways of breaking it, and back, against
the real `aws` and `kubectl`, moto's account (account.py) and a real API server.

    run.py WHITTLE CONTROL_PLANE    the command, and the folder with etcd, kube-apiserver, kube-controller-manager and kubectl

It runs in a Python environment with `awscli` and `moto[server,all]`, whose programs are used. Exit code 1 if something is not as claimed.
"""

import base64
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WHITTLE, BINARIES = sys.argv[1], pathlib.Path(sys.argv[2])
FUNCTIONS = ["Relay", "Schedule", "Launch", "Register", "Consolidate", "Interrupt", "Terminate", "Refresh", "Sweep"]
failures = []


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def run(*words, stdin="", code=0, env=None):
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, env=env)
    if code is not None and done.returncode != code:
        sys.exit(f"{' '.join(words)}\nended with {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout


def aws(*words):
    out = run("aws", *words, "--output", "json")
    return json.loads(out) if out.strip() else None


def kubectl(*words, stdin=""):
    return run("kubectl", *words, stdin=stdin)


def claim(what, holds, told=""):
    print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        failures.append(what)
        print(told)


def whittle(*words):
    start = time.monotonic()
    done = subprocess.run([WHITTLE, *words, "-o", "json"], capture_output=True, text=True)
    answer = json.loads(done.stdout) if done.stdout.strip() else {"error": done.stderr}
    return done.returncode, answer, time.monotonic() - start


class Loader(yaml.SafeLoader):
    pass


Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def template():
    """The deployment's parameters and outputs, with functions and queues of its names that do nothing."""
    real = yaml.load((ROOT / "template.yaml").read_text(), Loader)
    plain = lambda value: ",".join(value) if isinstance(value, list) else str(value)
    parameters = {name: {"Type": "String", "Default": plain(of.get("Default", ""))} for name, of in real["Parameters"].items()}
    resources = {name: {"Type": "AWS::SQS::Queue"} for name, of in real["Resources"].items() if of["Type"] == "AWS::SQS::Queue"}
    trust = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
    for name in FUNCTIONS:
        resources[f"{name}Role"] = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": trust}}
        resources[name] = {"Type": "AWS::Lambda::Function", "Properties": {
            "Runtime": "python3.11", "Handler": "index.x", "Role": {"Fn::GetAtt": [f"{name}Role", "Arn"]}, "Code": {"ZipFile": "pass"},
            "Environment": {"Variables": {"WHITTLE_CLUSTERS": {"Ref": "Clusters"}}}}}
    outputs = {"RelayUrl": "https://abc123.lambda-url.eu-west-1.on.aws/", "Version": real["Outputs"]["Version"]["Value"], "SweepFunction": {"Ref": "Sweep"}, "TableName": "whittle", "RelayFunction": {"Ref": "Relay"}}
    outputs |= {f"{name}RoleArn": {"Fn::GetAtt": [f"{name}Role", "Arn"]} for name in FUNCTIONS if name != "Relay"}
    assert set(outputs) <= set(real["Outputs"]), "outputs of the template"
    return {"Parameters": parameters, "Resources": resources, "Outputs": {name: {"Value": value} for name, value in outputs.items()}}


def deploy(clusters, change=None, again=True):
    body = template()
    if change:
        change(body)
    verb = "update-stack" if again else "create-stack"
    aws("cloudformation", verb, "--stack-name", "whittle", "--template-body", json.dumps(body), "--capabilities", "CAPABILITY_IAM",
        "--parameters", json.dumps([{"ParameterKey": "Clusters", "ParameterValue": clusters}]))


def empty_account(state):
    """A cluster in moto that is reached at the real API server, and a deployment for it."""
    subnets = [subnet["SubnetId"] for subnet in aws("ec2", "describe-subnets")["Subnets"]]
    vpc = aws("ec2", "describe-vpcs")["Vpcs"][0]["VpcId"]
    group = aws("ec2", "create-security-group", "--group-name", "cluster", "--description", "x", "--vpc-id", vpc)["GroupId"]
    aws("eks", "create-cluster", "--name", "shop", "--role-arn", "arn:aws:iam::123456789012:role/cluster", "--resources-vpc-config",
        f"subnetIds={','.join(subnets)}")
    authority = base64.b64encode(pathlib.Path(os.environ["CP_CA"]).read_bytes()).decode()
    network = {"vpcId": vpc, "clusterSecurityGroupId": group}
    state.write_text(json.dumps({"shop": {"endpoint": os.environ["CP_SERVER"], "certificate": authority, "network": network}}))
    # moto calls this one by another name if it is made by the service's.
    aws("iam", "create-role", "--role-name", "AWSServiceRoleForEC2Spot", "--assume-role-policy-document", "{}")
    aws("dynamodb", "create-table", "--table-name", "whittle", "--billing-mode", "PAY_PER_REQUEST",
        "--attribute-definitions", "AttributeName=pk,AttributeType=S", "AttributeName=sk,AttributeType=S",
        "--key-schema", "AttributeName=pk,KeyType=HASH", "AttributeName=sk,KeyType=RANGE")
    deploy("shop", again=False)


def outcomes(answer, *states):
    return [step["id"] for step in answer["steps"] if step["state"] in states]


def ready():
    """What refresh and the functions would say of the sample."""
    for kind in ("nodepools", "ec2nodeclasses"):
        now = "2026-01-01T00:00:00Z"
        status = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": now}]}}
        kubectl("patch", kind, "default", "--subresource=status", "--type=merge", "-p", json.dumps(status))


def install():
    code, answer, _ = whittle("cluster", "add", "shop", "--dry-run")
    claim("a dry run plans and changes nothing", code == 0 and not aws("eks", "list-access-entries", "--cluster-name", "shop")["accessEntries"], answer)
    code, answer, seconds = whittle("cluster", "add", "shop", "--yes")
    claim(f"cluster add makes all of it ({answer['summary']['done']} steps, {seconds:.0f} s)",
          code == 0 and answer["summary"]["done"] == answer["summary"]["toDo"] > 20, answer)
    code, answer, _ = whittle("cluster", "add", "shop", "--yes")
    claim("and finds nothing to do then", code == 0 and answer["summary"]["toDo"] == answer["summary"]["blocked"] == 0, answer)
    secret = aws("ssm", "get-parameter", "--name", "/whittle/relay-secret", "--with-decryption")["Parameter"]["Value"]
    claim("the secret is 32 random bytes", re.fullmatch("[0-9a-f]{64}", secret))
    ready()


def problems():
    _, answer, seconds = whittle("doctor", "shop")
    return {finding["check"]: finding for finding in answer["findings"] if finding["status"] == "problem"}, seconds


def event(message):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "refused", "namespace": "default"}, "reason": "LaunchRefused",
                       "type": "Warning", "message": message, "involvedObject": {"kind": "NodePool", "name": "default"},
                       "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "whittle"}})


def lease():
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    return json.dumps({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
                       "spec": {"holderIdentity": "karpenter-1", "renewTime": now, "leaseDurationSeconds": 15}})


def eleven_broken():
    """All at once: the tests of the command have them one by one."""
    add, role = "whittle cluster add shop", "AWSServiceRoleForEC2Spot"
    stack = {output["OutputKey"]: output["OutputValue"] for output in aws("cloudformation", "describe-stacks", "--stack-name", "whittle")["Stacks"][0]["Outputs"]}
    tagged = [subnet["SubnetId"] for subnet in aws("ec2", "describe-subnets", "--filters", "Name=tag:karpenter.sh/discovery,Values=shop")["Subnets"]]
    queues = aws("cloudformation", "list-stack-resources", "--stack-name", "whittle")["StackResourceSummaries"]
    url = next(queue["PhysicalResourceId"] for queue in queues if queue["LogicalResourceId"] == "LaunchDeadLetters")
    aws("eks", "delete-access-entry", "--cluster-name", "shop", "--principal-arn", stack["LaunchRoleArn"])
    aws("ssm", "put-parameter", "--name", "/whittle/relay-secret", "--type", "SecureString", "--overwrite", "--value", "ab" * 32)
    aws("ec2", "delete-tags", "--resources", *tagged, "--tags", "Key=karpenter.sh/discovery")
    kubectl("delete", "crd", "nodeclaims.karpenter.sh")
    deploy("shopp", lambda body: body["Outputs"].pop("Version"))
    kubectl("create", "-f", "-", stdin=event("CreateFleet: UnauthorizedOperation: You are not authorized to perform this operation"))
    aws("iam", "delete-role", "--role-name", role)
    aws("sqs", "send-message", "--queue-url", url, "--message-body", "{}")
    kubectl("create", "-f", "-", stdin=lease())
    key = {"pk": {"S": "RECORD#shop#uninstall"}, "sk": {"S": "uninstall"}}
    record = json.dumps({"asked_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "nodes": "drain"})
    item = {**key, "v": {"N": "1"}, "rev": {"N": "1"}, "data": {"S": record}, "ttl": {"N": str(int(time.time()) + 30 * 24 * 3600)}}
    aws("dynamodb", "put-item", "--table-name", "whittle", "--item", json.dumps(item))
    found, _ = problems()
    expected = [
        ("a role without access entry", "access", add),
        ("a webhook with the wrong secret", "doorbell", add),
        ("subnets without the tag", "subnets", add),
        ("a missing CRD", "CRDs", add),
        ("another cluster's name in the stack", "clusters", "Clusters=shop"),
        ("denied CreateFleet", "launches", "service control policy"),
        ("no role of EC2 Spot", "spot role", "create-service-linked-role"),
        ("Karpenter beside it", "Karpenter", "--replicas=0"),
        ("functions of an older release", "version", "sam deploy"),
        ("a message in a dead-letter queue", "dead letters", "purge-queue"),
        ("a record that Whittle was uninstalled", "uninstallation", "aws dynamodb delete-item --table-name whittle"),
    ]
    for what, check, remedy in expected:
        claim(f"doctor names: {what} (remedy: {remedy})", remedy in found.get(check, {}).get("remedy", ""), json.dumps(found.get(check)))
    others = set(found) - {check for _, check, _ in expected}
    claim("and nothing else", not others, others)
    deploy("shop")
    kubectl("delete", "event", "refused")
    kubectl("delete", "lease", "-n", "kube-system", "karpenter-leader-election")
    aws("sqs", "purge-queue", "--queue-url", url)
    run("sh", "-c", found.get("uninstallation", {}).get("remedy", "").rpartition(": ")[2])
    aws("iam", "create-role", "--role-name", role, "--assume-role-policy-document", "{}")
    code, answer, _ = whittle("cluster", "add", "shop", "--yes")
    done = sorted(outcomes(answer, "to do"))
    wanted = ["access/launch", "crd/nodeclaims.karpenter.sh", "subnets", "webhook"]
    claim("cluster add mends what is its own, and nothing else", code == 0 and done == wanted, done)
    found, _ = problems()
    claim("then doctor finds no problem", not found, json.dumps(found, indent=1))


def shard_of(name):
    """As `whittle_claims::shard_of`."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return (value ^ (value >> 16)) % 8


def decide(days, subject, kind, message, detail=None):
    """Writes a decision as the functions do, of some days ago."""
    seconds = time.time() - days * 24 * 3600
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    if detail:
        detail["ledger"]["at"] = at
    record = {"at": at, "kind": kind, "subject": subject, "message": message, "detail": detail}
    item = {"pk": {"S": f"DECISION#shop#{shard_of(subject)}"}, "sk": {"S": f"{int(seconds) * 1_000_000:020}#w#00000"}, "v": {"N": "1"},
            "subject": {"S": subject}, "data": {"S": json.dumps(record)}, "ttl": {"N": str(int(seconds) + 30 * 24 * 3600)}}
    aws("dynamodb", "put-item", "--table-name", "whittle", "--item", json.dumps(item))


def history():
    """What `savings` and `explain` say of a month, from the deployment's table."""
    node, dollar = "ip-10-0-1-7.eu-west-1.compute.internal", 1_000_000_000
    for days in (2, 20):
        entry = {"id": f"c{days}", "reason": "Underutilized", "action": "delete", "nodes": [node], "nodePools": ["default"], "beforeNanos": 3 * dollar,
                 "afterNanos": dollar, "podsMoved": 4}
        decide(days, "ledger", "disrupted", "Underutilized: 1 node", {"ledger": entry})
    decide(20, f"node/{node}", "disrupted", "Underutilized: delete")
    decide(19.999, f"node/{node}", "terminated", "instance i-1 has terminated")
    for words, commands, saved in ([(), 2, 4.0], [("--since", "7d"), 1, 2.0], [("--cluster", "shop"), 2, 4.0]):
        code, answer, _ = whittle("savings", "--stack", "whittle", *words)
        of = answer.get("commands"), answer.get("dollarsPerHour", {}).get("saved"), answer.get("currency")
        claim(f"savings sums the ledger of the deployment {' '.join(words)}", (code, *of) == (0, commands, saved, "USD"), answer)
    code, answer, _ = whittle("savings", "--stack", "whittle", "--cluster", "prod")
    claim("and says so of a cluster that it does not serve", code == 2 and "whose clusters are: shop" in str(answer), answer)
    code, answer, _ = whittle("explain", node, "--context", "--stack", "whittle")
    told = [one["message"] for one in answer.get("history", [])]
    claim("explain tells why a node went twenty days ago", {"Underutilized: delete", "instance i-1 has terminated"} <= set(told), answer)


def watcher():
    """Instead of the webhook, and back: its stack, and its objects in the cluster with what that stack put out."""
    image, name = "registry.example.com/whittle-watcher@sha256:" + "0a" * 32, "whittle-watcher-shop"
    asked = ("cluster", "add", "shop", "--relay", "watcher", "--watcher-image", image, "--yes")
    code, answer, _ = whittle(*asked)
    claim("a watcher is not made where its pods would get no role", code == 1 and outcomes(answer, "blocked") == ["watcher-stack"], answer)
    issuer = aws("eks", "describe-cluster", "--name", "shop")["cluster"]["identity"]["oidc"]["issuer"]
    aws("iam", "create-open-id-connect-provider", "--url", issuer, "--thumbprint-list", "0" * 40, "--client-id-list", "sts.amazonaws.com")
    code, answer, _ = whittle(*asked[:-1], "--dry-run")
    claim("where they get one, its stack and its objects are to do", code == 0 and outcomes(answer, "to do") == ["watcher-stack", "watcher"], answer)
    # moto cannot make the stack of infra/watcher/stack.yaml. One with its outputs stands for it.
    outputs = {"Url": {"Value": "https://xyz.lambda-url.eu-west-1.on.aws/"}, "RoleArn": {"Value": "arn:aws:iam::123456789012:role/watcher"}}
    body = json.dumps({"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}, "Outputs": outputs})
    aws("cloudformation", "create-stack", "--stack-name", name, "--template-body", body, "--tags", "Key=whittle.dev/cluster-add,Value=shop")
    code, answer, _ = whittle(*asked)
    claim("cluster add applies its objects", code == 0 and outcomes(answer, "to do") == ["watcher"], answer)
    outputs = {one["OutputKey"]: one["OutputValue"] for one in aws("cloudformation", "describe-stacks", "--stack-name", name)["Stacks"][0]["Outputs"]}
    container = json.loads(kubectl("get", "deployment", "-n", "whittle", "whittle-watcher", "-o", "json"))["spec"]["template"]["spec"]["containers"][0]
    wanted = [{"name": "WHITTLE_CLUSTER", "value": "shop"}, {"name": "WHITTLE_RELAY_URL", "value": outputs["Url"]}]
    claim("with the stack's URL, and the image", container["image"] == image and container["env"] == wanted, container)
    account = json.loads(kubectl("get", "serviceaccount", "-n", "whittle", "whittle-watcher", "-o", "json"))
    claim("and its role", account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"] == outputs["RoleArn"], account)
    code, answer, _ = whittle(*asked)
    claim("and finds nothing to do then", code == 0 and answer["summary"]["toDo"] == 0, answer)
    kubectl("create", "configmap", "mine", "-n", "whittle")


def uninstall():
    node_claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a"},
                  "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []}}
    kubectl("apply", "-f", "-", stdin=json.dumps(node_claim))
    code, answer, _ = whittle("cluster", "remove", "shop", "--yes")
    claim("cluster remove does nothing while a NodeClaim is left", code == 1 and answer["summary"]["done"] == 0 and "emptied" in outcomes(answer, "blocked"), answer)
    kubectl("delete", "nodeclaim", "a")
    code, answer, _ = whittle("cluster", "remove", "shop", "--yes")
    claim("nor while the stack serves the cluster", code == 1 and answer["summary"]["done"] == 0 and outcomes(answer, "blocked") == ["stack"], answer)
    deploy("dev")
    for kind in ("nodepool", "ec2nodeclass"):
        copied = json.loads(kubectl("get", kind, "default", "-o", "json"))
        copied = {**copied, "metadata": {"name": "batch", "labels": copied["metadata"]["labels"]}}
        if kind == "nodepool":
            copied["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "batch"
        kubectl("create", "-f", "-", stdin=json.dumps(copied))
    kubectl("create", "clusterrole", "mine", "--verb=get", "--resource=pods")
    code, answer, seconds = whittle("cluster", "remove", "shop", "--yes")
    claim(f"cluster remove takes everything ({answer['summary']['done']} steps, {seconds:.0f} s)", code == 0 and answer["summary"]["done"] > 20, answer)
    claim("the watcher is gone with its stack", not kubectl("get", "deployment", "-n", "whittle", "-o", "name") and "whittle-watcher-shop" not in
          [stack["StackName"] for stack in aws("cloudformation", "list-stacks", "--stack-status-filter", "CREATE_COMPLETE")["StackSummaries"]])
    claim("and its namespace stays with what others have in it", kubectl("get", "configmap", "-n", "whittle", "mine", "-o", "name"))
    kubectl("delete", "configmap", "-n", "whittle", "mine")
    left = kubectl("get", "nodepools,ec2nodeclasses", "-o", "name").split()
    claim("but copies of the sample, and their CRDs", left == ["nodepool.karpenter.sh/batch", "ec2nodeclass.karpenter.k8s.aws/batch"], left)
    kubectl("delete", *left)
    code, answer, _ = whittle("cluster", "remove", "shop", "--yes")
    claim("which go as soon as nobody uses them, and so does the namespace", code == 0 and answer["summary"]["done"] == 3, answer)
    left = kubectl("get", "namespaces,crd,clusterrole,clusterrolebinding,validatingwebhookconfiguration,flowschema,validatingadmissionpolicy", "-o", "name")
    claim("of the cluster's objects those of others are left", "mine" in left and not re.search("whittle|karpenter", left), left)
    tags = [tag for tag in aws("ec2", "describe-tags")["Tags"] if "karpenter" in tag["Key"] or "whittle" in tag["Key"]]
    claim("no access entry and no tag is left", not aws("eks", "list-access-entries", "--cluster-name", "shop")["accessEntries"] and not tags, tags)
    roles = [role["RoleName"] for role in aws("iam", "list-roles")["Roles"]]
    claim("the node role is gone, the one of EC2 Spot stays", "KarpenterNodeRole-shop" not in roles and "AWSServiceRoleForEC2Spot" in roles, roles)
    code, answer, _ = whittle("cluster", "remove", "shop", "--yes")
    claim("and finds nothing to do then", code == 0 and answer["summary"]["toDo"] == 0, answer)


def main():
    with tempfile.TemporaryDirectory(prefix="whittle-install-") as folder:
        folder, port = pathlib.Path(folder), free_port()
        control_plane = {**os.environ, "CP_BIN": str(BINARIES), "CP_DIR": str(folder / "cluster"), "CP_PARTS": "kcm"}
        script, state = ROOT / "tests/control-plane/run.sh", folder / "state.json"
        state.write_text("{}")
        moto = {**os.environ, "MOTO_IAM_LOAD_MANAGED_POLICIES": "true", "AWS_DEFAULT_REGION": "eu-west-1"}
        log = (folder / "moto.log").open("w")
        account = subprocess.Popen([sys.executable, HERE / "account.py", str(port), str(state)], env=moto, stdout=log, stderr=log)
        try:
            for line in run("bash", str(script), "start", env=control_plane).splitlines():
                os.environ.update(dict(pair.split("=", 1) for pair in line.removeprefix("export ").split() if line.startswith("export ")))
            os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
                           "AWS_DEFAULT_REGION": "eu-west-1", "PATH": f"{pathlib.Path(sys.executable).parent}:{BINARIES}:{os.environ['PATH']}"}
            # For SQS the command does not go by the variable.
            (folder / "aws").write_text(f'#!/bin/sh\nexec {pathlib.Path(sys.executable).parent}/aws --endpoint-url "$AWS_ENDPOINT_URL" "$@"\n')
            (folder / "aws").chmod(0o755)
            os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
            for _ in range(100):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=2)
                    break
                except OSError:
                    time.sleep(0.3)
            empty_account(state)
            install()
            code, answer, seconds = whittle("doctor", "shop")
            odd = [finding for finding in answer["findings"] if finding["status"] != "ok"]
            claim(f"doctor finds no problem ({seconds:.0f} s)", not any(finding["status"] == "problem" for finding in odd), json.dumps(odd, indent=1))
            for finding in odd:
                print(f"     {finding['status']}: {finding['check']}: {finding['what'][:160]}")
            history()
            eleven_broken()
            watcher()
            uninstall()
        finally:
            account.terminate()
            run("bash", str(script), "stop", env=control_plane, code=None)
    sys.exit(f"{len(failures)} claims do not hold" if failures else None)


main()
