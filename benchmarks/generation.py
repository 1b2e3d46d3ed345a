"""Text generation compared with transformers' `generate`: networks of the size of GPT-2 small and BART base.

    python benchmarks/generation.py [--turns 5] [--length 32] [--prompt 32] [--beams 1 4] [--clock cpu --cores 1]

One checkpoint each with random weights, written by transformers and read by both. Prompts are random ids, outputs have
a forced length, batch sizes are 1 and 16. Both run in one process with one thread, so they share allocator and caches;
they take turns, and every turn has its own prompts. The script stops if outputs differ: greedy outputs must be the
same, and at least 7 of 8 beam outputs, because sums in another order round differently. Writes `results/generation_*`.
"""

import argparse
import statistics
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import torch
from turns import speed_ratio, take_turns

import headwise
from headwise.models.language.text import continue_prompts
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.checkpoint.generation_config import GenerationConfig
from headwise.runtime.search.engine import decode_tokens

END = 2  # never generated, because the length is forced
Prompts = list[list[int]]
Generate = Callable[[Prompts], list[list[int]]]


def checkpoint(kind: str, folder: Path) -> tuple[Any, Any]:
    """A random network of transformers' default size, loaded by transformers and by Headwise."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(1)
    settings = {"GPT2LMHeadModel": GPT2_SMALL, "BartForConditionalGeneration": BART_BASE}[kind]
    network = getattr(transformers, kind)
    network(network.config_class(**settings)).save_pretrained(folder)
    return network.from_pretrained(folder, dtype=torch.float32).eval(), headwise.load(folder, "cpu")


GPT2_SMALL: dict[str, Any] = machine.pick({}, {"n_embd": 48, "n_layer": 1})  # transformers' defaults
BART_BASE: dict[str, Any] = {
    "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
    "encoder_attention_heads": 12, "decoder_attention_heads": 12, "forced_eos_token_id": None,
}  # fmt: skip
BART_BASE |= machine.pick({}, {"d_model": 48, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 96})


def theirs(network: Any, length: int, beams: int) -> Generate:
    """transformers' `generate`."""
    alone = not network.config.is_encoder_decoder

    @torch.inference_mode()
    def generate(prompts: Prompts) -> list[list[int]]:
        ids = torch.tensor(prompts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = network.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=length, min_new_tokens=length,
                num_beams=beams, do_sample=False, pad_token_id=1, eos_token_id=END,
            )  # fmt: skip
        return found[:, ids.size(1) if alone else 1 :].tolist()

    return generate


def ours(model: Any, length: int, beams: int) -> Generate:
    """The search of `model.generate`, with ids."""
    absolute = {"max_new_tokens": length, "min_new_tokens": length, "beam_size": beams, "batch_size": 64}
    own: GenerationConfig = replace(model.generation, special=replace(model.generation.special, pad_id=1, eos_id=END))
    chosen = own.changed(absolute)
    special = replace(chosen.special, source_end=())

    def generate(prompts: Prompts) -> list[list[int]]:
        if model.config.encoder is None:
            return [found[0].tokens for found in continue_prompts(model.text_network(), prompts, chosen)]
        found = decode_tokens(engine_of(model.network), prompts, chosen.settings, special)
        return [ranked[0].tokens for ranked in found]

    return generate


def measured(
    contenders: dict[str, Generate], batch: int, prompt: int, turns: int, exact: bool
) -> dict[str, list[float]]:
    """Seconds of each contender in each turn, after a check that their outputs are the same."""
    generator = torch.Generator().manual_seed(2)
    work = [torch.randint(10, 50_000, (batch, prompt), generator=generator).tolist() for _ in range(turns)]
    first, second = (generate(work[0]) for generate in contenders.values())
    same = sum(a == b for a, b in zip(first, second, strict=True)) / batch
    if same < (1.0 if exact else 7 / 8):
        raise SystemExit(f"only {same:.0%} of the outputs are the same")

    def contender(generate: Generate) -> Callable[[int], float]:
        def run(turn: int) -> float:
            started = machine.now()
            generate(work[turn % turns])
            return machine.now() - started

        return run

    return take_turns({name: contender(generate) for name, generate in contenders.items()}, turns, warm_up=1)


def row(name: str, batch: int, beams: int, length: int, seconds: dict[str, Sequence[float]]) -> list[object]:
    """A row of the table."""
    rates = [f"{batch * length / statistics.median(took):.1f}" for took in seconds.values()]
    return [name, batch, beams, *rates, speed_ratio(seconds["Headwise"], seconds["transformers"])]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=machine.pick(5, 1), help="(default: %(default)s)")
    parser.add_argument("--length", type=int, default=machine.pick(32, 4), help="output tokens (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=32, help="prompt tokens (default: %(default)s)")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="(default: 1 4)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16], help="(default: 1 16)")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    machine.prepare(options)
    torch.set_num_threads(1)
    about, rows, data = machine.description(1), [], {}
    for name, kind in (("GPT-2 small", "GPT2LMHeadModel"), ("BART base", "BartForConditionalGeneration")):
        with tempfile.TemporaryDirectory() as folder:
            network, model = checkpoint(kind, Path(folder))
            for beams in options.beams:
                contenders = {
                    "Headwise": ours(model, options.length, beams),
                    "transformers": theirs(network, options.length, beams),
                }
                for batch in options.batches:
                    seconds = measured(contenders, batch, options.prompt, options.turns, exact=beams == 1)
                    rows.append(row(name, batch, beams, options.length, seconds))
                    data[f"{name}, batch {batch}, {beams} beams"] = seconds
                    print(*rows[-1], sep="  ", flush=True)
    table = machine.table(
        ["size", "batch", "beams", "ours, tokens/s", "transformers, tokens/s", "times faster (quartiles)"], rows
    )
    path = machine.result_path("generation")
    machine.write_result(
        path, "Generation compared with transformers", about, [__doc__.split("\n\n", 2)[2].strip(), table], data
    )
    print(f"{table}\nwritten to {path}.md")


if __name__ == "__main__":
    main()
