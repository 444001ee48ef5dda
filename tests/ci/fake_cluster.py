"""An API server of a page for the real kubectl: Pods and Jobs, and a controller that runs them.

It knows what ci/kubernetes' scripts ask of a cluster and answers anything else with 404.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_RESOURCES = {
    "/api/v1": [("pods", "Pod"), ("configmaps", "ConfigMap"), ("nodes", "Node")],
    "/apis/batch/v1": [("jobs", "Job")],
}


JUNIT = "<?xml version='1.0' encoding='utf-8'?>\n<testsuites>\n</testsuites>\n"
LOG = f"reports are lost: /reports: Permission denied\n{JUNIT}a last note\n"


class Cluster:
    """Nodes by name, each with the exit code that preflight ends with there; None: it hangs."""

    def __init__(self, nodes: dict[str, int | None], log: str = LOG) -> None:
        self.nodes, self.log = nodes, log
        self.objects: dict[str, dict[str, Any]] = {
            f"/api/v1/nodes/{name}": {
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "spec": {"taints": [{"key": "preflight/unchecked", "effect": "NoSchedule"}]},
            }
            for name in nodes
        }  # fmt: skip
        self.at_once: list[int] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def kind(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind."""
        return [each for each in self.objects.values() if each["kind"] == kind]

    def taints(self, node: str) -> list[str]:
        spec = self.objects[f"/api/v1/nodes/{node}"]["spec"]
        return [taint["key"] for taint in spec.get("taints") or ()]

    def measured(self) -> list[str]:
        return sorted(pod["spec"]["nodeName"] for pod in self.kind("Pod"))

    def work(self) -> None:
        """What the controller, the scheduler and the kubelets do between two requests."""
        jobs = [(p, o) for p, o in self.objects.items() if o["kind"] == "Job"]
        for path, job in [(p, job) for p, job in jobs if "status" not in job]:
            spec, name = job["spec"], job["metadata"]["name"]
            pods = [p for p in self.kind("Pod") if p["metadata"]["name"].startswith(f"{name}-")]
            gated = [p for p in pods if p["spec"].get("schedulingGates")]
            self.at_once.append(len(gated))
            for pod in pods:
                if pod not in gated and "status" not in pod:
                    self._run(pod)
            wanted = spec.get("completions", 1)
            while len(pods) < wanted and len(gated) < spec.get("parallelism", 1):
                pods.append(self._make(job, path, len(pods)))
                gated.append(pods[-1])
            codes = [_code(pod) for pod in pods if "status" in pod]
            if len(codes) == wanted:
                ended = "Failed" if any(codes) else "Complete"
                job["status"] = {"conditions": [{"type": ended, "status": "True"}]}
            if None in (self.nodes[p["spec"]["nodeName"]] for p in pods if "status" in p):
                # The Job's deadline: its Pods are deleted.
                job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
                self.objects = {p: o for p, o in self.objects.items() if o["kind"] != "Pod"}

    def _make(self, job: dict[str, Any], path: str, index: int) -> dict[str, Any]:
        name = f"{job['metadata']['name']}-{index}"
        pod = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name,
                "creationTimestamp": f"2026-12-01T00:00:{index:02}Z",
                "labels": {
                    "batch.kubernetes.io/job-name": job["metadata"]["name"],
                    "batch.kubernetes.io/job-completion-index": str(index),
                },
            },
            "spec": json.loads(json.dumps(job["spec"]["template"]["spec"])),
        }  # fmt: skip
        folder = path.replace("/apis/batch/v1", "/api/v1").rpartition("/jobs/")[0]
        self.objects[f"{folder}/pods/{name}"] = pod
        return pod

    def _run(self, pod: dict[str, Any]) -> None:
        required = pod["spec"]["affinity"]["nodeAffinity"]
        (term,) = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        (field,) = term["matchFields"]
        assert (field["key"], field["operator"]) == ("metadata.name", "In")
        (node,) = field["values"]
        pod["spec"]["nodeName"] = node
        code = self.nodes[node]
        ended = {"exitCode": code, "message": f"{'FAIL' if code else 'PASS'} node {node}"}
        state = {"name": "preflight", "state": {"terminated": ended}}
        pod["status"] = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [state]}


def _openapi(place: str) -> dict[str, Any]:
    """As much as kubectl apply wants to know: the server itself validates what it is sent."""
    group = place.split("/")[2] if place.startswith("/apis/") else ""
    validates = [{"name": "fieldValidation", "in": "query"}]
    paths = {
        f"{place}/namespaces/{{namespace}}/{name}/{{name}}": {
            "patch": {
                "parameters": validates, "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {"group": group, "version": "v1", "kind": kind},
            }
        }
        for name, kind in _RESOURCES[place]
    }  # fmt: skip
    return {"openapi": "3.0.0", "info": {"title": "", "version": ""}, "paths": paths}


def _code(pod: dict[str, Any]) -> int | None:
    code: int | None = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    return code


def _handler(cluster: Cluster) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _say(self, code: int, answer: Any) -> None:
            body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _missing(self) -> None:
            self._say(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                            "reason": "NotFound", "code": 404, "message": self.path})  # fmt: skip

        def _body(self) -> Any:
            return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

        def do_GET(self) -> None:
            with lock:
                cluster.work()
                self._get(urlsplit(self.path).path)

        def _get(self, path: str) -> None:
            if path in _RESOURCES:
                names = [
                    {"name": name, "kind": kind, "namespaced": kind != "Node", "singularName": "",
                     "verbs": ["get", "list", "create", "patch", "delete"]}
                    for name, kind in _RESOURCES[path]
                ]  # fmt: skip
                version = path.partition("s/")[2] or "v1"
                self._say(200, {"kind": "APIResourceList", "groupVersion": version,
                                "resources": names})  # fmt: skip
            elif path == "/api":
                self._say(200, {"kind": "APIVersions", "versions": ["v1"]})
            elif path == "/apis":
                version = {"groupVersion": "batch/v1", "version": "v1"}
                group = {"name": "batch", "versions": [version], "preferredVersion": version}
                self._say(200, {"kind": "APIGroupList", "groups": [group]})
            elif path == "/openapi/v3":
                places = {p[1:]: {"serverRelativeURL": f"/openapi/v3{p}"} for p in _RESOURCES}
                self._say(200, {"paths": places})
            elif path.startswith("/openapi/v3/"):
                self._say(200, _openapi(path.removeprefix("/openapi/v3")))
            elif path.endswith("/log"):
                self._say(200, cluster.log)
            elif path in cluster.objects:
                self._say(200, cluster.objects[path])
            elif path.rpartition("/")[2] in ("pods", "nodes"):
                found = [o for p, o in cluster.objects.items() if p.rpartition("/")[0] == path]
                wanted = parse_qs(urlsplit(self.path).query).get("labelSelector", [""])[0]
                label, _, value = wanted.partition("=")
                found = [o for o in found
                         if not label or o["metadata"]["labels"].get(label) == value]  # fmt: skip
                self._say(200, {"kind": "List", "apiVersion": "v1", "items": found})
            else:
                self._missing()

        def do_POST(self) -> None:
            with lock:
                made = self._body()
                path = f"{urlsplit(self.path).path}/{made['metadata']['name']}"
                cluster.objects[path] = made
                self._say(201, made)

        def do_PATCH(self) -> None:
            with lock:
                path, change = urlsplit(self.path).path, self._body()
                target = cluster.objects[path]
                if isinstance(change, list):
                    for step in change:
                        name = step["path"].removeprefix("/spec/")
                        assert "/" not in name
                        if step["op"] == "remove":
                            del target["spec"][name]
                        else:
                            target["spec"][name] = step["value"]
                else:
                    target["spec"] |= change.get("spec") or {}
                self._say(200, target)

        def do_DELETE(self) -> None:
            with lock:
                found = cluster.objects.pop(urlsplit(self.path).path, None)
                if found is None:
                    self._missing()
                else:
                    self._say(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    return Handler
