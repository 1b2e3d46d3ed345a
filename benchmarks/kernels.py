"""Matrix products of the compiled library, for every instruction set of this processor.

    python benchmarks/kernels.py [--turns 11] [--cores 0] [--clock cpu]

One decoder step of the paper's base model: six layers and an output of 16,000 tokens, one product after the other, so
that weights are read from memory as in a translation; one thread, several numbers of rows. Every build multiplies in
every turn. All builds must give the same bits, which is checked first. Writes `results/kernels_*`.
"""

import argparse
from typing import Any
from unittest.mock import patch

import machine
import numpy as np
from turns import spread, take_turns

from headwise.runtime.native import library as c
from headwise.runtime.native.linear import NUMBERS, Linear

BASE = [(512, 1536), (512, 512), (512, 512), (512, 512), (512, 2048), (2048, 512)] * 6 + [(512, 16_000)]
SHAPES = machine.pick(BASE, [(64, 192), (192, 64)])
ROWS = (1, 2, 4, 8, 32, 128)


def layers_of(build: str, numbers: str) -> list[Linear]:
    """The same weights, packed by the build that multiplies with them."""
    draw = np.random.default_rng(0)
    with patch.object(c, "library", lambda: c.opened(build)):
        return [Linear(draw.standard_normal((d_out, d_in), np.float32), None, numbers) for d_in, d_out in SHAPES]


def pass_of(build: str, layers: list[Linear], inputs: list[Any]) -> list[Any]:
    """The outputs of all layers."""
    with patch.object(c, "library", lambda: c.opened(build)):
        return [layer(x) for layer, x in zip(layers, inputs, strict=True)]


def measured(rows: int, packed: dict[str, list[Linear]], turns: int) -> dict[str, list[float]]:
    """GFLOP/s of each build in each turn."""
    draw = np.random.default_rng(rows)
    inputs = [draw.standard_normal((rows, d_in), np.float32) for d_in, _ in SHAPES]
    outputs = {build: pass_of(build, layers, inputs) for build, layers in packed.items()}
    first = outputs[next(iter(outputs))]
    assert all(np.array_equal(a, b) for found in outputs.values() for a, b in zip(found, first, strict=True))
    repeats = max(1, 8 // rows)

    def run(build: str) -> float:
        begin = machine.now()
        for _ in range(repeats):
            pass_of(build, packed[build], inputs)
        return (machine.now() - begin) / repeats

    seconds = take_turns({build: (lambda _, build=build: run(build)) for build in packed}, turns, warm_up=1)
    work = 2e-9 * rows * sum(d_in * d_out for d_in, d_out in SHAPES)
    return {build: [work / s for s in took] for build, took in seconds.items()}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=machine.pick(11, 1), help="(default: %(default)s)")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    machine.prepare(options)
    builds, sections, data = [name for name in c.usable_builds() if name != "scalar"], [], {}
    for kind in NUMBERS:
        packed, table = {build: layers_of(build, kind) for build in builds}, []
        for rows in ROWS:
            found = measured(rows, packed, options.turns)
            table.append([rows, *(spread(found[build]) for build in builds)])
            data[f"{kind}, {rows} rows"] = found
        sections.append(f"## {kind}\n\n{machine.table(['rows', *builds], table)}")
        print(sections[-1], flush=True)
    head = __doc__.split("\n\n", 2)[2].strip()
    path = machine.result_path("kernels")
    title = "Matrix products by set of instructions, GFLOP/s"
    machine.write_result(path, title, machine.description(1), [head, *sections], data)
    print(f"written to {path}.md")


if __name__ == "__main__":
    main()
