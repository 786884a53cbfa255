"""Hands everything over to Karpenter and adopts it again, by the commands of docs/guide/migrate-from-karpenter.md as they are printed there.

Karpenter is played: a Deployment with its label, and its Lease, renewed while that has replicas and released when it has none. Its machines are
those that were handed over.
"""

import contextlib
import datetime
import json
import pathlib
import re
import threading

from session import CLUSTER, adapted, blocks, claim, machines, objects, shell, timed, until

PAGE = pathlib.Path("docs/guide/migrate-from-karpenter.md").resolve()
MANAGED = "whittle.dev/managed"
KARPENTER = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: karpenter, namespace: kube-system, labels: {app.kubernetes.io/name: karpenter}}
spec:
  replicas: 0
  selector: {matchLabels: {app: karpenter}}
  template:
    metadata: {labels: {app: karpenter}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: controller, image: karpenter}]
"""
LEASE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{name: karpenter-leader-election, namespace: kube-system}}
spec: {{holderIdentity: "{holder}", leaseDurationSeconds: 15, renewTime: "{now}", acquireTime: "{now}", leaseTransitions: 1}}
"""


@contextlib.contextmanager
def karpenter():
    """What there is of Karpenter while its Deployment has replicas."""
    shell(f"kubectl apply -f - <<'END'\n{KARPENTER}\nEND")
    stopped = threading.Event()

    def renew():
        while not stopped.wait(3):
            deployment, _ = shell("kubectl -n kube-system get deployment karpenter -o jsonpath={.spec.replicas}", code=None)
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            lease = LEASE.format(holder="karpenter-1" if deployment.strip() not in ("", "0") else "", now=now)
            shell(f"kubectl apply -f - <<'END'\n{lease}\nEND", code=None)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        shell("kubectl -n kube-system delete deployment/karpenter lease/karpenter-leader-election --ignore-not-found")


def seen():
    """What no migration may change: machines, Nodes and NodeClaims, and pods with their nodes."""
    pods = {(pod["metadata"]["uid"], pod["spec"].get("nodeName")) for pod in objects("pods") if pod["metadata"]["namespace"] == "default"}
    named = {kind: {(one["metadata"]["name"], one["metadata"]["uid"]) for one in objects(kind)} for kind in ("nodes", "nodeclaims")}
    return {"machines": machines(), "pods": pods, **named}


def managed():
    """What each NodeClaim says of whose it is."""
    return [one["metadata"].get("annotations", {}).get(MANAGED) for one in objects("nodeclaims")]


def hand_over(folder, before):
    """Section "Back to Karpenter", but for the removal of what `cluster add` made."""
    annotate, show, do, scale = blocks(PAGE, "Back to Karpenter")[0]
    timed(annotate, folder)
    told = timed(show, folder, code=None)
    claim("the dry run says of each machine that it is left to Karpenter", told.count("to Karpenter, its instance keeps running")
          == len(before["nodeclaims"]), told)
    ask = do.split("#")[0].strip()
    took = until("nothing is left to hand over", 400, lambda: "nothing is left" in shell(ask, folder, None)[0])
    print(f"{took:7.1f} s  {ask}, until nothing is left", flush=True)
    timed(scale, folder)
    claim("Karpenter gets every machine, Node, NodeClaim and pod as it was", seen() == before, f"{before}\n{seen()}")
    left = shell("kubectl get nodes,nodeclaims -o json | grep -c -E 'whittle.dev/(managed|termination)'", code=None)[0].strip()
    claim("and no mark of ours on them", left == "0", left)


def look(folder):
    """Section 1, which only reads."""
    shell("kubectl config rename-context $(kubectl config current-context) prod")
    texts = [timed(line.split("#")[0].strip(), folder, code=None) for line in blocks(PAGE, "1. See what would change")[0]]
    claim("check, consolidate and compare have something to say of this cluster", all("error" not in text for text in texts)
          and "/h" in texts[1] and "/h" in texts[2], "\n".join(texts))


def beside(folder):
    """Sections 2 and 3: as a shadow, then active, while Karpenter runs."""
    _, deploy, add = blocks(PAGE, "2. Deploy beside Karpenter, as a shadow")[0]
    timed(deploy, folder, adapted(deploy))
    told = timed(add, folder, adapted(add), code=None)
    ends = re.findall(r"aws dynamodb delete-item .*", told)
    claim("cluster add says what ends the uninstallation, as the page promises", len(ends) == 1, told)
    timed("what it says", folder, ends[0])
    timed(add, folder, adapted(add))
    status = timed(blocks(PAGE, "2. Deploy beside Karpenter, as a shadow")[1][0], folder, code=None)
    claim("status says that it is a shadow", status.splitlines()[0].startswith("deployment whittle: shadow, "), status)
    deploy, doctor = blocks(PAGE, "3. Activate it, while Karpenter still runs")[0]
    timed(deploy, folder, adapted(deploy))
    until("doctor's only problem is Karpenter", 120, lambda: problems(doctor, folder) == ["Karpenter"])
    claim("doctor's only problem is that Karpenter runs", True)


def problems(doctor, folder):
    report = json.loads(shell(f"{doctor} -o json 2>/dev/null", folder, None)[0])
    return [finding["check"] for finding in report["findings"] if finding["status"] == "problem"]


def adopt(folder):
    """Sections 4 and 5."""
    timed(blocks(PAGE, "4. Stop Karpenter")[0][0], folder)
    annotate, columns = (block[0] for block in blocks(PAGE, "5. Adopt Karpenter's machines"))
    claim("no machine is adopted before it is asked for", not any(managed()), managed())
    timed(annotate, folder)
    took = until("every machine is adopted", 400, lambda: managed() and all(value == "true" for value in managed()))
    print(f"{took:7.1f} s  until every machine is adopted", flush=True)
    told = timed(columns, folder)
    claim("the printed columns say so", told.count("true") == len(managed()), told)


def there_and_back(folder):
    before = seen()
    with karpenter():
        hand_over(folder, before)
        look(folder)
        beside(folder)
        claim("nothing was changed while Karpenter ran", seen() == before and not any(managed()), f"{before}\n{seen()}\n{managed()}")
        adopt(folder)
        claim("adoption replaced no machine, Node, NodeClaim or pod", seen() == before, f"{before}\n{seen()}")
    shell("kubectl scale deployment web --replicas=24")
    took = until("Whittle launches for pods again", 200, lambda: " 24/24 " in shell("kubectl get deployment web --no-headers")[0])
    print(f"{took:7.1f} s  until 21 more pods run", flush=True)
    claim("the adopted machines serve on", before["machines"] < machines(), machines())
