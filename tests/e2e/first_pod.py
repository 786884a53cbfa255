#!/usr/bin/env python3
"""From an empty account to running pods and back, by the commands of a page of the documentation as they are printed there.

    first_pod.py STATE FROM PAGE HEADING [--break] [--migrate]

STATE is the state.json of a rig that was started with --empty, FROM a folder that `cargo xtask dist` has filled, or a repository: then a clone of
that is compiled. The commands are those of the first block below the heading. Three things are added, of which the page says that they are the
reader's: the architecture, the address of the simulated AWS (a parameter of the stack), and the answer to the question of `cluster add`. `aws`,
`sam` and `kubectl` are those of the PATH. With --break, the installation is broken in ten ways and mended as `doctor` says (broken.py), and with
--migrate everything is handed over to Karpenter and adopted again in between (migration.py).
Exit code 1 if something is not as claimed.
"""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

import broken
import migration
from session import CLUSTER, FROM, STATE, adapted, blocks, claim, failures, is_release, names, shell, simulated, timed, until

PAGE, HEADING = pathlib.Path(sys.argv[3]), sys.argv[4]
MIGRATES, BREAKS = "--migrate" in sys.argv, "--break" in sys.argv
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


def lay_out(folder):
    """What a reader has before the first command: the release, or a clone and the command `whittle` from it."""
    if is_release():
        shell(f"cp -r {FROM}/. .", folder)
        places = list(folder.glob("whittle-*-functions-*"))
    else:
        timed("git clone", folder, f"git clone --quiet --depth 1 file://{FROM} clone")
        folder, places = folder / "clone", []
        build = "cargo install --locked --path cli"
        timed(build, folder, f"{build} --quiet --root {os.environ['HOME']}/.local")
    for place in [folder, *places]:
        (place / "your-pods.yaml").write_text(PODS)
    return folder


def install(folder):
    """The page's commands, one after the other; the folder in which the last one ran."""
    print(f"{PAGE}, {HEADING!r}:")
    begun = time.monotonic()
    for line in blocks(PAGE, HEADING)[0]:
        if line.startswith("cd "):
            folder = folder / adapted(line).removeprefix("cd ")
        else:
            timed(line, folder, adapted(line))
    until("the pods run", 400, lambda: " 3/3 " in shell("kubectl get deployment web --no-headers")[0])
    print(f"{time.monotonic() - begun:7.1f} s  in all, until the pods run", flush=True)
    return folder


def remove(folder):
    """docs/runbooks.md, "Uninstall from a cluster", then the stack, then what `cluster add` made."""
    shell("kubectl delete -f your-pods.yaml", folder)
    ask = f"whittle uninstall --cluster {CLUSTER} --yes"
    took = until("nothing is left", 600, lambda: "nothing is left" in shell(ask, folder, code=None)[0])
    print(f"{took:7.1f} s  {ask}, until nothing is left", flush=True)
    timed("sam delete --stack-name whittle --no-prompts", folder)
    timed(f"whittle cluster remove {CLUSTER} --gone --yes", folder)


def nothing_is_left():
    region = simulated()
    alive = [one for one in region["machines"] if one["state"] != "terminated"]
    claim("no machine is left", region["machines"] and not alive, alive)
    claim("no launch template and no instance profile is left", not region["launchTemplates"] and not region["instanceProfiles"], region)
    objects = names("nodes,crd,clusterrole,clusterrolebinding,validatingwebhookconfiguration,validatingadmissionpolicy,flowschema,"
                    "prioritylevelconfiguration")
    left = [name for name in objects if re.search("whittle|karpenter|^node/", name)]
    claim("no node and no object of ours is left in the cluster", objects and not left, left)
    entries = json.loads(shell(f"aws eks list-access-entries --cluster-name {CLUSTER} --output json")[0])["accessEntries"]
    claim("no access entry is left", not entries, entries)
    tags = shell("aws ec2 describe-subnets --output json; aws ec2 describe-security-groups --output json")[0]
    claim("no tag is left on subnets and security groups", "karpenter.sh/discovery" not in tags, tags)
    claim("no node role is left", "NoSuchEntity" in shell(f"aws iam get-role --role-name KarpenterNodeRole-{CLUSTER}", code=None)[0])
    claim("no stack is left", "does not exist" in shell("aws cloudformation describe-stacks --stack-name whittle", code=None)[0])


def main():
    with tempfile.TemporaryDirectory(prefix="whittle-first-pod-") as folder:
        folder = pathlib.Path(folder)
        home = folder / "home"
        (home / ".local/bin").mkdir(parents=True)
        # For SQS the command does not go by the variable.
        (home / ".local/bin/aws").write_text(f'#!/bin/sh\nexec {shutil.which("aws")} --endpoint-url "$AWS_ENDPOINT_URL" "$@"\n')
        (home / ".local/bin/aws").chmod(0o755)
        own = pathlib.Path.home()
        tools = {name: os.environ.get(name, str(own / f".{name.split('_')[0].lower()}")) for name in ("CARGO_HOME", "RUSTUP_HOME")}
        os.environ |= tools | {"HOME": str(home), "PATH": f"{home}/.local/bin:{os.environ['PATH']}", "AWS_ENDPOINT_URL": STATE["account"],
                       "AWS_DEFAULT_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "AKIARIGUSER", "AWS_SECRET_ACCESS_KEY": "testing",
                       "SAM_CLI_TELEMETRY": "0", "AWS_PAGER": "", "KUBECONFIG": str(home / "kubeconfig")}
        folder = lay_out(folder)
        shell(f"aws eks update-kubeconfig --name {CLUSTER}", folder)
        place = install(folder)
        doctor = json.loads(shell(f"whittle doctor {CLUSTER} -o json 2>/dev/null", folder, code=None)[0])
        odd = [finding for finding in doctor["findings"] if finding["status"] != "ok"]
        claim("doctor finds nothing wrong, and knows everything", doctor["findings"] and not odd, json.dumps(odd, indent=1))
        if BREAKS:
            broken.in_ten_ways(place)
        if MIGRATES:
            migration.there_and_back(place)
        remove(folder)
        nothing_is_left()
    sys.exit(f"{len(failures)} claims do not hold" if failures else None)


main()
