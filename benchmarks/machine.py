"""The machine of a benchmark: speed of matrix products, description, and result files."""

import argparse
import datetime
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

# Processes of contenders have the arguments of the script that started them.
QUICK = "--quick" in sys.argv or Path(sys.argv[0]).name == "quick.py"
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ("build/bench-quick" if QUICK else "benchmarks/results")
PACKAGES = (
    "torch",
    "numpy",
    "transformers",
    "x-transformers",
    "joeynmt",
    "onnxruntime",
    "openvino",
    "ctranslate2",
    "llama-cpp-python",
    "tokenizers",
    "sentencepiece",
    "subword-nmt",
)
SIZE = 256 if QUICK else 2048  # of the square matrices


CLOCK = "BENCHMARK_CLOCK"  # environment variable, inherited by the processes of contenders
CLOCK_NAMES = {"wall": "those of the wall clock", "cpu": "processor time, because the machine had other work"}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def now() -> float:
    """Seconds on the clock of this benchmark: wall clock, or processor time of this process.

    Processor time does not count the time of other programs, so it compares single-threaded programs on a busy machine.
    With several threads it would count their waiting for each other as work.
    """
    return CLOCKS[os.environ.get(CLOCK, "wall")]()


def children_now() -> float:
    """The same for programs started and awaited by this process: wall clock, or their processor time."""
    if os.environ.get(CLOCK, "wall") == "wall":
        return time.perf_counter()
    times = os.times()
    return times.children_user + times.children_system


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Add the options on the machine; `prepare` applies them."""
    parser.add_argument("--cores", type=int, nargs="+", help="use only these cores")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: processor time, for one busy core")
    add_quick_option(parser)


def pick(full: Any, quick: Any) -> Any:
    """`full`, or `quick` with --quick."""
    return quick if QUICK else full


def add_quick_option(parser: argparse.ArgumentParser) -> None:
    """`--quick`; it is read before parsing, because sizes are module constants."""
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that the script runs")


def prepare(options: argparse.Namespace) -> int:
    """Pin the process to the chosen cores and set the clock; returns the number of cores."""
    os.environ[CLOCK] = options.clock
    cores = pin(options.cores)
    if options.clock == "cpu" and cores > 1:
        raise SystemExit("--clock cpu compares programs of one thread: add --cores and one number")
    return cores


def float_rate(repeats: int = 3) -> float:
    """Operations per second of a float32 matrix product, the best of several; a multiply-add is two operations."""
    a, b = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    out = torch.empty(SIZE, SIZE)
    return _best_rate(lambda: torch.mm(a, b, out=out), repeats)


def int8_rate(repeats: int = 3) -> float:
    """The same for 8-bit products with 8-bit weights, with torch's kernel; 0 if it has none."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        return 0.0
    weight = torch.quantize_per_tensor(torch.rand(SIZE, SIZE) - 0.5, 1 / 128, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, None)
    x = torch.rand(SIZE, SIZE)
    return _best_rate(lambda: torch.ops.quantized.linear_dynamic(x, packed), repeats)


def _best_rate(product: Callable[[], Any], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        started = now()
        product()
        best = min(best, now() - started)
    return 2 * SIZE**3 / best


def matrix_product() -> Callable[[int], float]:
    """A contender that only multiplies matrices, as a reference for the same moment. Value: operations/s."""
    return lambda repeats: float_rate(repeats)


def pin(cores: Sequence[int] | None) -> int:
    """Pin this process and its children to these cores (None: all allowed cores); returns their number."""
    if cores:
        os.sched_setaffinity(0, set(cores))
    return len(os.sched_getaffinity(0))


def description(threads: int) -> dict[str, Any]:
    """Hardware and versions, for the head of a result file."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "clock": os.environ.get(CLOCK, "wall"),
        "load_at_start": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "versions": versions,
        "command": command(),
    }


def command() -> str:
    """The running command as typed in the repository root, with paths reduced to their last component."""
    arguments = [Path(argument).name if os.path.isabs(argument) else argument for argument in sys.argv[1:]]
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def result_path(what: str, folder: Path = RESULTS) -> Path:
    """`[what]_[hardware]_[date]` without a suffix, for text, data and figure."""
    folder.mkdir(parents=True, exist_ok=True)
    hardware = f"{len(os.sched_getaffinity(0))}-core-cpu"
    return folder / f"{what}_{hardware}_{datetime.date.today().isoformat()}"


def write_result(path: Path, title: str, about: dict[str, Any], sections: Sequence[str], data: dict[str, Any]) -> None:
    """Write `path`.md for readers and `path`.json with every single measurement."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    head = [
        f"# {title}",
        f"{about['processor']}, {about['cores']} core(s), {about['threads']} thread(s), {about['memory_gib']} GiB, "
        f"{about['instructions']}, {about['system']}; Python {about['python']}, {versions}. "
        f"Load average when it started: {about['load_at_start']}; seconds are {CLOCK_NAMES[about['clock']]}.",
        f"```sh\n{about['command']}\n```",
    ]
    path.with_suffix(".md").write_text("\n\n".join([*head, *sections]) + "\n", encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps({"about": about, **data}, indent=1) + "\n", encoding="utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
