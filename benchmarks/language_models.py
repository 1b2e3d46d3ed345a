"""Language models compared with CTranslate2 and llama.cpp: a prompt, then a continuation by greedy search.

    python benchmarks/language_models.py MODEL [--gguf FILE] [--text TEXT] [--threads 1 2] [--turns 5]

MODEL is a folder in the Hugging Face layout, such as SmolLM2-135M-Instruct: `headwise import FILE.gguf a`, then
`headwise export a MODEL --to hf`. FILE is the same model for llama.cpp, which writes it in each precision itself.

Every contender has its own process and the same weights, in float32, 8 bits and, without CTranslate2, 4 bits. In 8
bits there is one scale for each output in Headwise and CTranslate2, and one for each 32 weights in llama.cpp (Q8_0);
in 4 bits one for each 32 weights in both (Q4_0), and 8 bits in the output layer. Compile llama.cpp with the
instructions of the processor, which the results name:
`CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python`.
A turn is one prompt of random ids: the seconds until the first token, and those of all further tokens, whose end token
is suppressed. Ratios are those within a turn. Prompts of CTranslate2 and Headwise give the logits of the last position.
With `--text`, perplexity is that of its first windows of 512 tokens, each read alone, without the first token of each.
Writes `results/language-models_*`.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import machine
import numpy as np
from machine import now
from turns import order, speed_ratio
from workers import Worker

from headwise.contract import Limits, SearchOptions
from headwise.models.language.language_model import LibraryText
from headwise.runtime.checkpoint.generation_config import read_generation_config
from headwise.runtime.checkpoint.layout import read_json
from headwise.runtime.checkpoint.pretrained_folder import read_pretrained_folder

Result = tuple[float, float, list[int]]  # seconds until the first token, and of the others; the tokens
Continue = Callable[[list[int], int], Result]
Loss = Callable[[Sequence[list[int]]], float]
WINDOW, WINDOWS = 512, machine.pick(24, 1)
FILE_TYPES = {"float32": 0, "int8": 7, "int4": 2}  # of llama.cpp: F32, Q8_0, Q4_0
IN_CTRANSLATE2 = ("float32", "int8")
SPECIAL = {"unk_token": "<0>", "bos_token": "<1>", "eos_token": "<2>"}
TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}


def ours(folder: Path, precision: str, threads: int) -> Continue:
    """The compiled library."""
    network = LibraryText(
        read_pretrained_folder(
            folder, "cpu", "float32", unsupported="the compiled library does not support it"
        ).stored.searcher(precision)
    )

    def go_on(prompt: list[int], length: int) -> Result:
        bounds = Limits(np.zeros(1, int), np.array([length]), np.zeros((1, 0), int))
        tokens, times = list[int](), [now()]
        for token in network.stream(prompt, bounds, SearchOptions(beam_size=1, eos_id=-1, suppressed=_ends(folder))):
            tokens.append(token)
            times.append(now())
        return times[1] - times[0], times[-1] - times[1], tokens

    return go_on


def _ends(folder: Path) -> tuple[int, ...]:
    """The end tokens, which no contender writes."""
    special = read_generation_config(folder, read_json(folder / "config.json"), has_encoder=False).special
    return special.eos_id, *special.other_ends


def ctranslate2(folder: Path, precision: str, threads: int) -> Continue:
    """CTranslate2; a callback takes the time of each token."""
    import ctranslate2 as library

    generator = library.Generator(str(folder / precision), compute_type=precision, intra_threads=threads)
    names = json.loads((folder / precision / "vocabulary.json").read_text(encoding="utf-8"))

    def go_on(prompt: list[int], length: int) -> Result:
        started, times, tokens = now(), list[float](), list[int]()

        def note(step: Any) -> bool:
            tokens.append(step.token_id)
            times.append(now())
            return False

        generator.generate_batch(
            [[names[token] for token in prompt]], max_length=length, min_length=length, sampling_topk=1,
            include_prompt_in_result=False, callback=note,
        )  # fmt: skip
        return times[0] - started, times[-1] - times[0], tokens

    return go_on


def llama_cpp(file: Path, precision: str, threads: int, ends: Sequence[int]) -> Continue:
    """llama.cpp through llama-cpp-python; the most probable token is chosen with numpy."""
    import llama_cpp as library

    model = library.Llama(
        str(file), n_ctx=2048, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False, seed=1
    )

    def go_on(prompt: list[int], length: int) -> Result:
        tokens, times = list[int](), [now()]
        model.reset()
        model.eval(prompt)
        while True:
            logits = np.array(_last_logits(library, model))
            logits[list(ends)] = -np.inf
            tokens.append(int(logits.argmax()))
            times.append(now())
            if len(tokens) == length:
                return times[1] - times[0], times[-1] - times[1], tokens
            model.eval(tokens[-1:])

    return go_on


def _last_logits(library: Any, model: Any) -> Any:
    pointer = library.llama_get_logits_ith(model.ctx, -1)
    return np.ctypeslib.as_array(pointer, shape=(model.n_vocab(),))


# --- Perplexity: from windows of tokens to the mean negative log-probability of all but their first ones ---


def loss_of_ours(folder: Path, precision: str, threads: int) -> Loss:
    """The compiled library."""
    stored = read_pretrained_folder(
        folder, "cpu", "float32", unsupported="the compiled library does not support it"
    ).stored
    network = LibraryText(stored.searcher(precision))
    return lambda windows: -float(np.concatenate(network.log_probs(windows, [1] * len(windows))).mean(dtype=float))


def loss_of_ctranslate2(folder: Path, precision: str, threads: int) -> Loss:
    """CTranslate2."""
    import ctranslate2 as library

    generator = library.Generator(str(folder / precision), compute_type=precision, intra_threads=threads)
    names = json.loads((folder / precision / "vocabulary.json").read_text(encoding="utf-8"))

    def loss(windows: Sequence[list[int]]) -> float:
        scored = generator.score_batch([[names[i] for i in window] for window in windows], max_batch_size=1)
        return -float(np.mean([value for one in scored for value in one.log_probs]))

    return loss


def loss_of_llama_cpp(file: Path, precision: str, threads: int) -> Loss:
    """llama.cpp."""
    import llama_cpp as library

    model = library.Llama(str(file), n_ctx=WINDOW, n_batch=WINDOW, n_threads=threads, logits_all=True, verbose=False)

    def loss(windows: Sequence[list[int]]) -> float:
        found = list[float]()
        for window in windows:
            model.reset()
            model.eval(window)
            logits = np.array(model.scores[: len(window) - 1], np.float64)
            largest = logits.max(axis=1)
            total = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
            found += (total - logits[np.arange(len(window) - 1), window[1:]]).tolist()
        return float(np.mean(found))

    return loss


def windows_of(text: Path, model: Path) -> list[list[int]]:
    """The first WINDOWS windows of WINDOW tokens."""
    import tokenizers

    ids = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json")).encode(text.read_text("utf-8")).ids
    return [ids[i : i + WINDOW] for i in range(0, WINDOW * WINDOWS, WINDOW)]


def perplexities(jobs: dict[str, Any], windows: list[list[int]]) -> dict[str, float]:
    """Of each contender, one after the other."""
    found = {}
    for name, job in jobs.items():
        worker = Worker(*job, threads=job[-1])
        found[name] = math.exp(worker(windows).value)
        worker.close()
    return found


# --- The model in each format ---


def tiny_model(folder: Path) -> Path:
    """A random model with a vocabulary of numbers, for --quick."""
    import tokenizers
    import transformers

    names = {f"<{i}>": i for i in range(TINY["vocab_size"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(names, unk_token="<0>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL).save_pretrained(folder)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, eos_token_id=2)).save_pretrained(folder)
    return folder


def convert_for_ctranslate2(model: Path, folder: Path) -> None:
    """`model` in both precisions."""
    from ctranslate2.converters import TransformersConverter

    for precision in IN_CTRANSLATE2:
        TransformersConverter(str(model)).convert(str(folder / precision), quantization=precision)


def quantise_for_llama_cpp(file: Path, folder: Path) -> dict[str, Path]:
    """`file` in all precisions."""
    import llama_cpp as library

    made = {}
    for precision, kind in FILE_TYPES.items():
        made[precision] = folder / f"{kind}.gguf"
        settings = library.llama_model_quantize_default_params()
        settings.ftype, settings.allow_requantize, settings.nthread = kind, True, 1
        if library.llama_model_quantize(os.fsencode(file), os.fsencode(made[precision]), settings):
            raise SystemExit(f"llama.cpp does not write {file} in {precision}")
    return made


def system_info() -> str:
    """The instructions that llama.cpp was compiled for, in its own words."""
    import llama_cpp as library

    return library.llama_print_system_info().decode().strip()


# --- Measurements ---


def measured(contenders: dict[str, Worker], prompts: Sequence[list[int]], length: int) -> dict[str, list[Result]]:
    """The results of each contender in each turn; the first prompt warms up."""
    found: dict[str, list[Result]] = {name: [] for name in contenders}
    for turn, prompt in enumerate(prompts):
        for name in order(list(contenders), turn):
            result = contenders[name](prompt, length).value
            if turn:
                found[name].append(result)
    return found


def rows(results: dict[str, list[Result]], threads: int, prompt: int, length: int) -> list[list[object]]:
    """A row of the table for each contender: speeds, and how many times faster ours is."""
    made: list[list[object]] = []
    for name, found in results.items():
        speeds = [
            f"{count / statistics.median(result[part] for result in found):.1f}"
            for part, count in enumerate((prompt, length - 1))
        ]
        own = results[f"Headwise {name.split(' ', 1)[1]}"]
        ratios = [speed_ratio([result[part] for result in own], [result[part] for result in found]) for part in (0, 1)]
        made.append([threads, name, *speeds, *("" if found is own else ratio for ratio in ratios)])
    return made


def check(results: dict[str, list[Result]]) -> None:
    """Stop if the first tokens in float32 differ; later ones may, after tokens of almost the same probability."""
    firsts = {name: [result[2][0] for result in found] for name, found in results.items() if "float32" in name}
    if len({tuple(tokens) for tokens in firsts.values()}) > 1:
        raise SystemExit(f"the first tokens in float32 differ: {firsts}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL", help="folder in the Hugging Face layout")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="the same model for llama.cpp")
    parser.add_argument("--text", type=Path, metavar="FILE", help="compute the perplexity of this text, too")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="(default: 1)")
    parser.add_argument("--turns", type=int, default=machine.pick(5, 1), help="(default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=machine.pick(512, 8), help="tokens (default: %(default)s)")
    parser.add_argument("--length", type=int, default=machine.pick(128, 4), help="tokens (default: %(default)s)")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    machine.prepare(options)
    about, table, data = machine.description(max(options.threads)), list[list[object]](), dict[str, Any]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = options.model or tiny_model(folder / "tiny")
        convert_for_ctranslate2(model, folder)
        files = quantise_for_llama_cpp(options.gguf, folder) if options.gguf else {}
        vocab_size = read_json(model / "config.json")["vocab_size"]
        draw = np.random.default_rng(1)
        prompts = [draw.integers(10, vocab_size, options.prompt).tolist() for _ in range(options.turns + 1)]
        for threads in options.threads:
            jobs: dict[str, Any] = {f"Headwise {p}": (ours, model, p, threads) for p in FILE_TYPES}
            jobs |= {f"CTranslate2 {p}": (ctranslate2, folder, p, threads) for p in IN_CTRANSLATE2}
            jobs |= {f"llama.cpp {p}": (llama_cpp, file, p, threads, _ends(model)) for p, file in files.items()}
            workers = {name: Worker(*job, threads=threads) for name, job in jobs.items()}
            results = measured(workers, prompts, options.length)
            for worker in workers.values():
                worker.close()
            check(results)
            table += rows(results, threads, options.prompt, options.length)
            data[f"{threads} threads"] = {name: [result[:2] for result in found] for name, found in results.items()}
        if options.text:
            jobs = {f"Headwise {p}": (loss_of_ours, model, p, options.threads[-1]) for p in FILE_TYPES}
            jobs |= {f"CTranslate2 {p}": (loss_of_ctranslate2, folder, p, options.threads[-1]) for p in IN_CTRANSLATE2}
            jobs |= {f"llama.cpp {p}": (loss_of_llama_cpp, file, p, options.threads[-1]) for p, file in files.items()}
            data["perplexity"] = perplexities(jobs, windows_of(options.text, model))
    head = ["threads", "contender", "prompt, tokens/s", "continuation, tokens/s"]
    text = machine.table([*head, "prompt: ours is faster by", "continuation: ours is faster by"], table)
    path = machine.result_path("language-models")
    sections = [__doc__.split("\n\n", 3)[3].strip(), *([f"llama.cpp: {system_info()}"] if files else []), text]
    if options.text:
        losses = [[name, f"{value:.3f}"] for name, value in data["perplexity"].items()]
        sections.append(f"## Perplexity\n\n{machine.table(['contender', 'perplexity'], losses)}")
        print(sections[-1])
    machine.write_result(path, "Language models compared with CTranslate2 and llama.cpp", about, sections, data)
    print(f"{text}\nwritten to {path}.md")


if __name__ == "__main__":
    main()
