"""Captions: a ViT looks at a picture, a GPT-2 says what it sees, with its verbs.

What is written begins with a start mark and is searched for as every other output. Not here: image files
(`sightline.data.image`), and training it further (`sightline.tasks.captioning`).
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from sightline.contract import Hypothesis, Stop
from sightline.data.image import Preprocessing, read_image
from sightline.decode.steps import step_of
from sightline.evaluate.captions import CaptionReport, caption_report
from sightline.generation.chat import refuse_single
from sightline.generation.decoding import begin, limits_of, search
from sightline.generation.output import Output, output_of
from sightline.generation.reading import longest_text
from sightline.generation.rewrite import beginning_of, options_of, without_beginning
from sightline.generation.settings import IDS, GenerationSettings, read_settings
from sightline.generation.stopping import stop_at
from sightline.models.family_model import Writer
from sightline.models.looking import LookVerbs
from sightline.models.pictures import preprocessing_of
from sightline.network.transformer import Transformer

if TYPE_CHECKING:
    from sightline.models.shown import Example, Seen


class CaptionModel(LookVerbs, Writer):
    """An encoder of patches and a decoder that attends to them: it says in words what a picture shows."""

    reads = "picture"
    tells = True
    network: Transformer
    does = "looks at a picture and writes a caption"
    usual_task = "caption"

    def caption(self, pictures: Sequence[str | Path], **settings: Any) -> list[Output]:
        """What each image file shows, in words; a caption depends on no other picture.

        Args:
            pictures: image files.
            **settings: fields of `sightline.generation.settings.GenerationSettings`, such as `beam_size=4`.

        Raises:
            UserError: a file cannot be read, or a setting makes no sense.
        """
        refuse_single(pictures, "caption")
        chosen, found = self.generation.changed(settings), list[Output]()
        stop = stop_at(chosen.stop, self.tokenizer.decode)
        for at in range(0, len(pictures), chosen.batch_size):
            seen = [read_image(path, self.preprocessing) for path in pictures[at : at + chosen.batch_size]]
            found += [output_of(ranked, self.said, chosen.stop) for ranked in self.look(seen, chosen, stop)]
        return found

    @torch.inference_mode()
    def look(
        self,
        pictures: Sequence[Float[Tensor, "3 height width"]],
        settings: GenerationSettings,
        stop: Stop | None = None,
    ) -> list[list[Hypothesis]]:
        """What is written for each picture, best first, without what it begins with."""
        seen = torch.stack(list(pictures)).to(next(self.network.parameters()))  # to its device, in its numbers
        return say(self.network, self.network.encode(seen), settings, self.max_len, stop)

    def evaluate(self, paths: Sequence[str]) -> CaptionReport:
        """BLEU and chrF++ of captions against all that each picture of some tables has (`data.captions`)."""
        from sightline.data.captions import captions_by_picture, read_captions

        said = captions_by_picture(read_captions(paths))
        return caption_report([one.text for one in self.caption([*said])], [*said.values()])

    def said(self, tokens: Sequence[int]) -> str:
        """A caption without marks and without blanks around it."""
        return self.tokenizer.decode(list(tokens)).strip()

    def shown(self, given: str | Path, **options: Any) -> "Seen":
        """An image file with its caption, for `attend`."""
        from sightline.models.shown import seen_picture

        return seen_picture(self, given, **options)

    def example(self, given: str | Path, target: Any) -> "Example":
        """An image file and its caption, by default the model's own, for `head_importance`."""
        from sightline.models.shown import told

        return told(self.shown(given, target=target))

    @cached_property
    def generation(self) -> GenerationSettings:
        """As of `Writer`; marks that config.json does not name are those of its decoder."""
        decoder = self.hf_config.get("decoder") or {}
        ids = {name: decoder[name] for name in IDS if decoder.get(name) is not None}
        own = {name: value for name, value in self.hf_config.items() if value is not None}
        return read_settings(self.path, {**ids, **own}, has_encoder=True)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """What is done to a picture before the network sees it."""
        return preprocessing_of(self)

    @cached_property
    def max_len(self) -> int | None:
        """The longest caption, with the mark that it begins with."""
        return longest_text(self.config.decoder)


@torch.inference_mode()
def say(
    network: Transformer,
    memory: Float[Tensor, "pictures positions d_model"],
    settings: GenerationSettings,
    max_len: int | None,
    stop: Stop | None = None,
) -> list[list[Hypothesis]]:
    """What is written for pictures that the encoder has seen, best first, without what it begins with."""
    beginning = beginning_of(settings)
    room = None if max_len is None else max_len - len(beginning) + 1
    prompts = torch.tensor([beginning] * len(memory), device=memory.device)
    begun = begin(step_of(network), network.start_cache(memory), prompts)
    limits = limits_of([room] * len(memory), without_beginning(settings), memory.device)
    return search(step_of(network), begun, limits, options_of(settings, stop), settings, [0] * len(memory))
