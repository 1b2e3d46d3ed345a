"""Speed of a training step compared with other libraries, and its share of the machine's matrix-product rate.

    python benchmarks/training.py [--sizes tiny d256 base] [--contenders ours transformers ...] [--turns 12]
                                  [--threads 2] [--cores 0 1]

Each contender runs in its own process, and all take turns on the same batch. Every peer is measured twice: as shipped,
and (+alloc) with the allocator setting of our training. The share is useful operations per second (formula in
`work.py`; without padding) over the rate of a 2048^3 float32 product measured in the same turn; with bfloat16 products
it may exceed 1. "ours" has the precision of `train.precision = "auto"` on this machine, "transformers bf16" is
transformers under torch's autocast.
Writes `results/training_*`.
"""

import argparse
import statistics
from dataclasses import dataclass
from typing import Any

import machine
from figures import training_figure
from training_contenders import CONTENDERS, contender
from turns import Spread, fastest, speed_ratio, spread, take_turns
from work import SIZES, training_batches, training_operations
from workers import Worker

OURS, YARDSTICK, ALLOC = "ours", "matrix product", "+alloc"
WARM_UP = 2
QUICK = [
    "ours",
    "ours float32",
    "transformers",
    "transformers bf16",
    "torch.nn",
    "annotated",
]  # needs no other packages


@dataclass(frozen=True)
class Measured:
    """One size: for each contender its seconds in each turn, and its other figures."""

    size: str
    seconds: dict[str, list[float]]
    operations: list[float]  # useful ones, in each turn
    product_rate: list[float]  # operations per second of the matrix product, in each turn
    tokens: list[int]  # target tokens in each turn, without padding
    losses: dict[str, float]  # of the last batch, to check that all do the same work
    peak_bytes: dict[str, int]

    def share(self, name: str) -> Spread:
        """Useful operations per second over the product's, turn by turn."""
        turns = zip(self.operations, self.seconds[name], self.product_rate, strict=True)
        return spread([operations / seconds / rate for operations, seconds, rate in turns])

    def ratio(self, name: str) -> Spread:
        """How many times faster ours is than `name`."""
        return speed_ratio(self.seconds[OURS], self.seconds[name])

    def best_peer(self, with_alloc: bool) -> str:
        """The fastest peer as shipped, or the fastest with our allocator setting."""
        names = [n for n in self.seconds if not is_ours(n) and n.endswith(ALLOC) == with_alloc]
        return fastest(self.seconds, names)


def is_ours(name: str) -> bool:
    """Whether it is our step, in any precision."""
    return name.startswith(OURS)


def measure(size: str, names: list[str], turns: int, threads: int) -> Measured:
    """Let the contenders take turns on `turns` batches."""
    settings: dict[str, tuple[str, bool]] = {}
    for name in names:
        settings[name] = (name, is_ours(name))
        if not is_ours(name):
            settings[name + ALLOC] = (name, True)
    count = turns + WARM_UP
    workers = {
        name: Worker(contender, library, size, count, threads=threads, keep_memory=keep)
        for name, (library, keep) in settings.items()
    }
    yardstick = Worker(machine.matrix_product, threads=threads)
    losses: dict[str, float] = {}
    peaks: dict[str, int] = {}
    rates: list[float] = []

    def run(name: str, turn: int) -> float:
        reply = workers[name](turn + WARM_UP)
        losses[name], peaks[name] = reply.value, reply.peak_bytes
        return reply.seconds

    def product(turn: int) -> float:
        rate = yardstick(3).value
        rates.extend([rate] if turn >= 0 else [])
        return 1 / rate

    contenders: dict[str, Any] = {name: (lambda turn, name=name: run(name, turn)) for name in workers}
    contenders[YARDSTICK] = product
    try:
        seconds = take_turns(contenders, turns, WARM_UP)
    finally:
        for worker in [*workers.values(), yardstick]:
            worker.close()
    del seconds[YARDSTICK]
    batches = training_batches(count)[WARM_UP:]
    operations = [training_operations(SIZES[size], batch) for batch in batches]
    return Measured(size, seconds, operations, rates, [b.n_target_tokens for b in batches], losses, peaks)


def section(m: Measured) -> str:
    """The table of one size."""
    rows = []
    for name in m.seconds:
        milliseconds = spread([1000 * s for s in m.seconds[name]])
        speed = statistics.median(p / s for p, s in zip(m.tokens, m.seconds[name], strict=True))
        ratio = "1" if name == OURS else str(m.ratio(name))
        memory = f"{m.peak_bytes[name] / 2**20:,.0f}"
        step = f"{milliseconds.median:.0f} ({milliseconds.low:.0f}-{milliseconds.high:.0f})"
        rows.append([name, step, f"{speed:,.0f}", m.share(name), ratio, memory, f"{m.losses[name]:.2f}"])
    s = SIZES[m.size]
    header = [
        "contender",
        "ms a step",
        "target tokens/s",
        "share of product rate",
        "ours is faster by",
        "peak MiB",
        "loss",
    ]
    rate = spread([r / 1e9 for r in m.product_rate])
    return (
        f"## {m.size}: d_model {s.d_model}, {s.n_layers}+{s.n_layers} layers, d_ff {s.d_ff}, {s.n_heads} heads\n\n"
        f"Matrix product {rate.median:.0f} GFLOP/s ({rate.low:.0f}-{rate.high:.0f}); {len(m.operations)} turns, "
        f"medians with quartiles.\n\n{machine.table(header, rows)}"
    )


def goals(m: Measured) -> dict[str, float]:
    """The figures of this size for `make bench`."""
    return {
        f"train-{m.size}": m.ratio(m.best_peer(with_alloc=False)).median,
        f"train-{m.size}-same-allocator": m.ratio(m.best_peer(with_alloc=True)).median,
        f"train-share-{m.size}": m.share(OURS).median,
    }


def as_json(m: Measured) -> dict[str, Any]:
    """Every measurement."""
    return {**vars(m), "goals": goals(m)}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=machine.pick(list(SIZES), ["tiny"]))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=machine.pick(list(CONTENDERS), QUICK))
    parser.add_argument("--turns", type=int, default=machine.pick(12, 2))
    parser.add_argument("--threads", type=int, help="of each contender (default: the cores it may use)")
    machine.add_machine_options(parser)
    parser.add_argument("--name", default="training", help="of the result files")
    options = parser.parse_args()
    cores = machine.prepare(options)
    threads = options.threads or cores
    about = machine.description(threads)
    names = [OURS, *(name for name in options.contenders if name != OURS)]
    measured = []
    for size in options.sizes:
        measured.append(measure(size, names, options.turns, threads))
        print(section(measured[-1]), flush=True)
    path = machine.result_path(options.name)
    figure = training_figure(path, measured)
    text = [__doc__.split("\n\n", 2)[2].strip(), f"![share of the matrix-product rate]({figure.name})"]
    data = {m.size: as_json(m) for m in measured}
    machine.write_result(path, "Speed of a training step", about, [*text, *map(section, measured)], data)
    print(f"written to {path}.md")


if __name__ == "__main__":
    main()
