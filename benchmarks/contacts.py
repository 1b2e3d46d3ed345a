"""Contacts of residues from aligned sequences (`headwise.lab.demo.contacts`): the Evoformer and two baselines.

    python benchmarks/contacts.py --cores 1 [--seeds 3]

Each seed has training families and initial parameters of its own; all methods are tested on the same families.
"""

import argparse
import statistics
from typing import Any

import machine
import numpy as np
import torch
from machine import now

from headwise.lab.demo.contacts import (
    compare,
    fit_pair_frequencies,
    mutual_information,
    sample_families,
    train_contacts,
)

DEPTHS = machine.pick((4, 8, 16, 32, 64), (4,))
FAMILIES, SEQUENCES = machine.pick((2000, 16), (4, 4))  # of training; of each family
STEPS = machine.pick(300, 3)
TESTED_ON = machine.pick(200, 4)


def measure(seed: int) -> dict[str, Any]:
    """The precisions by depth and method, and the seconds of training."""
    families = sample_families(FAMILIES, SEQUENCES, np.random.default_rng(seed))
    begun = now()
    linear = fit_pair_frequencies(families)
    fitted = now()
    evoformer = train_contacts(families, STEPS, seed=seed)
    seconds = {"linear model": fitted - begun, "Evoformer": now() - fitted}
    methods = {"mutual information": mutual_information, "linear model": linear, "Evoformer": evoformer.scores}
    return {"seconds": seconds, "precision": compare(methods, DEPTHS, TESTED_ON)}


def main() -> None:
    """Measure all seeds and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=machine.pick(3, 1))
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    torch.set_num_threads(cores)
    about = machine.description(cores)
    seeds = range(1, options.seeds + 1)
    found = [measure(seed) for seed in seeds]
    methods = list(found[0]["precision"][DEPTHS[0]])
    cells = {(depth, name): [one["precision"][depth][name] for one in found] for depth in DEPTHS for name in methods}
    rows = [[depth, *(shown(cells[depth, name]) for name in methods)] for depth in DEPTHS]
    seconds = {name: statistics.mean(one["seconds"][name] for one in found) for name in found[0]["seconds"]}
    sections = [
        f"Precision in percent on {TESTED_ON} families, mean and deviation of {len(seeds)} seeds: the share of "
        f"contacts among the n best pairs of a family with n contacts. Trained on {FAMILIES:,} families of "
        f"{SEQUENCES} sequences.",
        machine.table(["sequences", *methods], rows),
        "Seconds of training: " + ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()) + ".",
    ]
    precisions = {str(depth): {name: cells[depth, name] for name in methods} for depth in DEPTHS}
    data = {"precision": precisions, "seconds": [one["seconds"] for one in found]}
    machine.write_result(machine.result_path("contacts"), "Contacts from aligned sequences", about, sections, data)


def shown(values: list[float]) -> str:
    """Percent: the mean, and the deviation if there are several."""
    percents = [100 * value for value in values]
    deviation = f" ± {statistics.stdev(percents):.1f}" if len(percents) > 1 else ""
    return f"{statistics.mean(percents):.1f}{deviation}"


if __name__ == "__main__":
    main()
