"""What the page needs to know of walks: the figure, and names and formulas of all steps, without numbers.

They are those of `Model.walks`; the library in the browser computes the numbers (`assets/walking.js`). Python's walks
need PyTorch; without it a page has no walks.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwise.inspect.page.walks import one_walk
from headwise.inspect.record import WalkRecord, WalkStep
from headwise.models.load import load
from headwise.native.network import head_columns


def page_walks(path: Path) -> dict[str, Any] | None:
    """`about.walk` of assets/walking.js for the model at `path`; None without PyTorch.

    The text does not matter, because names and formulas are the same for all.
    """
    return outline(load(path, "cpu").walks("a", tgt="a")) if torch_installed() else None


def torch_installed() -> bool:
    """Whether PyTorch can be imported."""
    try:
        return find_spec("torch") is not None
    except ModuleNotFoundError:
        return False


def outline(record: WalkRecord) -> dict[str, Any]:
    """The figure, the kinds of steps, and the steps of each stack and layer.

    `columns` are the components of a head among the padded ones in memory, `rates` those of rotary positions, and
    `outputs` is the number of tokens shown at the output.
    """
    kinds: dict[str, int] = {}
    walks: dict[str, list[list[list[int | bool]]]] = {}
    figure, n_outputs, steps = {}, 0, dict[str, WalkStep]()
    for stack, about in record.figure.items():
        walks[stack] = []
        for layer in range(len(about.heads)):
            walk = one_walk(record, stack, layer, 0)
            figure, n_outputs = walk["figure"], len(walk["axes"].get("vocabulary", ()))
            numbers = [kinds.setdefault(json.dumps(kind), len(kinds)) for kind in walk["kinds"]]
            walks[stack].append([_step(one, numbers) for one in walk["steps"]])
        steps |= {step.id: step for step in record.steps(stack, 0, 0)}
    rotated = steps.get("self_attn.rotated-keys")
    rates = [] if rotated is None or rotated.weight is None else rotated.weight.tolist()
    width, parts = steps["self_attn.keys"].values.shape[1], [len(rates)] * 2 if rates else []
    columns = {"self": head_columns(width, *parts), "cross": head_columns(width)}
    columns["values"] = head_columns(steps["self_attn.values"].values.shape[1])
    found = {"figure": figure, "kinds": [json.loads(kind) for kind in kinds], "walks": walks}
    return {**found, "columns": columns, "rates": rates, "outputs": n_outputs}


def _step(step: dict[str, Any], numbers: list[int]) -> list[int | bool]:
    """The number of the kind, and whether a step has a layer, a head and a bias."""
    return [numbers[step["kind"]], *(step[name] is not None for name in ("layer", "head", "bias"))]
