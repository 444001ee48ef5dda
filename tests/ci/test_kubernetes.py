from __future__ import annotations

import json
import shutil
import subprocess

import kubernetes_validate
import pytest
import yaml

from tests.ci.kustomize import KUBERNETES, build, containers, documents, pod_spec
from tests.command.running import MODULE

FOLDERS = sorted(path.parent.name for path in KUBERNETES.glob("*/kustomization.yaml"))
APPLIED = [name for name in FOLDERS if name != "common"]
# Its reports are kept on the nodes, which `restricted` forbids.
HOST_PATH = ("fleet-host-path", "node-problem-detector")
GATES = ("training-pod", "training-job", "node-admission", "fleet", "fleet-host-path")
JOBS = ("training-job", "node-admission", "fleet", "fleet-host-path")


def of_kind(folder: str, kind: str):
    (found,) = [document for document in build(KUBERNETES / folder) if document["kind"] == kind]
    return found


def gate_of(folder: str):
    """The Pod that runs preflight, and the container that is the gate in it."""
    specs = [pod_spec(document) for document in build(KUBERNETES / folder)]
    (found,) = [(s, c) for s in specs for c in containers(s) if c["name"] == "preflight"]
    return found


def volumes(spec):
    return {entry["name"]: entry for entry in spec["volumes"]}


def mounts(container):
    return {entry["mountPath"]: entry["name"] for entry in container["volumeMounts"]}


def strictly_valid(document) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_what_is_shipped():
    assert sorted({*GATES, *HOST_PATH}) == APPLIED
    kinds = [d["kind"] for name in APPLIED for d in build(KUBERNETES / name)]
    assert {"Pod", "Job", "DaemonSet", "ConfigMap"} <= set(kinds)


def test_readme_names_every_folder():
    text = (KUBERNETES / "README.md").read_text("utf-8")
    assert [p.name for p in KUBERNETES.iterdir() if p.is_dir() and f"`{p.name}/`" not in text] == []


@pytest.mark.parametrize("folder", APPLIED)
def test_every_document_is_strictly_valid(folder):
    for document in build(KUBERNETES / folder):
        strictly_valid(document)


def test_a_misspelt_field_is_not_valid():
    pod = of_kind("training-pod", "Pod")
    pod["spec"]["initContainers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        strictly_valid(pod)


@pytest.mark.parametrize("folder", APPLIED)
def test_kustomize_itself_builds_the_same(folder):
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here: only the minimal reading of the kustomizations was tested")
    done = subprocess.run(
        ["kubectl", "kustomize", KUBERNETES / folder], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    theirs = [document for document in yaml.safe_load_all(done.stdout) if document]
    ours = build(KUBERNETES / folder)
    for document in ours:  # kustomize gives none to what belongs to no namespace
        if document["kind"] in ("Namespace", "ClusterRoleBinding"):
            document["metadata"].pop("namespace", None)
    assert sorted(map(canonical, theirs)) == sorted(map(canonical, ours))


def canonical(document) -> str:
    """One text for one meaning: volumes have no order."""
    spec = pod_spec(document)
    if spec:
        spec["volumes"].sort(key=lambda entry: entry["name"])
    return json.dumps(document, sort_keys=True)


def test_the_images_are_named_in_one_place():
    (common,) = documents(KUBERNETES / "common" / "kustomization.yaml")
    named = {f"{image['name']}:{image['newTag']}" for image in common["images"]}
    used = {c["image"] for name in GATES for c in containers(gate_of(name)[0])}
    assert used == named


@pytest.mark.parametrize("folder", [name for name in APPLIED if name not in HOST_PATH])
def test_restricted_pod_security(folder):
    spec, _ = gate_of(folder)
    assert_restricted(spec)


def assert_restricted(spec, allowed=()):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards, and more."""
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(spec)
    pod = spec["securityContext"]
    assert pod["runAsNonRoot"] is True and pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"sysctls", "seLinuxOptions", "appArmorProfile", "windowsOptions"} & set(pod)
    kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", *allowed}
    for container in containers(spec):
        own = container["securityContext"]
        assert own == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert all("hostPort" not in port for port in container.get("ports", ()))
    assert spec["automountServiceAccountToken"] is False


def test_keeping_reports_on_the_node_takes_a_host_path_and_nothing_else():
    spec, _ = gate_of("fleet-host-path")
    assert_restricted(spec, allowed=("hostPath",))
    volume = volumes(spec)["reports"]
    assert volume == {
        "name": "reports",
        "hostPath": {"path": "/var/lib/preflight", "type": "Directory"},
    }


@pytest.mark.parametrize("folder", GATES)
def test_the_gate_gets_what_the_training_gets(folder):
    spec, gate = gate_of(folder)
    assert gate["resources"]["requests"] == gate["resources"]["limits"]
    assert set(gate["resources"]["limits"]) == {"cpu", "memory", "nvidia.com/gpu"}
    for container in containers(spec):
        assert container["resources"] == gate["resources"]
        for path in ("/dev/shm", "/tmp"):
            assert mounts(container)[path] == mounts(gate)[path]
    for volume in [v for v in spec["volumes"] if v["name"] == "shm"]:
        assert volume["emptyDir"]["medium"] == "Memory"
        assert gib(volume["emptyDir"]["sizeLimit"]) < gib(gate["resources"]["limits"]["memory"])


def gib(quantity: str) -> int:
    assert quantity.endswith("Gi")
    return int(quantity[:-2])


@pytest.mark.parametrize("folder", GATES)
def test_everything_a_gate_writes_or_reads_is_mounted(folder):
    spec, gate = gate_of(folder)
    for container in containers(spec):
        assert set(mounts(container).values()) <= set(volumes(spec))
    options = dict(entry.partition("=")[::2] for entry in gate["args"][1:])
    given = {entry["name"]: entry for entry in gate["env"]}
    wanted = ["/dev/shm", "/tmp", options["--thresholds"], given["PREFLIGHT_REPORT_DIR"]["value"]]
    wanted += [options["--data"]] if "--data" in options else []
    for path in wanted:
        assert any(path == at or path.startswith(f"{at}/") for at in mounts(gate)), path
    config = volumes(spec)[mounts(gate)["/etc/preflight"]]["configMap"]["name"]
    made = [d for d in build(KUBERNETES / folder) if d["kind"] == "ConfigMap"]
    assert [d["metadata"]["name"] for d in made] == [config]
    assert options["--thresholds"] == f"/etc/preflight/{next(iter(made[0]['data']))}"


@pytest.mark.parametrize("folder", GATES)
def test_the_gate_knows_its_node_and_its_request(folder):
    spec, gate = gate_of(folder)
    given = {entry["name"]: entry.get("valueFrom") for entry in gate["env"]}
    assert given["NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert given["PREFLIGHT_CPU_REQUEST"] == {
        "resourceFieldRef": {"containerName": "preflight", "resource": "requests.cpu"}
    }
    assert spec["enableServiceLinks"] is False, "a service called preflight sets PREFLIGHT_PORT"


def test_the_report_outlives_the_pod_under_its_name():
    spec, gate = gate_of("training-pod")
    names = [entry["name"] for entry in gate["env"]]
    where = {entry["name"]: entry.get("value") for entry in gate["env"]}["PREFLIGHT_REPORT_DIR"]
    assert where == "/output/preflight/$(POD_NAME)"
    # Only what stands above it is expanded.
    assert names.index("POD_NAME") < names.index("PREFLIGHT_REPORT_DIR")
    assert "persistentVolumeClaim" in volumes(spec)[mounts(gate)["/output"]]


@pytest.mark.parametrize("folder", GATES)
def test_a_gate_ends_before_its_pod_and_the_pod_before_its_job(folder):
    spec, gate = gate_of(folder)
    options = dict(entry.partition("=")[::2] for entry in gate["args"][1:])
    minutes = [int(options.get(name, "0m")[:-1]) for name in ("--deadline", "--stagger")]
    assert 0 < sum(minutes) * 60 + 120 < spec["activeDeadlineSeconds"]
    assert spec["restartPolicy"] == "Never"
    if folder in JOBS and folder != "training-job":
        job = of_kind(folder, "Job")["spec"]
        assert job["activeDeadlineSeconds"] >= 2 * spec["activeDeadlineSeconds"]


@pytest.mark.parametrize("folder", JOBS)
def test_exit_codes_mean_what_they_mean(folder):
    rules = of_kind(folder, "Job")["spec"]["podFailurePolicy"]["rules"]
    by_code = {}
    for rule in rules:
        codes = rule["onExitCodes"]
        assert (codes["containerName"], codes["operator"]) == ("preflight", "In")
        by_code |= dict.fromkeys(codes["values"], rule["action"])
    fleet = folder.startswith("fleet")
    assert by_code == {
        1: "FailIndex" if fleet else "FailJob", 2: "FailJob",
        3: "Count", 130: "Ignore", 143: "Ignore",
    }  # fmt: skip


def test_pod_and_job_train_alike():
    pod, job = of_kind("training-pod", "Pod"), of_kind("training-job", "Job")
    assert pod["spec"] == job["spec"]["template"]["spec"]


def test_admission_and_fleet_ask_for_every_gpu_they_count():
    for folder in ("node-admission", "fleet"):
        _, gate = gate_of(folder)
        (count,) = [a for a in gate["args"] if a.startswith("--set=gpus.min_count=")]
        assert count.rpartition("=")[2] == gate["resources"]["limits"]["nvidia.com/gpu"]
        assert "--exit-on=node" in gate["args"] and "--format=junit" in gate["args"]
    assert "--allow-undecided" not in gate["args"]


def test_training_is_not_held_up_by_what_could_not_be_measured():
    _, gate = gate_of("training-pod")
    assert "--allow-undecided" in gate["args"]
    assert not [a for a in gate["args"] if a.startswith("--exit-on")]


def test_who_may_be_measured_again():
    (rule,) = documents(KUBERNETES / "node-readiness" / "rule.yaml")
    for folder in ("node-admission", "fleet"):
        tolerated = {entry["key"] for entry in gate_of(folder)[0]["tolerations"]}
        assert tolerated == {"nvidia.com/gpu", "preflight/unchecked", rule["spec"]["taint"]["key"]}
    trains = {entry["key"] for entry in gate_of("training-pod")[0]["tolerations"]}
    assert trains == {"nvidia.com/gpu"}


def test_the_fleet_is_bounded_and_spread():
    job = of_kind("fleet", "Job")["spec"]
    assert job["completionMode"] == "Indexed" and job["parallelism"] == 8
    assert job["template"]["spec"]["schedulingGates"] == [{"name": "preflight/node"}]
    assert "--stagger=2m" in gate_of("fleet")[1]["args"]


@pytest.mark.parametrize("folder", ["training-pod", "node-admission", "fleet"])
def test_the_options_exist_and_the_thresholds_are_valid(folder, tmp_path):
    _, gate = gate_of(folder)
    (config,) = [d for d in build(KUBERNETES / folder) if d["kind"] == "ConfigMap"]
    ((name, text),) = config["data"].items()
    (tmp_path / name).write_text(text)
    arguments = [a.replace("/etc/preflight", str(tmp_path)) for a in gate["args"]]
    # Nothing is measured: all options are read, then this one is refused.
    ran = subprocess.run(
        [*MODULE, *arguments, "--stagger=never"], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 2 and "'never'" in ran.stderr, ran.stderr
    valid = subprocess.run(
        [*MODULE, "thresholds", "validate", str(tmp_path / name)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert valid.returncode == 0, valid.stdout + valid.stderr


def test_the_readiness_rule_is_one_the_controller_takes():
    """Field by field after its CRD, v0.5.0: readiness.node.x-k8s.io_nodereadinessrules.yaml."""
    (rule,) = documents(KUBERNETES / "node-readiness" / "rule.yaml")
    assert rule["apiVersion"] == "readiness.node.x-k8s.io/v1alpha1"
    assert rule["kind"] == "NodeReadinessRule" and set(rule["metadata"]) == {"name"}
    spec = rule["spec"]
    assert set(spec) == {
        "nodeSelector",
        "enforcementMode",
        "conditionPolicy",
        "conditions",
        "taint",
    }
    # bootstrap-only takes neither anyOf nor defaultStatus.
    assert (spec["enforcementMode"], spec["conditionPolicy"]) == ("continuous", "anyOf")
    assert spec["taint"] == {"key": "readiness.k8s.io/preflight", "effect": "NoSchedule"}
    required = {entry["type"]: entry["requiredStatus"] for entry in spec["conditions"]}
    assert required == {"PreflightFailed": "False", "PreflightNoResult": "True"}
    assert {"True", "False", "Unknown"} >= {*required.values()}
    config = json.loads((KUBERNETES / "node-problem-detector" / "preflight.json").read_text())
    assert {entry["type"] for entry in config["conditions"]} == set(required)
