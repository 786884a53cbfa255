"""An empty account for the tests of `whittle cluster` and `whittle doctor`: moto's server, with what it lacks of EKS (access entries,
a cluster that is reached at a given address, and no add-ons).

    account.py PORT [STATE]     STATE is a JSON file {"cluster name": {"endpoint": …, "certificate": …, "mode": …}} that is read at each call
"""

import json
import re
import sys
from urllib.parse import unquote

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

ENTRIES = re.compile(r"^/clusters/([^/]+)/access-entries(?:/(.+))?$")
ADDON = re.compile(r"^/clusters/([^/]+)/addons/([^/]+)$")
CLUSTER = re.compile(r"^/clusters/([^/]+)$")


class Account:
    def __init__(self, inner, state):
        self.inner, self.state, self.entries = inner, state, {}

    def __call__(self, environ, start):
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if found := ENTRIES.match(path):
            return self.entry(environ, start, method, found[1], unquote(found[2] or ""))
        if (found := CLUSTER.match(path)) and method == "GET":
            return self.cluster(environ, start, found[1])
        if ADDON.match(path):
            start("404 Not Found", [("Content-Type", "application/json"), ("x-amzn-ErrorType", "ResourceNotFoundException")])
            return [b'{"message": "No addon of this name was found in the cluster."}']
        if path.rstrip("/") == "/2016-08-19/account-settings":
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps({"AccountLimit": {"ConcurrentExecutions": 1000}}).encode()]
        # Queues that a stack makes are elsewhere for moto.
        here = f"http://{environ['HTTP_HOST']}/".encode()
        return self.answered(environ, start, lambda body: re.sub(rb"https://sqs\.[a-z0-9-]+\.amazonaws\.com/", here, body))

    def answered(self, environ, start, change):
        """moto's answer, changed."""
        kept = []
        body = b"".join(self.inner(environ, lambda status, headers, *_: kept.extend([status, headers])))
        if kept[0].startswith("200"):
            body = change(body)
            kept[1] = [(key, value) for key, value in kept[1] if key.lower() != "content-length"] + [("Content-Length", str(len(body)))]
        start(kept[0], kept[1])
        return [body]

    def cluster(self, environ, start, name):
        """moto's answer, with the address of a real API server."""
        def change(body):
            answer, real = json.loads(body), json.load(open(self.state)).get(name, {})
            cluster = answer["cluster"]
            cluster["endpoint"] = real.get("endpoint", cluster["endpoint"])
            cluster["certificateAuthority"] = {"data": real.get("certificate", "")}
            cluster["accessConfig"] = {"authenticationMode": real.get("mode", "API")}
            cluster["version"] = real.get("version", "1.34")
            cluster["resourcesVpcConfig"] |= real.get("network", {})
            return json.dumps(answer).encode()

        return self.answered(environ, start, change)

    def entry(self, environ, start, method, cluster, arn):
        sent = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        sent = json.loads(sent) if sent else {}
        arn = arn or sent.get("principalArn", "")
        key, status, answer, fault = (cluster, arn), "200 OK", {}, ""
        if json.load(open(self.state)).get(cluster, {}).get("mode") == "CONFIG_MAP":
            status, fault = "400 Bad Request", "InvalidRequestException"
            answer = {"message": "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation."}
        elif method == "GET" and not arn:
            answer = {"accessEntries": [of for (name, of) in self.entries if name == cluster]}
        elif method == "POST" and key not in self.entries and "principalArn" in sent:
            fields = ("kubernetesGroups", "tags", "username")
            self.entries[key] = {"clusterName": cluster, "principalArn": arn, "type": sent.get("type", "STANDARD")}
            self.entries[key] |= {field: sent[field] for field in fields if field in sent}
            answer = {"accessEntry": self.entries[key]}
        elif key not in self.entries:
            status, fault = "404 Not Found", "ResourceNotFoundException"
            answer = {"message": f"The specified principalArn could not be found: {arn}"}
        elif method == "POST" and "principalArn" in sent:
            status, fault = "409 Conflict", "ResourceInUseException"
            answer = {"message": "The specified access entry resource is already in use on this cluster."}
        elif method == "DELETE":
            del self.entries[key]
        else:
            self.entries[key] |= sent if method == "POST" else {}
            answer = {"accessEntry": self.entries[key]}
        headers = [("Content-Type", "application/json")] + ([("x-amzn-ErrorType", fault)] if fault else [])
        start(status, headers)
        return [json.dumps(answer).encode()]


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), Account(DomainDispatcherApplication(create_backend_app), sys.argv[2]), threaded=True)
