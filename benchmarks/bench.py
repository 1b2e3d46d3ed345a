"""The small fixed set of `make bench`: Headwise compared with the best peer, in about fifteen minutes on two cores.

    python benchmarks/bench.py [--model DIR --source FILE] [--only PART ...] [--cores 0 1] [--quick]

The last lines are `bench: NAME RATIO goal GOAL threads N` for each figure: how many times faster Headwise is than the
best peer as shipped, both with N threads. Other meanings: `train-share-*` is our share of the machine's matrix-product
rate, `decode-all-cores` the parallel efficiency of N threads, `cold-memory-*` the peer's peak memory over ours. A
figure that was not measured has a dash; `-same-allocator` gives the peer our allocator setting.
`decode-natural` needs a trained model and text, `decode-shortlist` a model with a shortlist (`headwise shortlist`). For
all contenders and sizes see `training.py` and `decoding.py`. Both sides of a ratio have the same number of threads: all
cores, except that a new process has one, and single sentences use whichever number is better for the peer.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import decoders
import decoding
import exports
import machine
import training
from decoders import Job
from peak import int8_peak
from turns import fastest
from work import SIZES
from workers import Worker

from headwise.runtime.checkpoint.read import read_folder

GOALS = {  # on a processor with AVX-512, VNNI and BF16 of the Zen 5 generation
    "train-d256": 4.0,
    "train-d256-same-allocator": 4.0,
    "train-base": 4.0,
    "train-base-same-allocator": 4.0,
    "train-share-d256": 0.80,
    "train-share-base": 0.88,
    "decode-int8-greedy": 2.0,
    "decode-int8-beam4": 2.0,
    "decode-shortlist": 1.3,
    "decode-natural": 1.5,
    "decode-one-at-a-time": 4.0,
    "decode-vs-hf": 5.0,
    "decode-vs-onnxruntime": 2.0,
    "decode-vs-openvino": 3.0,
    "decode-batch-1": 4.0,
    "decode-batch-8": 2.0,
    "decode-batch-32": 2.0,
    "decode-batch-128": 2.0,
    "decode-all-cores": 0.9,
    "cold-start-int8": 1.2,
    "cold-start-float32": 1.2,
    "cold-start-int8-not-packed": 1.0,
    "cold-start-float32-not-packed": 1.0,
    "cold-memory-int8": 0.91,
    "cold-memory-float32": 0.91,
}
# The peers that may be the fastest; training.py has all.
TRAINING = {"d256": (["transformers", "torch.nn"], 7), "base": (["transformers", "torch.nn"], 3)}
DECODING = ("ours int8", "ctranslate2 int8", "transformers")
GRAPHS = ("onnxruntime float32", "onnxruntime int8", "openvino float32")
BATCHES = machine.pick(
    {1: 32, 8: 64, 32: 128, 128: 256}, {1: 2, 8: 8}
)  # and how many sentences are translated in a turn
SIZE = machine.pick("base", "tiny")
Found = tuple[dict[str, float], list[str]]  # figures, and the tables they come from
GREEDY, BEAM = Job(1, 64, decoding.FORCED), Job(4, 32, decoding.FORCED)  # batches at which CTranslate2 is fastest


def training_figures(threads: int) -> Found:
    """`train-*` and their tables."""
    figures, sections = {}, []
    for size, (peers, turns) in TRAINING.items():
        shape = machine.pick(size, "tiny")
        measured = training.measure(shape, [training.OURS, *peers], machine.pick(turns, 2), threads)
        sections.append(training.section(measured))
        figures |= {name.replace(shape, size): value for name, value in training.goals(measured).items()}
    return figures, sections


def decoding_figures(folder: Path, cores: int) -> Found:
    """`decode-*` of a model with random parameters and outputs of a forced length."""
    size, turns = SIZE, machine.pick(5, 2)
    agreed = decoding.check_agreement(folder)
    workers = decoding.contenders(folder, cores, DECODING)
    vocab_size = SIZES[size].vocab_size
    title = f"{size}, greedy, batches of 64"
    sources = decoding.random_turns(turns, machine.pick(128, 8), vocab_size)
    greedy, _ = decoding.throughput(title, workers, GREEDY, sources)
    workers.pop("transformers").close()
    title = f"{size}, beam 4, batches of 32"
    beam, _ = decoding.throughput(title, workers, BEAM, decoding.random_turns(turns, machine.pick(64, 8), vocab_size))
    decoding.close(workers)
    title = f"{size}, greedy, one sentence at a time"
    single = decoding.latency(
        title, folder, cores, Job(1, 1, decoding.FORCED), decoding.random_turns(turns, machine.pick(8, 2), vocab_size)
    )
    peer = fastest(single.seconds, [name for name in single.seconds if name.startswith("ctranslate2")])
    rate = machine.float_rate()
    figures = {
        "decode-int8-greedy": greedy.ratio("ours int8", "ctranslate2 int8"),
        "decode-int8-beam4": beam.ratio("ours int8", "ctranslate2 int8"),
        "decode-one-at-a-time": single.ratio(peer.replace("ctranslate2", "ours"), peer),
        "decode-vs-hf": greedy.ratio("ours int8", "transformers"),
    }
    return figures, decoding.report([greedy, beam, single], {"agreement": agreed}, rate, cores * int8_peak() * 1e9)


def batch_figures(folder: Path, cores: int) -> Found:
    """`decode-batch-*`: greedy search with several batch sizes."""
    size, turns = SIZE, machine.pick(3, 2)
    workers, measured = decoding.contenders(folder, cores, ("ours int8", "ctranslate2 int8")), {}
    for batch, sentences in BATCHES.items():
        sources, job = decoding.random_turns(turns, sentences, SIZES[size].vocab_size), Job(1, batch, decoding.FORCED)
        measured[batch], _ = decoding.throughput(f"{size}, greedy, batches of {batch}", workers, job, sources)
    decoding.close(workers)
    figures = {f"decode-batch-{batch}": m.ratio("ours int8", "ctranslate2 int8") for batch, m in measured.items()}
    return figures, _sections(measured.values())


def scaling_figure(folder: Path, cores: int) -> Found:
    """`decode-all-cores`: parallel efficiency of one process with as many threads as cores."""
    if cores == 1:
        return {}, []
    size, turns = SIZE, machine.pick(3, 2)
    many = f"{cores} threads"
    workers: dict[str, Any] = {
        "ours int8, 1 thread": Worker(decoders.ours, folder, "int8", keep_memory=True),
        f"ours int8, {many}": Worker(decoders.ours, folder, "int8", threads=cores, keep_memory=True),
        "ctranslate2 int8, 1 thread": Worker(decoders.ctranslate2, folder, "int8", 1, 1),
        f"ctranslate2 int8, {many}": Worker(decoders.ctranslate2, folder, "int8", cores, 1),
    }
    sources = decoding.random_turns(turns, machine.pick(128, 8) * cores, SIZES[size].vocab_size)
    measured, _ = decoding.throughput(f"{size}, greedy, by threads", workers, Job(1, None, decoding.FORCED), sources)
    decoding.close(workers)
    return {"decode-all-cores": measured.ratio(f"ours int8, {many}", "ours int8, 1 thread") / cores}, _sections(
        [measured]
    )


def graph_figures(folder: Path, cores: int) -> Found:
    """`decode-vs-onnxruntime` and `decode-vs-openvino`: greedy search with the graphs of `export --to onnx`."""
    size, turns = SIZE, machine.pick(3, 2)
    there = [name for name in GRAPHS if find_spec(name.split()[0])]
    if not (there and all(map(find_spec, ("onnx", "onnxruntime", "onnxscript")))):
        return {}, ["ONNX Runtime or its exporter is not installed; it was not compared."]
    for compute in ("float32", "int8"):
        exports.export_graphs(folder, compute)
    workers = decoding.contenders(folder, cores, ("ours int8", "ours float32", "plain torch float32", *there))
    sources = decoding.random_turns(turns, machine.pick(64, 8), SIZES[size].vocab_size)
    title = f"{size}, greedy, batches of 32, graphs by their runtimes"
    measured, _ = decoding.throughput(title, workers, Job(1, 32, decoding.FORCED), sources)
    decoding.close(workers)
    figures = {}
    for runtime in ("onnxruntime", "openvino"):
        names = [name for name in there if name.startswith(runtime)]
        if names:
            figures[f"decode-vs-{runtime}"] = measured.ratio("ours int8", fastest(measured.seconds, names))
    return figures, _sections([measured])


def cold_figures(folder: Path, cores: int) -> Found:
    """`cold-start-*` and `cold-memory-*`: a new process that translates one sentence with one thread."""
    found = decoding.cold_start(folder, machine.pick(7, 2))
    figures = {}
    for compute in ("int8", "float32"):
        ours, theirs = f"ours {compute}", f"ctranslate2 {compute}"
        if ours not in found.seconds:  # no library, no int8
            continue
        figures |= {f"cold-start-{compute}": found.ratio(ours, theirs)}
        figures |= {f"cold-memory-{compute}": found.memory_ratio(ours, theirs)}
        figures |= {f"cold-start-{compute}-not-packed": found.ratio(decoding.NOT_PACKED[compute], theirs)}
    return figures, [decoding.cold_section(found)]


def _sections(measured: Iterable[decoding.Measured]) -> list[str]:
    rate = machine.float_rate()
    return [decoding.throughput_section(each, rate) for each in measured]


def natural_figure(model: Path, source: Path, folder: Path, cores: int) -> Found:
    """`decode-natural`: beam 4 on a trained model with outputs of natural length; also with its shortlist."""
    exports.export(model, folder)
    agreed = decoding.check_agreement(folder)
    tokenizer = read_folder(model).tokenizer
    sources = [ids for ids in tokenizer.encode_batch(decoding.lines(source)) if ids][: machine.pick(512, 16)]
    pairs = {"decode-natural": ("ours int8", "ctranslate2 int8")}
    if (model / exports.SHORTLIST).is_file():
        pairs["decode-shortlist"] = ("ours int8 shortlist", "ctranslate2 int8 vmap")
    workers = decoding.contenders(folder, cores, [name for pair in pairs.values() for name in pair])
    title = f"trained, beam 4, natural lengths, {len(sources)} sentences"
    measured, _ = decoding.throughput(title, workers, Job(4, None, None), [sources] * machine.pick(5, 2))
    decoding.close(workers)
    sections = decoding.report([measured], {"agreement": agreed}, machine.float_rate())
    return {name: measured.ratio(*pair) for name, pair in pairs.items()}, sections


def lines(figures: dict[str, float], cores: int) -> list[str]:
    """The last lines; a figure that was not measured has a dash.

    >>> lines({"train-d256": 1.234}, cores=2)[0]
    'bench: train-d256 1.23 goal 4 threads 2'
    """
    shown = {name: f"{figures[name]:.2f}" if name in figures else "-" for name in GOALS}
    threads = {name: 1 if name.startswith("cold") else cores for name in GOALS}
    return [f"bench: {name} {shown[name]} goal {goal:g} threads {threads[name]}" for name, goal in GOALS.items()]


PARTS: dict[str, Callable[[Path, int], Found]] = {
    "decoding": decoding_figures,
    "batches": batch_figures,
    "scaling": scaling_figure,
    "graphs": graph_figures,
    "cold": cold_figures,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a trained model directory, for decode-natural")
    parser.add_argument("--source", type=Path, help="text to translate with it")
    parser.add_argument("--only", nargs="+", choices=["training", *PARTS], default=["training", *PARTS])
    parser.add_argument("--name", default="bench", help="of the result files")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    started = time.perf_counter()
    cores = machine.prepare(options)
    about = machine.description(cores)
    figures, sections = training_figures(cores) if "training" in options.only else ({}, [])
    with tempfile.TemporaryDirectory() as temporary:
        random, trained = Path(temporary) / "random", Path(temporary) / "trained"
        exports.random_model(SIZE, random)
        parts = [partial(PARTS[name], random) for name in PARTS if name in options.only]
        if options.model and options.source:
            trained.mkdir()
            parts.append(partial(natural_figure, options.model, options.source, trained))
        for part in parts:
            found, text = part(cores)
            figures |= found
            sections += text
    print("\n\n".join(sections))
    path = machine.result_path(options.name)
    closing = lines(figures, cores)
    machine.write_result(path, "make bench", about, [*sections, "```\n" + "\n".join(closing) + "\n```"], figures)
    if not decoders.has_compute():
        print("\nours is the search with torch in float32", end="")
    print(f"\n{time.perf_counter() - started:.0f} seconds; written to {path}.md")
    print("\n".join(closing))


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    main()
