"""Captioners: an encoder of patches (ViT) and a decoder of text (GPT-2).

See `headwise.pytorch.data.image` for image files and `headwise.pytorch.tasks.captioning` for fine-tuning.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.contract import Hypothesis, Stop
from headwise.core.transformer import Transformer
from headwise.evaluate.captions import CaptionReport, caption_report
from headwise.models.introspection import InspectableModel, ModelWithLoss
from headwise.models.language.output import Output, output_of
from headwise.models.model import refuse_single
from headwise.pytorch.data.captions import captions_by_picture, read_captions
from headwise.pytorch.data.image import Preprocessing, read_image
from headwise.pytorch.inspect.importance import Example
from headwise.pytorch.inspect.inputs import CaptionedPicture
from headwise.pytorch.models.inputs import captioned_picture, described_input, preprocessing_of
from headwise.pytorch.models.model import ModelInTorch
from headwise.pytorch.search.decoding import output_limits, prefill, search
from headwise.pytorch.search.stepwise import engine_step, with_ngram_context
from headwise.runtime.checkpoint.generation_config import IDS, GenerationConfig, read_generation_config
from headwise.runtime.search.request import search_options, with_start
from headwise.runtime.search.streaming import stop_at


class CaptionerInTorch(ModelInTorch):
    """A `Captioner` in torch."""

    def observed(self, given: str | Path, **options: Any) -> CaptionedPicture:
        """An image file with its caption as the inspector reads it."""
        return captioned_picture(self.model, given, **options)

    def example(self, given: str | Path, target: Any) -> Example:
        """An image file and its caption, by default the model's own, with their loss."""
        return described_input(self.observed(given, target=target))


class Captioner(InspectableModel, ModelWithLoss):
    """An encoder of patches and a decoder that attends to them: it describes a picture in words."""

    does = "looks at a picture and writes a caption"
    reads = "picture"
    writes = True
    usual_task = "caption"

    def caption(self, pictures: Sequence[str | Path], **settings: Any) -> list[Output]:
        """A description of each image file. Pictures are independent.

        `settings` are fields of `headwise.config.settings.SearchSettings`, such as `beam_size=4`.
        """
        refuse_single(pictures, "caption")
        chosen, found = self.generation.changed(settings), list[Output]()
        stops, size = chosen.settings.stop, chosen.settings.batch_size or len(pictures)
        stop = stop_at(stops, self.tokenizer.decode)
        for at in range(0, len(pictures), size):
            pixels = [read_image(path, self.preprocessing) for path in pictures[at : at + size]]
            searched = self.search(pixels, chosen, stop)
            ranked = [[with_start(one, self.opening) for one in hypotheses] for hypotheses in searched]
            found += [output_of(hypotheses, self.decode, stops) for hypotheses in ranked]
        return found

    @torch.inference_mode()
    def search(
        self,
        pictures: Sequence[Float[Tensor, "3 height width"]],
        config: GenerationConfig,
        stop: Stop | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses for each picture, best first, without the start tokens."""
        pixels = torch.stack(list(pictures)).to(next(self.network.parameters()))  # its device, its precision
        return search_captions(self.network, self.network.encode(pixels), config, self.max_len, stop)

    def evaluate(self, paths: Sequence[str]) -> CaptionReport:
        """BLEU and chrF++ of captions against all references of each picture in some tables
        (`pytorch.data.captions`).
        """
        references = captions_by_picture(read_captions(paths))
        return caption_report([one.text for one in self.caption([*references])], [*references.values()])

    @property
    def opening(self) -> list[int]:
        """The forced start tokens that are part of captions: words, not special tokens."""
        return [token for token in self.generation.special.forced if self.tokenizer.decode([token])]

    def decode(self, tokens: Sequence[int]) -> str:
        """A caption without special tokens and surrounding blanks."""
        return self.tokenizer.decode(list(tokens)).strip()

    @cached_property
    def generation(self) -> GenerationConfig:
        """Settings of generation; special tokens that config.json does not name are those of its decoder."""
        decoder = self.hf_config.get("decoder") or {}
        ids = {name: decoder[name] for name in IDS if decoder.get(name) is not None}
        own = {name: value for name, value in self.hf_config.items() if value is not None}
        return read_generation_config(self.path, {**ids, **own}, has_encoder=True)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """The settings by which a picture is resized and normalised for the network."""
        return preprocessing_of(self)

    @cached_property
    def max_len(self) -> int | None:
        """The longest caption, with its start token."""
        return self.config.decoder.longest

    def torch(self) -> CaptionerInTorch:  # the last of the class, because it hides the module there
        """The model in torch."""
        return CaptionerInTorch(self)


@torch.inference_mode()
def search_captions(
    network: Transformer,
    memory: Float[Tensor, "pictures positions d_model"],
    config: GenerationConfig,
    max_len: int | None,
    stop: Stop | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses for encoded pictures, best first, without the start tokens."""
    prompt = config.special.prompt
    room = None if max_len is None else max_len - len(prompt) + 1
    prompts = torch.tensor([prompt] * len(memory), device=memory.device)
    prefilled = prefill(engine_step(network), network.start_cache(memory), prompts)
    limits = output_limits([room] * len(memory), config, prompts.tolist(), memory.device)
    options = with_ngram_context(search_options(config.settings, config.special, stop_function=stop))
    return search(engine_step(network), prefilled, limits, options)
