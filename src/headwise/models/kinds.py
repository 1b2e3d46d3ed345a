"""The kind of model of a pretrained network: the class whose methods suit it.

A new kind is a module of this package, a row in `KINDS` and a
line in `kind_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headwise.config.network import NetworkConfig
from headwise.importing import Table
from headwise.models.model import Model
from headwise.runtime.checkpoint.folder import Folder

KINDS: Table[Callable[[Folder], Any]] = Table(
    {
        "no use": "headwise.models.model:Model",
        "translator": "headwise.models.pretrained:PretrainedNetwork",  # of a `Translator`
        "encoder": "headwise.models.encoding.encoder:EncoderModel",
        "masked": "headwise.models.encoding.encoder:MaskedModel",
        "token_class": "headwise.models.encoding.encoder:Tagger",
        "span": "headwise.models.encoding.encoder:QuestionAnswerer",
        "text_class": "headwise.models.encoding.classifier:PretrainedClassifier",
        "score": "headwise.models.encoding.classifier:CrossEncoder",
        "xlnet classifier": "headwise.models.encoding.classifier:XLNetLabeller",
        "xlnet": "headwise.models.language.language_model:XLNetModel",
        "language": "headwise.models.language.language_model:LanguageModel",
        "embedding": "headwise.models.language.language_model:DecoderModel",
        "patches": "headwise.pytorch.models.vision:VisionModel",
        "image_class": "headwise.pytorch.models.vision:PictureClassifier",
        "captioner": "headwise.pytorch.models.captioner:Captioner",
        "speech": "headwise.models.speech.speech_model:SpeechModel",
    }
)
TRAINED: Table[Callable[[Folder], Any]] = Table(  # models trained here, by task; others are saved in a layout of KINDS
    {
        "denoise": "headwise.pytorch.models.denoiser:Denoiser",
        "classify": "headwise.models.encoding.classifier:TrainedClassifier",
        "forecast": "headwise.pytorch.models.forecaster:Forecaster",
    }
)
WRITERS = {"patches": "captioner", "audio": "speech"}  # by what the encoder reads; texts: "translator"


def kind_of(config: Any) -> str:
    """The row of `KINDS` for a pretrained network, a `NetworkConfig` or an `XLNetShape`."""
    if not isinstance(config, NetworkConfig):
        return "xlnet classifier" if config.n_classes else "xlnet"
    if config.decoder is None:
        if config.front == "patches":
            return "image_class" if config.head == "image_class" else "patches"
        if config.head == "text_class" and config.n_classes == 1:
            return "score"
        return config.head if config.head in ("masked", "token_class", "span", "text_class") else "encoder"
    if config.encoder is None:
        return "language" if config.head == "language" else "embedding"
    if config.head != "language":
        return "no use"
    return WRITERS.get(config.front, "translator")


if TYPE_CHECKING:  # for editors and the type checker: what `load` returns may be any of these
    from headwise.models.encoding.classifier import CrossEncoder
    from headwise.models.encoding.encoder import MaskedModel, QuestionAnswerer, Tagger
    from headwise.models.language.language_model import LanguageModel
    from headwise.models.language.output import Output
    from headwise.models.speech.speech_model import SpeechModel
    from headwise.models.translation.translator import Translator
    from headwise.pytorch.inspect.heads import Head
    from headwise.pytorch.models.captioner import Captioner
    from headwise.pytorch.models.denoiser import Denoiser
    from headwise.pytorch.models.forecaster import Forecaster
    from headwise.pytorch.models.vision import PictureClassifier

    class AnyModel(  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        Translator,
        LanguageModel,
        MaskedModel,
        Tagger,
        QuestionAnswerer,
        CrossEncoder,
        PictureClassifier,
        Captioner,
        SpeechModel,
        Forecaster,
        Denoiser,
    ):
        """A loaded model, with the methods of all kinds for the type checker; returned by `headwise.load`."""

        def generate(self, *given: Any, **settings: Any) -> list[Output]:
            """The continuation of each prompt, a text or a conversation; of an encoder-decoder, its output for a text.

            `settings` are fields of `headwise.config.settings.SearchSettings`, such as `max_new_tokens=50`.
            """
            ...

        def evaluate(self, *given: Any, **options: Any) -> Any:
            """The scores of the model on files as `train` takes them for its task; for translation, on lists of texts.

            Which report it returns depends on the task.
            """
            ...

        def head_importance(self, given: Sequence[Any], /, *targets: Any, **options: Any) -> dict[Head, float]:
            """The sensitivity of the loss on these inputs to each head (`headwise.pytorch.inspect.importance`).

            Args:
                given: texts, files of pictures or sounds, or CSV files of a forecaster.
                targets: translations; labels, by name or number; transcripts; captions. Not needed for language models,
                    masked language models and series. Transcripts and captions are by default the model's own.
            """
            ...
else:
    AnyModel = Model
