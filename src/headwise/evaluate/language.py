"""Perplexity and bits per byte of language models; only the latter does not depend on the tokenizer."""

import math
from dataclasses import dataclass
from typing import Any

from headwise.text.files.sources import count_of


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of a text."""

    log_prob: float  # natural log, of all predicted tokens
    tokens: int  # predicted tokens: all but the first
    window: int  # tokens read at once
    stride: int  # tokens between the starts of two windows

    @property
    def perplexity(self) -> float:
        """exp(- mean log-probability of a token); infinite if that does not fit into a float."""
        entropy = -self.log_prob / self.tokens
        return math.exp(entropy) if entropy < 709 else math.inf


@dataclass(frozen=True)
class LanguageReport(Perplexity):
    """Over the documents of all files, one after the other; the first token is given, not predicted."""

    bytes: int  # of the texts in UTF-8
    files: int

    @property
    def loss(self) -> float:
        """Nats per token."""
        return -self.log_prob / self.tokens

    def figures(self) -> dict[str, float]:
        """Loss and perplexity depend on the tokenizer; to compare two models use bits per byte.

        >>> report = LanguageReport(log_prob=-8 * math.log(2), tokens=4, window=8, stride=4, bytes=16, files=1)
        >>> report.figures()["bits_per_byte"]
        0.5
        """
        bits = -self.log_prob / math.log(2) / self.bytes
        return {"loss": self.loss, "perplexity": math.exp(min(self.loss, 700.0)), "bits_per_byte": bits}

    def as_json(self) -> dict[str, Any]:
        """The figures with the sizes of the data."""
        read = {"window": self.window, "stride": self.stride}
        return {**self.figures(), "tokens": self.tokens, "bytes": self.bytes, "files": self.files, **read}

    def render(self) -> str:
        """One line for people."""
        found = self.figures()
        over = f"({count_of(self.tokens, 'token')}, {self.bytes:,} bytes; {windows_text(self.window, self.stride)})"
        loss = f"loss {self.loss:.4f} nats per token, {found['bits_per_byte']:.4f} bits per byte"
        return f"perplexity {found['perplexity']:.6g}, {loss} {over}"


def windows_text(window: int, stride: int) -> str:
    """A description of the windows in which a text was read.

    >>> windows_text(1024, 512)
    'window 1,024, stride 512'
    """
    return f"window {window:,}, stride {stride:,}"


@dataclass(frozen=True)
class MaskedReport:
    """The quality of a masked language model's predictions of masked tokens."""

    log_prob: float  # natural log, of all masked tokens
    right: int  # masked tokens that are the most probable prediction
    tokens: int  # masked
    read: int  # all tokens of the texts
    files: int
    reading: str = "blocks"  # or "lines"
    reason: str = ""  # for this way of reading

    def figures(self) -> dict[str, float]:
        """Both depend on the tokenizer.

        >>> MaskedReport(log_prob=-6.0, right=1, tokens=4, read=30, files=1).figures()
        {'loss': 1.5, 'accuracy': 0.25}
        """
        n = max(1, self.tokens)
        return {"loss": -self.log_prob / n, "accuracy": self.right / n}

    def as_json(self) -> dict[str, Any]:
        """The figures with the sizes of the data."""
        read = {"reading": self.reading, "reason": self.reason}
        return {**self.figures(), "masked": self.tokens, "tokens": self.read, "files": self.files, **read}

    def render(self) -> str:
        """One line for people."""
        found, reason = self.figures(), f": {self.reason}" if self.reason else ""
        over = f"({self.tokens:,} masked of {count_of(self.read, 'token')}; read in {self.reading}{reason})"
        return f"accuracy {found['accuracy']:.2%}, loss {found['loss']:.4f} nats per masked token {over}"
