"""XLNet."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from sightline.architectures.xlnet import XLNet, XLNetShape
from sightline.generation.chat import Messages
from sightline.generation.fill import Filling, fillings
from sightline.generation.label import LabelVerbs
from sightline.generation.output import prompt_ids
from sightline.generation.permutation import BEHIND, Around, LeftToRight, Whole
from sightline.generation.reading import TextReader, text_reader
from sightline.generation.settings import GenerationSettings, read_settings
from sightline.generation.vectors import EmbeddingVerbs, TextEmbedder, text_embedder
from sightline.models.family_model import FamilyModel
from sightline.models.text import TextVerbs


@dataclass(frozen=True)
class XLNetModel(EmbeddingVerbs, FamilyModel):
    """XLNet, with whichever head."""

    network: XLNet
    config: XLNetShape  # type: ignore[assignment]

    def info(self) -> dict[str, Any]:
        """What the model is."""
        parameters = sum(parameter.numel() for parameter in self.network.parameters())
        return {"family": "xlnet", "parameters": parameters, **asdict(self.config)}

    def make_embedder(self) -> TextEmbedder:
        """What turns texts into vectors."""
        return text_embedder(
            Whole(self.network), self.tokenizer, self.hf_config, self.config.d_model, self.max_len, self.path
        )

    @property
    def max_len(self) -> None:
        """Distances are sines, so there is no longest text."""
        return None


class LabellingXLNet(LabelVerbs, XLNetModel):
    """With a head for labels of texts."""

    does = "says which label a text has"
    usual_task = "classify"

    @cached_property
    def reader(self) -> TextReader:
        """What turns texts into what the network reads, which tells any number of types apart."""
        pad_id = max(0, self.hf_config.get("pad_token_id") or 0)
        return text_reader(self.tokenizer, pad_id, 3, self.max_len, self.path, self.config.vocab_size)


class PermutationModel(TextVerbs, XLNetModel):
    """With its head for pieces; methods as those of the models that write and of those that read."""

    does = "reads texts and writes them on"
    usual_task = "plm"

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        """As of `ReadingModel`; masks do not see each other."""
        top = min(top, self.config.vocab_size)
        return fillings(lambda mask_id: Around(self.network, mask_id), text, self.path, self.tokenizer, top)

    def encode(self, prompt: str | Messages) -> list[int]:
        """The ids of a prompt, without the marks that end a text."""
        ids = prompt_ids(prompt, self.path, self.tokenizer, self.generation.start_id)
        marks = [self.tokenizer.id_of(mark) for mark in BEHIND]
        return ids[: -len(marks)] if ids[-len(marks) :] == marks else ids

    @cached_property
    def generation(self) -> GenerationSettings:
        """How it writes unless a call says otherwise."""
        return read_settings(self.path, self.hf_config, has_encoder=False)

    @property
    def onward(self) -> LeftToRight:
        """What predicts the next token."""
        return LeftToRight(self.network)


def kind_of_xlnet(shape: XLNetShape) -> type[XLNetModel]:
    """The class whose verbs suit an XLNet."""
    return LabellingXLNet if shape.n_classes else PermutationModel
