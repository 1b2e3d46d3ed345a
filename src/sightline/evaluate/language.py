"""How well a language model predicts files of text, in figures that do and do not depend on its pieces."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LanguageReport:
    """Over all files together; of each the first token is given, not predicted."""

    log_prob: float  # natural log, of all tokens that were predicted
    tokens: int  # how many those are
    bytes: int  # of the texts in UTF-8
    files: int

    @property
    def loss(self) -> float:
        """Nats a token."""
        return -self.log_prob / self.tokens

    def figures(self) -> dict[str, float]:
        """Loss and perplexity depend on how the model cuts texts; two models compare by bits per byte.

        >>> LanguageReport(log_prob=-8 * math.log(2), tokens=4, bytes=16, files=1).figures()["bits_per_byte"]
        0.5
        """
        bits = -self.log_prob / math.log(2) / self.bytes
        return {"loss": self.loss, "perplexity": math.exp(min(self.loss, 700.0)), "bits_per_byte": bits}

    def as_json(self) -> dict[str, Any]:
        """The figures, and what they are over."""
        return {**self.figures(), "tokens": self.tokens, "bytes": self.bytes, "files": self.files}

    def render(self) -> str:
        """One line for people."""
        found = self.figures()
        over = f"({self.tokens:,} tokens, {self.bytes:,} bytes)"
        loss = f"loss {self.loss:.4f} nats a token, {found['bits_per_byte']:.4f} bits per byte"
        return f"perplexity {found['perplexity']:.6g}, {loss} {over}"


def language_report(texts: Sequence[str], scores: Sequence[tuple[float, int]]) -> LanguageReport:
    """Of texts and, for each, the log-probability of its tokens and how many were predicted."""
    size = sum(len(text.encode()) for text in texts)
    return LanguageReport(math.fsum(p for p, _ in scores), sum(n for _, n in scores), size, len(texts))


@dataclass(frozen=True)
class MaskedReport:
    """How well a masked language model tells what is hidden of files of text."""

    log_prob: float  # natural log, of all pieces that were hidden
    right: int  # of them, those that it finds likeliest
    tokens: int  # how many those are
    read: int  # pieces of the texts
    files: int

    def figures(self) -> dict[str, float]:
        """Both depend on how the model cuts texts.

        >>> MaskedReport(log_prob=-6.0, right=1, tokens=4, read=30, files=1).figures()
        {'loss': 1.5, 'accuracy': 0.25}
        """
        n = max(1, self.tokens)
        return {"loss": -self.log_prob / n, "accuracy": self.right / n}

    def as_json(self) -> dict[str, Any]:
        """The figures, and what they are over."""
        return {**self.figures(), "masked": self.tokens, "tokens": self.read, "files": self.files}

    def render(self) -> str:
        """One line for people."""
        found, over = self.figures(), f"({self.tokens:,} masked of {self.read:,} tokens)"
        return f"accuracy {found['accuracy']:.2%}, loss {found['loss']:.4f} nats a masked token {over}"
