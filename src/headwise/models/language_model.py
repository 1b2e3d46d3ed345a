"""Decoders alone (GPT-2, LLaMA, ...) and XLNet, read from left to right."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from headwise.architectures.xlnet import XLNetShape
from headwise.checkpoint.folder import Folder
from headwise.checkpoint.generation_config import GenerationConfig, read_generation_config
from headwise.contract import TextNetwork
from headwise.data.corpus import read_lines
from headwise.decode.streaming import growing_text, stop_at, until_stop
from headwise.errors import UserError
from headwise.evaluate.language import LanguageReport, Perplexity, language_report
from headwise.generation.chat import Messages, refuse_single
from headwise.generation.fill import Filling, fillings
from headwise.generation.library_text import LibraryText
from headwise.generation.output import Detokenise, Output, decode_after, output_of, prompt_ids
from headwise.generation.permutation import BEHIND, ContentStream, LeftToRight, QueryStream
from headwise.generation.text import continue_prompts, perplexity, stream_continuation
from headwise.generation.torch_encoder import DecoderEmbedder, TorchEncoder
from headwise.generation.torch_text import TorchText
from headwise.generation.vectors import TextEmbedder, embed_texts, pad_id_of, text_embedder
from headwise.inspect.importance import Example
from headwise.inspect.inputs import ContinuedText
from headwise.models.inputs import next_tokens, text_to_continue
from headwise.models.introspection import (
    attend_input,
    input_head_importance,
    inspect_input,
    mask_model_heads,
    prune_model,
    trace_input,
    walk_input,
    walks_of_input,
)
from headwise.models.model import Model, only_with
from headwise.native.linear import NUMBERS
from headwise.native.network import CompiledNetwork

WINDOW = 1024  # tokens read at once for a perplexity, where neither the network nor its settings have a limit
DOES = {"language": "continues texts", "permutation": "continues texts and fills in masked tokens"}


class LanguageModel(Model):
    """A decoder alone (GPT-2, LLaMA, ...) or an XLNet: it continues texts and embeds them.

    A decoder without a head (E5-Mistral, Qwen3-Embedding, ...) only embeds.
    """

    attend = only_with("language", "embedding")(attend_input)
    trace = only_with("language", "embedding")(trace_input)
    look_inside = only_with("language", "embedding")(inspect_input)
    walk = only_with("language", "embedding")(walk_input)
    walks = only_with("language", "embedding")(walks_of_input)
    mask_heads = only_with("language", "embedding")(mask_model_heads)
    prune = only_with("language", "embedding")(prune_model)
    head_importance = only_with("language")(input_head_importance)
    embed = embed_texts

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.does = DOES.get(self.head, "embeds texts")
        self.usual_task = {"language": "lm", "permutation": "plm"}.get(self.head, "translate")

    @property
    def head(self) -> str:
        """One of "language", "permutation" (an XLNet) or "embedding"."""
        if isinstance(self.config, XLNetShape):
            return "permutation"
        return "language" if self.config.head == "language" else "embedding"

    @only_with("language", "permutation")
    def generate(self, prompts: Sequence[str | Messages], **settings: Any) -> list[Output]:
        refuse_single(prompts, "generate")
        chosen = self.generation.changed(settings, NUMBERS)
        stop = stop_at(chosen.settings.stop, self.tokenizer.decode)
        ids = [self.encode(prompt) for prompt in prompts]
        found = continue_prompts(self.text_network(chosen.settings.compute), ids, chosen, self.max_len, stop)
        pairs = zip(ids, found, strict=True)
        return [output_of(ranked, self.decode_after(prompt), chosen.settings.stop) for prompt, ranked in pairs]

    @only_with("language", "permutation")
    def stream(self, prompt: str | Messages, **settings: Any) -> Iterator[str]:
        chosen = self.generation.streamed(settings, NUMBERS)
        ids = self.encode(prompt)
        tokens = stream_continuation(self.text_network(chosen.settings.compute), ids, chosen, self.max_len)
        return until_stop(growing_text(tokens, self.decode_after(ids)), chosen.settings.stop)

    @only_with("language", "permutation")
    def perplexity(self, text: str, stride: int = 0, window: int = 0) -> Perplexity:
        longest = self.max_len or int(self.hf_config.get("max_position_embeddings") or WINDOW)
        window = window or longest
        if window > longest:
            raise UserError(f"window = {window}: the model reads at most {longest} tokens at once")
        return perplexity(self.text_network(), self.encode(text), window, stride or max(1, window // 2))

    @only_with("language", "permutation")
    def evaluate(self, paths: Sequence[str], stride: int = 0, window: int = 0) -> LanguageReport:
        """How well the model predicts text files, each read as `perplexity` reads it."""
        texts = ["\n".join(read_lines(path)) for path in paths]
        return language_report(texts, [self.perplexity(text, stride, window) for text in texts])

    @only_with("permutation")
    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        """As of `Model`; masks do not see each other."""
        top = min(top, self.config.vocab_size)
        return fillings(
            lambda mask_id: TorchEncoder(QueryStream(self.network, mask_id), 0), text, self.path, self.tokenizer, top
        )

    def encode(self, prompt: str | Messages) -> list[int]:
        """The ids of a prompt, without the special tokens with which XLNet ends a text."""
        ids = prompt_ids(prompt, self.path, self.tokenizer, self.generation.special.bos_id)
        behind = [self.tokenizer.id_of(token) for token in BEHIND] if self.head == "permutation" else []
        return ids[: -len(behind)] if behind and ids[-len(behind) :] == behind else ids

    def decode_after(self, prompt: Sequence[int]) -> Detokenise:
        """Converts ids to the text that they add to a prompt."""
        return decode_after(self.tokenizer, prompt)

    def observed(self, given: str) -> ContinuedText:
        """A text as the inspector reads it."""
        return text_to_continue(self, given, self.max_len)

    def example(self, given: str, target: Any) -> Example:
        """A text and the loss of its prediction."""
        return next_tokens(self.observed(given).values)

    def text_network(self, compute: str = "float32") -> TextNetwork:
        """The network in this precision: in the compiled library, or in torch if the library does not support it."""
        form = self.folder.weights.form(compute)
        if isinstance(form, CompiledNetwork):
            return LibraryText(form)
        return TorchText(LeftToRight(form) if self.head == "permutation" else form)

    @cached_property
    def generation(self) -> GenerationConfig:
        """Settings of generation; `unused` names those of its file that are not supported."""
        return read_generation_config(self.path, self.hf_config, has_encoder=False)

    @cached_property
    def max_len(self) -> int | None:
        """The longest text the network reads, where it has a limit."""
        return None if self.head == "permutation" else self.config.decoder.longest

    @cached_property
    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        permutation = self.head == "permutation"
        network = ContentStream(self.network) if permutation else DecoderEmbedder(self.network)
        d_model = (self.config if permutation else self.config.decoder).d_model
        texts = TorchEncoder(network, pad_id_of(self.hf_config))
        return text_embedder(texts, self.tokenizer, d_model, self.max_len, self.path)
