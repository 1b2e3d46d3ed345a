"""Transformers packed for the compiled library."""

import math
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_void_p, cast
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np

from headwise.contract import Hypothesis, SearchCancelled, SearchOptions
from headwise.errors import UserError
from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import Floats, Ints, all_below, at, floats
from headwise.runtime.native.linear import LANES, Linear, PackedMemory, pad_rows, round_up
from headwise.runtime.native.search import Search

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "quick_gelu", "silu")  # in the order of activations.h
NORMS = ("layer", "rms", "rms_shifted")


@dataclass(frozen=True)
class Shape:
    """Hyperparameters that do not follow from the shapes of parameters."""

    encoder_heads: tuple[int, ...]  # of each layer; () in a decoder alone
    decoder_heads: tuple[int, ...]
    cross_heads: tuple[int, ...]  # () in a decoder alone
    norm_first: bool
    eps: float = 1e-5  # of the norms
    norm: str = "layer"  # one of NORMS
    activation: str = "relu"  # one of ACTIVATIONS
    embedding_scales: tuple[float, float] = (0.0, 0.0)  # of source and target; 0 = sqrt(d_model)
    score_scale: float = 0.0  # factor on the scores; 0 = d_k^-1/2
    logit_scale: float = 1.0  # factor on the hidden states before the output
    padding: int = -1  # id of padding that does not count as a position; -1 = none
    rotary: tuple[float, ...] = ()  # rotation of each pair of a head, radians a position
    windows: tuple[int, ...] = ()  # of each decoder layer: visible positions, the last ones; 0 = all; () = all


class NativeEngine:
    """A `SearchEngine` for one or several networks with one vocabulary."""

    def networks(self) -> "tuple[CompiledNetwork, ...]":
        """The networks of the search."""
        raise NotImplementedError

    def search(self, *arguments: Any, **options: Any) -> list[list[Hypothesis]]:
        """Encode sources and search; arguments as in `begin`."""
        return self.begin(*arguments, **options).run()

    def begin(
        self,
        sources: Sequence[Sequence[int]],
        limits: Any,
        options: SearchOptions,
        candidates: Any,
        stop: Ints | None = None,
    ) -> Search:
        """Encode sources and return the search before its first step."""
        return Search([member.start(sources, stop) for member in self.networks()], options, limits, candidates)


class PackedNetwork:
    """Packs parameters into the structures that C reads, and keeps the memory that they point to.

    Args:
        parameters: by their names in a model directory; each is read once.
        shape: the hyperparameters.
        positions: returns the encodings of positions (n, width) of each side, at least as many as requested unless the
            table ends; with `Shape.padding`, the encoding of padding comes before them. None: none are added.
        numbers: see `Linear`; embeddings are in bfloat16 unless these are float32.
        memory: for layers and tables, always in the same order; None = its own.
    """

    structure: c.Transformer
    d_model: int

    def __init__(
        self,
        parameters: Mapping[str, Floats],
        shape: Shape,
        positions: Callable[[int], Sequence[Floats | None]],
        numbers: str,
        memory: PackedMemory | None = None,
    ) -> None:
        self._parameters, self._shape, self._numbers = parameters, shape, numbers
        self._halved = numbers != "float32"  # tables of embeddings
        # Language models have inputs of which a few are a hundred times as large as the others, even in one row.
        self._in_blocks = bool(shape.decoder_heads) and not shape.cross_heads
        self._kept: list[Any] = []  # keeps objects alive that C points to
        self._tables: dict[int, c_void_p | None] = {}  # tables of embeddings, by address of their source
        self._memory = memory or PackedMemory()
        self._positions = positions
        self._known = 0  # length of the position tables
        self._growing = Lock()

    def _sides(self) -> Sequence[c.Embeddings]:
        """The embeddings, in the order of the tables of positions."""
        raise NotImplementedError

    def _packed(self) -> None:
        """Forget what only packing needs."""
        del self._parameters, self._memory, self._tables

    def extend_positions(self, length: int) -> None:
        """Extend the tables to `length` positions; `UserError` if the model does not support that many."""
        with self._growing:
            if length <= self._known:
                return
            tables = self._positions(max(length, 2 * self._known))
            first = int(self._shape.padding >= 0)  # the row of the first position
            wanted = max(length, 2 * self._known)
            known = min((len(table) - first for table in tables if table is not None), default=wanted)
            if length > known:
                raise UserError(f"a sequence of {length} tokens is longer than the model's {known} learned positions")
            if self._shape.rotary:
                table = _rotary_table(self._shape.rotary, known)
                self.structure.rotary = c.Rotary(self._address(table), table.shape[1] // 2)
            for embeddings, table in zip(self._sides(), tables, strict=True):
                if table is None:
                    continue
                assert table.shape[1] == self._width(embeddings), "positions as wide as the tokens"
                embeddings.positions = self._address(pad_rows(table), first)
            self._extend_others(known)
            self._known = known

    def _extend_others(self, length: int) -> None:
        """Extend other tables to `length` positions."""

    @staticmethod
    def _check_ids(tokens: Ints, known: int) -> None:
        """`UserError` for ids outside a vocabulary of `known` tokens."""
        if not all_below(tokens, known):
            strange = int(tokens.max() if tokens.max() >= known else tokens.min())
            raise UserError(f"token {strange} is outside the vocabulary of {known}: wrong tokenizer for this model")

    def _array(self, layers: list[c.Layer]) -> Any:
        array = (c.Layer * len(layers))(*layers)
        self._kept.append(array)
        return cast(array, POINTER(c.Layer))

    def _width(self, embeddings: c.Embeddings) -> int:
        return embeddings.width if embeddings.project else self.d_model

    def _address(self, array: Floats, first: int = 0) -> c_void_p | None:
        """The address of a padded copy, or of its row `first`."""
        array = floats(pad_rows(array))
        self._kept.append(array)
        return at(array[first:])

    def _table(self, rows: Floats) -> c_void_p | None:
        """The address of a table of embeddings, in bfloat16 unless the network computes in float32. Shared tables are
        stored once."""
        if rows.ctypes.data not in self._tables:
            wide = floats(pad_rows(rows))
            table = self._memory.kept(wide, self._halved)
            self._kept.append(table)
            self._tables[rows.ctypes.data] = at(table)
        return self._tables[rows.ctypes.data]

    def _linear(self, weight: Floats, bias: Floats | None, after_relu: bool = False) -> int:
        linear = Linear(weight, bias, self._numbers, after_relu, self._memory, self._in_blocks)
        self._kept.append(linear)
        return linear.address

    def _embeddings(self, name: str, rows: Floats, scale: float) -> c.Embeddings:
        width, types = rows.shape[1], self._parameters.get(f"{name}.types.weight")
        project = f"{name}.project.weight" in self._parameters
        assert (width == self.d_model or project) and (types is None or types.shape[1] == width)
        return c.Embeddings(
            self._table(rows),
            None,
            self._norm(f"{name}.norm", True, width),
            scale or math.sqrt(width),
            self._shape.padding,
            self._halved,
            None if types is None else self._address(types),
            self._to_d_model(f"{name}.project") if project else None,
            width,
        )

    def _to_d_model(self, name: str) -> int:
        """A layer whose outputs are padded like rows of d_model numbers."""
        weight, bias = self._projection(name)
        assert len(weight) == self.d_model
        return self._linear(*_padded_heads(pad_rows(weight), bias, 1))

    def _norm(self, name: str, optional: bool = False, width: int = 0) -> c.Norm:
        weight = self._parameters.get(f"{name}.weight")
        if weight is None:
            assert optional, f"{name}: every sub-layer has one"
            return c.Norm(None, None, 0.0)
        assert weight.shape == (width or self.d_model,) and self._shape.norm in NORMS
        if self._shape.norm != "layer":
            weight = weight + 1 if self._shape.norm == "rms_shifted" else weight
            return c.Norm(self._address(weight), None, self._shape.eps)
        bias = self._parameters.get(f"{name}.bias", np.zeros_like(weight))
        assert bias.shape == weight.shape
        return c.Norm(self._address(weight), self._address(bias), self._shape.eps)

    def _layer(self, name: str, own: int, cross: int | None, window: int | None = None) -> c.Layer:
        attention = self._attention(f"{name}.self_attn", own, False)
        attention.window = window or 0
        return c.Layer(
            attention,
            c.Attention() if cross is None else self._attention(f"{name}.cross_attn", cross, True),
            self._feed_forward(f"{name}.ffn"),
        )

    def _feed_forward(self, name: str) -> c.FeedForward:
        up, gated = self._projection(f"{name}.up_proj"), f"{name}.gate_proj.weight" in self._parameters
        down = self._projection(f"{name}.down_proj")
        assert (up[0].shape[1], *down[0].shape) == (self.d_model, self.d_model, len(up[0])), f"{name}: matching widths"
        gate = [self._projection(f"{name}.gate_proj")] if gated else []
        assert all(projection[0].shape == up[0].shape for projection in gate), f"{name}: matching gates"
        return c.FeedForward(
            self._joint([*gate, up]),
            self._linear(*_padded_heads(*down, 1), after_relu=self._shape.activation == "relu" and not gated),
            self._norm(f"{name}_sublayer.norm"),
            ACTIVATIONS.index(self._shape.activation),
        )

    def _attention(self, name: str, heads: int, cross: bool) -> c.Attention:
        q, k, v, o = (self._projection(f"{name}.{x}_proj") for x in "qkvo")
        assert all(x[0].shape[1] == self.d_model for x in (q, k, v)) and len(o[0]) == self.d_model
        assert heads > 0 and not (len(q[0]) % heads or o[0].shape[1] % heads), f"{name}: heads"
        d_k, d_v = len(q[0]) // heads, o[0].shape[1] // heads
        kv_heads = heads if not name.startswith("decoder") or cross else len(k[0]) // max(1, d_k)
        assert kv_heads and heads % kv_heads == 0, f"{name}: heads in equal groups"
        k, v = _repeat_heads(k, kv_heads, d_k), _repeat_heads(v, kv_heads, d_v)
        scale = self._shape.score_scale or 1 / math.sqrt(d_k)
        pairs = 0 if cross else len(self._shape.rotary)
        assert 2 * pairs <= d_k, f"{name}: at most half of the head width"
        q, k = _padded_heads(*q, heads, pairs, pairs), _padded_heads(*k, kv_heads, pairs, pairs)
        v = _padded_heads(*v, kv_heads)
        out = _padded_heads(o[0].T, np.zeros(o[0].shape[1], np.float32), heads)[0].T, o[1]
        parts = ([q], [k, v]) if cross else ([q, k, v], [])
        made = [self._joint(part) for part in parts if part]
        return c.Attention(
            heads=heads,
            kv_heads=kv_heads,
            d_k=len(q[0]) // heads,
            d_v=round_up(d_v),
            in_=made[0],
            memory=made[1] if cross else None,
            out=self._linear(*_padded_heads(*out, 1)),
            norm=self._norm(f"{name}_sublayer.norm"),
            q_norm=self._head_norm(f"{name}.q_norm", d_k, pairs),
            k_norm=self._head_norm(f"{name}.k_norm", d_k, pairs),
            norm_width=d_k,
            scale=scale,
        )

    def _head_norm(self, name: str, width: int, pairs: int) -> c.Norm:
        """The norm of every head's queries or keys, which a decoder may have."""
        weight = self._parameters.get(f"{name}.weight")
        if weight is None:
            return c.Norm(None, None, 0.0)
        assert weight.shape == (width,) and self._shape.norm in NORMS[1:] and name.startswith("decoder"), name
        weight = weight + 1 if self._shape.norm == "rms_shifted" else weight
        padded = _padded_heads(weight[:, None], weight, 1, pairs, pairs)[1]
        return c.Norm(self._address(padded), None, self._shape.eps)

    def _joint(self, projections: list[tuple[Floats, Floats]]) -> int:
        weights, biases = (self._memory.joined(x) for x in zip(*projections, strict=True))
        return self._linear(pad_rows(weights), biases)

    def _projection(self, name: str) -> tuple[Floats, Floats]:
        weight = floats(self._parameters[f"{name}.weight"])
        bias = self._parameters.get(f"{name}.bias")
        return weight, np.zeros(len(weight), np.float32) if bias is None else floats(bias)


class CompiledNetwork(PackedNetwork, NativeEngine):
    """A packed encoder-decoder or decoder alone; arguments as for `PackedNetwork`.

    Positions are those of sources and of targets; in a decoder alone, whose parameters have the names of targets, and
    where sources are not tokens, only the latter.
    """

    def __init__(
        self,
        parameters: Mapping[str, Floats],
        shape: Shape,
        positions: Callable[[int], Sequence[Floats | None]],
        numbers: str,
        memory: PackedMemory | None = None,
    ) -> None:
        super().__init__(parameters, shape, positions, numbers, memory)
        sides = [side for side in ("src", "tgt") if f"{side}_embeddings.tokens.weight" in parameters]
        tables = {side: parameters[f"{side}_embeddings.tokens.weight"] for side in sides}
        self.vocabulary = {side: len(table) for side, table in tables.items()}
        self.d_model = d_model = tables["tgt"].shape[1]
        self.heads = {"encoder": shape.encoder_heads, "decoder": shape.decoder_heads, "cross": shape.cross_heads}
        encoder = [self._layer(f"encoder.layers.{i}", n, None) for i, n in enumerate(shape.encoder_heads)]
        none = (None,) * len(shape.decoder_heads)
        heads = zip(shape.decoder_heads, shape.cross_heads or none, shape.windows or none, strict=True)
        decoder = [self._layer(f"decoder.layers.{i}", *each) for i, each in enumerate(heads)]
        output, scale = parameters["output.weight"], np.float32(shape.logit_scale)
        output = output if scale == 1 else output * scale
        of_output = "int8" if numbers == "int4" else numbers
        self.output = Linear(output, parameters.get("output.bias"), of_output, False, self._memory, self._in_blocks)
        scales: dict[str, float] = dict(zip(("src", "tgt"), shape.embedding_scales, strict=True))
        embeddings = {side: self._embeddings(f"{side}_embeddings", tables[side], scales[side]) for side in sides}
        self.structure = c.Transformer(
            d_model=d_model,
            norm_first=shape.norm_first,
            n_encoder_layers=len(encoder),
            n_decoder_layers=len(decoder),
            source=embeddings.get("src", c.Embeddings()),
            target=embeddings["tgt"],
            encoder=self._array(encoder),
            decoder=self._array(decoder),
            encoder_norm=self._norm("encoder.norm", True),
            decoder_norm=self._norm("decoder.norm", True),
            output=self.output.address,
        )
        assert output.shape == (self.vocabulary["tgt"], d_model), "sizes of the output projection"
        self._packed()

    def _sides(self) -> Sequence[c.Embeddings]:
        return (self.structure.source, self.structure.target) if self.has_encoder else (self.structure.target,)

    @property
    def has_encoder(self) -> bool:
        """Whether it reads tokens as sources; a decoder alone reads prompts."""
        return "src" in self.vocabulary

    def networks(self) -> "tuple[CompiledNetwork, ...]":
        """Itself alone."""
        return (self,)

    def start(self, sources: Sequence[Sequence[int]], stop: Ints | None = None) -> "Decoding":
        """Encode sources, ids with their end marks, or read prompts; `stop` as `Decoding` takes it."""
        return Decoding(self, sources, stop)

    def read(self, source: Sequence[int]) -> "NativeDraftState":
        """A draft for a source with its end tokens; see `runtime.search.drafts`."""
        return NativeDraftState(self.start([source]))

    def check_tokens(self, tokens: Ints, side: str) -> None:
        """`UserError` for ids outside the vocabulary of the source ("src") or target ("tgt")."""
        self._check_ids(tokens, self.vocabulary[side])


@dataclass(frozen=True)
class CompiledEnsemble(NativeEngine):
    """An ensemble of networks with one vocabulary: log-probabilities are averaged (`pytorch/search/ensemble.py`)."""

    members: tuple[CompiledNetwork, ...]

    def networks(self) -> tuple[CompiledNetwork, ...]:
        """The members."""
        return self.members


class Decoding:
    """Encoded sources, or prompts that a decoder alone has read, and the KV cache of their outputs.

    Another thread may set `stop`, an int32 array of one number, to non-zero: then methods raise `SearchCancelled`
    within milliseconds.
    """

    def __init__(
        self,
        network: CompiledNetwork,
        sources: Sequence[Sequence[int]],
        stop: Ints | None = None,
        hidden: Floats | None = None,
    ) -> None:
        """`hidden` (tokens, d_model) gets the states after all tokens of all prompts."""
        assert stop is None or (stop.dtype == np.int32 and stop.size == 1)
        self._stop = stop
        self._capacity = 0  # of slots
        lengths = np.array([len(source) for source in sources], np.int32)
        assert len(lengths) and lengths.all(), "sources include their end tokens"
        tokens = np.fromiter(chain.from_iterable(sources), np.int32, int(lengths.sum()))
        self.network = network
        self.sentences = len(sources)
        network.check_tokens(tokens, "src" if network.has_encoder else "tgt")
        network.extend_positions(int(lengths.max()))
        given = byref(network.structure), at(tokens), at(lengths), len(lengths)
        if network.has_encoder:
            assert hidden is None, "states of prompts"
            self.prompt_lengths = np.zeros(len(lengths), np.int32)
            self.address = c.needed().headwise_start(*given, at(stop))
        else:
            assert hidden is None or (hidden.dtype == np.float32 and hidden.shape == (len(tokens), network.d_model))
            self.prompt_lengths = lengths
            self.address = c.needed().headwise_read_prompts(*given, at(hidden), at(stop))
        self.done(not self.address)
        finalize(self, _end, self.address, network).atexit = False

    @classmethod
    def of_vectors(cls, network: CompiledNetwork, source: Floats, stop: Ints | None = None) -> "Decoding":
        """A decoding of one source of vectors (length, d_model), the input of the first layer, instead of tokens."""
        assert stop is None or (stop.dtype == np.int32 and stop.size == 1)
        assert network.heads["cross"] and source.ndim == 2 and len(source) and source.shape[1] == network.d_model
        decoding, lengths, source = object.__new__(cls), np.array([len(source)], np.int32), floats(source)
        decoding._stop, decoding._capacity, decoding.network, decoding.sentences = stop, 0, network, 1
        decoding.prompt_lengths = np.zeros(1, np.int32)
        given = byref(network.structure), at(source), at(lengths), 1
        decoding.address = c.needed().headwise_start_vectors(*given, at(stop))
        decoding.done(not decoding.address)
        finalize(decoding, _end, decoding.address, network).atexit = False
        return decoding

    def read_prompt(self, prompt: Sequence[int]) -> Floats:
        """The states (tokens, d_model) after the tokens with which the output for the only source begins.

        The next search begins after them. Everything read or searched before is forgotten.
        """
        assert self.network.heads["cross"] and self.sentences == 1 and len(prompt), "an encoder-decoder, and a prompt"
        tokens, lengths = np.array(prompt, np.int32), np.array([len(prompt)], np.int32)
        self.network.check_tokens(tokens, "tgt")
        self.network.extend_positions(len(prompt))
        hidden = np.empty((len(prompt), self.network.d_model), np.float32)
        self.done(c.needed().headwise_read_more_prompts(self.address, at(tokens), at(lengths), at(hidden)))
        self.prompt_lengths, self._capacity = lengths, 0
        return hidden

    def matches(self, first: "Decoding") -> bool:
        """Whether both can take part in one search: new decodings of as many sources, with one vocabulary."""
        same = self.sentences == first.sentences and self.network.vocabulary == first.network.vocabulary
        return same and self.slots == int(self.prompt_lengths.sum()) and not self._capacity

    def step(self, tokens: Ints, positions: Ints, sentences: Ints, paths: Ints) -> Floats:
        """Hidden states (rows, d_model) after one more position of `rows` hypotheses.

        Args:
            tokens: (rows,), the newest tokens.
            positions: (rows,), their positions in the outputs, or in the texts that begin with the prompts.
            sentences: (rows,), indices of their sources or prompts.
            paths: (rows, stride) in int32, slots of all positions up to those of `tokens`, which are `slots` and
                following; without those of the prompts.
        """
        self.network.check_tokens(tokens, "tgt")
        self._check_step(len(tokens), positions, sentences, paths)
        self.network.extend_positions(int(positions.max()) + 1)
        hidden = np.empty((len(tokens), self.network.d_model), np.float32)
        columns = [np.ascontiguousarray(x, np.int32) for x in (tokens, positions, sentences)]
        addresses = map(at, columns)
        self.done(
            c.needed().headwise_step(self.address, len(tokens), *addresses, at(paths), paths.shape[1], at(hidden))
        )
        return hidden

    def _check_step(self, rows: int, positions: Ints, sentences: Ints, paths: Ints) -> None:
        """Check what C does not check."""
        assert rows and positions.shape == sentences.shape == (rows,) and len(paths) == rows
        assert all_below(sentences, self.sentences)
        written = positions - self.prompt_lengths[sentences]
        assert all_below(written, paths.shape[1])
        assert self.slots + rows <= self._capacity, "`make_room` comes first"
        self._check_paths(paths, int(written.max()) + 1, self.slots + rows)

    @staticmethod
    def _check_paths(paths: Ints, length: int, slots: int) -> None:
        assert paths.ndim == 2 and paths.dtype == np.int32 and paths.flags.c_contiguous, "rows of slots in int32"
        assert 0 <= length <= paths.shape[1] and all_below(paths[:, :length], slots), "existing slots"

    def make_room(self, rows: int, paths: Ints, length: int) -> None:
        """Call before a step of `rows` rows; it may change `paths` (hypotheses, stride), int32, up to `length`."""
        self._check_paths(paths, length, self.slots)
        failed = c.needed().headwise_reserve_slots(self.address, rows, at(paths), len(paths), paths.shape[1], length)
        self.done(failed)
        self._capacity = self.slots + rows

    @property
    def slots(self) -> int:
        """The number of slots in use."""
        return c.needed().headwise_slots(self.address)

    def truncate(self, slots: int) -> None:
        """Remove all slots from `slots` on, which are not of prompts."""
        assert slots >= self.prompt_lengths.sum()
        c.needed().headwise_truncate(self.address, slots)

    def done(self, failed: int) -> None:
        """Raise an exception if a library call failed."""
        if failed and self._stop is not None and self._stop[0]:
            raise SearchCancelled
        if failed:
            raise MemoryError("not enough memory to decode")


class NativeDraftState:
    """A `runtime.search.drafts.DraftState` in the compiled library."""

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding

    @property
    def length(self) -> int:
        """The number of tokens read."""
        return self._decoding.slots

    def truncate(self, length: int) -> None:
        """See `DraftState.truncate`."""
        self._decoding.truncate(length)

    def feed(self, tokens: Sequence[int]) -> int:
        """See `DraftState.feed`."""
        decoding, first, rows = self._decoding, self.length, len(tokens)
        paths = np.tile(np.arange(first + rows, dtype=np.int32), (rows, 1))
        decoding.make_room(rows, paths[:1], first)
        positions = np.arange(first, first + rows)
        hidden = decoding.step(np.array(tokens), positions, np.zeros(rows, int), paths)
        return int(decoding.network.output(hidden[-1:]).argmax())


def _repeat_heads(projection: tuple[Floats, Floats], heads: int, width: int) -> tuple[Floats, Floats]:
    """Keys or values of grouped-query attention (arXiv:2305.13245), repeated for all heads."""
    weight, bias = projection
    n = len(weight) // max(1, width)
    assert n and n * width == len(weight) == len(bias) and heads % n == 0, "heads in equal groups"
    by_head = weight.reshape(n, 1, width, -1), bias.reshape(n, 1, width, 1)
    weight, bias = (np.broadcast_to(x, (n, heads // n, *x.shape[2:])) for x in by_head)  # no copy without sharing
    return weight.reshape(heads * width, -1), bias.reshape(-1)


def _padded_heads(weight: Floats, bias: Floats, heads: int, *parts: int) -> tuple[Floats, Floats]:
    """Outputs of each head, with its `parts` and the rest padded separately to whole registers."""
    width = len(weight) // heads
    if not any(size % LANES for size in (*parts, width)):
        return weight, bias
    ends = np.cumsum(parts, dtype=int)
    by_head = weight.reshape(heads, width, -1), bias.reshape(heads, width, 1)
    weight, bias = (np.concatenate([_padded_outputs(x) for x in np.split(all_of, ends, 1)], 1) for all_of in by_head)
    return weight.reshape(heads * weight.shape[1], -1), bias.reshape(-1)


def head_columns(width: int, *parts: int) -> list[int]:
    """The components of a head among its padded ones.

    >>> head_columns(5, 2, 2)
    [0, 1, 8, 9, 16]
    """
    ones = np.ones((width, 1), np.float32)
    return np.flatnonzero(_padded_heads(ones, ones[:, 0], 1, *parts)[1]).tolist()


def _padded_outputs(outputs: Floats) -> Floats:
    """(heads, width, any), padded to whole registers."""
    return np.pad(outputs, [(0, 0), (0, round_up(outputs.shape[1]) - outputs.shape[1]), (0, 0)])


def _rotary_table(rates: Sequence[float], length: int) -> Floats:
    """Padded cosines, then sines, of `length` positions (arXiv:2104.09864); `rates` are radians a position."""
    angle = np.arange(length, dtype=np.float32)[:, None] * np.array(rates, np.float32)  # as `core.extensions.rotary`
    exact = angle.astype(np.float64)
    return np.concatenate([pad_rows(part.astype(np.float32)) for part in (np.cos(exact), np.sin(exact))], -1)


def _end(decoding: int, network: CompiledNetwork) -> None:
    """Free a decoding; the argument keeps its network alive until then."""
    c.needed().headwise_end(decoding)
