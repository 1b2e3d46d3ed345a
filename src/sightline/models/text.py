"""Decoders."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from sightline.checkpoint.vocabulary import Vocabulary
from sightline.data.corpus import read_lines
from sightline.decode.streaming import growing_text
from sightline.errors import UserError
from sightline.evaluate.language import LanguageReport, language_report
from sightline.generation.chat import Messages, refuse_single
from sightline.generation.output import Detokenise, Output, decode_after, output_of, prompt_ids
from sightline.generation.reading import longest_text
from sightline.generation.settings import GenerationSettings, _streamed
from sightline.generation.stopping import stop_at, until_stop
from sightline.generation.text import Onward, Perplexity, perplexity, stream_on, write_on
from sightline.generation.vectors import EmbeddingVerbs, Forward, TextEmbedder, text_embedder
from sightline.models.family_model import FamilyModel, Writer
from sightline.models.looking import LookVerbs
from sightline.network.halves import DecoderOnly

if TYPE_CHECKING:
    from sightline.models.shown import Example, ReadOn

WINDOW = 1024  # tokens read at once for a perplexity, where the model knows no limit


@runtime_checkable
class Predictor(Protocol):
    """What `TextVerbs` are made of."""

    @property
    def path(self) -> Path: ...
    @property
    def hf_config(self) -> dict[str, Any]: ...
    @property
    def tokenizer(self) -> Vocabulary: ...
    @property
    def generation(self) -> GenerationSettings: ...
    @property
    def max_len(self) -> int | None: ...
    @property
    def onward(self) -> Onward: ...
    def encode(self, prompt: str | Messages) -> list[int]: ...
    def perplexity(self, text: str, stride: int = 0, window: int = 0) -> Perplexity: ...
    def decode_after(self, prompt: Sequence[int]) -> Detokenise: ...


class TextVerbs:
    """Writing on, for whatever predicts the next token of a text."""

    def generate(self: Predictor, prompts: Sequence[str | Messages], **settings: Any) -> list[Output]:
        """What follows each prompt; an output depends on no other prompt.

        Args:
            prompts: texts; or conversations, lists of `{"role": "user", "content": "..."}`, for models with a template.
            **settings: fields of `sightline.generation.settings.GenerationSettings`, such as `max_new_tokens=50`.

        Raises:
            UserError: a setting makes no sense, a prompt is empty or too long, or there is no chat template.
        """
        refuse_single(prompts, "generate")
        chosen = self.generation.changed(settings)
        stop = stop_at(chosen.stop, self.tokenizer.decode)
        ids = [self.encode(prompt) for prompt in prompts]
        found = write_on(self.onward, ids, chosen, self.max_len, stop)
        pairs = zip(ids, found, strict=True)
        return [output_of(ranked, self.decode_after(prompt), chosen.stop) for prompt, ranked in pairs]

    def stream(self: Predictor, prompt: str | Messages, **settings: Any) -> Iterator[str]:
        """What follows one prompt, piece by piece while it is being written; joined, what `generate` gives.

        Raises:
            UserError: as of `generate`, or the settings ask for a beam search, which may change its mind.
        """
        chosen = _streamed(self.generation, settings)
        ids = self.encode(prompt)
        tokens = stream_on(self.onward, ids, chosen, self.max_len)
        return until_stop(growing_text(tokens, self.decode_after(ids)), chosen.stop)

    def perplexity(self: Predictor, text: str, stride: int = 0, window: int = 0) -> Perplexity:
        """How well the model predicts a text of any length.

        Args:
            text: read from its first token on, which is given.
            stride: tokens between the beginnings of two windows; fewer give every token more to go by and take longer;
                0 = half a window.
            window: tokens read at once; 0 = as many as the model can read, at most 1,024.
        """
        longest = self.max_len or int(self.hf_config.get("max_position_embeddings") or WINDOW)
        window = window or min(longest, WINDOW)
        if window > longest:
            raise UserError(f"window = {window}: the model reads at most {longest} tokens at once")
        return perplexity(self.onward, self.encode(text), window, stride or max(1, window // 2))

    def evaluate(self: Predictor, paths: Sequence[str]) -> LanguageReport:
        """How well the model predicts files of text, each read as `perplexity` reads it."""
        texts = ["\n".join(read_lines(path)) for path in paths]
        found = [self.perplexity(text) for text in texts]
        return language_report(texts, [(one.log_prob, one.tokens) for one in found])

    def encode(self: Predictor, prompt: str | Messages) -> list[int]:
        """The ids of a prompt."""
        return prompt_ids(prompt, self.path, self.tokenizer, self.generation.start_id)

    def decode_after(self: Predictor, prompt: Sequence[int]) -> Detokenise:
        """Ids to the text that they add to a prompt's."""
        return decode_after(self.tokenizer, prompt)


class ForwardModel(LookVerbs, EmbeddingVerbs, FamilyModel):
    """A decoder alone, perhaps without a head (E5-Mistral, Qwen3-Embedding, ...): it embeds texts."""

    network: DecoderOnly
    does = "reads texts"

    def shown(self, given: str) -> "ReadOn":
        """A text, for `attend`."""
        from sightline.models.shown import text_to_read_on

        return text_to_read_on(self, given, longest_text(self.config.decoder))

    def make_embedder(self) -> TextEmbedder:
        """What turns texts into vectors."""
        stack = self.config.decoder
        assert stack
        network, longest = Forward(self.network), longest_text(stack)
        return text_embedder(network, self.tokenizer, self.hf_config, stack.d_model, longest, self.path)


class TextModel(TextVerbs, ForwardModel, Writer):
    """A decoder alone (GPT-2, LLaMA, ...): it writes on."""

    network: DecoderOnly
    does = "writes texts on"
    usual_task = "lm"

    @property
    def onward(self) -> DecoderOnly:
        """What predicts the next token."""
        return self.network

    @cached_property
    def max_len(self) -> int | None:
        """The longest text the network can take, where it has a limit."""
        return longest_text(self.config.decoder)

    def example(self, given: str, target: Any) -> "Example":
        """A text and how it is predicted, for `head_importance`."""
        from sightline.models.shown import next_pieces

        return next_pieces(self.shown(given).values)
