"""Loaded models write what `transformers` writes with them: the same ids, embeddings, fillings and perplexities.

Tiny random checkpoints that `transformers` saves, with a vocabulary so small that outputs end by themselves.
"""

import math
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_families import write_tiny
from torch import Tensor
from torch.nn.functional import cross_entropy

import headwise
from headwise.contract import NEVER, SearchOptions, SpecialIds, SpeechNetwork
from headwise.core.extensions.sampling import sample_token, stream_uniforms
from headwise.models.encoding.embed import embed, unit
from headwise.models.encoding.fill import predict_masks
from headwise.models.language.language_model import LibraryText
from headwise.models.language.text import continue_prompts, perplexity, stream_continuation
from headwise.models.speech.fallback import no_speech_probability, transcribe_attempt
from headwise.models.speech.speech_model import LibrarySpeech
from headwise.models.speech.transcribe import WhisperTokens, transcribe_window
from headwise.pytorch.models.language_model import TorchText
from headwise.pytorch.models.speech import TorchSpeech
from headwise.pytorch.search.compiled import pack_network
from headwise.pytorch.search.encoder import TorchEncoder
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.checkpoint.generation_config import DEFAULTS, GenerationConfig
from headwise.runtime.native.library import library
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.search.engine import decode_tokens

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

VOCAB, PAD, EOS = 24, 1, 2
IDS = {"vocab_size": VOCAB, "pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": 0}
STACK = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
BART = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 40, "init_std": 0.4,
    "decoder_start_token_id": EOS, "forced_eos_token_id": None,
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {
        "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40, "initializer_range": 0.4,
        "tie_word_embeddings": False,
    }),
    "llama": ("LlamaForCausalLM", STACK | {"num_key_value_heads": 2, "initializer_range": 0.4}),
    "t5": ("T5ForConditionalGeneration", {
        "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 3, "decoder_start_token_id": PAD,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "initializer_factor": 1.0,
        "tie_word_embeddings": False,
    }),
    "bart": ("BartForConditionalGeneration", BART),
    "marian": ("MarianMTModel", BART | {"decoder_start_token_id": PAD, "activation_function": "silu"}),
    "m2m_100": ("M2M100ForConditionalGeneration", BART | {"activation_function": "relu"}),
    "mbart": ("MBartForConditionalGeneration", BART | {"scale_embedding": True}),
    "pegasus": ("PegasusForConditionalGeneration", BART | {"activation_function": "gelu_new"}),
}  # fmt: skip
ALONE = ("gpt2", "llama")
COMPILED = tuple(f"{name} compiled" for name in ("bart", "marian", "m2m_100", "mbart", "pegasus", *ALONE))


def asked(end_ids: tuple[int, ...], **settings: Any) -> GenerationConfig:
    """What a file with these settings says, some of them by the names of ids."""
    ids = {name: settings.pop(name, usual) for name, usual in IDS_OF_A_FILE.items()}
    forced = () if ids["forced_start_id"] is None else (ids["forced_start_id"],)
    special = SpecialIds(
        PAD, NEVER, end_ids[0], NEVER, forced, ids["forced_end_id"], end_ids[1:], (), ids["suppressed"],
        ids["suppressed_first"], ids["sequence_bias"],
    )  # fmt: skip
    return GenerationConfig(DEFAULTS.changed({"max_new_tokens": 12, **settings}), special)


IDS_OF_A_FILE: dict[str, Any] = {
    "forced_start_id": None, "forced_end_id": None, "suppressed": (), "suppressed_first": (),
    "sequence_bias": (),
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """The same network in transformers' hands and in ours."""

    name: str
    theirs: Any
    ours: Any
    end: int = EOS  # a token that it writes now and then
    compute: str = ""  # in the compiled library, with these numbers; "": in torch

    def write(self, inputs: list[list[int]], config: GenerationConfig) -> list[list[int]]:
        return [ranked[0].tokens for ranked in self.ranked(inputs, config)]

    def ranked(self, inputs: list[list[int]], config: GenerationConfig) -> Any:
        if not self.encoder:
            return continue_prompts(self.form, inputs, config)
        special = replace(config.special, bos_id=self.theirs.config.decoder_start_token_id)
        return decode_tokens(engine_of(self.form), inputs, config.settings, special)

    @property
    def form(self) -> Any:
        if not self.compute:
            return self.ours.network if self.encoder else TorchText(self.ours.network)
        if not self.encoder:
            found = self.ours.text_network(self.compute)
            assert isinstance(found, LibraryText)
            return found
        form = self.ours._loaded.engine(self.compute)
        assert isinstance(form, CompiledNetwork)
        return form

    @property
    def encoder(self) -> bool:
        return self.name not in ALONE

    def their_ids(self, inputs: list[list[int]], **settings: Any) -> Tensor:
        """What transformers writes, without what it began with."""
        return self.their_record(inputs, **settings)[:, 1 if self.encoder else max(map(len, inputs)) :]

    def their_record(self, inputs: list[list[int]], **settings: Any) -> Any:
        """What `generate` of transformers returns."""
        longest = max(map(len, inputs))
        left = not self.encoder
        pads = [[PAD] * (longest - len(row)) for row in inputs]
        rows = [pad + row if left else row + pad for row, pad in zip(inputs, pads, strict=True)]
        mask = [[0] * len(pad) + [1] * len(row) if left else [1] * len(row) + [0] * len(pad)
                for row, pad in zip(inputs, pads, strict=True)]  # fmt: skip
        settings = {"eos_token_id": self.end, "pad_token_id": PAD, "do_sample": False} | settings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.theirs.generate(torch.tensor(rows), attention_mask=torch.tensor(mask), **settings)

    def written(self, sequences: Tensor, ends: tuple[int, ...] = ()) -> list[list[int]]:
        """The tokens of sequences behind what they began with, before the first end mark."""
        began = 1 if self.encoder else max(map(len, inputs()))
        return [until(row, ends or (self.end,)) for row in sequences[:, began:].tolist()]

    def their_tokens(self, inputs: list[list[int]], ends: tuple[int, ...] = (), **settings: Any) -> list[list[int]]:
        return [until(row, ends or (self.end,)) for row in self.their_ids(inputs, **settings).tolist()]

    def settings(self, *more_ends: int, **settings: Any) -> GenerationConfig:
        return asked((self.end, *more_ends), **settings)


def until(row: list[int], ends: tuple[int, ...]) -> list[int]:
    """The tokens before the first end mark."""
    return row[: min((row.index(end) for end in ends if end in row), default=len(row))]


def save(kind: str, settings: dict[str, Any], folder: Path, seed: int = 5) -> Any:
    """A random network of transformers, written to `folder`."""
    with warnings.catch_warnings(), torch.random.fork_rng(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        theirs = getattr(transformers, kind)(getattr(transformers, kind).config_class(**(IDS | settings))).eval()
        if hasattr(theirs, "final_logits_bias"):
            theirs.final_logits_bias.normal_()
        theirs.save_pretrained(folder)
    return theirs


@pytest.fixture(scope="module", params=[*CASES, *COMPILED])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The first random network that does not write one token for ever, with an end mark that it writes now and then."""
    name, _, compiled = request.param.partition(" ")
    if compiled and library() is None:
        pytest.skip("the compiled library is missing")
    for seed in range(20):
        folder = tmp_path_factory.mktemp(name)
        theirs = save(*CASES[name], folder, seed)
        found = Pair(name, theirs, headwise.load(folder, "cpu"), compute="float32" if compiled else "")
        rows = found.their_ids(inputs(), eos_token_id=None, max_new_tokens=12).tolist()
        later = [token for row in rows for token in row[2:11]]
        ends = set(later) - {row[0] for row in rows}
        if ends:
            yield replace(found, end=max(ends, key=later.count))
            return
    raise AssertionError("all of these networks write one token for ever")


def inputs(lengths: tuple[int, ...] = (7, 3, 5, 7, 2, 6)) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(4, VOCAB, (length,), generator=generator).tolist() for length in lengths]


@pytest.mark.few(6)
def test_greedy(pair: Pair) -> None:
    theirs = pair.their_tokens(inputs(), max_new_tokens=12)
    assert pair.write(inputs(), pair.settings()) == theirs
    assert any(len(tokens) < 12 for tokens in theirs), "no output ends by itself: this proves too little"


@pytest.mark.few(6)
@pytest.mark.parametrize("early", [False, True, "never"])
@pytest.mark.parametrize("alpha", [1.0, 2.0, 0.0, -0.5])
def test_beams(pair: Pair, alpha: float, early: bool | str) -> None:
    theirs = pair.their_tokens(
        inputs(), max_new_tokens=12, num_beams=3, length_penalty=alpha, early_stopping=early, num_return_sequences=2
    )
    found = pair.ranked(inputs(), pair.settings(beam_size=3, length_penalty=alpha, early_stopping=early, n_best=2))
    assert [hypothesis.tokens for ranked in found for hypothesis in ranked] == theirs


@pytest.mark.few(6)
def test_beams_of_a_large_batch(pair: Pair) -> None:
    """Where rows that are done wait for others before they leave the batch, and must not change any more."""
    rows = inputs((7, 3, 5, 6) * 10)
    settings = {"max_new_tokens": 12, "num_beams": 3, "length_penalty": 2.0}
    ours = pair.settings(beam_size=3, length_penalty=2.0, batch_size=40)
    assert pair.write(rows, ours) == pair.their_tokens(rows, **settings)


@pytest.mark.few(6)
def test_beams_with_constraints(pair: Pair) -> None:
    theirs = pair.their_tokens(
        inputs(), (pair.end, 13), max_new_tokens=12, num_beams=3, min_new_tokens=4, eos_token_id=[pair.end, 13],
        suppress_tokens=[9], begin_suppress_tokens=[7, 8],
    )  # fmt: skip
    chosen = pair.settings(13, beam_size=3, min_new_tokens=4, suppressed=(9,), suppressed_first=(7, 8))
    assert pair.write(inputs(), chosen) == theirs


def test_forced_beginnings_and_ends(pair: Pair) -> None:
    if not pair.encoder:
        pytest.skip("a decoder alone is given its beginning")
    forced = {"forced_bos_token_id": 11, "forced_eos_token_id": pair.end, "no_repeat_ngram_size": 2}
    theirs = pair.their_tokens(inputs(), max_length=9, min_length=4, num_beams=3, length_penalty=2.0, **forced)
    settings = pair.settings(
        max_new_tokens=8, min_new_tokens=3, beam_size=3, length_penalty=2.0, no_repeat_ngram=2, forced_start_id=11,
        forced_end_id=pair.end,
    )  # fmt: skip
    found = pair.write(inputs(), settings)
    assert [[11, *tokens] for tokens in found] == theirs


def biased() -> list[tuple[tuple[int, ...], float]]:
    """Biases of many sequences of one to three tokens; a few sequences are banned."""
    draw = random.Random(3)
    sequences = {tuple(draw.choices(range(VOCAB), k=length)) for length in [1] * 8 + [2] * 200 + [3] * 400}
    return [(one, draw.choice([-math.inf, *(draw.gauss(0, 1.5) for _ in range(9))])) for one in sorted(sequences)]


def adjusted(pair: Pair, biased: list[Any], penalty: float, **settings: Any) -> Any:
    """What transformers finds, with its scores."""
    given = {"sequence_bias": [[list(one), bias] for one, bias in biased]} if biased else {}
    settings = given | {"repetition_penalty": penalty, "max_new_tokens": 12} | settings
    return pair.their_record(inputs(), output_scores=True, return_dict_in_generate=True, **settings)


@pytest.mark.few(6)
@pytest.mark.parametrize(("penalty", "biases"), [(1.6, []), (0.7, []), (1.0, biased()), (1.3, biased())])
def test_penalties_and_biases_of_greedy_search(pair: Pair, penalty: float, biases: list[Any]) -> None:
    """They count the prompt, or the start token, and change logits."""
    theirs = adjusted(pair, biases, penalty)
    tokens = pair.written(theirs.sequences)
    log_probs = pair.theirs.compute_transition_scores(theirs.sequences, theirs.scores, normalize_logits=True)
    found = pair.ranked(inputs(), pair.settings(repetition_penalty=penalty, sequence_bias=tuple(biases)))
    assert [ranked[0].tokens for ranked in found] == tokens != pair.write(inputs(), pair.settings())
    for (ours, *_), row in zip(found, log_probs.tolist(), strict=True):
        assert ours.token_log_probs == pytest.approx(row[: len(ours.token_log_probs)], abs=2e-4)


@pytest.mark.few(6)
@pytest.mark.parametrize(("penalty", "biases"), [(1.6, []), (0.7, []), (1.0, biased()), (1.3, biased())])
def test_penalties_and_biases_of_beams(pair: Pair, penalty: float, biases: list[Any]) -> None:
    """Here they change log-probabilities."""
    given: dict[str, Any] = {"forced_bos_token_id": 11} if pair.encoder else {}
    theirs = adjusted(pair, biases, penalty, num_beams=3, num_return_sequences=2, **given)
    settings = {"beam_size": 3, "n_best": 2, "forced_start_id": 11 if pair.encoder else None}
    found = pair.ranked(inputs(), pair.settings(repetition_penalty=penalty, sequence_bias=tuple(biases), **settings))
    ours = [hypothesis for ranked in found for hypothesis in ranked]
    assert [[11] * pair.encoder + one.tokens for one in ours] == pair.written(theirs.sequences)
    assert [one.score for one in ours] == pytest.approx(theirs.sequences_scores.tolist(), abs=2e-4)


@pytest.mark.few(6)
def test_outputs_do_not_depend_on_company(pair: Pair) -> None:
    settings = pair.settings(beam_size=2)
    together = pair.write(inputs(), settings)
    assert together == [pair.write([row], settings)[0] for row in inputs()]
    assert together == pair.write(inputs(), pair.settings(beam_size=2, batch_size=2))


@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature"), [(0, 1.0, 1.0), (5, 1.0, 0.7), (0, 0.6, 1.5), (8, 0.8, 1.0)]
)
def test_samples(pair: Pair, monkeypatch: pytest.MonkeyPatch, top_k: int, top_p: float, temperature: float) -> None:
    """Both cut the same distribution. transformers draws from it with torch's generator, we by inverting its cumulative
    sum at a number of the row's own stream; drawn our way, theirs are ours.
    """
    row, settings = (
        inputs()[0],
        pair.settings(sample=True, top_k=top_k, top_p=top_p, temperature=temperature, seed=4),
    )
    streams, calls = torch.tensor(headwise_stream(row)), iter(range(100))

    def multinomial(probs: Tensor, num_samples: int) -> Tensor:
        uniforms = stream_uniforms(4, streams, torch.tensor([0]), next(calls))
        return sample_token(probs.log(), uniforms, SearchOptions()).unsqueeze(1)

    monkeypatch.setattr(torch, "multinomial", multinomial)
    theirs = pair.their_tokens(
        [row], max_new_tokens=12, do_sample=True, top_k=top_k, top_p=top_p, temperature=temperature
    )
    assert pair.write([row], settings) == theirs


@pytest.mark.few(3)
def test_samples_with_penalties_and_biases(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both adjust logits before the temperature divides them."""
    row, streams, calls = inputs()[0], torch.tensor(headwise_stream(inputs()[0])), iter(range(100))

    def multinomial(probs: Tensor, num_samples: int) -> Tensor:
        uniforms = stream_uniforms(4, streams, torch.tensor([0]), next(calls))
        return sample_token(probs.log(), uniforms, SearchOptions()).unsqueeze(1)

    monkeypatch.setattr(torch, "multinomial", multinomial)
    theirs = pair.their_tokens(
        [row], max_new_tokens=12, do_sample=True, top_k=9, temperature=1.5, repetition_penalty=1.6,
        sequence_bias=[[list(one), bias] for one, bias in biased()],
    )  # fmt: skip
    settings = {"sample": True, "top_k": 9, "temperature": 1.5, "seed": 4}
    penalised = pair.settings(repetition_penalty=1.6, sequence_bias=tuple(biased()), **settings)
    assert pair.write([row], penalised) == theirs != pair.write([row], pair.settings(**settings))


def headwise_stream(row: list[int]) -> list[int]:
    from headwise.runtime.search.request import random_stream

    return [random_stream(row)]


@pytest.mark.parametrize("sample", [False, True])
def test_streams_write_what_batches_write(pair: Pair, sample: bool) -> None:
    settings = pair.settings(sample=sample, top_k=0)
    if pair.encoder:
        pytest.skip("tested with text")
    assert [list(stream_continuation(pair.form, row, settings)) for row in inputs()] == pair.write(inputs(), settings)


def test_perplexity(pair: Pair) -> None:
    """Against every token predicted on its own, from the window that it is due in."""
    if pair.encoder:
        pytest.skip("of decoders alone")
    text, window, stride = inputs((29,))[0], 10, 4
    total = 0.0
    for i in range(1, len(text)):
        start = max(0, -(-(i + 1 - window) // stride) * stride)
        with torch.inference_mode():
            logits = pair.theirs(torch.tensor([text[start:i]])).logits[0, -1]
        total += float(logits.log_softmax(-1)[text[i]])
    found = perplexity(pair.form, text, window, stride)
    assert found.tokens == 28
    assert found.log_prob == pytest.approx(total, abs=1e-4)
    whole = torch.tensor([text])
    with torch.inference_mode():
        loss = float(pair.theirs(whole, labels=whole).loss)
    assert -perplexity(pair.form, text, 29, 14).log_prob / 28 == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize(("settings", "length", "step"), [({}, 1100, 550), ({"window": 90, "stride": 40}, 90, 40)])
def test_perplexity_of_a_long_text_is_that_of_the_recipe(
    tmp_path: Path, settings: dict[str, int], length: int, step: int
) -> None:
    """https://huggingface.co/docs/transformers/perplexity, with windows weighted by their predicted tokens.

    By default windows are the whole context, here of 1,100 tokens. Both compute in float64, and add in another order;
    the loss is taken from their logits, because `transformers` itself rounds them to float32.
    """
    write_tiny(tmp_path, "gpt2", {"n_positions": 1100})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    own: Any = headwise.load(tmp_path, "cpu")
    own.network.double()
    text = "".join(random.Random(5).choices("the quick brown fox", k=2400))
    ids = torch.tensor([own.encode(text)])
    total, count, before = 0.0, 0, 0
    for begin in range(0, ids.size(1), step):
        end = min(begin + length, ids.size(1))
        labels = ids[:, begin:end].clone()
        labels[:, : before - end] = -100
        predicted = int((labels[:, 1:] != -100).sum())
        with torch.inference_mode():
            logits = theirs(ids[:, begin:end]).logits[:, :-1]
        total += float(cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())) * predicted
        count, before = count + predicted, end
        if end == ids.size(1):
            break
    found = own.perplexity(text, **settings)
    assert (found.tokens, found.window, found.stride) == (count, length, step)
    assert found.perplexity == pytest.approx(math.exp(total / count), rel=1e-12)


# --- Whisper ---

FIRST_TIME, NO_TIMES = 17, 16  # ids; those of text are below END_OF_TEXT
END_OF_TEXT = 12


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("whisper")
    settings = {key: value for key, value in BART.items() if key != "max_position_embeddings"} | {
        "vocab_size": 40, "num_mel_bins": 5, "max_source_positions": 10, "max_target_positions": 30,
        "eos_token_id": END_OF_TEXT, "decoder_start_token_id": 13, "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }  # fmt: skip
    return Pair("whisper", save("WhisperForConditionalGeneration", settings, folder), headwise.load(folder, "cpu"))


@pytest.fixture(params=["torch", "library"])
def network(whisper: Pair, request: pytest.FixtureRequest) -> SpeechNetwork:
    """Our network, both ways."""
    if request.param == "torch":
        return TorchSpeech(whisper.ours.network)
    if library() is None:
        pytest.skip("the compiled library is missing")
    return LibrarySpeech(pack_network(whisper.ours.network, "float32"))


@pytest.mark.parametrize("beams", [1, 3])
def test_whisper_writes_timestamps_by_its_rules(whisper: Pair, network: SpeechNetwork, beams: int) -> None:
    from transformers.generation import LogitsProcessorList, SuppressTokensLogitsProcessor
    from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

    generator = torch.Generator().manual_seed(8)
    marks = WhisperTokens(13, END_OF_TEXT, NO_TIMES, {}, {}, latest_first=4)
    settings = asked((END_OF_TEXT,), max_new_tokens=20, beam_size=beams, suppressed=(3, 14, 15))
    chosen = transformers.GenerationConfig(
        no_timestamps_token_id=NO_TIMES, eos_token_id=END_OF_TEXT, max_initial_timestamp_index=4
    )
    rules = LogitsProcessorList(
        [SuppressTokensLogitsProcessor([3, 14, 15]), WhisperTimeStampLogitsProcessor(chosen, begin_index=2)]
    )
    for mel in torch.randn(4, 5, 20, generator=generator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = transformers.GenerationMixin.generate(
                whisper.theirs, mel[None], decoder_input_ids=torch.tensor([[13, 14]]), logits_processor=rules,
                max_new_tokens=20, num_beams=beams, eos_token_id=END_OF_TEXT, pad_token_id=PAD, do_sample=False,
            )  # fmt: skip
        memory = network.encode(mel.numpy())
        tokens = transcribe_window(network, memory, [13, 14], marks, settings, timestamps=True).tokens
        assert tokens == until(theirs[0, 2:].tolist(), (END_OF_TEXT,))
        assert any(token >= FIRST_TIME for token in tokens)


@pytest.mark.parametrize("beams", [1, 3])
def test_whisper_is_penalised_for_its_start_tokens(whisper: Pair, network: SpeechNetwork, beams: int) -> None:
    """Biases and the penalty count all tokens that the decoder reads; log-probabilities are those of transformers."""
    given, marks = [9, 13, 14], WhisperTokens(13, END_OF_TEXT, NO_TIMES, {}, {}, latest_first=4)
    biases = (((9, 13, 14, 5), 3.0), ((4,), 2.5), ((4, 4), -math.inf), ((14,), 2.0))
    chosen = {"max_new_tokens": 10, "repetition_penalty": 1.5}
    settings = asked((END_OF_TEXT,), beam_size=beams, sequence_bias=biases, **chosen)
    plain = asked((END_OF_TEXT,), beam_size=beams, max_new_tokens=10)
    for mel in torch.randn(3, 5, 20, generator=torch.Generator().manual_seed(8)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = transformers.GenerationMixin.generate(
                whisper.theirs, mel[None], decoder_input_ids=torch.tensor([given]), num_beams=beams, do_sample=False,
                sequence_bias=[[list(one), bias] for one, bias in biases], eos_token_id=END_OF_TEXT, pad_token_id=PAD,
                **chosen,
            )  # fmt: skip
        memory = network.encode(mel.numpy())
        found = [
            transcribe_window(network, memory, given, marks, one, timestamps=False).tokens for one in (settings, plain)
        ]
        assert found[0] == until(theirs[0, len(given) :].tolist(), (END_OF_TEXT,)) != found[1]


@pytest.mark.parametrize("timestamps", [True, False])
def test_how_sure_whisper_is_of_what_it_writes(whisper: Pair, network: SpeechNetwork, timestamps: bool) -> None:
    """The mean log-probability among what its rules allow, and the probability that nobody speaks."""
    from transformers.generation import LogitsProcessorList, SuppressTokensLogitsProcessor
    from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

    marks = WhisperTokens(13, END_OF_TEXT, NO_TIMES, {}, {}, latest_first=4)
    settings = asked((END_OF_TEXT,), max_new_tokens=20, suppressed=(3, 14, 15))
    chosen = transformers.GenerationConfig(
        no_timestamps_token_id=NO_TIMES, eos_token_id=END_OF_TEXT, max_initial_timestamp_index=4
    )
    rules = [SuppressTokensLogitsProcessor([3, 14, 15])]
    rules += [WhisperTimeStampLogitsProcessor(chosen, begin_index=3)] if timestamps else []
    for mel in torch.randn(3, 5, 20, generator=torch.Generator().manual_seed(8)):
        given = torch.tensor([[9, 13, 14]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = transformers.GenerationMixin.generate(
                whisper.theirs, mel[None], decoder_input_ids=given, logits_processor=LogitsProcessorList(rules),
                max_new_tokens=20, eos_token_id=END_OF_TEXT, pad_token_id=PAD, do_sample=False,
                output_scores=True, return_dict_in_generate=True,
            )  # fmt: skip
        written = until(theirs.sequences[0, 3:].tolist(), (END_OF_TEXT,))
        told = theirs.sequences[0, 3:]
        sums = sum(score[0].log_softmax(-1)[token].item() for score, token in zip(theirs.scores, told, strict=True))
        memory = network.encode(mel.numpy())
        tokens, mean = transcribe_attempt(network, memory, [9, 13, 14], marks, settings, timestamps, None)
        assert tokens == written and mean == pytest.approx(sums / (len(written) + 1), abs=1e-4)
        with torch.no_grad():
            first = whisper.theirs(mel[None], decoder_input_ids=given[:, :2]).logits[0, -1].softmax(-1)
        found = no_speech_probability(network, memory, [9, 13, 14], 13, 6)
        assert found == pytest.approx(first[6].item(), abs=1e-5)


# --- Encoders alone ---

READERS = {
    "bert": ("BertForMaskedLM", STACK | {"max_position_embeddings": 40, "initializer_range": 0.4}),
    "roberta": ("RobertaForMaskedLM", STACK | {"max_position_embeddings": 40, "initializer_range": 0.4}),
}


@pytest.fixture(scope="module", params=READERS)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp(request.param)
    return Pair(request.param, save(*READERS[request.param], folder), headwise.load(folder, "cpu"))


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_embeddings(reader: Pair, pooling: str) -> None:
    """Padded together, each text has the vector it has alone with transformers."""
    ours = embed(
        TorchEncoder(reader.ours.network, PAD),
        inputs(),
        [pooling],
        [unit],
        reader.ours.config.encoder.d_model,
        batch_size=4,
    )
    with torch.inference_mode():
        states = [reader.theirs.base_model(torch.tensor([row])).last_hidden_state[0] for row in inputs()]
    vectors = torch.stack([state.mean(0) if pooling == "mean" else state[0] for state in states])
    expected = vectors / vectors.norm(dim=1, keepdim=True)
    torch.testing.assert_close(torch.from_numpy(ours), expected, atol=1e-5, rtol=1e-5)


def test_fillings(reader: Pair) -> None:
    mask, text = 23, inputs()[0]
    masked = [*text[:2], mask, *text[3:5], mask, *text[5:]]
    with torch.inference_mode():
        theirs = reader.theirs(torch.tensor([masked])).logits[0].softmax(-1)
    for place, found in zip(
        (2, 5), predict_masks(TorchEncoder(reader.ours.network, PAD), masked, mask, top=4), strict=True
    ):
        best = theirs[place].topk(4)
        assert [token for token, _ in found] == best.indices.tolist()
        assert [share for _, share in found] == pytest.approx(best.values.tolist(), abs=1e-5)
