"""The small fixed set behind `make bench`: ours beside the best peer, in under ten minutes on two cores.

    python benchmarks/bench.py [--model DIR --source FILE] [--cores 0 1] [--quick]

Prints last, for each figure, `bench: NAME RATIO goal GOAL`: how many times faster ours is than the best peer as shipped
(for `train-share-*`: our share of the machine's matrix-product rate), or a dash where it was not measured. Above them
stands what they come from, also with the peer given our allocator setting. `decode-natural` needs a trained model and
text for it, `decode-shortlist` one that `sightline shortlist` has been run on. For all contenders and sizes:
`training.py` and `decoding.py`. `--quick` is for trying the script out: the tiny model, two turns.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import decoders
import decoding
import exports
import machine
import training
from decoders import Job
from turns import fastest, speed_ratio
from work import SIZES

GOALS = {
    "train-d256": 1.8,
    "train-base": 1.35,
    "train-share-d256": 0.80,
    "train-share-base": 0.88,
    "decode-int8-greedy": 1.15,
    "decode-int8-beam4": 1.2,
    "decode-shortlist": 1.3,
    "decode-natural": 1.25,
    "decode-one-at-a-time": 3.0,
    "decode-vs-hf": 4.0,
}
# The peers that can be the fastest; training.py has them all.
TRAINING = {"d256": (["transformers", "torch.nn"], 7), "base": (["transformers", "torch.nn"], 3)}
DECODING = ("ours int8", "ctranslate2 int8", "transformers")
GREEDY, BEAM = Job(1, 64, decoding.FORCED), Job(4, 32, decoding.FORCED)  # batches at which CTranslate2 is fastest


def training_figures(threads: int, quick: bool) -> tuple[dict[str, float], list[str]]:
    """`train-*` and the tables they come from."""
    figures, sections = {}, []
    for size, (peers, turns) in TRAINING.items():
        shape = "tiny" if quick else size
        measured = training.measure(shape, [training.OURS, *peers], 2 if quick else turns, threads)
        sections.append(training.section(measured))
        figures |= {name.replace(shape, size): value for name, value in training.goals(measured).items()}
    return figures, sections


def decoding_figures(folder: Path, cores: int, quick: bool) -> tuple[dict[str, float], list[str]]:
    """`decode-*` of a model with random parameters and outputs of a forced length."""
    size, turns = ("tiny", 2) if quick else ("base", 5)
    exports.random_model(size, folder)
    agreed = decoding.check_agreement(folder)
    workers = decoding.contenders(folder, cores, DECODING)
    vocab_size = SIZES[size].vocab_size
    title = f"{size}, greedy, batches of 64"
    sources = decoding.random_turns(turns, 128, vocab_size)
    greedy, _ = decoding.throughput(title, workers, GREEDY, sources)
    workers.pop("transformers").close()
    title = f"{size}, beam 4, batches of 32"
    beam, _ = decoding.throughput(title, workers, BEAM, decoding.random_turns(turns, 64, vocab_size))
    decoding.close(workers)
    title = f"{size}, greedy, one sentence at a time"
    single = decoding.latency(
        title, folder, cores, Job(1, 1, decoding.FORCED), decoding.random_turns(turns, 8, vocab_size)
    )
    ours, theirs = (fastest(single.seconds, [n for n in single.seconds if n.startswith(s)]) for s in ("ours", "ctr"))
    rate = machine.float_rate()
    figures = {
        "decode-int8-greedy": greedy.ratio("ours int8", "ctranslate2 int8"),
        "decode-int8-beam4": beam.ratio("ours int8", "ctranslate2 int8"),
        "decode-one-at-a-time": speed_ratio(single.seconds[ours], single.seconds[theirs]).median,
        "decode-vs-hf": greedy.ratio("ours int8", "transformers"),
    }
    return figures, decoding.report([greedy, beam, single], {"agreement": agreed}, rate)


def natural_figure(
    model: Path, source: Path, folder: Path, cores: int, quick: bool
) -> tuple[dict[str, float], list[str]]:
    """`decode-natural`: beam 4 on a trained model, outputs as long as it makes them; with its shortlist, too."""
    exports.export(model, folder)
    agreed = decoding.check_agreement(folder)
    tokenizer = exports.read_folder(model).tokenizer
    sources = [ids for ids in tokenizer.encode_batch(decoding.lines(source)) if ids][: 64 if quick else 512]
    pairs = {"decode-natural": ("ours int8", "ctranslate2 int8")}
    if (model / exports.SHORTLIST).is_file():
        pairs["decode-shortlist"] = ("ours int8 shortlist", "ctranslate2 int8 vmap")
    workers = decoding.contenders(folder, cores, [name for pair in pairs.values() for name in pair])
    title = f"trained, beam 4, natural lengths, {len(sources)} sentences"
    measured, _ = decoding.throughput(title, workers, Job(4, None, None), [sources] * (2 if quick else 5))
    decoding.close(workers)
    sections = decoding.report([measured], {"agreement": agreed}, machine.float_rate())
    return {name: measured.ratio(*pair) for name, pair in pairs.items()}, sections


def lines(figures: dict[str, float]) -> list[str]:
    """The last lines; a figure that was not measured has a dash.

    >>> lines({"train-d256": 1.234})[0]
    'bench: train-d256 1.23 goal 1.8'
    """
    shown = {name: f"{figures[name]:.2f}" if name in figures else "-" for name in GOALS}
    return [f"bench: {name} {shown[name]} goal {goal:g}" for name, goal in GOALS.items()]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a trained model directory, for decode-natural")
    parser.add_argument("--source", type=Path, help="text to translate with it")
    machine.add_machine_options(parser)
    parser.add_argument("--quick", action="store_true", help="only see whether it runs")
    options = parser.parse_args()
    started = time.perf_counter()
    cores = machine.prepare(options)
    about = machine.description(cores)
    figures, sections = training_figures(cores, options.quick)
    with tempfile.TemporaryDirectory() as temporary:
        parts: list[Any] = [lambda: decoding_figures(Path(temporary) / "random", cores, options.quick)]
        if options.model and options.source:
            folder = Path(temporary) / "trained"
            folder.mkdir()
            parts.append(lambda: natural_figure(options.model, options.source, folder, cores, options.quick))
        for part in parts:
            found, text = part()
            figures |= found
            sections += text
    print("\n\n".join(sections))
    path = machine.result_path("quick" if options.quick else "bench")
    closing = lines(figures)
    machine.write_result(path, "make bench", about, [*sections, "```\n" + "\n".join(closing) + "\n```"], figures)
    for name in ("train-d256", "train-base"):
        print(f"\n{name} with our allocator setting in the peer too: {figures[name + '-same-allocator']:.2f}", end="")
    if not decoders.has_compute():
        print("\nours is the simple search in float32", end="")
    print(f"\n{time.perf_counter() - started:.0f} seconds; written to {path}.md")
    print("\n".join(closing))


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    main()
