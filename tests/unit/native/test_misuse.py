"""Arguments are checked before C is called, which would read and write out of bounds."""

import gc
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from sampling import some
from unit.native.encoders import small_encoder
from unit.native.test_decoders import STACKS, config, native, texts
from unit.native.test_speech import GREEDY, RULES, spectrogram
from unit.native.test_speech import native as native_speech

from headwise.config.settings import SearchSettings
from headwise.contract import Limits, SearchCancelled, SearchOptions
from headwise.core.attention import merge_heads, split_heads
from headwise.core.dropout import _drop
from headwise.core.masks import PackedRows, Packing
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.search.compiled import pack_network
from headwise.pytorch.search.stepwise import engine_of
from headwise.pytorch.training.packed import attend_by_library, packed_attention
from headwise.runtime.native import library as c
from headwise.runtime.native.build import FLAGS, FOLDER, SOURCES, builds, compiler
from headwise.runtime.native.encoder import CompiledEncoder
from headwise.runtime.native.linear import NUMBERS, Linear
from headwise.runtime.native.network import CompiledEnsemble, Decoding
from headwise.runtime.native.reading import token_log_probs
from headwise.runtime.native.search import Search
from headwise.runtime.search.candidates import Candidates
from headwise.runtime.search.engine import decode_tokens

pytestmark = pytest.mark.skipif(c.library() is None, reason="the compiled library is missing")

Build = Callable[..., Transformer]
PLAIN = SearchOptions()
ROWS = np.zeros(1, np.int32)
CONFIG = SearchSettings(beam_size=2, n_best=2, max_length_factor=1.0, max_length_extra=3)


def numbers(*shape: int) -> Any:
    return np.ones(shape, np.float32)


LINEAR: dict[str, Callable[[Linear], object]] = {
    "a bias of another width": lambda layer: Linear(numbers(4, 8), numbers(3), "float32"),
    "inputs of another width": lambda layer: layer(numbers(2, 7)),
    "inputs of one dimension": lambda layer: layer(numbers(8)),
    "rows that are not there": lambda layer: layer.rows(np.array([0, 4])),
    "rows below the first": lambda layer: layer.rows(np.array([-1])),
    "no rows": lambda layer: layer.rows(np.array([], np.int64)),
}


@pytest.mark.parametrize("misuse", LINEAR.values(), ids=LINEAR)
def test_layers(misuse: Callable[[Linear], object]) -> None:
    with pytest.raises(AssertionError):
        misuse(Linear(numbers(4, 8), numbers(4), "float32"))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("tgt_embeddings.tokens.weight", (12, 24)),
        ("src_embeddings.tokens.weight", (12, 8)),
        ("output.weight", (13, 16)),
        ("output.weight", (12, 8)),
        ("encoder.layers.0.ffn.up_proj.weight", (24, 8)),
        ("encoder.layers.0.ffn.down_proj.weight", (16, 23)),
        ("encoder.layers.0.ffn_sublayer.norm.bias", (8,)),
        ("decoder.layers.1.self_attn.q_proj.weight", (24, 16)),
        ("decoder.layers.1.cross_attn.o_proj.weight", (16, 24)),
        ("decoder.layers.1.cross_attn.k_proj.bias", (15,)),
    ],
    ids=str,
)
def test_mismatched_parameters(
    build: Build, monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, ...]
) -> None:
    model = build(tied_embeddings="none")
    parameters = {**model.state_dict(), name: torch.ones(shape)}
    monkeypatch.setattr(model, "state_dict", lambda: parameters)
    with pytest.raises((AssertionError, ValueError)):  # numpy joins no biases to weights of another number
        pack_network(model, "float32")


def limits(sentences: int = 2, **changes: Any) -> Limits:
    low, high = np.zeros(sentences, np.int64), np.full(sentences, 5)
    return replace(Limits(low, high, np.zeros((sentences, 0), int)), **changes)


SEARCHES: dict[str, tuple[Any, Any, Any]] = {
    "a start mark beyond the vocabulary": (limits(), replace(PLAIN, bos_id=12), None),
    "a beam of none": (limits(), replace(PLAIN, beam_size=0), None),
    "a forced end beyond the vocabulary": (limits(), SearchOptions(forced_end=12), None),
    "begun with more than the prefix": (limits(prefix=np.full((2, 1), 6)), SearchOptions(forced=(6, 6)), None),
    "begun with what is free": (limits(prefix=np.full((2, 1), -1)), SearchOptions(forced=(6,)), None),
    "nothing left to write": (limits(prefix=np.full((2, 5), 6)), SearchOptions(forced=(6,) * 5), None),
    "more hypotheses than beams": (limits(), SearchOptions(n_best=5, early_stopping="no"), None),
    "a penalty of nothing": (limits(), SearchOptions(repetition_penalty=0.0), None),
    "a bias beyond the vocabulary": (limits(), SearchOptions(sequence_bias=(((3, 12), 1.0),)), None),
    "a bias of no tokens": (limits(), SearchOptions(sequence_bias=(((), 1.0),)), None),
    "a context of other sentences": (limits(context=np.zeros((3, 1), int)), PLAIN, None),
    "n-grams of less than nothing": (limits(), SearchOptions(no_repeat_ngram=-1), None),
    "a stop function and a shortlist": (
        limits(),
        SearchOptions(stop_function=lambda written: [False] * len(written)),
        Candidates(ids=np.arange(6), allowed=np.ones((2, 6), bool)),
    ),
    "streams of other sentences": (limits(streams=np.zeros(3, int)), PLAIN, None),
    "no temperature": (limits(streams=np.zeros(2, int)), SearchOptions(temperature=0.0), None),
    "less than the likeliest": (limits(streams=np.zeros(2, int)), SearchOptions(top_k=-1), None),
    "an unknown ending": (limits(), SearchOptions(early_stopping="early"), None),
    "bounds of other sentences": (limits(3), PLAIN, None),
    "a longest length of 0": (limits(max_length=np.array([5, 0])), PLAIN, None),
    "a prefix of one dimension": (limits(prefix=np.zeros(2, int)), PLAIN, None),
    "a prefix that is not on the shortlist": (
        limits(prefix=np.full((2, 1), 6)),
        PLAIN,
        Candidates(ids=np.arange(6), allowed=np.ones((2, 6), bool)),
    ),
    "a shortlist beyond the vocabulary": (
        limits(),
        PLAIN,
        Candidates(ids=np.arange(7, 13), allowed=np.ones((2, 6), bool)),
    ),
    "a shortlist of other sentences": (
        limits(),
        PLAIN,
        Candidates(ids=np.arange(6), allowed=np.ones((1, 6), bool)),
    ),
}


@pytest.mark.parametrize(("bounds", "options", "few"), SEARCHES.values(), ids=SEARCHES)
def test_searches(build: Build, bounds: Any, options: Any, few: Any) -> None:
    network = pack_network(build(), "float32")
    with pytest.raises(AssertionError):
        network.search([[5, 2], [6, 7, 2]], bounds, options, few)


@pytest.mark.parametrize("sources", [[], [[5, 2], []]], ids=str)
def test_empty_sources(build: Build, sources: list[list[int]]) -> None:
    with pytest.raises(AssertionError):
        pack_network(build(), "float32").start(sources)


def paths(*rows: list[int], dtype: Any = np.int32) -> Any:
    return np.array(rows, dtype)


STEPS: dict[str, Callable[[Decoding], object]] = {
    "no room made": lambda d: d.step(np.array([5, 5]), np.zeros(2, int), ROWS[[0, 0]], paths([0] * 4, [1] * 4)),
    "a position beyond the path": lambda d: d.step(np.array([5]), np.array([4]), ROWS, paths([0] * 4)),
    "a position before it": lambda d: d.step(np.array([5]), np.array([-1]), ROWS, paths([0] * 4)),
    "a sentence that is not there": lambda d: d.step(np.array([5]), ROWS, np.array([1]), paths([0] * 4)),
    "a place that is not there": lambda d: d.step(np.array([5]), ROWS, ROWS, paths([1] * 4)),
    "places in 64 bits": lambda d: d.step(np.array([5]), ROWS, ROWS, paths([0] * 4, dtype=np.int64)),
    "a path that is not in order": lambda d: d.step(np.array([5]), ROWS, ROWS, paths([0] * 4)[:, ::2]),
    "fewer paths than tokens": lambda d: d.step(np.array([5, 6]), np.zeros(2, int), ROWS[[0, 0]], paths([0] * 4)),
    "room for a path beyond its length": lambda d: d.make_room(1, paths([0] * 4), 5),
    "room for a path over nothing": lambda d: d.make_room(1, paths([3] * 4), 1),
    "a past of less than nothing": lambda d: d.truncate(-1),
}


@pytest.mark.parametrize("misuse", STEPS.values(), ids=STEPS)
def test_steps(build: Build, misuse: Callable[[Decoding], object]) -> None:
    decoding = pack_network(build(), "float32").start([[5, 2]])
    decoding.make_room(1, paths([0] * 4), 0)
    decoding.step(np.array([5]), ROWS, ROWS, paths([0] * 4))  # as it should be
    decoding.truncate(0)
    with pytest.raises(AssertionError):
        misuse(decoding)


OTHERS: dict[str, Callable[[Build], Decoding]] = {
    "more sources": lambda build: pack_network(build(), "float32").start([[5, 2], [6, 2]]),
    "another vocabulary": lambda build: pack_network(build(vocab_size=20), "float32").start([[5, 2]]),
    "a past": lambda build: with_a_past(pack_network(build(), "float32").start([[5, 2]])),
}


def with_a_past(decoding: Decoding) -> Decoding:
    decoding.make_room(1, paths([0] * 4), 0)
    return decoding


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_mismatched_decodings(build: Build, other: Callable[[Build], Decoding]) -> None:
    decoding = pack_network(build(), "float32").start([[5, 2]])
    with pytest.raises(AssertionError, match="of the same sources"):
        Search([decoding, other(build)], PLAIN, limits(1))


def rows(*lengths: int) -> PackedRows:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return PackedRows(mask, sum(lengths))


PACKINGS: dict[str, Callable[[], object]] = {
    "sentences without keys": lambda: Packing(rows(1, 2), rows(3), False, attend_by_library),
    "later ones among other rows": lambda: Packing(rows(1, 2), rows(2, 1), True, attend_by_library),
    "more rows than there are": lambda: attention(torch.ones(2, 48)),
    "another width": lambda: attention(torch.ones(3, 40)),
    "a width that is no multiple of 8": lambda: attention(torch.ones(3, 24), (4, 4)),
    "other numbers": lambda: attention(torch.ones(3, 48).double()),
    "a residual of another shape": lambda: _drop(torch.ones(4, 4), torch.ones(4), 1, 9, 1.0, torch.float32),
}


def attention(q: torch.Tensor, widths: tuple[int, int] = (8, 8)) -> torch.Tensor:
    width = 2 * widths[0]
    heads = (split_heads(x[None], 2) for x in q.split([width, width, q.size(1) - 2 * width], 1))
    own = rows(1, 2)
    return merge_heads(packed_attention(*heads, Packing(own, own, True, attend_by_library)))[0]


@pytest.mark.parametrize("misuse", PACKINGS.values(), ids=PACKINGS)
def test_training_functions(misuse: Callable[[], object]) -> None:
    assert attention(torch.ones(3, 48)).shape == (3, 16)
    with pytest.raises((AssertionError, TypeCheckError)):  # checked shapes find some of it first
        misuse()


ENCODINGS: dict[str, Callable[[CompiledEncoder], object]] = {
    "no texts": lambda encoder: encoder.states([]),
    "an empty text": lambda encoder: encoder.states([[5, 6], []]),
    "types of fewer tokens": lambda encoder: encoder.states([[5, 6]], [[0]]),
    "a type that is not there": lambda encoder: encoder.states([[5, 6]], [[0, 2]]),
    "a type below the first": lambda encoder: encoder.states([[5, 6]], [[0, -1]]),
    "a flag in 64 bits": lambda encoder: encoder.states([[5, 6]], stop=np.zeros(1, np.int64)),
}


@pytest.mark.parametrize("misuse", ENCODINGS.values(), ids=ENCODINGS)
def test_encodings(misuse: Callable[[CompiledEncoder], object]) -> None:
    with pytest.raises(AssertionError):
        misuse(small_encoder("float32"))


def test_texts_that_an_encoder_cannot_read() -> None:
    encoder = small_encoder("float32")
    for strange in (-1, 30):
        with pytest.raises(UserError, match=f"{strange}.*30"):
            encoder.states([[5, strange]])
    with pytest.raises(UserError, match=r"9 tokens.*model's 8"):
        encoder.states([[5], [5] * 9])
    with pytest.raises(SearchCancelled):
        encoder.states([[5, 6]], stop=np.ones(1, np.int32))


def test_cancelled_searches_raise(build: Build) -> None:
    network = pack_network(build(), "float32")
    with pytest.raises(SearchCancelled):
        network.search([[5, 2], [6, 7, 2]], limits(), PLAIN, None, np.ones(1, np.int32))
    with pytest.raises(SearchCancelled):
        CompiledEnsemble((network, network)).search([[5, 2], [6, 7, 2]], limits(), PLAIN, None, np.ones(1, np.int32))
    for stop in (np.zeros(1, np.int64), np.zeros(2, np.int32)):
        with pytest.raises(AssertionError):
            network.start([[5, 2]], stop)


# Memory that runs out -------------------------------------------------------------------------------------------------

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def scarce(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The library with allocations that can fail: `allocations_left` counts them."""
    call = compiler()
    if not c.instructions() or call is None:
        pytest.skip("no C compiler for this kind of machine")
    folder = tmp_path_factory.mktemp("scarce")
    sources = [str(FOLDER / name) for name in SOURCES]
    flags = [flag for flag in (*FLAGS, *builds()[c.instructions()]) if flag != "-O3"]
    subprocess.run([*call, *FLAGS, "-c", str(HERE / "scarce.c"), "-o", str(folder / "scarce.o")], check=True)
    more = ["-O1", "-DHEADWISE_VERSION=0", "-include", str(HERE / "scarce.h"), "-shared"]
    made = folder / "scarce.so"
    subprocess.run([*call, *flags, *more, *sources, str(folder / "scarce.o"), "-o", str(made), "-lm"], check=True)
    return c.declared(c.ctypes.CDLL(str(made)))


def failing(scarce: Any, job: Callable[[], object]) -> list[int]:
    """Which allocations of a job are to fail, one in each of its runs: the first and the last, and some between."""
    left = c.ctypes.c_long.in_dll(scarce, "allocations_left")
    left.value = MANY
    job()
    count, left.value = MANY - left.value, -1
    return sorted({*range(min(10, count)), *some(range(count), 40), count - 1})


MANY = 1 << 30


@pytest.mark.compiles
@pytest.mark.parametrize("compute", NUMBERS)
def test_every_allocation_of_an_encoder_may_fail(scarce: Any, compute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "library", lambda: scarce)
    left, held = (c.ctypes.c_long.in_dll(scarce, name) for name in ("allocations_left", "blocks_held"))
    encoder, texts = small_encoder(compute), [[5, 6, 7], [8], [9, 9]]
    wanted, before = encoder.states(texts), held.value
    numbers = failing(scarce, lambda: encoder.states(texts))
    assert len(numbers) > 5
    for number in numbers:
        left.value = number
        with pytest.raises(MemoryError):
            encoder.states(texts)
        assert held.value == before
    left.value = -1
    np.testing.assert_array_equal(encoder.states(texts), wanted)


@pytest.mark.compiles
@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16", "ensemble"])
def test_every_allocation_may_fail(build: Build, scarce: Any, compute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is split, or the source is named in an error."""
    monkeypatch.setattr(c, "library", lambda: scarce)
    left = c.ctypes.c_long.in_dll(scarce, "allocations_left")
    sources = [[5, 6, 7], [8], [9, 9], [10, 4, 4, 5, 6]]
    kind = "float32" if compute == "ensemble" else compute
    model: Any = pack_network(build(3.0, vocab_size=30, tied_embeddings="none"), kind)
    if compute == "ensemble":
        model = CompiledEnsemble((model, pack_network(build(3.0, vocab_size=30, d_model=24), kind)))
    wanted = decode_tokens(engine_of(model), sources, CONFIG)
    numbers = failing(scarce, lambda: decode_tokens(engine_of(model), sources, CONFIG))
    assert len(numbers) > 20
    for number in numbers:
        left.value = number
        assert decode_tokens(engine_of(model), sources, CONFIG) == wanted
        assert left.value < 0, "no allocation failed"
    left.value = -1


@pytest.mark.compiles
def test_every_allocation_of_a_stepwise_search_may_fail(
    build: Build, scarce: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Including guesses that need more memory; after a failure the search cannot continue."""
    monkeypatch.setattr(c, "library", lambda: scarce)
    left = c.ctypes.c_long.in_dll(scarce, "allocations_left")
    network = pack_network(build(3.0, vocab_size=30, tied_embeddings="none"), "float32")
    options = SearchOptions(beam_size=1, top_k=3)
    started: list[Any] = []
    for bounds in (limits(1, max_length=np.array([40])), limits(1, streams=np.ones(1, int))):
        wanted = network.search([[5, 6, 2]], bounds, options, None)

        def stepwise(bounds: Limits = bounds) -> Any:
            search = network.begin([[5, 6, 2]], bounds, options, None)
            started.append(search)
            while search.advance([7] * 9):
                pass
            return search.hypotheses()

        assert stepwise() == wanted
        numbers = failing(scarce, stepwise)
        assert len(numbers) > 20
        for number in numbers:
            left.value = number
            started.clear()
            with pytest.raises(MemoryError):
                stepwise()
            with pytest.raises(AssertionError, match="has failed") if started else nullcontext():
                _ = started and started[0].advance()
        left.value = -1


@pytest.mark.compiles
def test_memory_that_is_kept_gives_way_to_larger_blocks(
    build: Build, scarce: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c, "library", lambda: scarce)
    held = c.ctypes.c_long.in_dll(scarce, "blocks_held")
    model = pack_network(build(3.0, d_model=64, vocab_size=30, tied_embeddings="none"), "float32")

    def kept(*lengths: int) -> int:
        """The blocks that are kept after batches of sources of these lengths."""
        for length in lengths:
            sources = [[4 + i % 20, *[5] * length] for i in range(20)]
            decode_tokens(engine_of(model), sources, replace(CONFIG, batch_tokens=100_000))
        before = held.value
        c.needed().headwise_free_blocks()
        return before - held.value

    c.needed().headwise_free_blocks()
    alone = kept(200)
    assert 0 < kept(50, 100, 200) <= alone


@pytest.mark.compiles
@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_every_allocation_for_prompts_may_fail(scarce: Any, compute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a search after prompts, and of log-probabilities; nothing leaks."""
    monkeypatch.setattr(c, "library", lambda: scarce)
    left, held = (c.ctypes.c_long.in_dll(scarce, name) for name in ("allocations_left", "blocks_held"))
    network, prompts = native(config(STACKS["Qwen 3"]), compute), texts(5, 1, 30)
    options = replace(PLAIN, bos_id=0, beam_size=3, n_best=3)
    jobs: tuple[Callable[[], Any], ...] = (
        lambda: network.search(prompts, limits(3, max_length=np.full(3, 20)), options, None),
        lambda: token_log_probs(network, prompts[2]).tolist(),
    )
    for job in jobs:
        wanted = job()
        before = held.value  # among them blocks that are kept for the next search
        numbers = failing(scarce, job)
        assert len(numbers) > 10
        for number in numbers:
            left.value = number
            with pytest.raises(MemoryError):
                job()
            gc.collect()  # of what the exception has kept
            assert held.value <= before
        left.value = -1
        assert job() == wanted


@pytest.mark.compiles
@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_every_allocation_for_speech_may_fail(scarce: Any, compute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of convolutions, encoder, prompts and search; nothing leaks."""
    monkeypatch.setattr(c, "library", lambda: scarce)
    left, held = (c.ctypes.c_long.in_dll(scarce, name) for name in ("allocations_left", "blocks_held"))
    network = native_speech(compute=compute)
    options = replace(GREEDY, timestamps=RULES, among_allowed=True, beam_size=3)

    def found() -> Any:
        """The hypotheses; None without memory."""
        try:
            window = network.encode(spectrogram())
            window.read_prompt([41, 7])
            return Search([window], options, limits(1, max_length=np.full(1, 9))).run()
        except MemoryError:
            return None

    wanted = found()
    c.needed().headwise_free_blocks()
    gc.collect()
    before = held.value
    numbers = failing(scarce, found)
    assert len(numbers) > 20
    for number in numbers:
        left.value = number
        assert found() is None
        left.value = -1
        c.needed().headwise_free_blocks()
        gc.collect()
        assert held.value == before
    assert found() == wanted


@pytest.mark.compiles
def test_no_memory(build: Build, scarce: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "library", lambda: scarce)
    model = pack_network(build(), "float32")
    monkeypatch.setattr(Decoding, "__init__", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(UserError, match=re.escape("text 1: not enough memory to translate it")):
        decode_tokens(engine_of(model), [[5, 6]], CONFIG)
    left = c.ctypes.c_long.in_dll(scarce, "allocations_left")
    left.value = 0
    with pytest.raises(MemoryError):
        Linear(numbers(20, 8), None, "int8")
    left.value = -1


LIMITED = """
import resource
import sys
from pathlib import Path
import torch
from headwise.config.model import TransformerConfig
from headwise.config.settings import SearchSettings
from headwise.runtime.search.engine import decode_tokens
from headwise.pytorch.search.stepwise import engine_of
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.compiled import pack_network

torch.set_num_threads(1)
torch.manual_seed(0)
shape = {"vocab_size": 200, "d_model": 128, "d_ff": 128, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 2}
model = pack_network(build_model(TransformerConfig(**shape)), "float32")
long = int(sys.argv[1])
config = SearchSettings(beam_size=4, min_length_factor=1.0, batch_tokens=1_000_000, max_length_extra=long)
sources = [[5 + i % 90] * 20 for i in range(400)]
decode_tokens(engine_of(model), sources[:2], SearchSettings(max_length_extra=1))
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (60 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    print(len(decode_tokens(engine_of(model), sources, config)))
except UserError as error:
    print(error)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_a_process_with_little_memory(tmp_path: Path) -> None:
    """A batch that needs about 130 MB of 60 MB; and a single line that needs too much."""
    for long, said in ((5, "400\n"), (100_000_000, "text 1: not enough memory")):
        done = subprocess.run([sys.executable, "-c", LIMITED, str(long)], capture_output=True, text=True)
        assert done.stdout.startswith(said), (done.stdout, done.stderr[-2000:])


# Threads --------------------------------------------------------------------------------------------------------------

FORKED = """
import os
import threading
import torch
import headwise.pytorch
from headwise.core.dropout import Dropout
from headwise.runtime.native.library import training_library

torch.set_num_threads(2)
assert training_library()
x = torch.ones(100_000)
torch.manual_seed(1)
wanted = Dropout(0.5)(x)  # in two threads
child = os.fork()
if not child:
    torch.manual_seed(1)
    seed = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
    from headwise.core.dropout import _drop
    same = bool((_drop(x, None, seed, 1 << 15, 2.0, torch.float32).numpy() == wanted.numpy()).all())
    os._exit(0 if same else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.thorough
def test_a_forked_child_trains_without_threads() -> None:
    """It does not wait for the threads of its parent."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True)
    assert done.stdout == "0\n", done.stderr


COUNTED = """
import sys
import threading
from pathlib import Path
import torch
import headwise.pytorch
from headwise.core.dropout import _drop
from headwise.runtime.native.library import training_library

torch.set_num_threads(2)
training_library()
x = torch.ones(100_000)
counted = []

def work():
    _drop(x, None, 1, 9, 1.0, torch.float32)
    counted.append(len(list(Path("/proc/self/task").iterdir())))

def run():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

before = len(list(Path("/proc/self/task").iterdir()))
run()
print(counted[0] - before)  # itself, and one that helps
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux shows them")
def test_other_threads_use_torchs_number_of_threads() -> None:
    """Not the default of the OpenMP runtime for new threads."""
    environment = {"OMP_NUM_THREADS": "6", "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, env=environment)
    assert done.stdout == "2\n", (done.stdout, done.stderr)
