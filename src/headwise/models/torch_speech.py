"""Whisper in torch: networks that the library lacks, and sounds as the inspector reads them."""

from pathlib import Path
from typing import Any

from headwise.contract import SpeechNetwork
from headwise.generation.torch_speech import TorchSpeech
from headwise.inspect.importance import Example
from headwise.inspect.inputs import TranscribedSound
from headwise.models.inputs import described_input, transcribed_sound
from headwise.models.torch_model import ModelInTorch


class SpeechInTorch(ModelInTorch):
    """A `SpeechModel` in torch."""

    def observed(self, given: str | Path, **options: Any) -> TranscribedSound:
        """A sound file with its transcript as the inspector reads it."""
        return transcribed_sound(self.model, given, **options)

    def example(self, given: str | Path, target: Any) -> Example:
        """A sound file and its transcript, by default the model's own, with their loss."""
        return described_input(self.observed(given, target=target))

    def speech_network(self, form: Any) -> SpeechNetwork:
        """A torch module that transcribes."""
        return TorchSpeech(form)
