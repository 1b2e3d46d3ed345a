"""The files that describe clusters: valid, and what they start is a command line of ours."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from headwise.cli import parse

CLUSTERS = Path(__file__).resolve().parents[3] / "docs" / "clusters"


def documents(name: str) -> dict[str, Any]:
    """Those of a file, by their kinds."""
    import yaml

    return {one["kind"]: one for one in yaml.safe_load_all((CLUSTERS / name).read_text(encoding="utf-8"))}


def test_rays_own_schema_takes_the_cluster() -> None:
    pytest.importorskip("ray")
    import yaml
    from ray.autoscaler._private.util import prepare_config, validate_config

    text = (CLUSTERS / "ray.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    validate_config(prepare_config(found))
    assert {found["head_node_type"], "worker"} == {*found["available_node_types"]}
    (command,) = re.findall(r'"headwise (.+?)"', text)
    assert parse(shlex.split(command)).ray == "auto"


def test_servers_on_kubernetes() -> None:
    found = documents("kubernetes.yaml")
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    options = parse(["serve", "/model", "--host", "0.0.0.0", *container["args"]])  # behind the image's own words
    assert options.languages == [("en", "de")] and options.port == container["ports"][0]["containerPort"]
    assert found["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    for probe in ("readinessProbe", "livenessProbe"):
        (header,) = container[probe]["httpGet"]["httpHeaders"]
        assert header["name"] == "Host" and header["value"] in options.hosts
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["spec"]["volumes"]}
    assert pod["spec"]["terminationGracePeriodSeconds"] > options.drain


def test_replicas_on_kubernetes() -> None:
    found = documents("kuberay.yaml")
    spec = found["RayJob"]["spec"]
    options = parse(shlex.split(spec["entrypoint"])[1:])
    head = spec["rayClusterSpec"]["headGroupSpec"]["template"]
    assert (options.ray, options.replicas, options.host) == ("auto", 4, "0.0.0.0")
    assert options.port == head["spec"]["containers"][0]["ports"][0]["containerPort"]
    assert found["Service"]["spec"]["selector"].items() <= head["metadata"]["labels"].items()
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
