"""Perplexity and bits per byte of language models; only the latter does not depend on the tokenizer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LanguageReport:
    """Over all files together; the first token of each is given, not predicted."""

    log_prob: float  # natural log, of all predicted tokens
    tokens: int  # predicted
    bytes: int  # of the texts in UTF-8
    files: int

    @property
    def loss(self) -> float:
        """Nats per token."""
        return -self.log_prob / self.tokens

    def figures(self) -> dict[str, float]:
        """Loss and perplexity depend on the tokenizer; to compare two models use bits per byte.

        >>> LanguageReport(log_prob=-8 * math.log(2), tokens=4, bytes=16, files=1).figures()["bits_per_byte"]
        0.5
        """
        bits = -self.log_prob / math.log(2) / self.bytes
        return {"loss": self.loss, "perplexity": math.exp(min(self.loss, 700.0)), "bits_per_byte": bits}

    def as_json(self) -> dict[str, Any]:
        """The figures with the sizes of the data."""
        return {**self.figures(), "tokens": self.tokens, "bytes": self.bytes, "files": self.files}

    def render(self) -> str:
        """One line for people."""
        found = self.figures()
        over = f"({self.tokens:,} tokens, {self.bytes:,} bytes)"
        loss = f"loss {self.loss:.4f} nats per token, {found['bits_per_byte']:.4f} bits per byte"
        return f"perplexity {found['perplexity']:.6g}, {loss} {over}"


def language_report(texts: Sequence[str], scores: Sequence[tuple[float, int]]) -> LanguageReport:
    """The report for texts with, for each, the log-probability of its tokens and their number."""
    size = sum(len(text.encode()) for text in texts)
    return LanguageReport(math.fsum(p for p, _ in scores), sum(n for _, n in scores), size, len(texts))


@dataclass(frozen=True)
class MaskedReport:
    """How well a masked language model predicts masked tokens."""

    log_prob: float  # natural log, of all masked tokens
    right: int  # masked tokens that are the most probable prediction
    tokens: int  # masked
    read: int  # all tokens of the texts
    files: int

    def figures(self) -> dict[str, float]:
        """Both depend on the tokenizer.

        >>> MaskedReport(log_prob=-6.0, right=1, tokens=4, read=30, files=1).figures()
        {'loss': 1.5, 'accuracy': 0.25}
        """
        n = max(1, self.tokens)
        return {"loss": -self.log_prob / n, "accuracy": self.right / n}

    def as_json(self) -> dict[str, Any]:
        """The figures with the sizes of the data."""
        return {**self.figures(), "masked": self.tokens, "tokens": self.read, "files": self.files}

    def render(self) -> str:
        """One line for people."""
        found, over = self.figures(), f"({self.tokens:,} masked of {self.read:,} tokens)"
        return f"accuracy {found['accuracy']:.2%}, loss {found['loss']:.4f} nats per masked token {over}"
