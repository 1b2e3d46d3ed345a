"""Which kind of model a pretrained network is: the class, by name, whose methods suit it."""

from typing import Any

from headwise.network.config import NetworkConfig

ENCODERS = {"text_class": "classifier:Classifier"}  # by head, unlike the others
DECODERS = {"patches": "captioner:Captioner", "audio": "speech:SpeechModel"}  # by what the encoder reads


def model_kind(config: Any) -> str:
    """The module and the class for a network, `NetworkConfig` or `XLNetShape`, as "module:Class"."""
    if not isinstance(config, NetworkConfig):
        return "classifier:Classifier" if config.n_classes else "language_model:LanguageModel"
    if config.decoder is None:
        pictures = config.front == "patches"
        return "vision:VisionModel" if pictures else ENCODERS.get(config.head, "encoder:EncoderModel")
    if config.encoder is None:
        return "language_model:LanguageModel"
    if config.head != "language":
        return "model:Model"
    return DECODERS.get(config.front, "translator:Translator")
