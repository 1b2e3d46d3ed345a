"""Captured steps: a decoding step as a CUDA graph, which is replayed while shapes and buffers stay the same.

A step of a small batch launches hundreds of short kernels, and a GPU waits for Python to launch them. A replayed graph
launches all of them at once (https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs). It reads and writes the
memory with which it was captured, so inputs are copied into tensors of its own, and the position of the new token is
one of them (`core.cache.StepPosition`). A graph serves until rows leave the batch or the KV cache grows.

No GPU has run this yet, so it is off unless the environment variable HEADWISE_CAPTURE is 1.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.core.attention import Capped, DotProduct, MultiHeadAttention
from headwise.core.cache import DecoderCache, StepCache, TextCache
from headwise.core.embeddings import Embeddings
from headwise.core.extensions.relative import RelativeBias
from headwise.core.masks import Causal
from headwise.core.positions import LearnedPositions
from headwise.core.search import Step
from headwise.core.transformer import DecoderOnly, Transformer
from headwise.device import CAPTURE, is_on
from headwise.pytorch.search.changes import hooked

TOLERANCE = 0.1  # of logits that are computed twice: wrong memory gives others, rounding of float16 does not
REPEATS = 3  # steps with the same buffers until one is captured: a capture takes as long as several steps
CHECKED = 2  # replays that are compared with the step

# Set while this process trains, and once a capture has failed: that may leave the random generator and the allocator
# of the device in capture.
_barred = Event()

Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]


def cuda_graph(function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Capture a function without arguments; returns a function that replays it, and its output.

    It runs once before, because libraries allocate memory at their first call.
    """
    current, side, graph = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(current)
    try:
        with torch.cuda.stream(side):
            function()
        current.wait_stream(side)
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):  # others may use the device
            output = function()
    finally:
        torch.cuda.set_stream(current)  # a capture that fails leaves its own
    return graph.replay, output


class CapturedStep:
    """A function of tensors with fixed shapes, recorded once."""

    def __init__(self, function: Callable[..., Tensor], *examples: Tensor, record: Record = cuda_graph) -> None:
        """Record `function` with copies of `examples`; `record` is as `cuda_graph`."""
        self._inputs = tuple(example.clone() for example in examples)
        self._replay, self.output = record(lambda: function(*self._inputs))

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The function's output for `inputs`; the next call overwrites it."""
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._replay()
        return self.output


class CapturedSteps:
    """A `search.Step` of one search that replays a step where it can, and otherwise computes it as usual."""

    def __init__(self, model: Any, step: Step, record: Record = cuda_graph) -> None:
        """`step` is the step function of `model`."""
        self._model, self._step, self._record = model, step, record
        table = _embeddings(model).positions
        self._longest = table.max_len if isinstance(table, LearnedPositions) else None
        self._buffers: tuple[Tensor, ...] = ()
        self._seen = 0  # steps with these buffers
        self._captured: CapturedStep | None = None
        self._kept: list[Tensor] = []  # a graph refers to memory that a table which grows would free

    def __call__(self, tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        """The logits after the newest tokens."""
        if _barred.is_set() or tokens.size(1) != 1 or type(cache) not in (DecoderCache, TextCache):
            return self._step(tokens, cache)
        self._observe(cache)
        bound = min(cache.capacity, self._longest or cache.capacity)
        if cache.length >= bound or self._seen <= REPEATS:
            return self._step(tokens, cache)
        index = torch.full((1,), cache.length, device=tokens.device)
        if self._captured is None:
            self._captured = self._capture(tokens, index, cache, bound)
            if self._captured is None:
                return self._step(tokens, cache)
        logits = self._captured(tokens, index)
        cache.advance()
        return logits

    def _observe(self, cache: StepCache) -> None:
        """Forget the captured step if the cache has other buffers."""
        buffers = cache.buffers
        same = len(buffers) == len(self._buffers) and all(a is b for a, b in zip(buffers, self._buffers, strict=True))
        if not same:
            self._buffers, self._seen, self._captured, self._kept = buffers, 0, None, []
        self._seen += 1

    def _capture(self, tokens: Tensor, index: Tensor, cache: StepCache, bound: int) -> CapturedStep | None:
        """The step as a graph; None, with a warning, if it cannot be captured, or if a replay is wrong."""

        def step(tokens: Tensor, index: Tensor) -> Tensor:
            with cache.fixed(index, bound):
                return self._step(tokens, cache)

        try:
            with torch.cuda.device_of(tokens):
                captured = CapturedStep(step, tokens, index, record=self._record)
            wanted = step(tokens, index)
            for _ in range(CHECKED):
                captured.output.fill_(torch.nan)
                if not torch.allclose(captured(tokens, index), wanted, rtol=TOLERANCE, atol=TOLERANCE):
                    raise RuntimeError("a replay gave other numbers")
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            _barred.set()
            warnings.warn(f"decoding without CUDA graphs, because a step was not captured: {error}", stacklevel=2)
            return None
        self._kept = [*self._model.parameters(), *self._model.buffers()]
        return captured


@contextmanager
def without_captures() -> Iterator[None]:
    """A context manager in which no step of this process is captured, as while it trains."""
    before = _barred.is_set()
    _barred.set()
    try:
        yield
    finally:
        if not before:
            _barred.clear()


def captured_steps(model: Any, step: Step) -> Step:
    """The step function for one search: `step`, captured if that is possible."""
    return CapturedSteps(model, step) if capturable(model) else step


def capturable(model: Any) -> bool:
    """Whether steps of a model may be captured.

    They may on CUDA if that is switched on, for a `Transformer` or `DecoderOnly` without hooks (recordings,
    interventions) and without sliding windows.
    """
    on_cuda = next(iter(model.parameters())).device.type == "cuda"
    return on_cuda and is_on(CAPTURE) and has_fixed_shapes(model)


def has_fixed_shapes(model: Any) -> bool:
    """Whether a step of a model can be computed with a `StepPosition`."""
    if type(model) not in (Transformer, DecoderOnly) or hooked(model):
        return False
    attentions = [module for module in model.decoder.modules() if isinstance(module, MultiHeadAttention)]
    reach: Any = model.decoder.reach
    masks = reach.reach if type(reach) is RelativeBias else reach
    plain = all(type(one) is MultiHeadAttention and type(one.kernel) in (DotProduct, Capped) for one in attentions)
    return plain and type(masks) is Causal


def _embeddings(model: Any) -> Embeddings:
    return model.embeddings if type(model) is DecoderOnly else model.tgt_embeddings
