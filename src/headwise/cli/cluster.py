"""`--ray`: the lines of a command's models are distributed over the processes of a Ray cluster."""

import argparse
import sys
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.serve.cluster.actors import ClusterExecutor
from headwise.serve.cluster.connection import live_nodes, ray_connection, this_node
from headwise.serve.cluster.folders import cluster_folder
from headwise.serve.cluster.shards import ResultShards
from headwise.serve.cluster.translation import ClusterModel, ModelLocation


def on_cluster(model: Any, options: argparse.Namespace, dtype: str) -> Any:
    """The model with its lines on the cluster of `options.ray`, until `options.closing` is closed.

    Several models of one command share a set of processes. If an output file is written, finished shards are kept in
    FILE.parts until the command succeeds.
    """
    if not hasattr(options, "actors"):
        options.actors, options.actors_device, options.actors_node = _actors(options)
    paths = getattr(model, "paths", None) or (model.path,)
    folders = tuple(cluster_folder(path, options.actors_node) for path in paths)
    languages = (model.source_language, model.target_language) if hasattr(model, "between") else None
    file = getattr(options, "output", None) or getattr(options, "save", None) or "-"
    shards = ResultShards(None if file == "-" else Path(f"{file}.parts").absolute())
    options.closing.push(lambda kind, error, trace: shards.remove() if kind is None else None)
    return ClusterModel(model, ModelLocation(folders, options.actors_device, dtype, languages), options.actors, shards)


def _actors(options: argparse.Namespace) -> tuple[Any, str, str]:
    ray = options.closing.enter_context(ray_connection(options.ray))
    there = ray.cluster_resources()
    gpu = options.device != "cpu" and there.get("GPU", 0) >= 1
    if options.device == "cuda" and not gpu:
        raise UserError("--device cuda: the cluster has no GPU")
    what = "GPU" if gpu else "CPU"
    print(f"headwise: Ray has {len(live_nodes(ray))} machines with {int(there.get(what, 0))} {what}s", file=sys.stderr)
    actors = ClusterExecutor(ray, gpu, getattr(options, "workers", 0))
    return options.closing.enter_context(actors), "cuda" if gpu else "cpu", this_node(ray)
