"""Estimates of training on many devices: hours and cost, bytes sent over links, memory; the assumptions are options.

    python benchmarks/scaling.py [--devices 8] [--peak 989] [--share 0.4] [--memory 80] [--price 2.5] [--length 30]
                                 [--tokens 25000]

Nothing is measured on a GPU. Parameters are counted on the networks of the recipes, operations come from `work.py`, and
the bytes that a forward pass keeps are counted on this machine's CPU, on a small network. The rest is arithmetic:

    hours     updates x operations / (devices x peak x share)
    DDP       each of n devices sends 2 (n - 1) / n of the gradients per update, 4 bytes each (a ring)
    FSDP      gathers a layer before its forward and before its backward pass and sums its gradients: (n - 1) / n each;
              3/2 of DDP's bytes in float32, and as many as DDP's if layers are sent in bfloat16 (2 + 2 + 4 bytes)
    memory    18 bytes a parameter: itself, its gradient, Adam's two moments, and autocast's copy of it in bfloat16

`--share` is a guess, and hours are inversely proportional to it. The line below the first table has the shares of the
paper's own runs by the same formula. Latency, reading and validation are left out. Prints the tables of
`docs/how-to/scaling.md`.
"""

import argparse
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from machine import add_quick_option, table
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from work import BOS, EOS, PAD, Size, training_operations

from headwise.config.model import ModelConfig, TransformerConfig
from headwise.config.settings import load_recipe
from headwise.core.batches import collate
from headwise.core.build import count_parameters
from headwise.core.loss import CHUNK_ROWS
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.training.trainer import recompute_layers

NEAR = "NVLink 4"  # between the devices of a machine
LINKS = {NEAR: 450e9, "InfiniBand NDR": 50e9, "10 Gb Ethernet": 1.25e9}  # bytes a second, each way, as advertised
CORPUS = 36e6  # pairs of WMT 2014 English-French (section 5.1)
PAPER = {"base": 12.0, "big": 84.0}  # hours on 8 P100 (section 5.2), each at 9.5e12 operations a second (6.1, footnote)
P100S = 8 * 9.5e12
GRADIENT, STATE, AUTOCAST, COPY = 4, 16, 2, 4  # bytes per parameter; COPY: of the whole model for validation
SUBLAYERS = 5  # of an encoder and a decoder layer; dropout keeps a byte per element on CUDA
LOGITS = 12  # bytes each while a chunk exists: logits, their softmax and their gradient


@dataclass(frozen=True)
class Plan:
    """Devices, their work, and their assumed performance."""

    devices: int = 8
    peak: float = 989.0  # 1e12 operations a second of a device, dense, in bfloat16
    share: float = 0.4  # of the peak, reached in training
    memory: float = 80.0  # GB of a device
    price: float = 2.5  # dollars an hour of a device
    length: int = 30  # tokens a side of a pair, with the end token
    tokens: int = 25_000  # a side in an update, on all devices

    @property
    def rate(self) -> float:
        """Operations a second of all devices."""
        return self.devices * self.peak * 1e12 * self.share

    @property
    def pairs(self) -> float:
        """Pairs per update."""
        return self.tokens / self.length


def shapes() -> dict[str, ModelConfig]:
    """The paper's two models with 37,000 tokens, and two larger ones of the same kind."""
    recipes = {name: load_recipe(name) for name in PAPER}
    paper = {name: replace(run.model, vocab_size=run.data.vocab_size) for name, run in recipes.items()}
    larger = {"1 billion": (2048, 8), "7 billion": (4096, 14)}
    return paper | {
        name: replace(paper["big"], d_model=d, d_ff=4 * d, n_heads=d // 64, n_encoder_layers=n, n_decoder_layers=n)
        for name, (d, n) in larger.items()
    }


@cache
def parameters(model: ModelConfig) -> int:
    """Counted on the network itself, on the meta device."""
    with torch.device("meta"):
        return count_parameters(build_network(model))


def operations(model: ModelConfig, plan: Plan) -> float:
    """Operations per update, by the formula of `work.py`."""
    size = Size(model.d_model, model.n_encoder_layers, model.d_ff, model.n_heads, model.vocab_size)
    side = [EOS + 1] * (plan.length - 1)
    return plan.pairs * training_operations(size, collate([(side, side)], PAD, BOS, EOS))


def hours(model: ModelConfig, updates: float, plan: Plan) -> float:
    """
    >>> half = Plan(devices=4)
    >>> hours(shapes()["base"], 100, half) / hours(shapes()["base"], 100, Plan())
    2.0
    """
    return updates * operations(model, plan) / plan.rate / 3600


def sent_by_ddp(n_parameters: float, devices: int) -> float:
    """Bytes that each device sends (and receives) per update in a ring that sums the gradients and distributes the
    sums.

    >>> sent_by_ddp(1e9, 2), sent_by_ddp(1e9, 8)
    (4000000000.0, 7000000000.0)
    """
    return 2 * (devices - 1) / devices * GRADIENT * n_parameters


def sent_by_fsdp(n_parameters: float, devices: int, weight: int = 4) -> float:
    """The same for FSDP2 with one batch per update; `weight` is the number of bytes per weight sent.

    >>> sent_by_fsdp(1e9, 8) / sent_by_ddp(1e9, 8), sent_by_fsdp(1e9, 8, weight=2) / sent_by_ddp(1e9, 8)
    (1.5, 1.0)
    """
    return (devices - 1) / devices * (2 * weight + GRADIENT) * n_parameters


def activations(model: ModelConfig, tokens: float, recompute: bool = False) -> float:
    """Bytes that a forward pass keeps for that many tokens a side, and the chunk of logits."""
    ends, layer = kept(recompute)
    width, n = model.d_model, model.n_encoder_layers
    once_more = kept(False)[1] + SUBLAYERS if recompute else 0.0  # of the recomputed layer
    layers = n * (layer if recompute else layer + SUBLAYERS) + once_more
    return tokens * width * (ends + layers) + LOGITS * CHUNK_ROWS * model.vocab_size


@cache
def kept(recompute: bool) -> tuple[float, float]:
    """Bytes kept per source and target token and unit of d_model: outside the layers, and by an encoder and a decoder
    layer.

    Counted under autocast on a CPU, without dropout, for heads of 64 and d_ff = 4 d_model, as in the paper.
    """
    by_layers = {}
    for n in (1, 2):
        model = TransformerConfig(d_model=128, d_ff=512, n_heads=2, n_encoder_layers=n, n_decoder_layers=n, dropout=0.0)
        network = build_network(replace(model, vocab_size=32)).train()
        if recompute:
            recompute_layers(network)
        few, many = (_kept_of(network, rows) for rows in (1, 3))
        by_layers[n] = (many - few) / (2 * _LENGTH * model.d_model)
    return 2 * by_layers[1] - by_layers[2], by_layers[2] - by_layers[1]


_LENGTH = 32


def _kept_of(network: Any, rows: int) -> int:
    """Bytes kept by a forward pass of that many pairs."""
    storages: dict[int, int] = {}
    alive: list[Tensor] = []  # until counted, so that no address is reused

    def keep(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    tokens = torch.full((rows, _LENGTH), EOS + 1)
    with torch.autocast("cpu", torch.bfloat16), saved_tensors_hooks(keep, lambda tensor: tensor):
        network.states(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool))
    return sum(storages.values())


def fits(model: ModelConfig, plan: Plan) -> str:
    """The least that makes a device hold its share of an update: DDP, recomputation, FSDP, both, or more devices."""
    n, own = parameters(model), plan.tokens / plan.devices
    part = STATE * n / plan.devices
    while_training = {"DDP": (STATE + AUTOCAST) * n, "FSDP": part + _whole_layers(model)}
    while_validating = {"DDP": STATE * n, "FSDP": part + COPY * n}
    for way, state in while_training.items():
        for recompute in (False, True):
            most = max(state + activations(model, own, recompute), while_validating[way])
            if most <= plan.memory * 1e9:
                return f"{way}, recompute" if recompute else way
    return "more devices"


def _whole_layers(model: ModelConfig) -> float:
    """Bytes that FSDP has unsharded: the embeddings and their gradient, and two layers, one prefetched."""
    embeddings = model.vocab_size * model.d_model
    layer = (parameters(model) - embeddings) / (model.n_encoder_layers + model.n_decoder_layers)
    return 2 * GRADIENT * embeddings + 2 * (AUTOCAST + GRADIENT) * layer


def last_of_ddp(plan: Plan) -> float:
    """Parameters whose state alone fills a device."""
    return plan.memory * 1e9 / (STATE + AUTOCAST)


def hours_table(plan: Plan) -> str:
    """Hours and cost of trainings, with all communication hidden behind computation and with none hidden."""
    models, epoch = shapes(), CORPUS / plan.pairs
    jobs = [
        ("base, as in the paper", "base", 100_000.0),
        ("big, as in the paper", "big", 300_000.0),
        ("base, 36 million pairs once", "base", epoch),
        ("big, 36 million pairs once", "big", epoch),
        ("1 billion, as long as big", "1 billion", 300_000.0),
    ]
    rows = []
    for title, name, updates in jobs:
        n = parameters(models[name])
        least = hours(models[name], updates, plan)
        most = least + updates * sent_by_ddp(n, plan.devices) / LINKS[NEAR] / 3600
        cells = f"{n / 1e6:,.0f} million", f"{updates:,.0f}", f"{updates / epoch:.1f}", f"{least:.2f} to {most:.2f}"
        cost = plan.devices * plan.price
        rows.append([title, *cells, f"{cost * least:,.2f} to {cost * most:,.2f}"])
    header = ["training", "parameters", "updates", "times 36 million pairs", "hours", "dollars"]
    return table(header, rows)


def paper_line(plan: Plan) -> str:
    """The share reached by the paper's own runs, by the same formula."""
    models = shapes()
    updates = {"base": 100_000, "big": 300_000}
    reached = {
        name: updates[name] * operations(models[name], plan) / (took * 3600 * P100S) for name, took in PAPER.items()
    }
    shares = " and ".join(f"{share:.2f} ({name})" for name, share in reached.items())
    known = "8 P100 with 9.5e12 operations per second each"
    return f"For comparison, the hours in the paper correspond to shares of {shares} of {known}."


def links_table(plan: Plan) -> str:
    """Milliseconds per update that links need for DDP's gradients, and milliseconds of computing."""
    rows, even = [], list[str]()
    for name, model in shapes().items():
        n = parameters(model)
        computing = operations(model, plan) / plan.rate
        sent = sent_by_ddp(n, plan.devices)
        times = [sent / speed for speed in LINKS.values()]
        rows.append([name, f"{sent / 1e9:.2f}", f"{1e3 * computing:,.1f}", *(f"{1e3 * time:,.1f}" for time in times)])
        even = [f"{plan.tokens / plan.devices * time / computing:,.0f}" for time in times]
    rows.append(["tokens per device and update for which both take as long", "", "", *even])
    return table(["model", "GB sent by a device", "ms computing", *(f"ms by {name}" for name in LINKS)], rows)


def memory_table(plan: Plan) -> str:
    """Gigabytes of a device by model and method."""
    rows, own = [], plan.tokens / plan.devices
    for name, model in shapes().items():
        n = parameters(model)
        sizes = [(STATE + AUTOCAST) * n, STATE * n / plan.devices + _whole_layers(model)]
        sizes += [activations(model, own), activations(model, own, recompute=True), COPY * n]
        rows.append([name, f"{n / 1e6:,.0f}", *(f"{size / 1e9:.1f}" for size in sizes), fits(model, plan)])
    ways = ["DDP", f"FSDP by {plan.devices}", "activations", "recomputed", "whole copy to validate"]
    return table(["model", "million parameters", *ways, f"in {plan.memory:g} GB"], rows)


def report(plan: Plan) -> str:
    """All tables."""
    end = f"With DDP, the state alone fills {plan.memory:g} GB from {last_of_ddp(plan) / 1e9:.1f} billion parameters."
    return "\n\n".join([hours_table(plan), paper_line(plan), links_table(plan), memory_table(plan), end])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in vars(Plan()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    add_quick_option(parser)  # has no effect here
    options = vars(parser.parse_args())
    print(report(Plan(**{name: options[name] for name in vars(Plan())})))


if __name__ == "__main__":
    main()
