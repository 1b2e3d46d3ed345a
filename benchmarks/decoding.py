"""Speed of translation: Headwise compared with CTranslate2 and transformers, all with the same weights.

    python benchmarks/decoding.py [--sizes tiny base] [--beams 1 4] [--batches 1 32 128] [--turns 8] [--cores 0 1]
                                   [--instructions avx2]
    python benchmarks/decoding.py --model DIR --source FILE [--reference FILE]
    python benchmarks/decoding.py --device cuda [--sizes base]

Without `--model`: random parameters, source lengths sampled like those of Multi30k, and outputs of 14 steps. With
`--model`: a trained model and outputs of natural length; `--reference` adds BLEU.

Each contender uses all cores in its fastest way: Headwise one process per core with one thread each, CTranslate2 one
translator per core (`inter_threads`), transformers one process with as many threads. All must agree before anything is
timed: logits, log-probabilities, outputs. Latency is that of one sentence at a time. A cold start is the time from
starting the interpreter to the first translation, with the files in the page cache.

With `--device cuda`: Headwise and CTranslate2 in float16 on one GPU, in one process each; Headwise with and without
captured steps (`docs/concepts/decoding.md`). CTranslate2 must be a build with CUDA.
Writes `results/decoding_*`.
"""

import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import decoders
import exports
import machine
import torch
from decoders import Job, Tokens, same_share
from figures import bars
from peak import int8_peak
from turns import Spread, speed_ratio, spread, take_turns
from work import SIZES, Size, decoding_operations, draw_lengths, draw_tokens
from workers import Reply, Team, Worker

from headwise.runtime.checkpoint.read import read_folder

FORCED = 14  # steps per output
INSTRUCTIONS = {  # environment of the contenders: our build, CTranslate2, and the products of both its backends
    "avx2": {
        "HEADWISE_NATIVE": "avx2",
        "CT2_FORCE_CPU_ISA": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}
SENTENCES = machine.pick({1: 16, 32: 128, 64: 256, 128: 256}, {1: 2, 32: 8})  # per turn, by batch size


@dataclass(frozen=True)
class Measured:
    """One table: a job, and the seconds of each contender in each turn."""

    title: str
    job: Job
    sentences: int  # in a turn
    seconds: dict[str, list[float]]
    tokens: dict[str, float]  # output tokens per sentence
    same: dict[str, float]  # share of outputs that equal those of the first contender
    peak_bytes: dict[str, int]
    operations: float | None = None  # useful ones in a turn of greedy search; None if lengths differ
    bleu: dict[str, float] = field(default_factory=dict)

    def per_second(self, name: str) -> Spread:
        """Sentences per second."""
        return spread([self.sentences / s for s in self.seconds[name]])

    def ratio(self, ours: str, theirs: str) -> float:
        """How many times faster `ours` is, median of the turns."""
        return speed_ratio(self.seconds[ours], self.seconds[theirs]).median


def contenders(folder: Path, cores: int, names: Sequence[str]) -> dict[str, Any]:
    """The contenders among `names`, each in its own processes; ours with the default allocator setting."""
    makers = {
        "ours float32": lambda: Team(cores, decoders.ours, folder, "float32", keep_memory=True),
        "ours int8": lambda: Team(cores, decoders.ours, folder, "int8", keep_memory=True),
        "plain torch float32": lambda: Team(cores, decoders.ours, folder, "float32", False, False, keep_memory=True),
        "ours int4": lambda: Team(cores, decoders.ours, folder, "int4", keep_memory=True),
        "ours bfloat16": lambda: Team(cores, decoders.ours, folder, "bfloat16", keep_memory=True),
        "ctranslate2 float32": lambda: Worker(decoders.ctranslate2, folder, "float32", cores, 1),
        "ctranslate2 int8": lambda: Worker(decoders.ctranslate2, folder, "int8", cores, 1),
        "transformers": lambda: Worker(decoders.transformers, folder, threads=cores),
        "ours int8 shortlist": lambda: Team(cores, decoders.ours, folder, "int8", True, keep_memory=True),
        "ctranslate2 int8 vmap": lambda: Worker(decoders.ctranslate2, folder, "int8", cores, 1, True),
        "onnxruntime float32": lambda: Team(cores, decoders.graphs, folder, "float32", "onnxruntime"),
        "onnxruntime int8": lambda: Team(cores, decoders.graphs, folder, "int8", "onnxruntime"),
        "openvino float32": lambda: Team(cores, decoders.graphs, folder, "float32", "openvino"),
    }
    makers |= {name: lambda arguments=arguments: Worker(*arguments(folder)) for name, arguments in ON_CUDA.items()}
    return {name: makers[name]() for name in names}


ON_CUDA: dict[str, Callable[[Path], tuple[Any, ...]]] = {
    "ours float16": lambda folder: (decoders.ours, folder, "float16", False, False, "cuda"),
    "ours float16, not captured": lambda folder: (decoders.ours, folder, "float16", False, False, "cuda", False),
    "ctranslate2 float16": lambda folder: (decoders.ctranslate2, folder, "float16", 1, 1, False, "cuda"),
}
ALL = ("ours float32", "ours int8", "ours int4", "ctranslate2 float32", "ctranslate2 int8", "transformers")


def check_agreement(folder: Path) -> dict[str, float]:
    """Check that all decoders have the same model; `SystemExit` if not."""
    worker = Worker(decoders.agreement, folder)
    found = worker().value
    worker.close()
    if found["logits"] > 1e-3 or found["log_probs"] > 1e-3 or min(v for k, v in found.items() if "same" in k) < 0.9:
        raise SystemExit(f"the decoders do not agree, nothing was measured: {found}")
    return found


def throughput(
    title: str, workers: dict[str, Any], job: Job, turns: Sequence[list[Tokens]], warm_up: int = 1
) -> tuple[Measured, dict[str, list[Tokens]]]:
    """Let all contenders translate the sentences of each turn; also returns the outputs of the last turn."""
    outputs: dict[str, list[Tokens]] = {}
    peaks: dict[str, int] = {}

    def run(name: str, turn: int) -> float:
        sources = sorted(turns[turn], key=len)  # so that the processes get equal shares
        reply: Reply = workers[name](sources, job)
        outputs[name], peaks[name] = reply.value, reply.peak_bytes
        return reply.seconds

    order = {name: (lambda turn, name=name: run(name, turn)) for name in workers}
    seconds = take_turns(order, len(turns), warm_up)
    tokens = {name: statistics.mean(map(len, rows)) for name, rows in outputs.items()}
    if job.length:  # the last step may be the end token, which does not count
        assert all(job.length - 1 <= count <= job.length for count in tokens.values()), tokens
    wanted = outputs[next(iter(workers))]
    same = {name: same_share(rows, wanted, job.length and job.length - 1) for name, rows in outputs.items()}
    return Measured(title, job, len(turns[0]), seconds, tokens, same, peaks), outputs


def latency(
    title: str,
    folder: Path,
    cores: int,
    job: Job,
    turns: Sequence[list[Tokens]],
    with_transformers: bool = True,
    device: str = "cpu",
) -> Measured:
    """Seconds of single sentences; every sentence counts as a turn."""
    make = decoders.latencies
    if device == "cuda":
        settings = {name: (arguments(folder), 1) for name, arguments in ON_CUDA.items()}
    else:
        settings = latency_settings(folder, cores, with_transformers)
    workers = {
        name: Worker(make, *arguments, threads=threads, keep_memory=name.startswith("ours"))
        for name, (arguments, threads) in settings.items()
    }
    single: dict[str, list[float]] = {name: [] for name in workers}
    peaks: dict[str, int] = {}

    def run(name: str, turn: int) -> float:
        reply = workers[name](turns[turn], job)
        peaks[name] = reply.peak_bytes
        single[name].extend(reply.value if turn >= 0 else [])
        return reply.seconds

    take_turns({name: (lambda turn, name=name: run(name, turn)) for name in workers}, len(turns), warm_up=1)
    close(workers)
    return Measured(title, job, 1, single, {}, {}, peaks)


def latency_settings(folder: Path, cores: int, with_transformers: bool) -> dict[str, tuple[tuple[Any, ...], int]]:
    """The arguments and threads of each contender for latency on a CPU."""
    settings: dict[str, tuple[tuple[Any, ...], int]] = {}
    for threads in sorted({1, cores}):
        text = f"{threads} thread{'s' if threads > 1 else ''}"
        settings[f"ours int8, {text}"] = ((decoders.ours, folder, "int8"), threads)
        settings[f"ctranslate2 int8, {text}"] = ((decoders.ctranslate2, folder, "int8", 1, threads), threads)
    settings["ours int4, 1 thread"] = ((decoders.ours, folder, "int4"), 1)
    settings[f"ours float32, {text}"] = ((decoders.ours, folder, "float32"), cores)
    if with_transformers:
        settings[f"transformers, {text}"] = ((decoders.transformers, folder), cores)
    return settings


def check_cuda() -> None:
    """`SystemExit` unless torch and CTranslate2 both see a GPU."""
    import ctranslate2

    if not torch.cuda.is_available():
        raise SystemExit("--device cuda: torch found no CUDA device")
    if not ctranslate2.get_cuda_device_count():
        raise SystemExit("--device cuda: CTranslate2 found no CUDA device; install a build with CUDA")


OURS_COLD = (
    "import headwise; m = headwise.load({%s!r}, device='cpu'); "
    "m.translate(['w9 w10 w11'], beam_size=1, max_length_factor=0.0, max_length_extra=14, compute=%r)"
)
CTRANSLATE2_COLD = (  # text to text, like ours: with the tokenizers library
    "from tokenizers import Tokenizer; k = Tokenizer.from_file({ours!r} + '/tokenizer.json'); k.encode('w9 w10 w11'); "
    "from ctranslate2 import Translator as T; t = T({%s!r}, compute_type=%r, intra_threads=1); "
    "t.translate_batch([['w9', 'w10', 'w11', '</s>']], beam_size=1, max_decoding_length=14)"
)
COLD = {  # with weights converted ahead of time, or, "of a float32 file", while loading
    "ours int8": OURS_COLD % ("packed", "int8"),
    "ours int8 of a float32 file": OURS_COLD % ("ours", "int8"),
    "ctranslate2 int8": CTRANSLATE2_COLD % ("ct2_int8", "int8"),
    "ctranslate2 int8 of a float32 file": CTRANSLATE2_COLD % ("ct2", "int8"),
    "ours float32": OURS_COLD % ("packed", "float32"),
    "ours float32, not packed": OURS_COLD % ("ours", "float32"),
    "ours bfloat16": OURS_COLD % ("packed", "bfloat16"),
    "ctranslate2 float32": CTRANSLATE2_COLD % ("ct2", "float32"),
    "transformers": "import torch; from transformers import MarianMTModel as M; m = M.from_pretrained({hf!r}); "
    "m.generate(torch.tensor([[9, 10, 11, 2]]), num_beams=1, max_new_tokens=14)",
}
WEIGHTS = {  # the file that a contender reads
    "ours int8": "packed/packed.int8",
    "ours int8 of a float32 file": "headwise/model.safetensors",
    "ctranslate2 int8": "ctranslate2-int8/model.bin",
    "ctranslate2 int8 of a float32 file": "ctranslate2-float32/model.bin",
    "ours float32": "packed/packed.float32",
    "ours float32, not packed": "headwise/model.safetensors",
    "ours bfloat16": "packed/packed.bfloat16",
    "ctranslate2 float32": "ctranslate2-float32/model.bin",
    "transformers": "transformers/model.safetensors",
}
NOT_PACKED = {"int8": "ours int8 of a float32 file", "float32": "ours float32, not packed"}
PEAK = "; print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"


@dataclass(frozen=True)
class ColdStarts:
    """Seconds of each contender from starting an interpreter to its end after one short sentence."""

    seconds: dict[str, list[float]]  # in each turn
    peak_bytes: dict[str, list[int]]
    file_bytes: dict[str, int]  # of the weights

    def ratio(self, ours: str, theirs: str) -> float:
        """How many times sooner `ours` is there, median of the turns."""
        return speed_ratio(self.seconds[ours], self.seconds[theirs]).median

    def memory_ratio(self, ours: str, theirs: str) -> float:
        """How many times as much memory the other has at its peak."""
        return statistics.median(self.peak_bytes[theirs]) / statistics.median(self.peak_bytes[ours])


def cold_start(folder: Path, turns: int = 3, names: Sequence[str] = tuple(COLD)) -> ColdStarts:
    """For models of `random_model`. Programs run with one thread, because there is no work for more."""
    names = [name for name in names if not name.startswith("ours int8") or decoders.has_compute()]
    folders = {"ours": str(folder / "headwise"), "packed": str(folder / "packed"), "hf": str(folder / "transformers")}
    pack_all(folder / "headwise", folder / "packed")
    folders |= {"ct2": str(folder / "ctranslate2-float32"), "ct2_int8": str(folder / "ctranslate2-int8")}
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}  # as pip installs it
    alone = {**os.environ, **compiled, "OMP_NUM_THREADS": "1"}
    peaks: dict[str, list[int]] = {name: [] for name in names}

    def run(name: str, turn: int) -> float:
        code, started = COLD[name].format(**folders) + PEAK, machine.children_now()
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=alone)
        took = machine.children_now() - started
        if turn >= 0:
            peaks[name].append(1024 * int(done.stdout.split()[-2]))
        return took

    seconds = take_turns({name: (lambda turn, name=name: run(name, turn)) for name in names}, turns, 1)
    return ColdStarts(seconds, peaks, {name: (folder / WEIGHTS[name]).stat().st_size for name in names})


def pack_all(model: Path, packed: Path) -> None:
    """A model directory of the same files, packed by `headwise pack` for every precision."""
    from headwise.runtime.checkpoint.pack import pack_model

    shutil.rmtree(packed, ignore_errors=True)
    shutil.copytree(model, packed, copy_function=os.link)
    for compute in ("float32", "int8", "bfloat16") if decoders.has_compute() else ():
        pack_model(packed, compute)


def cold_section(found: ColdStarts) -> str:
    """A table of seconds and memory."""
    rows = [
        [
            *(name, spread(seconds)),
            *(f"{size / 2**20:,.0f}" for size in (statistics.median(found.peak_bytes[name]), found.file_bytes[name])),
        ]
        for name, seconds in found.seconds.items()
    ]
    head = ["contender", "seconds until the first translation", "peak MiB", "file MiB"]
    return f"### Cold start\n\n{machine.table(head, rows)}"


def random_turns(count: int, sentences: int, vocab_size: int) -> list[list[Tokens]]:
    """Sources for each turn, with lengths sampled like those of Multi30k."""
    rows = draw_tokens(draw_lengths(count * sentences, seed=2)[:, 0] - 1, vocab_size, seed=3)
    ids = [row.tolist() for row in rows]
    return [ids[i * sentences : (i + 1) * sentences] for i in range(count)]


def greedy_operations(size: Size, turns: Sequence[list[Tokens]], length: int) -> float:
    """Useful operations of an average turn."""
    totals = [sum(decoding_operations(size, len(source) + 1, length) for source in turn) for turn in turns]
    return statistics.mean(totals)


def throughput_section(m: Measured, product_rate: float, peak: float = 0.0) -> str:
    """A table of sentences per second; `peak`: 8-bit operations per second of all cores, 0 if unknown."""
    names = list(m.seconds)
    ours = [name for name in names if name.startswith("ours")]
    header = ["contender", "sentences/s", *(f"{name} is faster by" for name in ours), "tokens", f"same as {names[0]}"]
    header += (
        ["peak MiB"]
        + (["share of fp32 product", "share of int8 peak"] if m.operations else [])
        + (["BLEU"] if m.bleu else [])
    )
    rows = []
    for name in names:
        ratios = ["1" if name == our else str(speed_ratio(m.seconds[our], m.seconds[name])) for our in ours]
        row: list[object] = [name, m.per_second(name), *ratios, f"{m.tokens[name]:.1f}", f"{m.same[name]:.0%}"]
        row += [f"{m.peak_bytes[name] / 2**20:,.0f}"]
        if m.operations:
            rate = m.operations / m.sentences * m.per_second(name).median
            row += [f"{rate / product_rate:.2f}", f"{rate / peak:.2f}" if peak and "int8" in name else ""]
        rows.append(row + ([f"{m.bleu[name]:.2f}"] if m.bleu else []))
    return f"### {m.title}\n\n{machine.table(header, rows)}"


def latency_section(m: Measured) -> str:
    """A table of milliseconds a sentence."""
    rows = []
    fastest = min((n for n in m.seconds if n.startswith("ours")), key=lambda n: statistics.median(m.seconds[n]))
    for name, seconds in m.seconds.items():
        p50, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100, method="inclusive")[98]
        ratio = speed_ratio(m.seconds[fastest], seconds)
        rows.append([name, f"{1000 * p50:.1f}", f"{1000 * p99:.1f}", ratio, f"{m.peak_bytes[name] / 2**20:,.0f}"])
    header = ["contender", "p50 ms", "p99 ms", f"{fastest} is faster by", "peak MiB"]
    return f"### {m.title}\n\n{machine.table(header, rows)}"


def close(workers: dict[str, Any]) -> None:
    """End all processes."""
    for worker in workers.values():
        worker.close()


def measure_random(
    size: str, folder: Path, cores: int, options: argparse.Namespace
) -> tuple[list[Measured], dict[str, Any]]:
    """All tables of a size with random parameters; the last table of each beam is latency."""
    exports.random_model(size, folder)
    agreed = check_agreement(folder)
    workers = contenders(folder, cores, options.contenders)
    found = []
    for beam in options.beams:
        for batch in options.batches:
            turns = random_turns(options.turns, SENTENCES.get(batch, 4 * batch), SIZES[size].vocab_size)
            title = f"{size}, {'greedy' if beam == 1 else f'beam {beam}'}, batches of {batch}, {FORCED} steps"
            measured, _ = throughput(title, workers, Job(beam, batch, FORCED), turns)
            operations = greedy_operations(SIZES[size], turns, FORCED) if beam == 1 else None
            found.append(Measured(**{**vars(measured), "operations": operations}))
    close(workers)
    for beam in options.beams:
        turns = random_turns(options.turns, machine.pick(12, 2), SIZES[size].vocab_size)
        title = f"{size}, {'greedy' if beam == 1 else f'beam {beam}'}, one sentence at a time, {FORCED} steps"
        found.append(latency(title, folder, cores, Job(beam, 1, FORCED), turns, device=options.device))
    return found, {"agreement": agreed} | ({} if options.device == "cuda" else {"cold_start": cold_start(folder)})


def measure_trained(folder: Path, cores: int, options: argparse.Namespace) -> tuple[list[Measured], dict[str, Any]]:
    """Tables of a trained model with outputs of natural length; every turn translates the whole file."""
    exports.export(options.model, folder)
    agreed = check_agreement(folder)
    tokenizer = read_folder(options.model).tokenizer
    sources = [ids for ids in tokenizer.encode_batch(lines(options.source)) if ids]
    workers = contenders(folder, cores, options.contenders)
    found = []
    for beam in options.beams:
        title = f"trained, {'greedy' if beam == 1 else f'beam {beam}'}, natural lengths, {len(sources)} sentences"
        measured, outputs = throughput(title, workers, Job(beam, None, None), [sources] * options.turns)
        bleu = {}
        if options.reference:
            references = [line for line, ids in zip(lines(options.reference), sources, strict=True) if ids]
            bleu = {name: score(tokenizer, rows, sources, references) for name, rows in outputs.items()}
        found.append(Measured(**{**vars(measured), "bleu": bleu}))
    close(workers)
    for beam in options.beams:
        title = f"trained, {'greedy' if beam == 1 else f'beam {beam}'}, one sentence at a time, natural lengths"
        turns = [sources[i * 12 : (i + 1) * 12] for i in range(options.turns)]
        found.append(latency(title, folder, cores, Job(beam, 1, None), turns, device=options.device))
    return found, {"agreement": agreed}


def score(tokenizer: Any, outputs: list[Tokens], sources: list[Tokens], references: list[str]) -> float:
    """Detokenised BLEU; `outputs` are in the order of the sources sorted by length."""
    import sacrebleu

    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    texts = {i: tokenizer.decode(tokens) for i, tokens in zip(order, outputs, strict=True)}
    return sacrebleu.corpus_bleu([texts[i] for i in range(len(sources))], [references]).score


def lines(path: Path) -> list[str]:
    """Lines of a text file, gzipped or not."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return text.decode().removesuffix("\n").split("\n")


def report(found: Sequence[Measured], extra: dict[str, Any], product_rate: float, peak: float = 0.0) -> list[str]:
    """The sections of the result."""
    agreed = ", ".join(f"{name} {value:.2g}" for name, value in extra["agreement"].items())
    sections = [f"Agreement before timing: {agreed}."]
    sections += [throughput_section(m, product_rate, peak) if m.tokens else latency_section(m) for m in found]
    if "cold_start" in extra:
        sections.append(cold_section(extra["cold_start"]))
    return sections


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=machine.pick(["tiny", "base"], ["tiny"]))
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--batches", nargs="+", type=int, default=machine.pick([1, 32, 128], [1, 32]))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what the contenders compute on")
    parser.add_argument("--contenders", nargs="+", choices=(*ALL, *ON_CUDA), help="default: all for the device")
    parser.add_argument("--turns", type=int, default=machine.pick(8, 2))
    parser.add_argument("--model", type=Path, help="a trained model directory")
    parser.add_argument("--source", type=Path, help="text to translate with it")
    parser.add_argument("--reference", type=Path, help="reference translations")
    parser.add_argument("--instructions", choices=INSTRUCTIONS, help="those of an older processor, for all contenders")
    machine.add_machine_options(parser)
    parser.add_argument("--name", default="decoding", help="of the result files")
    options = parser.parse_args()
    options.contenders = options.contenders or list(ON_CUDA if options.device == "cuda" else ALL)
    if options.device == "cuda":
        check_cuda()
    os.environ.update(INSTRUCTIONS.get(options.instructions, {}))
    cores = machine.prepare(options)
    about = machine.description(cores)
    about |= {"gpu": torch.cuda.get_device_name()} if options.device == "cuda" else {}
    product_rate, peak = machine.float_rate(), cores * int8_peak() * 1e9
    text, data, panels = [], {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        for size in ["trained"] if options.model else options.sizes:
            folder = Path(temporary) / size
            folder.mkdir()
            measured = (
                measure_trained(folder, cores, options)
                if options.model
                else measure_random(size, folder, cores, options)
            )
            sections = report(*measured, product_rate, peak)
            print("\n\n".join(sections), flush=True)
            text += [f"## {size}", *sections]
            data[size] = {"tables": [vars(m) | {"job": vars(m.job)} for m in measured[0]], **measured[1]}
            data[size] |= {"cold_start": vars(measured[1]["cold_start"])} if "cold_start" in measured[1] else {}
            panels |= {m.title: rates(m) for m in measured[0] if m.tokens}
    path = machine.result_path(options.name)
    figure = bars(path, panels, "sentences per second")
    note = "" if decoders.has_compute() else "Ours is the search with torch in float32.\n\n"
    text[:0] = [note + __doc__.split("\n\n", 2)[2].strip(), f"![sentences per second]({figure.name})"]
    text[1:1] = [
        f"Float32 matrix product: {product_rate / 1e9:.0f} GFLOP/s with {cores} thread(s); peak of 8-bit integers "
        f"(`benchmarks/peak.py`): {peak / 1e9:,.0f} billion operations a second."
    ]
    machine.write_result(path, "Speed of translation", about, text, data)
    print(f"written to {path}.md")


def rates(m: Measured) -> dict[str, tuple[float, float, float]]:
    """The values of the figure for a table."""
    found = {name: m.per_second(name) for name in m.seconds}
    return {name: (s.low, s.median, s.high) for name, s in found.items()}


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    main()
