"""Model families: length of each table, differences of logits from transformers, and the cost of loading.

    python benchmarks/families.py [--turns 5] [--no-load] [--cores 1 --clock cpu]

Differences: the largest difference of any logit over all cases of `tests/parity` (tiny random checkpoints written by
transformers), without padding. Loading: a LLaMA and a BART of a gigabyte with random float32 weights, written by
Headwise. Each is loaded in its own process, which has loaded a small one before, and then computes the logits of five
tokens. Seconds are the median of the turns, with the file in the system's cache. Memory is the increase of the largest
resident set, mapped pages included, divided by the size of the file. Needs the test dependencies.
Writes `results/families_*`.
"""

import argparse
import importlib.util
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import machine
import torch
from workers import Worker, peak_memory

from headwise.core.build import build
from headwise.families.registry import FAMILIES
from headwise.pytorch.checkpoint.write import write_checkpoint

ROOT = Path(__file__).parents[1]
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 14,
    "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 3072, "vocab_size": 32_000,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6, "hidden_act": "silu",
}  # fmt: skip
BART = {
    "architectures": ["BartForConditionalGeneration"], "model_type": "bart", "d_model": 1024, "encoder_layers": 8,
    "decoder_layers": 7, "encoder_attention_heads": 16, "decoder_attention_heads": 16, "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096, "vocab_size": 30_000, "max_position_embeddings": 1024, "bos_token_id": 0,
    "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "is_encoder_decoder": True,
}  # fmt: skip
SMALL = {"vocab_size": 100, "num_hidden_layers": 1, "encoder_layers": 1, "decoder_layers": 1}
for _shape in (LLAMA, BART):
    _shape |= machine.pick({}, {name: value for name, value in SMALL.items() if name in _shape})


@dataclass(frozen=True)
class Loaded:
    """Time and memory of loading a checkpoint once."""

    seconds: float
    bytes_after_load: int
    bytes_after_pass: int


def parity_tests() -> ModuleType:
    """The module with the compared cases."""
    spec = importlib.util.spec_from_file_location("family_cases", ROOT / "tests/parity/test_families.py")
    assert spec and spec.loader
    sys.path.insert(0, str(ROOT / "tests"))  # helpers of the tests
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@torch.no_grad()
def differences() -> dict[str, list[float]]:
    """The largest difference of logits in each case, by `model_type`."""
    tests, found = parity_tests(), {}
    for case in tests.CASES[: machine.pick(None, 3)]:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of transformers about tiny sizes
            pair = tests.make_pair(case, Path(folder))
            ours = pair.network(*pair.inputs.values())
            theirs = tests.their_logits(pair.theirs, **pair.inputs)
        kind = pair.ours.hf_config["model_type"]
        found.setdefault(kind, []).append((ours - theirs).abs().max().item())
    return found


def family_table(found: dict[str, list[float]]) -> list[list[object]]:
    """A row for each family: its file, lines of code, cases, the largest difference."""
    rows = []
    for kind, values in sorted(found.items()):
        file = Path(sys.modules[FAMILIES[kind].config_from_hf.__module__].__file__ or "")
        lines = len(file.read_text(encoding="utf-8").splitlines())
        rows.append([kind, file.name, lines, len(values), f"{max(values):.1e}"])
    return rows


def ours(folder: str, small: str, kind: str) -> Callable[[], Loaded]:
    """Loading by `headwise.load`."""
    import headwise

    headwise.load(small, "cpu")
    return lambda: measured(lambda: headwise.load(folder, "cpu").network, lambda network, ids: network(*ids), kind)


def theirs(folder: str, small: str, kind: str) -> Callable[[], Loaded]:
    """Loading by transformers."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    network = getattr(transformers, {"llama": LLAMA, "bart": BART}[kind]["architectures"][0])

    def run(model: Any, ids: tuple[torch.Tensor, ...]) -> Any:
        return model(**dict(zip(("input_ids", "decoder_input_ids"), ids, strict=False)))

    network.from_pretrained(small)
    return lambda: measured(lambda: network.from_pretrained(folder), run, kind)


def measured(load: Callable[[], Any], run: Callable[[Any, Any], Any], kind: str) -> Loaded:
    """Time and memory of loading, and memory after the first logits."""
    before, started = peak_memory(), machine.now()
    network = load()
    seconds, after = machine.now() - started, peak_memory()
    ids = torch.arange(5)[None]
    with torch.no_grad():
        run(network, (ids, ids) if kind == "bart" else (ids,))
    return Loaded(seconds, after - before, peak_memory() - before)


def loading(turns: int, threads: int) -> tuple[list[list[object]], dict[str, Any]]:
    """A row for each checkpoint and library, and every measurement."""
    rows: list[list[object]] = []
    every = {}
    for settings in (LLAMA, BART):
        kind = str(settings["model_type"])
        with tempfile.TemporaryDirectory() as scratch:
            folder, small = f"{scratch}/large", f"{scratch}/small"
            write_random(Path(small), {key: SMALL.get(key, value) for key, value in settings.items()})
            write_random(Path(folder), settings)
            size = (Path(folder) / "model.safetensors").stat().st_size
            found: dict[str, list[Loaded]] = {"headwise": [], "transformers": []}
            for turn in range(turns):
                contenders = [("headwise", ours), ("transformers", theirs)]
                for name, make in contenders if turn % 2 else contenders[::-1]:
                    worker = Worker(make, folder, small, kind, threads=threads)
                    found[name].append(worker().value)
                    worker.close()
        rows += [loading_row(kind, name, size, loads) for name, loads in found.items()]
        every[kind] = {"bytes": size} | {name: [vars(load) for load in loads] for name, loads in found.items()}
    return rows, every


def write_random(folder: Path, settings: dict[str, Any]) -> None:
    """A checkpoint with random weights."""
    config = FAMILIES[settings["model_type"]].config_from_hf(settings)
    write_checkpoint(folder, build(config), config, settings)


def loading_row(kind: str, name: str, size: int, loads: list[Loaded]) -> list[object]:
    """A row of the table."""
    seconds = [load.seconds for load in loads]
    spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f}-{max(seconds):.2f})"
    shares = [max(getattr(load, name) for load in loads) / size for name in ("bytes_after_load", "bytes_after_pass")]
    return [f"{kind}, {size / 1e9:.2f} GB", name, spread, *(f"{share:.2f}" for share in shares)]


def main() -> None:
    """Compare, load, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=machine.pick(5, 1), help="loads per library and checkpoint")
    parser.add_argument("--no-load", action="store_true", help="compare logits only")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    torch.set_num_threads(cores)
    about = machine.description(cores)
    found = differences()
    table = machine.table(["family", "file", "lines", "cases", "largest difference of a logit"], family_table(found))
    sections, data = [table], {"differences": found}
    if not options.no_load:
        rows, data["loading"] = loading(options.turns, cores)
        header = ["checkpoint", "loaded by", "seconds", "peak memory / file", "after a pass"]
        sections += ["## Loading a gigabyte", machine.table(header, rows)]
    path = machine.result_path("families")
    machine.write_result(path, "Model families compared with transformers", about, sections, data)
    print("\n\n".join(sections))


if __name__ == "__main__":
    main()
