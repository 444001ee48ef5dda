"""A minimal reading of the kustomizations shipped here, for machines without kubectl.

It knows only the keys that ci/kubernetes uses and refuses any other. What kustomize itself makes of
them is tested where kubectl is installed.
"""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).parents[2] / "ci" / "kubernetes"
_KEYS = {
    "apiVersion", "kind", "namespace", "resources", "components", "images", "configMapGenerator",
    "generatorOptions", "patches",
}  # fmt: skip


def documents(file: Path) -> list[dict[str, Any]]:
    """Every document of a YAML file."""
    return [entry for entry in yaml.safe_load_all(file.read_text("utf-8")) if entry]


def build(folder: Path) -> list[dict[str, Any]]:
    """The documents that a folder's kustomization names, merged as it says."""
    (plan,) = documents(folder / "kustomization.yaml")
    assert set(plan) <= _KEYS, set(plan) - _KEYS
    built: list[dict[str, Any]] = []
    for name in plan.get("resources", ()):
        source = folder / name
        built += build(source) if source.is_dir() else documents(source)
    _transform(built, plan, folder)
    for name in plan.get("components", ()):
        (component,) = documents(folder / name / "kustomization.yaml")
        assert component["kind"] == "Component" and set(component) <= _KEYS
        _transform(built, component, folder / name)
    return built


def name_images(common: Path, *images: str) -> None:
    """Change the images' names in a copy of common/kustomization.yaml: ours, then training's."""
    text = common.read_text("utf-8")
    (was,) = documents(common)
    for entry, image in zip(was["images"], images, strict=True):
        old_name, old_tag = re.escape(entry["newName"]), re.escape(entry["newTag"])
        name, _, tag = image.rpartition(":")
        text, count = re.subn(
            rf'newName: {old_name}\n    newTag: "?{old_tag}"?\n',
            f'newName: {name}\n    newTag: "{tag}"\n', text,
        )  # fmt: skip
        assert count == 1
    common.write_text(text, "utf-8")


def _transform(built: list[dict[str, Any]], plan: dict[str, Any], folder: Path) -> None:
    for generator in plan.get("configMapGenerator", ()):
        assert plan["generatorOptions"] == {"disableNameSuffixHash": True}
        data = {name: (folder / name).read_text("utf-8") for name in generator["files"]}
        metadata = {"name": generator["name"]}
        built.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    for patch in plan.get("patches", ()):
        (change,) = documents(folder / patch["path"])
        (target,) = [d for d in built if _identity(d) == _identity(change)]
        _merge(target, change)
    for image in plan.get("images", ()):
        for container in [c for d in built for c in containers(pod_spec(d))]:
            if container["image"].rpartition(":")[0] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    if "namespace" in plan:
        for document in built:
            document["metadata"]["namespace"] = plan["namespace"]


def _identity(document: dict[str, Any]) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def _merge(target: dict[str, Any], change: dict[str, Any]) -> None:
    """A strategic merge: mappings merge, lists of named things merge by name, null removes."""
    for key, value in change.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        elif isinstance(value, list) and key in target:
            for entry in value:
                (same,) = [old for old in target[key] if old["name"] == entry["name"]]
                _merge(same, entry)
        else:
            target[key] = deepcopy(value)


def pod_spec(document: dict[str, Any]) -> dict[str, Any] | None:
    """The Pod's own spec in a Pod or in what makes Pods; None for anything else."""
    if document["kind"] == "Pod":
        return dict(document["spec"])
    template = document.get("spec", {}).get("template")
    return dict(template["spec"]) if template else None


def containers(spec: dict[str, Any] | None) -> list[dict[str, Any]]:
    """All containers of a Pod, init containers first."""
    return [*spec.get("initContainers", ()), *spec["containers"]] if spec else []
