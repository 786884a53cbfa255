"""What the scripts that follow pages of the documentation share: their rig, the reader's shell, and claims."""

import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

STATE = json.loads(pathlib.Path(sys.argv[1]).read_text())
CLUSTER = STATE["cluster"]
# The emulator gives functions the account's number as their access key.
ACCOUNT = "000000000000"
FROM = pathlib.Path(sys.argv[2]).resolve()
failures = []


def claim(what, holds, told=""):
    print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        failures.append(what)
        print(told)


def shell(line, folder=".", code=0):
    """Runs a line as it is; its output, and the seconds that it took."""
    begun = time.monotonic()
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    took = time.monotonic() - begun
    if code is not None and done.returncode != code:
        sys.exit(f"{line}\nended with {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr, took


def timed(line, folder, asked=None, code=0):
    """Runs a line of a page, as `asked` if the reader has to change it, and says how long it took; its output."""
    text, took = shell(asked or line, folder, code)
    print(f"{took:7.1f} s  {line}", flush=True)
    return text


def blocks(page, heading):
    """The commands of the blocks below a heading, a list for each block."""
    below = page.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [block.replace("\\\n", " ").strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", below, re.S)]


def adapted(line):
    """The line with what is the reader's."""
    words = line.split("#")[0].rstrip()
    theirs = f"Clusters={CLUSTER} TestEndpoint={STATE['fakeAws']}"
    if not is_release():
        # A release has a folder for each architecture.
        theirs += " Architecture=x86_64"
        words += " --parameter-overrides Architecture=x86_64" if words == "sam build" else ""
    words = words.replace("arm64", "x86_64").replace("Clusters=shop", theirs)
    return words + (" --yes" if words.startswith("whittle cluster add") else "")


def is_release():
    return not (FROM / ".git").exists()


def until(what, seconds, condition):
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if condition():
            return time.monotonic() - begun
        time.sleep(0.2)
    seen, _ = shell("kubectl get pods,nodes,nodeclaims,nodepools,ec2nodeclasses -o wide; kubectl describe nodepools; kubectl get events -A", ".", None)
    sys.exit(f"not within {seconds} s: {what}\n{seen}")


def names(kinds):
    return shell(f"kubectl get {kinds} -A -o name --ignore-not-found")[0].split()


def objects(kind):
    return json.loads(shell(f"kubectl get {kind} -A -o json")[0])["items"]


def simulated():
    return json.load(urllib.request.urlopen(f"{STATE['fakeAws']}/_control"))


def control(change):
    """Changes the simulated AWS, as its owner."""
    request = urllib.request.Request(f"{STATE['fakeAws']}/_control", json.dumps(change).encode(), method="POST")
    urllib.request.urlopen(request).read()


def machines():
    """The ids of the instances that are not terminated."""
    return {one["id"] for one in simulated()["machines"] if one["state"] != "terminated"}
