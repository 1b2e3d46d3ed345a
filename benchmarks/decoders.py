"""A translator of token ids for each library, all with the same weights (`exports.py`).

Each is made in its own process and is a function `(sources, job) -> outputs` of ids without start and end tokens. All
libraries sort sources by length and batch them; for transformers, which does not, they are sorted here.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from exports import load_transformers, vocabulary
from machine import now
from work import BOS, EOS, PAD, UNK, draw_lengths, draw_tokens

from headwise.config.model import ModelConfig
from headwise.config.settings import SearchSettings
from headwise.contract import SpecialIds
from headwise.core.transformer import Transformer
from headwise.core.translate import pad_right
from headwise.device import CAPTURE
from headwise.pytorch.export.exported import ExportedModel, exported_model
from headwise.pytorch.export.onnx import DECODER, ENCODER, OnnxGraphs
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.sidecar_files import read_shortlist
from headwise.runtime.checkpoint.trained import read_settings
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.engine import decode_tokens
from headwise.text.tokens.tokenizer import Tokenizer

Tokens = list[int]
Translate = Callable[[list[Tokens], "Job"], list[Tokens]]
LENGTH_PENALTY = 0.6


@dataclass(frozen=True)
class Job:
    """Search settings of a translation."""

    beam: int
    batch: int | None  # sentences at once; None: the library's default
    length: int | None  # forced number of steps; None: until the end token


def ours(
    folder: Path,
    compute: str,
    shortlist: bool = False,
    library: bool = True,
    device: str = "cpu",
    captured: bool = True,
) -> Translate:
    """Our engine, optionally with the shortlist of the model directory, or with torch instead of the library.

    On CUDA, `captured` is whether steps become CUDA graphs.
    """
    os.environ[CAPTURE] = "1" if captured else "0"
    directory = read_folder(folder / "headwise", device)
    table = candidate_table(folder / "headwise", directory.tokenizer) if shortlist else None
    model: Any = directory.stored.searcher(compute) if library else directory.network
    if model is None:
        model = prepare(directory.network, compute) if device == "cpu" else directory.stored.form(compute)
    special = SpecialIds(PAD, BOS, EOS, UNK)

    def translate(sources: list[Tokens], job: Job) -> list[Tokens]:
        config = our_settings(directory.config.decode, job)
        if job.batch is None:
            return [
                found[0].tokens for found in decode_tokens(engine_of(model), sources, config, special, shortlist=table)
            ]
        outputs: dict[int, Tokens] = {}
        for rows in sorted_batches(sources, job.batch):
            longest = max(len(sources[i]) for i in rows) + 1
            exact = replace(config, batch_tokens=job.batch * job.beam * longest)
            found = decode_tokens(engine_of(model), [sources[i] for i in rows], exact, special, shortlist=table)
            outputs.update(zip(rows, (hypotheses[0].tokens for hypotheses in found), strict=True))
        return [outputs[i] for i in range(len(sources))]

    return translate


def candidate_table(model_directory: Path, tokenizer: Tokenizer) -> CandidateTable:
    """The shortlist of a model directory, for the engine."""
    shortlist = read_shortlist(model_directory, tokenizer)
    return CandidateTable(shortlist.frequent, shortlist.likely)


def has_compute() -> bool:
    """Whether the compiled library is installed; otherwise the search with torch is measured, in float32."""
    from headwise.runtime.native.library import library

    return library() is not None


def prepare(network: Transformer, compute: str) -> Any:
    """The network for the search: compiled, if the library is installed."""
    from headwise.pytorch.search.inference import prepare_for_inference

    return prepare_for_inference(network.eval(), compute if has_compute() else "float32")


def our_settings(config: SearchSettings, job: Job) -> SearchSettings:
    """`job` as our search settings; a forced length counts the end token."""
    config = replace(config, beam_size=job.beam, n_best=1, length_penalty=LENGTH_PENALTY)
    if job.length:
        # The minimum is clipped to the maximum less one, so a large factor forces the maximum.
        config = replace(config, max_length_factor=0.0, max_length_extra=job.length, min_length_factor=1000.0)
    return config


def ctranslate2(
    folder: Path, compute: str, inter_threads: int, intra_threads: int, shortlist: bool = False, device: str = "cpu"
) -> Translate:
    """CTranslate2; `shortlist` is its vocabulary map. For float16 it converts the weights when it loads them."""
    import ctranslate2 as library

    path = str(folder / f"ctranslate2-{'float32' if compute == 'float16' else compute}")
    translator = library.Translator(
        path, device, compute_type=compute, inter_threads=inter_threads, intra_threads=intra_threads
    )
    names = vocabulary(settings(folder).vocab_size)
    ids = {name: i for i, name in enumerate(names)}

    def translate(sources: list[Tokens], job: Job) -> list[Tokens]:
        lengths = {"min_decoding_length": job.length, "max_decoding_length": job.length} if job.length else {}
        results = translator.translate_batch(
            [[*(names[i] for i in source), names[EOS]] for source in sources],
            beam_size=job.beam,
            length_penalty=LENGTH_PENALTY if job.beam > 1 else 1.0,
            max_batch_size=job.batch or 32,
            batch_type="examples",
            use_vmap=shortlist,
            **lengths,
        )
        return [[ids[name] for name in result.hypotheses[0]] for result in results]

    return translate


def transformers(folder: Path) -> Translate:
    """transformers' `generate`."""
    model = load_transformers(folder / "transformers")

    @torch.inference_mode()
    def translate(sources: list[Tokens], job: Job) -> list[Tokens]:
        options: dict[str, Any] = {"max_new_tokens": job.length or 128, "min_new_tokens": job.length}
        if job.beam > 1:
            options["length_penalty"] = LENGTH_PENALTY
        outputs: dict[int, Tokens] = {}
        for rows in sorted_batches(sources, job.batch or 32):
            src, src_mask = pad_right([[*sources[i], EOS] for i in rows], PAD)
            found = model.generate(
                src,
                attention_mask=src_mask.long(),
                num_beams=job.beam,
                do_sample=False,
                **options,
            )
            outputs.update(zip(rows, map(_until_end, found[:, 1:].tolist()), strict=True))
        return [outputs[i] for i in range(len(sources))]

    return translate


def graphs(folder: Path, compute: str, runtime: str) -> Translate:
    """Greedy search with the two graphs of `headwise export --to onnx`, run by "onnxruntime" or "openvino"."""
    translator = _GRAPHS[runtime](exported_model(read_folder(folder / "headwise")), folder / f"onnx-{compute}")

    def translate(sources: list[Tokens], job: Job) -> list[Tokens]:
        assert job.beam == 1 and job.length, "only greedy search with a forced length"
        outputs: dict[int, Tokens] = {}
        for rows in sorted_batches(sources, job.batch or 32):
            src, src_mask = pad_right([[*sources[i], EOS] for i in rows], PAD)
            state, columns = translator.source(src.numpy(), src_mask.numpy()), [np.full((len(rows), 1), BOS)]
            while len(columns) <= job.length:
                logits, state = translator.step(columns[-1], state)
                logits[:, :, EOS] = -np.inf
                columns.append(logits[:, -1].argmax(-1)[:, None])
            outputs.update(zip(rows, np.concatenate(columns[1:], 1).tolist(), strict=True))
        return [outputs[i] for i in range(len(sources))]

    return translate


class OpenVino(OnnxGraphs):
    """The same search with OpenVINO."""

    def __init__(self, exported: ExportedModel, folder: Path) -> None:
        import openvino

        core = openvino.Core()
        threads = {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY"}
        made = [core.compile_model(str(folder / name), "CPU", threads) for name in (ENCODER, DECODER)]
        self.encoder, self.decoder = (_Session(model) for model in made)
        self.exported = exported


class _Session:
    """A compiled model of OpenVINO with the two methods of ONNX Runtime's sessions that are used here."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name=output.get_any_name()) for output in self._model.outputs]

    def run(self, _: None, inputs: dict[str, Any]) -> list[Any]:
        found = self._model(inputs)
        return [found[output].copy() for output in self._model.outputs]


_GRAPHS = {"onnxruntime": OnnxGraphs, "openvino": OpenVino}


def latencies(make: Callable[..., Translate], *arguments: Any) -> Callable[[list[Tokens], Job], list[float]]:
    """Seconds per sentence, one at a time, of the translator `make(*arguments)`."""
    translate = make(*arguments)

    def each(sources: list[Tokens], job: Job) -> list[float]:
        seconds = []
        for source in sources:
            started = now()
            translate([source], job)
            seconds.append(now() - started)
        return seconds

    return each


def sorted_batches(sources: Sequence[Tokens], size: int) -> list[list[int]]:
    """Indices in batches of `size`, the longest sources first.

    >>> sorted_batches([[1], [1, 2, 3], [1, 2]], 2)
    [[1, 2], [0]]
    """
    ranked = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    return [ranked[i : i + size] for i in range(0, len(ranked), size)]


def settings(folder: Path) -> ModelConfig:
    """The shape of the model in `folder`."""
    return read_settings(folder / "headwise")[0].model


def read_network(folder: Path) -> Transformer:
    """Our model in `folder`."""
    return read_folder(folder / "headwise").network


def _until_end(tokens: Tokens) -> Tokens:
    end = next((i for i, token in enumerate(tokens) if token in (EOS, PAD)), len(tokens))
    return tokens[:end]


def agreement(folder: Path) -> Callable[[], dict[str, float]]:
    """Whether all decoders have the same model, measured on random sentences in float32.

    `logits`: largest difference between ours and transformers', with forced targets; `log_probs`: the same between ours
    and CTranslate2's; `same_*`: share of greedy outputs of 14 tokens that equal ours (without the last token, because
    libraries differ in whether it may be the end token).
    """

    def check() -> dict[str, float]:
        network = read_network(folder)
        vocab_size = settings(folder).vocab_size
        sources = [row.tolist() for row in draw_tokens(draw_lengths(16)[:, 0] - 1, vocab_size)]
        targets = torch.randint(UNK + 1, vocab_size, (16, 14), generator=torch.Generator().manual_seed(1))
        targets[:, 0] = BOS
        src, src_mask = pad_right([[*source, EOS] for source in sources], PAD)
        with torch.inference_mode():
            logits = network(src, targets, src_mask)
            model = load_transformers(folder / "transformers")
            theirs = model(input_ids=src, attention_mask=src_mask.long(), decoder_input_ids=targets).logits
        job = Job(beam=1, batch=8, length=14)
        wanted = ours(folder, "float32")(sources, job)
        found = {
            "same_ctranslate2": ctranslate2(folder, "float32", 1, 1)(sources, job),
            "same_transformers": transformers(folder)(sources, job),
        }
        return {
            "logits": (logits - theirs).abs().max().item(),
            "log_probs": _ctranslate2_difference(folder, sources, targets, logits.log_softmax(-1)),
            **{name: same_share(outputs, wanted, last=13) for name, outputs in found.items()},
        }

    return check


def same_share(outputs: Sequence[Tokens], wanted: Sequence[Tokens], last: int | None = None) -> float:
    """The share of `outputs` that equal `wanted`, up to position `last`.

    >>> same_share([[1, 2], [3]], [[1, 9], [3]]), same_share([[1, 2], [3]], [[1, 9], [3]], last=1)
    (0.5, 1.0)
    """
    return sum(a[:last] == b[:last] for a, b in zip(outputs, wanted, strict=True)) / len(wanted)


def _ctranslate2_difference(
    folder: Path, sources: list[Tokens], targets: torch.Tensor, log_probs: torch.Tensor
) -> float:
    import ctranslate2 as library

    names = vocabulary(settings(folder).vocab_size)
    translator = library.Translator(str(folder / "ctranslate2-float32"))
    scores = translator.score_batch(
        [[*(names[i] for i in source), names[EOS]] for source in sources],
        [[names[i] for i in row] for row in targets[:, 1:].tolist()],
    )
    theirs = torch.tensor([score.log_probs[: targets.size(1) - 1] for score in scores])
    own = log_probs[:, :-1].gather(2, targets[:, 1:, None]).squeeze(2)
    return (own - theirs).abs().max().item()
