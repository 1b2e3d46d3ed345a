"""Decoders alone (GPT-2, LLaMA, ...) and XLNet, read from left to right.

Nothing here needs torch; `torch_language` has what does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

from headwise.checkpoint.folder import Folder
from headwise.checkpoint.generation_config import GenerationConfig, read_generation_config
from headwise.checkpoint.vocabulary import bare, fingerprint
from headwise.contract import TextNetwork
from headwise.data.documents import DocumentTokenizer, count_bytes, prepare_documents, spool_files
from headwise.decode.streaming import growing_text, stop_at, until_stop
from headwise.errors import UserError
from headwise.evaluate.language import LanguageReport, Perplexity
from headwise.generation.chat import Messages, refuse_single
from headwise.generation.library_text import LibraryText
from headwise.generation.output import Detokenise, Output, decode_after, output_of, prompt_ids
from headwise.generation.text import continue_prompts, perplexity, stream_continuation
from headwise.models.model import Model, by_torch, only_with
from headwise.native.linear import NUMBERS
from headwise.native.network import CompiledNetwork
from headwise.network.config import NetworkConfig

WINDOW = 1024  # tokens read at once for a perplexity, where neither the network nor its settings have a limit
DOES = {"language": "continues texts", "permutation": "continues texts and fills in masked tokens"}


BEHIND = ("<sep>", "<cls>")  # special tokens that end a text of XLNet


class LanguageModel(Model):
    """A decoder alone (GPT-2, LLaMA, ...) or an XLNet: it continues texts and embeds them.

    A decoder without a head (E5-Mistral, Qwen3-Embedding, ...) only embeds.
    """

    attend, trace, look_inside, walk, walks, mask_heads, prune = (
        only_with("language", "embedding")(by_torch(f"introspection:{name}"))
        for name in (
            *("attend_input", "trace_input", "inspect_input", "walk_input", "walks_of_input"),
            *("mask_model_heads", "prune_model"),
        )
    )
    head_importance = only_with("language")(by_torch("introspection:input_head_importance"))
    fill_mask = only_with("permutation")(by_torch("torch_language:fill_mask"))
    embed, observed, example = (by_torch(f"torch_language:{name}") for name in ("embed_texts", "observed", "example"))

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.does = DOES.get(self.head, "embeds texts")
        self.usual_task = {"language": "lm", "permutation": "plm"}.get(self.head, "translate")

    @property
    def head(self) -> str:
        """One of "language", "permutation" (an XLNet) or "embedding"."""
        if not isinstance(self.config, NetworkConfig):
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
        return self._perplexity_of(self.encode(text), stride, window)

    def _perplexity_of(self, tokens: Sequence[int], stride: int, window: int) -> Perplexity:
        longest = self.max_len or int(self.hf_config.get("max_position_embeddings") or WINDOW)
        window = window or longest
        if window > longest:
            raise UserError(f"window = {window}: the model reads at most {longest} tokens at once")
        return perplexity(self.text_network(), tokens, window, stride or max(1, window // 2))

    @only_with("language", "permutation")
    def evaluate(self, paths: Sequence[str], stride: int = 0, window: int = 0) -> LanguageReport:
        """How well the model predicts files, text or `.jsonl`, with the documents and end tokens of training."""
        files = spool_files(paths)
        text = prepare_documents(files, self.cutter, progress=False)
        found = self._perplexity_of(text.tokens.tolist(), stride, window)
        return LanguageReport(**asdict(found), bytes=count_bytes(files), files=len(paths))

    @cached_property
    def cutter(self) -> DocumentTokenizer:
        """Tokenizes documents, with the model's special tokens around each; in training and evaluation."""
        encode, before, behind = bare(self.tokenizer)
        if self.head == "permutation":
            before, suffix = [], behind[:1]
        else:
            ends = [self.generation.special.eos_id] if self.generation.can_end else []
            suffix = behind if behind[-1:] == ends else [*behind, *ends]
        origin, size = fingerprint(self.path), self.config.vocab_size
        return DocumentTokenizer(lambda texts: [encode(text) for text in texts], before, suffix, origin, size)

    def encode(self, prompt: str | Messages) -> list[int]:
        """The ids of a prompt, without the special tokens with which XLNet ends a text."""
        ids = prompt_ids(prompt, self.path, self.tokenizer, self.generation.special.bos_id)
        behind = [self.tokenizer.id_of(token) for token in BEHIND] if self.head == "permutation" else []
        return ids[: -len(behind)] if behind and ids[-len(behind) :] == behind else ids

    def decode_after(self, prompt: Sequence[int]) -> Detokenise:
        """Converts ids to the text that they add to a prompt."""
        return decode_after(self.tokenizer, prompt)

    def text_network(self, compute: str = "float32") -> TextNetwork:
        """The network in this precision: in the compiled library, or in torch if the library does not support it."""
        form = self.folder.weights.form(compute)
        if isinstance(form, CompiledNetwork):
            return LibraryText(form)
        return self.needing_torch("headwise.models.torch_language:text_network")(self, form)

    @cached_property
    def generation(self) -> GenerationConfig:
        """Settings of generation; `unused` names those of its file that are not supported."""
        return read_generation_config(self.path, self.hf_config, has_encoder=False)

    @cached_property
    def max_len(self) -> int | None:
        """The longest text the network reads, where it has a limit."""
        return None if self.head == "permutation" else self.config.decoder.longest

    @cached_property
    def embedder(self) -> Any:
        """Turns texts into vectors."""
        return self.needing_torch("headwise.models.torch_language:embedder")(self)
