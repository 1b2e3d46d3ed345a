"""A Transformer's parameters packed for the compiled library, and what the library does with them."""

import math
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_void_p, cast
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from headwise.contract import Hypothesis, SearchOptions
from headwise.errors import UserError
from headwise.native import library as c
from headwise.native.arrays import Floats, Ints, all_below, at, floats
from headwise.native.positions import turns
from headwise.native.search import Search

LANES = 8  # numbers a register holds: rows of fewer are followed by zeros in memory
REGISTER = 64  # bytes of the longest
BLOCK = 64 << 20  # bytes that are asked for at once
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "quick_gelu", "silu")  # in the order of activations.h
NORMS = ("layer", "rms", "rms_shifted")
NUMBERS = ("float32", "int8", "bfloat16")  # of weights, in the order of products.h


class Stopped(Exception):
    """Who waited for a search waits no more."""


@dataclass(frozen=True)
class Shape:
    """What the parameters' own shapes do not say."""

    encoder_heads: tuple[int, ...]  # of each layer
    decoder_heads: tuple[int, ...]
    cross_heads: tuple[int, ...]
    norm_first: bool
    eps: float = 1e-5  # of the norms
    norm: str = "layer"  # one of NORMS; see `network.norms` for all but the paper's
    activation: str = "relu"  # one of ACTIVATIONS
    embedding_scales: tuple[float, float] = (0.0, 0.0)  # of source and target; 0 = sqrt(d_model)
    score_scale: float = 0.0  # factor on the scores; 0 = d_k^-1/2
    logit_scale: float = 1.0  # factor on the hidden states before the output
    padding: int = -1  # an id that is not counted by positions and has their code before the first; -1 = none
    rotary: tuple[float, ...] = ()  # by how much a position turns each pair of a head, radians: see `network.rotary`


class Linear:
    """y = x W^T + b, packed: one for each thing the library multiplies with.

    Args:
        weight: (d_out, d_in).
        bias: (d_out,) or None.
        numbers: one of NUMBERS. int8: 8-bit integers, inputs too, one scale for each row of inputs and each output.
            bfloat16: weights rounded to these, half the memory; all else is float32, to the bits that a weight in
            float32 would yield that is rounded so.
        after_relu: inputs are never negative, and get twice as many levels.
        memory: where it is put; None: somewhere by itself.
    """

    def __init__(
        self,
        weight: Floats,
        bias: Floats | None,
        numbers: str = "float32",
        after_relu: bool = False,
        memory: "PackedMemory | None" = None,
    ) -> None:
        weight, memory = floats(weight), memory or PackedMemory(0)
        bias = None if bias is None else floats(bias)
        d_out, d_in = weight.shape
        assert d_out and d_in and (bias is None or bias.shape == (d_out,)), "a weight with its bias"
        room = self._room(d_out, d_in, numbers, memory)
        kind, given = NUMBERS.index(numbers), None if memory.filled else at(weight)
        made = c.needed().headwise_linear(room, given, at(bias), d_out, d_in, kind, after_relu)
        if not made:
            raise MemoryError("not enough memory to pack a layer")

    def rows(self, index: Ints) -> "Linear":
        """Some of the outputs, in this order; each yields what it does here, to the last bit."""
        assert index.ndim == 1 and len(index) and all_below(index, self.d_out), "outputs that there are"
        index = np.ascontiguousarray(index, np.int32)
        few = object.__new__(Linear)
        zeros = few._room(len(index), self.d_in, self.numbers, PackedMemory(0))
        c.needed().headwise_linear_rows(zeros, self.address, at(index), len(index))
        return few

    def _room(self, d_out: int, d_in: int, numbers: str, memory: "PackedMemory") -> c_void_p:
        self.d_out, self.d_in, self.numbers = d_out, d_in, numbers
        self._memory = memory.take(c.needed().headwise_linear_size(d_out, d_in, NUMBERS.index(numbers)))
        self.address = self._memory.ctypes.data
        return c_void_p(self.address)

    def __call__(self, x: Floats) -> Floats:
        """(rows, d_in) to (rows, d_out); a row yields the same to the last bit in any company."""
        assert x.ndim == 2 and x.shape[1] == self.d_in, f"inputs of width {self.d_in}, not {x.shape}"
        x = floats(x)
        y = np.empty((len(x), self.d_out), np.float32)
        _done(c.needed().headwise_apply(self.address, at(x), len(x), at(y)))
        return y


class PackedMemory:
    """Memory for packed layers, one behind the other in blocks so large that the system gives them in large pages: a
    single sentence waits for little but weights. What nobody has taken yet is no memory of the process.
    """

    filled = False  # whether all has been packed before, and is here: see `checkpoint.packed`

    def __init__(self, block: int = BLOCK) -> None:
        self._block, self._left = block, np.empty(0, np.uint8)

    def take(self, size: int) -> NDArray[np.uint8]:
        """Zeros that begin where a register may, and stay as long as somebody has them."""
        if size > len(self._left):
            zeros = np.zeros(max(self._block, size) + REGISTER, np.uint8)
            self._left = zeros[-zeros.ctypes.data % REGISTER :]
        taken, self._left = self._left[:size], self._left[-(-size // REGISTER) * REGISTER :]
        return taken

    def kept(self, table: NDArray[Any]) -> NDArray[Any]:
        """A table of embeddings, which stays where it is."""
        return table

    def joined(self, arrays: Sequence[Floats]) -> Floats:
        """Several weights, or biases, that are packed as one."""
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


class Searching:
    """Networks of one vocabulary in one search; the contract `contract.SearchEngine`."""

    def networks(self) -> "tuple[CompiledNetwork, ...]":
        """Those that search."""
        raise NotImplementedError

    def search(self, *asked: Any, **further: Any) -> list[list[Hypothesis]]:
        """Encode sources and search; arguments as `begin` has them."""
        return self.begin(*asked, **further).run()

    def begin(
        self,
        sources: Sequence[Sequence[int]],
        limits: Any,
        options: SearchOptions,
        few: Any,
        stop: Ints | None = None,
    ) -> Search:
        """A search that has encoded the sources and gone no further."""
        return Search([member.start(sources, stop) for member in self.networks()], options, limits, few)


class CompiledNetwork(Searching):
    """A packed Transformer.

    Args:
        parameters: by the names of a model directory's file, each asked for once; embeddings and output under each of
            their names.
        shape: what they do not say.
        positions: the codes of the source's and of the target's positions (n, d_model), of at least as many as asked
            for unless there are no more; of `Shape.padding` it is zeros.
        numbers: see `Linear`; in bfloat16 embeddings are, too.
        memory: where layers and tables are put, in the same order each time; None: wherever there is room.
    """

    def __init__(
        self,
        parameters: Mapping[str, Floats],
        shape: Shape,
        positions: Callable[[int], tuple[Floats, Floats]],
        numbers: str,
        memory: PackedMemory | None = None,
    ) -> None:
        self._parameters, self._shape, self._numbers = parameters, shape, numbers
        self._kept: list[Any] = []  # what the structures point to
        self._tables: dict[int, c_void_p | None] = {}  # embeddings among that, by where they came from
        self._memory = memory or PackedMemory()
        tables = {side: parameters[f"{side}_embeddings.tokens.weight"] for side in ("src", "tgt")}
        self.vocabulary = {side: len(table) for side, table in tables.items()}
        self.d_model = d_model = tables["tgt"].shape[1]
        encoder = [self._layer(f"encoder.layers.{i}", n, None) for i, n in enumerate(shape.encoder_heads)]
        heads = zip(shape.decoder_heads, shape.cross_heads, strict=True)
        decoder = [self._layer(f"decoder.layers.{i}", own, cross) for i, (own, cross) in enumerate(heads)]
        output, scale = parameters["output.weight"], np.float32(shape.logit_scale)
        output = output if scale == 1 else output * scale
        self.output = Linear(output, parameters.get("output.bias"), numbers, memory=self._memory)
        self._positions = positions
        self._known = 0  # positions in the table
        self._growing = Lock()
        self.structure = c.Transformer(
            d_model=d_model,
            norm_first=shape.norm_first,
            n_encoder_layers=len(encoder),
            n_decoder_layers=len(decoder),
            source=self._embeddings("src", tables["src"], shape.embedding_scales[0]),
            target=self._embeddings("tgt", tables["tgt"], shape.embedding_scales[1]),
            encoder=self._array(encoder),
            decoder=self._array(decoder),
            encoder_norm=self._norm("encoder.norm", True),
            decoder_norm=self._norm("decoder.norm", True),
            output=self.output.address,
        )
        assert (self.output.d_out, self.output.d_in) == (self.vocabulary["tgt"], d_model), "what is written is read"
        del self._parameters, self._memory, self._tables

    def networks(self) -> "tuple[CompiledNetwork, ...]":
        """Itself alone."""
        return (self,)

    def start(self, sources: Sequence[Sequence[int]], stop: Ints | None = None) -> "Decoding":
        """Encode sources, ids with their end marks; `stop` as `Decoding` takes it."""
        return Decoding(self, sources, stop)

    def read(self, source: Sequence[int]) -> "DraftedDecoding":
        """What may be written for a source with its end mark, as `decode.drafts` asks for it."""
        return DraftedDecoding(self.start([source]))

    def check_pieces(self, pieces: Ints, side: str) -> None:
        """A `UserError` for ids that the table of the source ("src") or the target ("tgt") does not have."""
        known = self.vocabulary[side]
        if not all_below(pieces, known):
            strange = int(pieces.max() if pieces.max() >= known else pieces.min())
            raise UserError(f"token {strange} is outside the vocabulary of {known}: wrong tokenizer for this model")

    def know_positions(self, length: int) -> None:
        """Make sure that positions up to `length` have their codes; a `UserError` if there are not that many."""
        with self._growing:
            if length <= self._known:
                return
            tables = self._positions(max(length, 2 * self._known))
            known = min(map(len, tables))
            if length > known:
                raise UserError(f"a sequence of {length} tokens is longer than the model's {known} learned positions")
            assert all(table.shape[1] == self.d_model for table in tables)
            self._known = known
            if self._shape.rotary:
                table = np.concatenate([_wider(part) for part in turns(self._shape.rotary, known)], -1)
                self.structure.rotary = c.Rotary(self._address(table), table.shape[1] // 2)
            for embeddings, table in zip((self.structure.source, self.structure.target), tables, strict=True):
                table = _wider(table)
                embeddings.positions = self._address(table if self._shape.padding < 0 else _behind_zeros(table))

    def _array(self, layers: list[c.Layer]) -> Any:
        array = (c.Layer * len(layers))(*layers)
        self._kept.append(array)
        return cast(array, POINTER(c.Layer))

    def _address(self, array: Floats) -> c_void_p | None:
        array = floats(_wider(array))
        self._kept.append(array)
        return at(array)

    def _table(self, rows: Floats) -> c_void_p | None:
        """`_address` of embeddings in the network's numbers; what both sides have is kept once."""
        if rows.ctypes.data not in self._tables:
            wide = floats(_wider(rows))
            table = self._memory.kept(halves(wide) if self._numbers == "bfloat16" else wide)
            self._kept.append(table)
            self._tables[rows.ctypes.data] = at(table)
        return self._tables[rows.ctypes.data]

    def _linear(self, weight: Floats, bias: Floats | None, after_relu: bool = False) -> int:
        linear = Linear(weight, bias, self._numbers, after_relu, self._memory)
        self._kept.append(linear)
        return linear.address

    def _embeddings(self, side: str, rows: Floats, scale: float) -> c.Embeddings:
        norm = self._norm(f"{side}_embeddings.norm", True)
        assert rows.shape[1] == self.d_model
        scale, half = scale or math.sqrt(rows.shape[1]), self._numbers == "bfloat16"
        return c.Embeddings(self._table(rows), None, norm, scale, self._shape.padding, half)

    def _norm(self, name: str, optional: bool = False) -> c.Norm:
        weight = self._parameters.get(f"{name}.weight")
        if weight is None:
            assert optional, f"{name}: every sub-layer has one"
            return c.Norm(None, None, 0.0)
        assert weight.shape == (self.d_model,) and self._shape.norm in NORMS
        if self._shape.norm != "layer":
            weight = weight + 1 if self._shape.norm == "rms_shifted" else weight
            return c.Norm(self._address(weight), None, self._shape.eps)
        bias = self._parameters.get(f"{name}.bias", np.zeros_like(weight))
        assert bias.shape == weight.shape
        return c.Norm(self._address(weight), self._address(bias), self._shape.eps)

    def _layer(self, name: str, own: int, cross: int | None) -> c.Layer:
        return c.Layer(
            self._attention(f"{name}.self_attn", own, False),
            c.Attention() if cross is None else self._attention(f"{name}.cross_attn", cross, True),
            self._feed_forward(f"{name}.ffn"),
        )

    def _feed_forward(self, name: str) -> c.FeedForward:
        up, gated = self._projection(f"{name}.up_proj"), f"{name}.gate_proj.weight" in self._parameters
        down = self._projection(f"{name}.down_proj")
        assert (up[0].shape[1], *down[0].shape) == (self.d_model, self.d_model, len(up[0])), f"{name}: widths that fit"
        gate = [self._projection(f"{name}.gate_proj")] if gated else []
        assert all(projection[0].shape == up[0].shape for projection in gate), f"{name}: as many gates as there are"
        return c.FeedForward(
            self._joint([*gate, up]),
            self._linear(*_wider_heads(*down, 1), after_relu=self._shape.activation == "relu" and not gated),
            self._norm(f"{name}_sublayer.norm"),
            ACTIVATIONS.index(self._shape.activation),
        )

    def _attention(self, name: str, heads: int, cross: bool) -> c.Attention:
        q, k, v, o = (self._projection(f"{name}.{x}_proj") for x in "qkvo")
        assert all(x[0].shape[1] == self.d_model for x in (q, k, v)) and len(o[0]) == self.d_model
        assert heads > 0 and not (len(q[0]) % heads or o[0].shape[1] % heads), f"{name}: heads"
        d_k, d_v = len(q[0]) // heads, o[0].shape[1] // heads
        k, v = _for_all_heads(k, heads, d_k), _for_all_heads(v, heads, d_v)
        scale = self._shape.score_scale or 1 / math.sqrt(d_k)
        pairs = 0 if cross else len(self._shape.rotary)
        assert 2 * pairs <= d_k, f"{name}: pairs that a head has"
        q, k = (_wider_heads(*x, heads, pairs, pairs) for x in (q, k))
        v = _wider_heads(*v, heads)
        out = _wider_heads(o[0].T, np.zeros(o[0].shape[1], np.float32), heads)[0].T, o[1]
        parts = ([q], [k, v]) if cross else ([q, k, v], [])
        made = [self._joint(part) for part in parts if part]
        return c.Attention(
            heads=heads,
            d_k=len(q[0]) // heads,
            d_v=_rounded(d_v),
            in_=made[0],
            memory=made[1] if cross else None,
            out=self._linear(*_wider_heads(*out, 1)),
            norm=self._norm(f"{name}_sublayer.norm"),
            scale=scale,
        )

    def _joint(self, projections: list[tuple[Floats, Floats]]) -> int:
        weights, biases = (self._memory.joined(x) for x in zip(*projections, strict=True))
        return self._linear(_wider(weights), biases)

    def _projection(self, name: str) -> tuple[Floats, Floats]:
        weight = floats(self._parameters[f"{name}.weight"])
        bias = self._parameters.get(f"{name}.bias")
        return weight, np.zeros(len(weight), np.float32) if bias is None else floats(bias)


@dataclass(frozen=True)
class CompiledEnsemble(Searching):
    """Networks of one vocabulary that search together: their log-probabilities are averaged (`decode/ensemble.py`)."""

    members: tuple[CompiledNetwork, ...]

    def networks(self) -> tuple[CompiledNetwork, ...]:
        """The members."""
        return self.members


class Decoding:
    """Sources that have been encoded, and the keys and values of what is written for them.

    Whoever waits in another thread makes `stop`, one number in int32, other than 0, and within milliseconds whatever
    goes on here raises `Stopped`.
    """

    def __init__(self, network: CompiledNetwork, sources: Sequence[Sequence[int]], stop: Ints | None = None) -> None:
        assert stop is None or (stop.dtype == np.int32 and stop.size == 1)
        self._stop = stop
        self._room = 0  # places that there is memory for
        lengths = np.array([len(source) for source in sources], np.int32)
        assert len(lengths) and lengths.all(), "sources have at least their end marks"
        pieces = np.array([piece for source in sources for piece in source], np.int32)
        self.network = network
        self.sentences = len(sources)
        network.check_pieces(pieces, "src")
        network.know_positions(int(lengths.max()))
        structure = byref(network.structure)
        self.address = c.needed().headwise_start(structure, at(pieces), at(lengths), len(lengths), at(stop))
        self.done(not self.address)
        finalize(self, _end, self.address, network).atexit = False

    def goes_with(self, first: "Decoding") -> bool:
        """Whether both can take the steps of one search: their places are the same ones from the first on."""
        alike = self.sentences == first.sentences and self.network.vocabulary == first.network.vocabulary
        return alike and not (self.places or self._room)

    def step(self, tokens: Ints, positions: Ints, sentences: Ints, paths: Ints) -> Floats:
        """Hidden states (rows, d_model) after one more position of `rows` hypotheses.

        Args:
            tokens: (rows,), the newest of each.
            positions: (rows,), where they stand in their outputs.
            sentences: (rows,), whose output each is.
            paths: (rows, room) in int32, of places up to and with those of `tokens`: `places` and those after it.
        """
        self.network.check_pieces(tokens, "tgt")
        self._check_step(len(tokens), positions, sentences, paths)
        self.network.know_positions(int(positions.max()) + 1)
        hidden = np.empty((len(tokens), self.network.d_model), np.float32)
        of_rows = [np.ascontiguousarray(x, np.int32) for x in (tokens, positions, sentences)]
        columns = [at(x) for x in of_rows]
        self.done(c.needed().headwise_step(self.address, len(tokens), *columns, at(paths), paths.shape[1], at(hidden)))
        return hidden

    def _check_step(self, rows: int, positions: Ints, sentences: Ints, paths: Ints) -> None:
        """What C goes by without looking."""
        assert rows and positions.shape == sentences.shape == (rows,) and len(paths) == rows
        assert all_below(positions, paths.shape[1]) and all_below(sentences, self.sentences)
        assert self.places + rows <= self._room, "`make_room` comes first"
        self._check_paths(paths, int(positions.max()) + 1, self.places + rows)

    @staticmethod
    def _check_paths(paths: Ints, length: int, places: int) -> None:
        assert paths.ndim == 2 and paths.dtype == np.int32 and paths.flags.c_contiguous, "rows of places in int32"
        assert 0 <= length <= paths.shape[1] and all_below(paths[:, :length], places), "places that there are"

    def make_room(self, rows: int, paths: Ints, length: int) -> None:
        """Before a step of `rows` rows: `paths` (hypotheses, room), in int32, may change, up to `length`."""
        self._check_paths(paths, length, self.places)
        room = c.needed().headwise_make_room(self.address, rows, at(paths), len(paths), paths.shape[1], length)
        self.done(room)
        self._room = self.places + rows

    @property
    def places(self) -> int:
        """How many places are in use."""
        return c.needed().headwise_places(self.address)

    def forget(self, places: int) -> None:
        """Give up all places from `places` on."""
        assert places >= 0
        c.needed().headwise_forget(self.address, places)

    def done(self, failed: int) -> None:
        """What the library's answer means."""
        if failed and self._stop is not None and self._stop[0]:
            raise Stopped
        if failed:
            raise MemoryError("not enough memory to decode")


class DraftedDecoding:
    """One output of one source, read piece by piece and taken back; same contract as `decode.drafts.Drafting`."""

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding

    @property
    def length(self) -> int:
        """Pieces that were read: the only output has the places to itself."""
        return self._decoding.places

    def truncate(self, length: int) -> None:
        """Take back all from `length` on."""
        self._decoding.forget(length)

    def feed(self, tokens: Sequence[int]) -> int:
        """The piece that is likeliest after these."""
        decoding, first, rows = self._decoding, self.length, len(tokens)
        paths = np.tile(np.arange(first + rows, dtype=np.int32), (rows, 1))
        decoding.make_room(rows, paths[:1], first)
        positions = np.arange(first, first + rows)
        hidden = decoding.step(np.array(tokens), positions, np.zeros(rows, int), paths)
        return int(decoding.network.output(hidden[-1:]).argmax())


def _for_all_heads(projection: tuple[Floats, Floats], heads: int, width: int) -> tuple[Floats, Floats]:
    """Keys or values that several heads share (arXiv:2305.13245), once for each of these."""
    weight, bias = projection
    n = len(weight) // max(1, width)
    assert n and n * width == len(weight) == len(bias) and heads % n == 0, "heads that share keys and values"
    by_head = weight.reshape(n, 1, width, -1), bias.reshape(n, 1, width, 1)
    weight, bias = (np.broadcast_to(x, (n, heads // n, *x.shape[2:])) for x in by_head)  # no copy where none is shared
    return weight.reshape(heads * width, -1), bias.reshape(-1)


def _wider_heads(weight: Floats, bias: Floats, heads: int, *parts: int) -> tuple[Floats, Floats]:
    """Outputs of each head, its `parts` and the rest each for itself, made up to whole registers; those added are 0."""
    width = len(weight) // heads
    if not any(size % LANES for size in (*parts, width)):
        return weight, bias
    ends = np.cumsum(parts, dtype=int)
    by_head = weight.reshape(heads, width, -1), bias.reshape(heads, width, 1)
    weight, bias = (np.concatenate([_whole(x) for x in np.split(all_of, ends, 1)], 1) for all_of in by_head)
    return weight.reshape(heads * weight.shape[1], -1), bias.reshape(-1)


def _whole(outputs: Floats) -> Floats:
    """(heads, width, any) with a width of whole registers; what is added is 0."""
    return np.pad(outputs, [(0, 0), (0, _rounded(outputs.shape[1]) - outputs.shape[1]), (0, 0)])


def _wider(rows: Floats) -> Floats:
    """Rows rounded up to whole registers; what is added is 0."""
    more = _rounded(rows.shape[-1]) - rows.shape[-1]
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, more)]) if more else rows


def _behind_zeros(table: Floats) -> Floats:
    """The table where a row of zeros stands before it in memory."""
    return np.concatenate([np.zeros_like(table[:1]), table])[1:]


def halves(array: Floats) -> NDArray[np.uint16]:
    """The nearest numbers in bfloat16, of two the even one: the upper halves of float32."""
    nearest = np.empty(array.shape, np.uint16)
    c.needed().headwise_halve(at(array), array.size, at(nearest))
    return nearest


def _rounded(width: int) -> int:
    return -(-width // LANES) * LANES


def _end(decoding: int, network: CompiledNetwork) -> None:
    """Give a decoding's memory back; until then it needs its network."""
    c.needed().headwise_end(decoding)


def _done(code: int) -> None:
    if code:
        raise MemoryError("not enough memory to decode")
