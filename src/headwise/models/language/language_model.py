"""Decoders alone (GPT-2, LLaMA, ...) and XLNet, read from left to right.

Nothing here needs torch; `torch_language` has what does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from headwise.contract import Hypothesis, Limits, SearchOptions, TextNetwork
from headwise.device import usable_threads
from headwise.errors import UserError
from headwise.evaluate.language import LanguageReport, Perplexity
from headwise.importing import torch_needed
from headwise.models.encoding.embedding import EmbeddingModel
from headwise.models.introspection import ModelWithLoss, WalkableModel
from headwise.models.language.chat import Messages, prompt_ids
from headwise.models.language.output import Detokenise, Output, decode_after, output_of
from headwise.models.language.text import continue_prompts, perplexity, stream_continuation
from headwise.models.model import refuse_single
from headwise.runtime.checkpoint.generation_config import GenerationConfig, read_generation_config
from headwise.runtime.native.linear import NUMBERS
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.native.reading import token_log_probs
from headwise.runtime.native.search import Search
from headwise.runtime.search.cancellation import set_when_cancelled
from headwise.runtime.search.engine import greedy_steps, run_in_threads
from headwise.runtime.search.streaming import growing_text, stop_at, until_stop
from headwise.runtime.tokenizers.vocabulary import bare, fingerprint
from headwise.text.files.documents import DocumentTokenizer, count_bytes, prepare_documents, spool_files

if TYPE_CHECKING:
    from headwise.models.encoding.fill import Filling
    from headwise.models.encoding.vectors import TextEmbedder
    from headwise.pytorch.models.language_model import DecoderInTorch, XLNetInTorch


WINDOW = 1024  # tokens read at once for a perplexity, where neither the network nor its settings have a limit
BEHIND = ("<sep>", "<cls>")  # special tokens that end a text of XLNet
ADVICE = "use shorter prompts, fewer hypotheses or fewer new tokens"
Result = TypeVar("Result")


class DecoderModel(EmbeddingModel, WalkableModel):
    """A decoder alone, without a head (E5-Mistral, Qwen3-Embedding, ...): it embeds texts."""

    does = "embeds texts"

    @property
    def head(self) -> str:
        """The head of the network: "language", or "embedding" for a network without a head."""
        return "embedding"

    def torch(self) -> DecoderInTorch:
        with torch_needed():
            from headwise.pytorch.models.language_model import DecoderInTorch
        return DecoderInTorch(self)

    @cached_property
    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        return self.torch().embedder()

    @cached_property
    def max_len(self) -> int | None:
        """The longest text the network reads, where it has a limit."""
        return self.config.decoder.longest


class GeneratingModel(EmbeddingModel):
    """A model that continues texts, and embeds them."""

    max_len: Any
    """The longest text the network reads, where it has a limit."""

    def torch(self) -> DecoderInTorch | XLNetInTorch:
        """The model in torch; `UserError` if PyTorch is not installed."""
        raise NotImplementedError

    def generate(self, prompts: Sequence[str | Messages], **settings: Any) -> list[Output]:
        """The continuation of each prompt. Prompts are independent.

        Args:
            prompts: texts; or conversations, lists of `{"role": "user", "content": "..."}`, for models with a template.
            **settings: fields of `headwise.config.settings.SearchSettings`, such as `max_new_tokens=50`.

        Raises:
            UserError: an invalid setting, a prompt that is empty or too long, or no chat template.
        """
        refuse_single(prompts, "generate")
        chosen = self.generation.changed(settings, NUMBERS)
        stop = stop_at(chosen.settings.stop, self.tokenizer.decode)
        ids = [self.encode(prompt) for prompt in prompts]
        found = continue_prompts(self.text_network(chosen.settings.compute), ids, chosen, self.max_len, stop)
        pairs = zip(ids, found, strict=True)
        return [output_of(ranked, self.decode_after(prompt), chosen.settings.stop) for prompt, ranked in pairs]

    def stream(self, prompt: str | Messages, **settings: Any) -> Iterator[str]:
        """The continuation of one prompt, in parts, while it is generated; joined, what `generate` returns.

        Raises:
            UserError: as for `generate`, or the settings ask for beam search, which may revise its output.
        """
        chosen = self.generation.streamed(settings, NUMBERS)
        ids = self.encode(prompt)
        tokens = stream_continuation(self.text_network(chosen.settings.compute), ids, chosen, self.max_len)
        return until_stop(growing_text(tokens, self.decode_after(ids)), chosen.settings.stop)

    def perplexity(self, text: str, stride: int = 0, window: int = 0) -> Perplexity:
        """The perplexity of a text of any length.

        Args:
            text: its first token is given.
            stride: tokens between the starts of two windows; a smaller stride gives every token more context and takes
                longer; 0 = half a window.
            window: tokens read at once; 0 = as many as the model can read, or 1,024 if it has no limit.
        """
        return self._perplexity_of(self.encode(text), stride, window)

    def _perplexity_of(self, tokens: Sequence[int], stride: int, window: int) -> Perplexity:
        longest = self.max_len or int(self.hf_config.get("max_position_embeddings") or WINDOW)
        window = window or longest
        if window > longest:
            raise UserError(f"window = {window}: the model reads at most {longest} tokens at once")
        return perplexity(self.text_network(), tokens, window, stride or max(1, window // 2))

    def evaluate(self, paths: Sequence[str], stride: int = 0, window: int = 0) -> LanguageReport:
        """The perplexity of text or `.jsonl` files, with the documents and end tokens of training."""
        files = spool_files(paths)
        text = prepare_documents(files, self.cutter, progress=False)
        found = self._perplexity_of(text.tokens.tolist(), stride, window)
        return LanguageReport(**asdict(found), bytes=count_bytes(files), files=len(paths))

    @cached_property
    def cutter(self) -> DocumentTokenizer:
        """Tokenizes documents, with the model's special tokens around each; in training and evaluation."""
        encode, before, behind = bare(self.tokenizer)
        ends = [self.generation.special.eos_id] if self.generation.can_end else []
        suffix = behind if behind[-1:] == ends else [*behind, *ends]
        origin, size = fingerprint(self.path), self.config.vocab_size
        return DocumentTokenizer(lambda texts: [encode(text) for text in texts], before, suffix, origin, size)

    def encode(self, prompt: str | Messages) -> list[int]:
        """The ids of a prompt."""
        return prompt_ids(prompt, self.path, self.tokenizer, self.generation.special.bos_id)

    def decode_after(self, prompt: Sequence[int]) -> Detokenise:
        """Converts ids to the text that they add to a prompt."""
        return decode_after(self.tokenizer, prompt)

    def text_network(self, compute: str = "float32") -> TextNetwork:
        """The network in this precision: in the compiled library, or in torch if the library does not support it."""
        form = self.folder.stored.form(compute)
        if isinstance(form, CompiledNetwork):
            return LibraryText(form)
        return self.torch().text_network(form)

    @cached_property
    def generation(self) -> GenerationConfig:
        """Settings of generation; `unused` names those of its file that are not supported."""
        return read_generation_config(self.path, self.hf_config, has_encoder=False)


class LanguageModel(DecoderModel, GeneratingModel, ModelWithLoss):
    """A decoder alone (GPT-2, LLaMA, ...): it continues texts, and embeds them."""

    does = "continues texts"
    usual_task = "lm"

    @property
    def head(self) -> str:
        """The head of the network."""
        return "language"


class XLNetModel(GeneratingModel):
    """An XLNet: it continues texts, fills in masked tokens, and embeds texts."""

    does = "continues texts and fills in masked tokens"
    usual_task = "plm"
    max_len = None

    @property
    def head(self) -> str:
        """The head of the network."""
        return "permutation"

    def torch(self) -> XLNetInTorch:
        with torch_needed():
            from headwise.pytorch.models.language_model import XLNetInTorch
        return XLNetInTorch(self)

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        """For each mask in the text the most probable tokens, best first; masks do not see each other."""
        return self.torch().fill_mask(text, top)

    @cached_property
    def cutter(self) -> DocumentTokenizer:
        """Tokenizes documents, with the special token that ends a text between them; in training and evaluation."""
        encode, _, behind = bare(self.tokenizer)
        origin, size = fingerprint(self.path), self.config.vocab_size
        return DocumentTokenizer(lambda texts: [encode(text) for text in texts], [], behind[:1], origin, size)

    def encode(self, prompt: str | Messages) -> list[int]:
        """The ids of a prompt, without the special tokens that end a text."""
        ids = super().encode(prompt)
        behind = [self.tokenizer.id_of(token) for token in BEHIND]
        return ids[: -len(behind)] if ids[-len(behind) :] == behind else ids

    @cached_property
    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        return self.torch().embedder()


class LibraryText:
    """A `TextNetwork` whose prompts or texts are shared among threads."""

    def __init__(self, network: CompiledNetwork) -> None:
        self.network = network

    def search(
        self, prompts: Sequence[Sequence[int]], limits: Limits, options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """See `TextNetwork.search`."""
        options = without_start(options)

        def search_some(batch: list[int], stop: NDArray[np.int32]) -> list[list[Hypothesis]]:
            own = limits.each(lambda rows: rows[batch])
            return self.network.search([prompts[i] for i in batch], own, options, None, stop)

        return _in_threads(len(prompts), search_some)

    def stream(self, prompt: Sequence[int], limits: Limits, options: SearchOptions) -> Iterator[int]:
        """See `TextNetwork.stream`."""
        options = without_start(options)

        def begin(batch: list[int], stop: NDArray[np.int32]) -> list[Search]:
            return [self.network.begin([prompt], limits, options, None, stop)]

        for step in greedy_steps(_in_threads(1, begin)[0]):
            if step.token in options.ends:
                return
            yield step.token

    def log_probs(self, texts: Sequence[Sequence[int]], firsts: Sequence[int]) -> list[Float32[np.ndarray, " _"]]:
        """See `TextNetwork.log_probs`."""

        def read_some(batch: list[int], stop: NDArray[np.int32]) -> list[Any]:
            return [token_log_probs(self.network, texts[i], firsts[i], stop) for i in batch]

        return _in_threads(len(texts), read_some)


def without_start(options: SearchOptions) -> SearchOptions:
    """A prompt takes the place of the start token, which is not part of n-grams either."""
    return replace(options, bos_id=0, bos_in_ngrams=False)


def _in_threads(count: int, run: Callable[[list[int], NDArray[np.int32]], list[Result]]) -> list[Result]:
    """The results of `run` for `count` inputs, in order; each thread gets every n-th of them."""
    stop, found = np.zeros(1, np.int32), dict[int, Result]()
    threads = min(usable_threads(), count)
    shares = [list(range(first, count, threads)) for first in range(threads)]
    results = run_in_threads(lambda batch: run(batch, stop), shares, stop, ADVICE)
    with set_when_cancelled(stop), closing(results) as finished:
        for batch, of_batch in finished:
            found.update(zip(batch, of_batch, strict=True))
    stop[0] = 0  # for a search that has only begun; the pool's end has set it
    return [found[i] for i in range(count)]
