#!/usr/bin/env python3
"""From an empty account to running pods and back, by the commands of a page of the documentation as they are printed there.

    first_pod.py STATE RELEASE PAGE HEADING

STATE is the state.json of a rig that was started with --empty, RELEASE a folder that `cargo xtask dist` has filled. The commands are those of the
first block below the heading. Three things are added, of which the page says that they are the reader's: the architecture, the address of the
simulated AWS (a parameter of the stack), and the answer to the question of `cluster add`. `aws`, `sam` and `kubectl` are those of the PATH.
Exit code 1 if something is not as claimed.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

STATE, RELEASE = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]).resolve()
PAGE, HEADING = pathlib.Path(sys.argv[3]), sys.argv[4]
CLUSTER = STATE["cluster"]
PODS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: web, resources: {requests: {cpu: 500m, memory: 512Mi}}}]
"""
failures = []


def claim(what, holds, told=""):
    print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        failures.append(what)
        print(told)


def shell(line, folder, code=0):
    """Runs a line as it is; its output, and the seconds that it took."""
    begun = time.monotonic()
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    took = time.monotonic() - begun
    if code is not None and done.returncode != code:
        sys.exit(f"{line}\nended with {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr, took


def commands():
    """The lines of the page's block."""
    below = PAGE.read_text().split(f"\n## {HEADING}\n", 1)[1]
    return re.search(r"```sh\n(.*?)```", below, re.S)[1].replace("\\\n", " ").strip().splitlines()


def until(what, seconds, condition):
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if condition():
            return time.monotonic() - begun
        time.sleep(0.2)
    seen, _ = shell("kubectl get pods,nodes,nodeclaims,nodepools,ec2nodeclasses -o wide; kubectl get events -A", ".", None)
    sys.exit(f"not within {seconds} s: {what}\n{seen}")


def names(kinds):
    return shell(f"kubectl get {kinds} -A -o name --ignore-not-found", ".")[0].split()


def simulated():
    return json.load(urllib.request.urlopen(f"{STATE['fakeAws']}/_control"))


def install(folder):
    """The page's commands, one after the other."""
    print(f"{PAGE}, {HEADING!r}:")
    whole = time.monotonic()
    for line in commands():
        asked = line.replace("arm64", "x86_64").replace("Clusters=shop", f"Clusters={CLUSTER} TestEndpoint={STATE['fakeAws']}")
        asked += " --yes" if line.startswith("whittle cluster add") else ""
        if line.startswith("cd "):
            folder = folder / asked.removeprefix("cd ")
        else:
            print(f"{shell(asked, folder)[1]:7.1f} s  {line}", flush=True)
    until("the pods run", 400, lambda: " 3/3 " in shell("kubectl get deployment web --no-headers", ".")[0])
    return time.monotonic() - whole


def remove(folder):
    """docs/runbooks.md, "Uninstall from a cluster", then the stack, then what `cluster add` made."""
    shell("kubectl delete -f your-pods.yaml", folder)
    ask = f"whittle uninstall --cluster {CLUSTER} --yes"
    took = until("nothing is left", 600, lambda: "nothing is left" in shell(ask, folder, None)[0])
    print(f"{took:7.1f} s  {ask}, until nothing is left", flush=True)
    for line in ("sam delete --stack-name whittle --no-prompts", f"whittle cluster remove {CLUSTER} --gone --yes"):
        print(f"{shell(line, folder)[1]:7.1f} s  {line}", flush=True)


def nothing_is_left():
    region = simulated()
    alive = [one for one in region["machines"] if one["state"] != "terminated"]
    claim("no machine is left", region["machines"] and not alive, alive)
    claim("no launch template and no instance profile is left", not region["launchTemplates"] and not region["instanceProfiles"], region)
    objects = names("nodes,crd,clusterrole,clusterrolebinding,validatingwebhookconfiguration,validatingadmissionpolicy,flowschema,"
                    "prioritylevelconfiguration")
    left = [name for name in objects if re.search("whittle|karpenter|^node/", name)]
    claim("no node and no object of ours is left in the cluster", objects and not left, left)
    entries = json.loads(shell(f"aws eks list-access-entries --cluster-name {CLUSTER} --output json", ".")[0])["accessEntries"]
    claim("no access entry is left", not entries, entries)
    tags = shell("aws ec2 describe-subnets --output json; aws ec2 describe-security-groups --output json", ".")[0]
    claim("no tag is left on subnets and security groups", "karpenter.sh/discovery" not in tags, tags)
    claim("no node role is left", "NoSuchEntity" in shell(f"aws iam get-role --role-name KarpenterNodeRole-{CLUSTER}", ".", None)[0])
    claim("no stack is left", "does not exist" in shell("aws cloudformation describe-stacks --stack-name whittle", ".", None)[0])


def main():
    with tempfile.TemporaryDirectory(prefix="whittle-first-pod-") as folder:
        folder = pathlib.Path(folder)
        home = folder / "home"
        (home / ".local/bin").mkdir(parents=True)
        # For SQS the command does not go by the variable.
        (home / ".local/bin/aws").write_text(f'#!/bin/sh\nexec {shutil.which("aws")} --endpoint-url "$AWS_ENDPOINT_URL" "$@"\n')
        (home / ".local/bin/aws").chmod(0o755)
        os.environ |= {"HOME": str(home), "PATH": f"{home}/.local/bin:{os.environ['PATH']}", "AWS_ENDPOINT_URL": STATE["account"],
                       "AWS_DEFAULT_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "AKIARIGUSER", "AWS_SECRET_ACCESS_KEY": "testing",
                       "SAM_CLI_TELEMETRY": "0", "AWS_PAGER": "", "KUBECONFIG": str(home / "kubeconfig")}
        shell(f"cp -r {RELEASE}/. .", folder)
        for place in folder.glob("whittle-*-functions-*"):
            (place / "your-pods.yaml").write_text(PODS)
        (folder / "your-pods.yaml").write_text(PODS)
        shell(f"aws eks update-kubeconfig --name {CLUSTER}", folder)
        print(f"{install(folder):7.1f} s  in all, until the pods run", flush=True)
        doctor = json.loads(shell(f"whittle doctor {CLUSTER} -o json 2>/dev/null", folder, None)[0])
        odd = [finding for finding in doctor["findings"] if finding["status"] != "ok"]
        claim("doctor finds nothing wrong, and knows everything", doctor["findings"] and not odd, json.dumps(odd, indent=1))
        remove(folder)
        nothing_is_left()
    sys.exit(f"{len(failures)} claims do not hold" if failures else None)


main()
