"""An opus-mt checkpoint: Headwise compared with CTranslate2 and transformers, all with the same weights.

    python benchmarks/opus_mt.py [--beams 1 4] [--batches 1 32] [--turns 5] [--cores 0] [--clock cpu]

The layout of Marian's models on the Hub: six layers a side, d_model 512, d_ff 2,048, 8 heads, SiLU, 58,101 tokens; the
last one is padding, with which outputs start. Parameters are random, so every output takes 14 steps, and sources have
the lengths of Multi30k. Before timing, Headwise in float32 must generate the ids of transformers' `generate`, greedily
and with every chosen beam. The shortlist has 100 random tokens and the tokens of the source. Each contender has one
thread in its own process. Writes `results/opus-mt_*`.
"""

import argparse
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import numpy as np
import torch
from decoders import Tokens, same_share, sorted_batches
from turns import speed_ratio, spread, take_turns
from work import draw_lengths
from workers import Worker

import headwise
from headwise.config.settings import SearchSettings
from headwise.contract import SpecialIds
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.engine import decode_tokens

EOS, UNK, VOCABULARY = 0, 1, machine.pick(58_101, 1_000)
START = VOCABULARY - 1
STEPS, CANDIDATES = 14, 100
WIDTH, LAYERS = machine.pick((512, 6), (64, 1))
SENTENCES = {1: 8, 32: 32}  # per turn, by batch size
SHAPE = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
    "encoder_ffn_dim": 4 * WIDTH, "decoder_ffn_dim": 4 * WIDTH, "encoder_attention_heads": 8,
    "decoder_attention_heads": 8, "scale_embedding": True, "activation_function": "swish",
    "max_position_embeddings": 512, "pad_token_id": START, "eos_token_id": EOS,
    "decoder_start_token_id": START, "forced_eos_token_id": None,
}  # fmt: skip
Translate = Callable[[list[Tokens], int, int], list[Tokens]]  # ids, beam size, batch size


def checkpoint(folder: Path) -> None:
    """Random parameters in the formats of transformers and CTranslate2."""
    transformers = quiet_transformers()
    torch.manual_seed(1)
    network = transformers.MarianMTModel(transformers.MarianConfig(**SHAPE)).eval()
    for module in network.model.modules():
        if isinstance(module, torch.nn.Linear):  # large weights, so that it does not repeat its input
            torch.nn.init.xavier_uniform_(module.weight)
    network.save_pretrained(folder)
    for compute in ("float32", "int8"):
        write_ctranslate2(
            transformers.MarianMTModel.from_pretrained(folder), folder / f"ctranslate2-{compute}", compute
        )


def quiet_transformers() -> Any:
    """transformers without its progress bars."""
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def names() -> list[str]:
    """A name for every id."""
    return ["</s>", "<unk>", *(f"w{i}" for i in range(2, START)), "<pad>"]


def write_ctranslate2(network: Any, folder: Path, compute: str) -> None:
    """The output of CTranslate2's converter for a Marian network, without tokenizer files but with the shortlist."""
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(network)
    tokens = names()[:-1]  # outputs start without an embedding, and padding cannot be generated
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.eos_token, spec.config.unk_token, spec.config.decoder_start_token = "</s>", "<unk>", "</s>"
    spec.validate()
    spec.optimize(quantization=None if compute == "float32" else compute)
    folder.mkdir()
    spec.save(str(folder))
    always = " ".join(tokens[i] for i in candidates())
    (folder / "vmap.txt").write_text("\n".join([f"\t{always}", *(f"{name}\t{name}" for name in tokens)]) + "\n")


def candidates() -> list[int]:
    """The tokens that are allowed for any source."""
    return [EOS, *(2 + np.random.default_rng(4).choice(START - 2, CANDIDATES, replace=False)).tolist()]


# --- Contenders ---


def ours(folder: Path, compute: str, shortlist: bool = False) -> Translate:
    """The search of `headwise.load(folder).translate`, with ids."""
    model: Any = headwise.load(folder, "cpu")
    table = CandidateTable(np.array(candidates()), np.zeros((VOCABULARY, 0), np.int64))
    engine = model._loaded.engine(compute)  # the model has no vocabulary
    settings = SearchSettings().changed({"max_new_tokens": STEPS, "min_new_tokens": STEPS - 1, "compute": compute})
    special = SpecialIds(START, START, EOS, source_end=(), suppressed=(START,))

    def translate(sources: list[Tokens], beam: int, batch: int) -> list[Tokens]:
        chosen = replace(settings, beam_size=beam, batch_size=batch)
        found = decode_tokens(engine, sources, chosen, special, shortlist=table if shortlist else None)
        return [ranked[0].tokens for ranked in found]

    return translate


def ctranslate2(folder: Path, compute: str, shortlist: bool = False) -> Translate:
    """CTranslate2 with one thread."""
    import ctranslate2 as library

    path = str(folder / f"ctranslate2-{compute}")
    translator = library.Translator(path, compute_type=compute, inter_threads=1, intra_threads=1)
    tokens = names()
    ids = {name: i for i, name in enumerate(tokens)}

    def translate(sources: list[Tokens], beam: int, batch: int) -> list[Tokens]:
        found = translator.translate_batch(
            [[tokens[i] for i in source] for source in sources], beam_size=beam, max_batch_size=batch,
            batch_type="examples", use_vmap=shortlist, min_decoding_length=STEPS, max_decoding_length=STEPS,
        )  # fmt: skip
        return [[ids[name] for name in result.hypotheses[0]] for result in found]

    return translate


def theirs(folder: Path) -> Translate:
    """transformers' `generate`."""
    network = quiet_transformers().MarianMTModel.from_pretrained(folder, attn_implementation="sdpa").eval()

    @torch.inference_mode()
    def translate(sources: list[Tokens], beam: int, batch: int) -> list[Tokens]:
        outputs: dict[int, Tokens] = {}
        for rows in sorted_batches(sources, batch):
            longest = max(len(sources[i]) for i in rows)
            src = torch.tensor([sources[i] + [START] * (longest - len(sources[i])) for i in rows])
            found = network.generate(
                src, attention_mask=(src != START).long(), num_beams=beam, do_sample=False, max_new_tokens=STEPS,
                min_new_tokens=STEPS - 1, suppress_tokens=[START],
            )  # fmt: skip
            outputs.update(zip(rows, map(until_end, found[:, 1:].tolist()), strict=True))
        return [outputs[i] for i in range(len(sources))]

    return translate


def until_end(tokens: Tokens) -> Tokens:
    """Without the end token and everything behind it."""
    return tokens[: next((i for i, token in enumerate(tokens) if token in (EOS, START)), len(tokens))]


CONTENDERS: dict[str, tuple[Callable[..., Translate], tuple[Any, ...]]] = {
    "ours float32": (ours, ("float32",)),
    "ours int8": (ours, ("int8",)),
    "ctranslate2 float32": (ctranslate2, ("float32",)),
    "ctranslate2 int8": (ctranslate2, ("int8",)),
    "transformers": (theirs, ()),
    "ours int8 shortlist": (ours, ("int8", True)),
    "ctranslate2 int8 vmap": (ctranslate2, ("int8", True)),
}
PAIRS = [
    ("ours int8", "ctranslate2 int8"), ("ours float32", "ctranslate2 float32"), ("ours float32", "transformers"),
    ("ours int8", "transformers"), ("ours int8 shortlist", "ctranslate2 int8 vmap"),
]  # fmt: skip


def sources_of(turn: int, sentences: int) -> list[Tokens]:
    """Random tokens with an end token, as long as those of Multi30k."""
    generator = np.random.default_rng(100 + turn)
    lengths = draw_lengths(sentences)[:, 0]
    return [[*generator.integers(2, START, max(1, length - 1)).tolist(), EOS] for length in lengths]


def measured(workers: dict[str, Worker], beam: int, batch: int, turns: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Seconds of each contender in each turn, and the share of first-turn outputs that equal transformers'."""
    sentences, outputs = SENTENCES[batch], dict[str, list[Tokens]]()

    def run(name: str, turn: int) -> float:
        reply = workers[name](sources_of(turn, sentences), beam, batch)
        if turn == 0:
            outputs[name] = reply.value
        return reply.seconds

    seconds = take_turns({name: (lambda turn, name=name: run(name, turn)) for name in workers}, turns, warm_up=1)
    same = {name: same_share(found, outputs["transformers"], last=STEPS - 1) for name, found in outputs.items()}
    if same["ours float32"] < 1:
        raise SystemExit(f"only {same['ours float32']:.1%} of our outputs are those of transformers")
    return seconds, same


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=machine.pick(5, 1), help="(default: %(default)s)")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="(default: 1 4)")
    parser.add_argument("--batches", type=int, nargs="+", choices=SENTENCES, default=[1, 32], help="(default: 1 32)")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    machine.prepare(options)
    torch.set_num_threads(1)
    about, sections, data = machine.description(1), [], {}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint(Path(folder))
        workers = {
            name: Worker(make, Path(folder), *arguments, keep_memory=make is ours)
            for name, (make, arguments) in CONTENDERS.items()
        }
        for beam in options.beams:
            for batch in options.batches:
                seconds, same = measured(workers, beam, batch, options.turns)
                sections.append(section(beam, batch, seconds, same))
                data[f"beam {beam}, batch {batch}"] = {"seconds": seconds, "same as transformers": same}
                print(sections[-1], flush=True)
        for worker in workers.values():
            worker.close()
    path = machine.result_path("opus-mt")
    head = __doc__.split("\n\n", 2)[2].strip()
    machine.write_result(
        path, "An opus-mt checkpoint compared with CTranslate2 and transformers", about, [head, *sections], data
    )
    print(f"written to {path}.md")


def section(beam: int, batch: int, seconds: dict[str, Any], same: dict[str, float]) -> str:
    """One table with its speed ratios."""
    rows = [[name, spread([SENTENCES[batch] / s for s in took]), f"{same[name]:.0%}"] for name, took in seconds.items()]
    header = ["contender", "sentences/s (quartiles)", "outputs equal to transformers'"]
    ratios = [f"- {a} / {b}: {speed_ratio(seconds[a], seconds[b])}" for a, b in PAIRS]
    return "\n".join([f"## beam {beam}, batch {batch}\n", machine.table(header, rows), "", *ratios])


if __name__ == "__main__":
    main()
