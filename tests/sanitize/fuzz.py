"""Random models, searches and files for the compiled library, right ones and wrong ones: never a crash, never a leak.

    fuzz.py LIBRARY ROUNDS [SEED]

Called by `run.py`, under the sanitizers. Whatever is wrong has to be an error that Python knows; what is right has to
be an answer within its bounds. The same rounds and seed are the same inputs, and a failure names its round.
"""

import ctypes
import gc
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from unit.native.walking import Recorded

from headwise.config.from_recipe import transformer_config
from headwise.config.model import TransformerConfig
from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.config.settings import EARLY_STOPPING
from headwise.contract import Limits, SearchOptions, TimestampRules
from headwise.errors import UserError
from headwise.runtime.checkpoint import compiled, trained
from headwise.runtime.checkpoint.compiled_encoder import compiled_encoder
from headwise.runtime.checkpoint.shapes import fits, parameter_shapes
from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import at
from headwise.runtime.native.encoder import CompiledEncoder
from headwise.runtime.native.linear import NUMBERS, Linear
from headwise.runtime.native.network import ACTIVATIONS, NORMS, CompiledEnsemble, CompiledNetwork, Shape
from headwise.runtime.native.reading import token_log_probs
from headwise.runtime.native.search import Search
from headwise.runtime.native.speech import CompiledSpeech
from headwise.runtime.search.candidates import Candidates

Draw = np.random.Generator
ERRORS = (UserError, AssertionError, MemoryError, ValueError, KeyError, IndexError, TypeError, OverflowError)


def chance(draw: Draw, of: float) -> bool:
    return bool(draw.random() < of)


def whole(draw: Draw, low: int, high: int) -> int:
    """From `low` to `high`, both among them."""
    return int(draw.integers(low, high + 1))


# --- Models -----------------------------------------------------------------------------------------------------------


class Parameters(dict[str, Any]):
    """Those of a random Transformer, with the names of a model directory."""

    def __init__(self, draw: Draw, d_model: int, src: int, tgt: int) -> None:
        super().__init__()
        self.draw, self.d_model, self.heads = draw, d_model, {"encoder": [], "decoder": [], "cross": []}
        self.norm = NORMS[whole(draw, 0, 2)]
        self.gated, self.biased = chance(draw, 0.3), chance(draw, 0.8)
        self.pairs = whole(draw, 1, 9) if chance(draw, 0.4) else 0  # of components that positions turn
        for side, rows in (("src", src), ("tgt", tgt)):
            self[f"{side}_embeddings.tokens.weight"] = self._numbers(rows, d_model)
            if chance(draw, 0.2):
                self._norm(f"{side}_embeddings.norm")
        for stack in ("encoder", "decoder"):
            for i in range(whole(draw, 0, 2)):
                self._layer(stack, f"{stack}.layers.{i}")
            if chance(draw, 0.5):
                self._norm(f"{stack}.norm")
        self._linear("output", d_model, tgt)

    def _numbers(self, *shape: int) -> Any:
        return (self.draw.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)

    def _linear(self, name: str, d_in: int, d_out: int) -> None:
        self[f"{name}.weight"] = self._numbers(d_out, d_in)
        if self.biased:
            self[f"{name}.bias"] = self._numbers(d_out)

    def _norm(self, name: str) -> None:
        self[f"{name}.weight"] = 1 + self._numbers(self.d_model) / 4
        if self.norm == "layer":
            self[f"{name}.bias"] = self._numbers(self.d_model)

    def _attention(self, name: str, kind: str) -> None:
        heads, d_k, d_v = (whole(self.draw, 1, most) for most in (4, 20, 20))
        d_k, shared = max(d_k, 2 * self.pairs), heads if chance(self.draw, 0.2) else 1
        self.heads[kind].append(heads)
        for projection, width in (("q", heads * d_k), ("k", heads * d_k // shared), ("v", heads * d_v // shared)):
            self._linear(f"{name}.{projection}_proj", self.d_model, width)
        self._linear(f"{name}.o_proj", heads * d_v, self.d_model)
        self._norm(f"{name}_sublayer.norm")

    def _layer(self, stack: str, name: str) -> None:
        self._attention(f"{name}.self_attn", stack)
        if stack == "decoder":
            self._attention(f"{name}.cross_attn", "cross")
        d_ff = whole(self.draw, 1, 70)
        for projection in ("gate", "up")[not self.gated :]:
            self._linear(f"{name}.ffn.{projection}_proj", self.d_model, d_ff)
        self._linear(f"{name}.ffn.down_proj", d_ff, self.d_model)
        self._norm(f"{name}.ffn_sublayer.norm")


def spoilt(draw: Draw, parameters: dict[str, Any]) -> None:
    """One of them, in one way."""
    name = list(parameters)[whole(draw, 0, len(parameters) - 1)]
    array, axis = parameters[name], whole(draw, 0, parameters[name].ndim - 1)
    kind = whole(draw, 0, 6)
    if kind == 0:
        del parameters[name]
    elif kind == 1:
        parameters[name] = np.delete(array, 0, axis)
    elif kind == 2:
        parameters[name] = np.concatenate([array, array.take([0], axis)], axis)
    elif kind == 3:
        parameters[name] = array.T.copy()
    elif kind == 4:
        parameters[name] = array[..., None] if chance(draw, 0.5) else array.reshape(-1)
    elif kind == 5:
        parameters[name] = array.astype([np.float64, np.float16, np.int32][whole(draw, 0, 2)])
    else:
        array[tuple(whole(draw, 0, n - 1) for n in array.shape)] = [np.nan, np.inf, 3e38][whole(draw, 0, 2)]


def network(draw: Draw, wrong: bool) -> CompiledNetwork:
    """A random one, of any widths."""
    d_model, src, tgt = whole(draw, 1, 40), whole(draw, 1, 40), whole(draw, 1, 200)
    parameters = Parameters(draw, d_model, src, tgt)
    if wrong:
        spoilt(draw, parameters)
    known = whole(draw, 30, 80)
    table = draw.standard_normal((known, d_model)).astype(np.float32)
    shape = Shape(
        *(tuple(parameters.heads[kind]) for kind in ("encoder", "decoder", "cross")),
        norm_first=chance(draw, 0.5),
        norm=parameters.norm,
        activation=ACTIVATIONS[whole(draw, 1, len(ACTIVATIONS) - 1)],
        logit_scale=float(draw.random() * 4),
        padding=whole(draw, -1, 2),
        rotary=tuple(draw.random(parameters.pairs + (wrong and chance(draw, 0.1)))),
    )
    return CompiledNetwork(parameters, shape, lambda n: (table, table), str(draw.choice(NUMBERS)))


def encoder(draw: Draw, wrong: bool) -> CompiledEncoder:
    """A random one, of any widths, with a head."""
    heads, d_head, counted = whole(draw, 1, 4), whole(draw, 1, 20), chance(draw, 0.5)
    stack = StackConfig(
        whole(draw, 1, 40), whole(draw, 1, 3), heads, whole(draw, 1, 70), d_head,
        activation=ACTIVATIONS[whole(draw, 1, len(ACTIVATIONS) - 1)], gated=chance(draw, 0.3),
        norm_position=str(draw.choice(["pre", "post"])), positions=str(draw.choice(["learned", "none"])),
        max_len=whole(draw, 20, 40), position_offset=whole(draw, 1, 2), count_from=-1 if counted else 1,
        rotary=RotaryConfig(2 * whole(draw, 1, d_head // 2)) if d_head > 1 and chance(draw, 0.3) else None,
        relative_buckets=8 if chance(draw, 0.3) else 0, embedding_norm=chance(draw, 0.5), layer_groups=1,
        d_embedding=whole(draw, 0, 50), n_types=whole(draw, 0, 3),
    )  # fmt: skip
    head = str(draw.choice(["masked", "text_class", "token_class"]))
    config = NetworkConfig("none", whole(draw, 3, 40), stack, head=head, n_classes=3, tie_head=head == "masked")
    shapes = parameter_shapes(config)
    parameters = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if wrong:
        spoilt(draw, parameters)
    return compiled_encoder(config, parameters, str(draw.choice(NUMBERS)))


def encodings(draw: Draw, wrong: bool) -> None:
    """States of texts, and the output of the head."""
    made = encoder(draw, wrong and chance(draw, 0.4))
    texts = [ids(draw, whole(draw, 1 - wrong, 20), made.vocabulary, wrong) for _ in range(whole(draw, 1 - wrong, 5))]
    types = None
    if made.n_types and chance(draw, 0.5):
        types = [ids(draw, len(text), made.n_types, wrong and chance(draw, 0.3)) for text in texts]
    states = made.states(texts, types)
    check(states.shape == (sum(map(len, texts)), made.d_model), "states of another shape")
    check(len(made.head(states)) == len(states), "outputs of other states")


# --- Searches ---------------------------------------------------------------------------------------------------------


def ids(draw: Draw, count: int, below: int, wrong: bool) -> list[int]:
    found = draw.integers(0, below, count).tolist()
    if wrong and found:
        found[whole(draw, 0, count - 1)] = [below, -1, 1 << 30, -(1 << 31)][whole(draw, 0, 3)]
    return found


def options(draw: Draw, vocab: int, wrong: bool) -> SearchOptions:
    beam_size = whole(draw, 1, 6)
    forced_end = whole(draw, 0, vocab - 1 + wrong) if chance(draw, 0.2) else None
    return SearchOptions(
        beam_size=beam_size if not (wrong and chance(draw, 0.2)) else whole(draw, -2, 0),
        n_best=whole(draw, 1, beam_size + wrong),
        length_penalty=float(draw.random() * 2),
        bos_id=ids(draw, 1, vocab, wrong and chance(draw, 0.2))[0],
        eos_id=whole(draw, 0, vocab - 1),
        other_ends=tuple(ids(draw, whole(draw, 0, 2), vocab, False)),
        suppressed=tuple(ids(draw, whole(draw, 0, 3), vocab, wrong)),
        suppressed_first=tuple(ids(draw, whole(draw, 0, 2), vocab, False)),
        early_stopping=EARLY_STOPPING[whole(draw, 0, 3)] if not (wrong and chance(draw, 0.1)) else "unknown",
        forced_end=forced_end,
        end_at=whole(draw, 0, 12) if forced_end is not None else 0,
        no_repeat_ngram=whole(draw, -wrong, 3) if chance(draw, 0.3) else 0,
        bos_in_ngrams=chance(draw, 0.5),
        repetition_penalty=float(draw.random() * 2) + 1e-3 * (not wrong) if chance(draw, 0.3) else 1.0,
        sequence_bias=tuple(
            (tuple(ids(draw, whole(draw, not wrong, 3), vocab, wrong)), float(draw.normal()))
            for _ in range(whole(draw, 0, 4) if chance(draw, 0.3) else 0)
        ),
        sample=chance(draw, 0.5),
        temperature=float(draw.random() * 3) + 1e-3 * (not wrong),
        top_k=whole(draw, -wrong, 9) if chance(draw, 0.5) else 0,
        top_p=1 - float(draw.random()) if chance(draw, 0.5) else 1.0,
        seed=whole(draw, -(2**63), 2**63 - 1),
    )


def limits(draw: Draw, sentences: int, vocab: int, wrong: bool) -> Any:
    number = sentences + (wrong and chance(draw, 0.2))
    lowest = 0 if wrong and chance(draw, 0.2) else 1
    longest = draw.integers(lowest, whole(draw, 2, 25), number)
    prefix = np.full((number, whole(draw, 0, 3)), -1)
    for row in prefix:
        given = whole(draw, 0, len(row))
        row[:given] = ids(draw, given, vocab, wrong and chance(draw, 0.3))
    streams = draw.integers(-(2**63), 2**63, number) if chance(draw, 0.3) else None
    before = draw.integers(-1, vocab + wrong, (number, whole(draw, 0, 3))) if chance(draw, 0.3) else None
    return Limits(draw.integers(0, 6, number), longest, prefix, streams, context=before)


def phrases(draw: Draw, sentences: int, may: Any, wrong: bool) -> Any:
    """Up to three for each sentence, of up to four pieces."""
    found = np.full((sentences + (wrong and chance(draw, 0.2)), whole(draw, 1, 3), whole(draw, 1, 4)), -1)
    for row in found.reshape(-1, found.shape[2]):
        given = whole(draw, 0, len(row))
        row[:given] = may[ids(draw, given, len(may), False)] + (wrong and chance(draw, 0.1)) * 1000
    return found


def shortlist(draw: Draw, sentences: int, vocab: int, wrong: bool) -> Candidates:
    """Some pieces."""
    number = whole(draw, 1, vocab)
    some = np.sort(draw.permutation(vocab)[:number]) + (wrong and chance(draw, 0.3))
    return Candidates(some, draw.random((sentences, number + (wrong and chance(draw, 0.3)))) < 0.8)


def offered(few: Candidates, bounds: Limits, settings: SearchOptions) -> tuple[Limits, SearchOptions]:
    """The same where what outputs have to have is on the shortlist."""
    some = few.ids
    bos_id, end = int(some[settings.bos_id % len(some)]), settings.forced_end
    forced_end = None if end is None else int(some[end % len(some)])
    prefix = np.where(bounds.prefix < 0, bounds.prefix, some[bounds.prefix % len(some)])
    return replace(bounds, prefix=prefix), replace(settings, bos_id=bos_id, forced_end=forced_end)


def search(draw: Draw, members: list[CompiledNetwork], wrong: bool) -> None:
    """One search; what it finds stays within its bounds."""
    spoil = [wrong and chance(draw, 0.4) for _ in range(4)]
    src, tgt = members[0].vocabulary["src"], members[0].vocabulary["tgt"]
    sentences = whole(draw, 1 - spoil[0], 6)
    sources = [ids(draw, whole(draw, 1, 12), src, spoil[0] and chance(draw, 0.3)) for _ in range(sentences)]
    few = shortlist(draw, sentences, tgt, spoil[1]) if chance(draw, 0.3) else None
    bounds, settings = limits(draw, sentences, tgt, spoil[2]), options(draw, tgt, spoil[3])
    if few is not None and not (wrong and chance(draw, 0.3)):
        bounds, settings = offered(few, bounds, settings)
    plain = bounds.streams is None and settings.beam_size > 1 and settings.early_stopping == EARLY_STOPPING[0]
    if plain and chance(draw, 0.4):
        bounds = replace(bounds, phrases=phrases(draw, sentences, few.ids if few else np.arange(tgt), spoil[2]))
    if (
        sentences == 1
        and bounds.phrases is None
        and chance(draw, 0.7)
        and (bounds.streams is None or settings.n_best == 1)
    ):
        found = advanced(
            draw, CompiledEnsemble(tuple(members)).begin(sources, bounds, settings, few), tgt, settings, few, wrong
        )
    else:
        found = CompiledEnsemble(tuple(members)).search(sources, bounds, settings, few)
    assert len(found) == sentences, "as many as there were"
    may = range(tgt) if few is None else set(few.ids.tolist())
    for hypotheses, longest in zip(found, bounds.max_length, strict=True):
        for one in hypotheses:
            in_bounds = len(one.tokens) <= longest and all(token in may for token in one.tokens)
            check(in_bounds and len(hypotheses) <= settings.n_best, "an answer beyond its bounds")


def advanced(draw: Draw, begun: Any, vocab: int, settings: SearchOptions, few: Any, wrong: bool) -> Any:
    """A search a step at a time, with guesses where they may be given."""
    guessing = few is None and (settings.beam_size == 1 or wrong)
    while begun.advance(ids(draw, whole(draw, 0, 30) if guessing else 0, vocab, wrong and chance(draw, 0.2))):
        pass
    return begun.hypotheses()


def steps(draw: Draw, made: CompiledNetwork, wrong: bool) -> None:
    """A decoding a step at a time, with hypotheses that change places."""
    decoding = made.start([ids(draw, whole(draw, 1, 9), made.vocabulary["src"], False) for _ in range(3)])
    rows, longest = whole(draw, 1, 5), whole(draw, 1, 20)
    sentences, paths = draw.integers(0, 3 + wrong, rows), np.zeros((rows, longest), np.int32)
    for length in range(longest):
        decoding.make_room(rows, paths, length)
        paths[:, length] = np.arange(rows) + decoding.slots + (wrong and chance(draw, 0.1))
        tokens = np.array(ids(draw, rows, made.vocabulary["tgt"], wrong and chance(draw, 0.1)))
        hidden = decoding.step(tokens, np.full(rows, length + (wrong and chance(draw, 0.1))), sentences, paths)
        check(hidden.shape == (rows, made.d_model), "hidden states of another shape")
        order = draw.integers(0, rows, rows)
        paths, sentences = paths[order], sentences[order]


def decoder_alone(draw: Draw, wrong: bool) -> CompiledNetwork:
    """A random one: grouped heads, windows, norms of heads, with or without positions."""
    d_model, vocab = whole(draw, 1, 40), whole(draw, 2, 200)
    parameters = Parameters(draw, d_model, 1, vocab)
    for name in [name for name in parameters if name.startswith(("src_", "encoder.")) or ".cross_attn" in name]:
        del parameters[name]
    if parameters.norm != "layer" and chance(draw, 0.5):
        for i, heads in enumerate(parameters.heads["decoder"]):
            name = f"decoder.layers.{i}.self_attn"
            width = len(parameters[f"{name}.q_proj.weight"]) // heads
            parameters |= {f"{name}.{part}_norm.weight": draw.random(width + wrong).astype(np.float32) for part in "qk"}
    if wrong:
        spoilt(draw, parameters)
    heads = tuple(parameters.heads["decoder"])
    table = draw.standard_normal((80, d_model)).astype(np.float32) if chance(draw, 0.5) else None
    shape = Shape(
        *((), heads, ()),
        norm_first=chance(draw, 0.5),
        norm=parameters.norm,
        activation=ACTIVATIONS[whole(draw, 1, len(ACTIVATIONS) - 1)],
        rotary=tuple(draw.random(parameters.pairs)),
        windows=tuple(whole(draw, 0, 9) for _ in range(len(heads) + (wrong and chance(draw, 0.1)))),
    )
    return CompiledNetwork(parameters, shape, lambda n: (table,), str(draw.choice(NUMBERS)))


def prompts(draw: Draw, wrong: bool) -> None:
    """A search after prompts, and the log-probabilities of a text."""
    made = decoder_alone(draw, wrong)
    vocab, sentences = made.vocabulary["tgt"], whole(draw, 1, 4)
    given = [ids(draw, whole(draw, 1 - wrong, 30), vocab, wrong and chance(draw, 0.1)) for _ in range(sentences)]
    bounds = limits(draw, sentences, vocab, wrong)
    settings = replace(options(draw, vocab, wrong), forced_end=None)
    for hypotheses, longest in zip(made.search(given, bounds, settings, None), bounds.max_length, strict=True):
        for one in hypotheses:
            check(len(one.tokens) <= longest and max(one.tokens, default=0) < vocab, "an answer beyond its bounds")
    text = ids(draw, whole(draw, 2 - wrong, 70), vocab, wrong and chance(draw, 0.1))
    first = whole(draw, 1 - wrong, len(text) - 1 + wrong)
    found = token_log_probs(made, text, first)
    check(len(found) == len(text) - first and (wrong or (found <= 0).all()), "no log-probabilities")


def speech(draw: Draw, wrong: bool) -> None:
    """A Whisper: a spectrogram, prompts and searches, with or without timestamps."""
    d_model, vocab, n_mels, most = whole(draw, 1, 40), whole(draw, 4, 200), whole(draw, 1, 9), whole(draw, 1, 40)
    parameters = Parameters(draw, d_model, 1, vocab)
    if not parameters.heads["cross"]:
        return  # without decoder layers nothing hears the sound
    for name in [name for name in parameters if name.startswith("src_")]:
        del parameters[name]
    for name, d_in in (("conv1", n_mels), ("conv2", d_model)):
        parameters[f"src_embeddings.{name}.weight"] = draw.standard_normal((d_model, d_in, 3)).astype(np.float32)
        parameters[f"src_embeddings.{name}.bias"] = draw.standard_normal(d_model).astype(np.float32)
    parameters["src_embeddings.positions"] = draw.standard_normal((most, d_model)).astype(np.float32)
    if wrong:
        spoilt(draw, parameters)
    table = draw.standard_normal((40, d_model)).astype(np.float32)
    heads = tuple(tuple(parameters.heads[kind]) for kind in ("encoder", "decoder", "cross"))
    shape = Shape(*heads, norm_first=chance(draw, 0.5), norm=parameters.norm, activation="gelu")
    made = CompiledSpeech(parameters, shape, lambda n: (table,), str(draw.choice(NUMBERS)))
    frames = whole(draw, 1 - wrong, 2 * most + wrong)
    window = made.encode(draw.standard_normal((n_mels + (wrong and chance(draw, 0.1)), frames), np.float32))
    for _ in range(whole(draw, 1, 3)):
        prompt = ids(draw, whole(draw, 1 - wrong, 12), vocab, wrong and chance(draw, 0.1))
        check(len(window.read_prompt(prompt)) == len(prompt), "states of another prompt")
        settings = replace(options(draw, vocab, wrong), forced_end=None, among_allowed=chance(draw, 0.5))
        if chance(draw, 0.7):
            first = whole(draw, 1 - wrong, vocab - 1 + wrong)
            never, latest = whole(draw, 0, vocab - 1 + wrong), whole(draw, -wrong, vocab - 1 + wrong)
            settings = replace(settings, timestamps=TimestampRules(first, never, latest), eos_id=whole(draw, 0, first))
        bounds = replace(limits(draw, 1, vocab, wrong), prefix=np.zeros((1, 0), int))
        for one in Search([window], settings, bounds).run()[0]:
            check(len(one.tokens) <= bounds.max_length[0], "an answer beyond its bounds")


def walks(draw: Draw, made: CompiledNetwork, wrong: bool) -> None:
    """A pair of which one layer and head are recorded."""
    decoder = chance(draw, 0.5)
    heads = made.heads["decoder" if decoder else "encoder"]
    if not heads:
        return
    layer = whole(draw, 0, len(heads) - 1)
    head = whole(draw, 0, (min(heads[layer], made.heads["cross"][layer]) if decoder else heads[layer]) - 1)
    source, target = (
        ids(draw, whole(draw, 1, 12), made.vocabulary[side], wrong and chance(draw, 0.1)) for side in ("src", "tgt")
    )
    found = Recorded(made, source, target, decoder, layer, head).arrays
    check(wrong or np.isfinite(found["output"]).all(), "a recording that is not finite")


def drafts(draw: Draw, made: CompiledNetwork, wrong: bool) -> None:
    """One output, read several pieces at a time and taken back."""
    src, tgt = made.vocabulary["src"], made.vocabulary["tgt"]
    output = made.read(ids(draw, whole(draw, 1, 9), src, wrong and chance(draw, 0.1)))
    for _ in range(whole(draw, 1, 6)):
        length, more = output.length, whole(draw, 1 - wrong, 9)
        check(0 <= output.feed(ids(draw, more, tgt, wrong and chance(draw, 0.1))) < tgt, "no piece of the vocabulary")
        check(output.length == length + more, "pieces that nobody fed")
        output.truncate(whole(draw, -wrong, min(output.length, 15) + wrong))


def products(draw: Draw, wrong: bool) -> None:
    """A layer, some of its outputs, and its levels."""
    d_out, d_in, rows = (whole(draw, 1 - wrong, most) for most in (70, 90, 60))
    weight, bias = draw.standard_normal((d_out, d_in)), draw.standard_normal(d_out + (wrong and chance(draw, 0.3)))
    layer = Linear(weight.astype(np.float32), bias.astype(np.float32), str(draw.choice(NUMBERS)), chance(draw, 0.3))
    few = layer.rows(np.array(ids(draw, whole(draw, 1 - wrong, 40), d_out, wrong)))
    x = draw.standard_normal((rows, d_in + (wrong and chance(draw, 0.3)))).astype(np.float32)
    check(few(x).shape == (rows, few.d_out), "outputs of another shape")
    if layer.numbers == "int8":
        levels, scales = np.empty((layer.d_out, layer.d_in), np.int8), np.empty(layer.d_out, np.float32)
        c.library().headwise_quantised_weights(layer.address, at(levels), at(scales))


# --- Files ------------------------------------------------------------------------------------------------------------


def model_directory(folder: Path) -> None:
    """A right one, as small as can be."""
    shape = {"vocab_size": 12, "d_model": 6, "d_ff": 5, "n_heads": 3, "n_encoder_layers": 1, "n_decoder_layers": 1}
    shapes = parameter_shapes(transformer_config(TransformerConfig(**shape)))
    draw = np.random.default_rng(0)
    arrays = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(arrays, folder / trained.WEIGHTS)
    (folder / trained.CONFIG).write_text(json.dumps({"format": trained.FORMAT, "model": shape}))


def damaged(draw: Draw, path: Path) -> None:
    """Some bytes are others, or the end is missing, or it is there twice."""
    found = bytearray(path.read_bytes())
    header = min(len(found), 8 + int.from_bytes(found[:8], "little"))
    for _ in range(whole(draw, 1, 4)):
        found[whole(draw, 0, (header if chance(draw, 0.7) else len(found)) - 1)] = whole(draw, 0, 255)
    kind = whole(draw, 0, 5)
    if kind == 0:
        found = found[: whole(draw, 0, len(found))]
    elif kind == 1:
        found += found[-whole(draw, 1, 64) :]
    path.write_bytes(found)


def files(draw: Draw, wrong: bool) -> None:
    """A model directory is read and searches, or says in one line why not."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(RIGHT, folder, dirs_exist_ok=True)
        if wrong:
            damaged(draw, folder / [trained.WEIGHTS, trained.CONFIG][chance(draw, 0.3)])
        config, _ = trained.read_settings(folder)
        weights = trained.read_weights(folder)
    shape = compiled.axes_for_library(config.model)
    if shape and fits(shape, weights.shapes):
        made = compiled.compiled(shape, weights, str(draw.choice(NUMBERS)))
        search(draw, [made], False)


# --- Rounds -----------------------------------------------------------------------------------------------------------


def models(draw: Draw, wrong: bool) -> None:
    made = network(draw, wrong and chance(draw, 0.5))
    if chance(draw, 0.4):
        [steps, drafts, walks][whole(draw, 0, 2)](draw, made, wrong)
    else:
        search(draw, [made] * whole(draw, 1, 2), wrong)


class Wrong(Exception):
    """The library has not done what it says."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Wrong(what)


def play(number: int, seed: int, loaded: Any) -> str:
    """One round: the name of the error it ended with, or nothing."""
    draw = np.random.default_rng((seed, number))
    left = ctypes.c_long.in_dll(loaded, "allocations_left")
    kinds: list[Callable[[Draw, bool], None]] = [models, models, prompts, products, files, encodings, speech]
    kind, wrong, scarce = kinds[number % len(kinds)], chance(draw, 0.5), chance(draw, 0.3)
    left.value = whole(draw, 0, 80) if scarce else -1
    try:
        kind(draw, wrong)
    except ERRORS as error:
        check(wrong or isinstance(error, MemoryError), f"refused though nothing is wrong: {error!r}")
        check(scarce or not isinstance(error, MemoryError), "no memory though there is some")
        return type(error).__name__
    finally:
        left.value = -1
    return ""


def main(path: str, rounds: int, seed: int = 1) -> None:
    loaded = c.declared(ctypes.CDLL(path))
    c.library = lambda: loaded
    held = ctypes.c_long.in_dll(loaded, "blocks_held")
    ended: dict[str, int] = {}
    for number in range(rounds):
        try:
            how = play(number, seed, loaded)
            gc.collect(0)
            loaded.headwise_free_blocks()
            check(held.value == 0, f"{held.value} blocks are never given back")
        except Wrong as error:
            sys.exit(f"round {number} of seed {seed}: {error}")
        ended[how or "answered"] = ended.get(how or "answered", 0) + 1
    print(", ".join(f"{count} {how}" for how, count in sorted(ended.items())))


if __name__ == "__main__":
    with TemporaryDirectory() as right:
        RIGHT = Path(right)
        model_directory(RIGHT)
        main(sys.argv[1], *map(int, sys.argv[2:]))
