"""Whisper in torch, for networks and devices that the compiled library does not support, training and inspection."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from headwise.contract import Hypothesis, Limits, SearchOptions, SpeechNetwork
from headwise.core.transformer import Transformer
from headwise.models.speech.transcribe import WhisperTokens, speech_search_options, window_bounds
from headwise.pytorch.inspect.importance import Example
from headwise.pytorch.inspect.inputs import TranscribedSound
from headwise.pytorch.models.inputs import described_input, transcribed_sound
from headwise.pytorch.models.model import ModelInTorch
from headwise.pytorch.search.decoding import prefill, search
from headwise.pytorch.search.stepwise import engine_step, to_torch
from headwise.runtime.checkpoint.generation_config import GenerationConfig


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


class TorchSpeech:
    """A `SpeechNetwork` on the device and in the precision of a torch module."""

    def __init__(self, network: Transformer) -> None:
        self.network = network

    @torch.inference_mode()
    def encode(self, mel: Float32[np.ndarray, "n_mels frames"]) -> Float[Tensor, "1 positions d_model"]:
        """See `SpeechNetwork.encode`."""
        return self.network.encode(torch.from_numpy(mel).unsqueeze(0).to(next(self.network.parameters())))

    def search(
        self,
        memory: Float[Tensor, "1 positions d_model"],
        prompt: Sequence[int],
        limits: Limits,
        options: SearchOptions,
    ) -> list[Hypothesis]:
        """See `SpeechNetwork.search`."""
        return search_windows(self.network, memory, prompt, limits, options)[0]

    @torch.inference_mode()
    def logits(
        self, memory: Float[Tensor, "1 positions d_model"], prompt: Sequence[int]
    ) -> Float32[np.ndarray, " vocab"]:
        """See `SpeechNetwork.logits`."""
        hidden = self.network.decode(torch.tensor([list(prompt)], device=memory.device), memory)
        return self.network.logits(hidden[:, -1])[0].float().cpu().numpy()


def transcribe_windows(
    network: Transformer,
    memory: Float[Tensor, "windows positions d_model"],
    prompt: Sequence[int],
    special_tokens: WhisperTokens,
    config: GenerationConfig,
    max_len: int | None = None,
) -> list[Hypothesis]:
    """The outputs without timestamps for encoded windows, searched together."""
    limits = window_bounds(len(memory), prompt, config, max_len)
    found = search_windows(network, memory, prompt, limits, speech_search_options(special_tokens, config, False))
    return [ranked[0] for ranked in found]


@torch.inference_mode()
def search_windows(
    network: Transformer,
    memory: Float[Tensor, "windows positions d_model"],
    prompt: Sequence[int],
    limits: Limits,
    options: SearchOptions,
) -> list[list[Hypothesis]]:
    """`SpeechNetwork.search` for several encoded windows together."""
    prompts = torch.tensor([list(prompt)] * len(memory), device=memory.device)
    prefilled = prefill(engine_step(network), network.start_cache(memory), prompts)
    return search(engine_step(network), prefilled, to_torch(limits, memory.device), options)
