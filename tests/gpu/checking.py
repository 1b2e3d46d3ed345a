"""What the checks of a GPU share: their results, generated data, small runs of training, and a trained model."""

import contextlib
import json
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headwise
from headwise.config.training import TrainConfig
from headwise.core.batches import Batch, collate
from headwise.device import CAPTURE, DEFER, PACK

WORDS = [a + i + b + j for a in "bdg" for i in "aeiou" for b in "kl" for j in "aeiu"]
TRAINING = (PACK, DEFER)


class Skipped(Exception):
    """A check cannot run here."""


@dataclass
class Checks:
    """The device, the folder for everything that is written, and the results so far."""

    device: torch.device
    folder: Path
    seconds: float = float("inf")  # in which new checks begin
    results: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def size(self, on_gpu: Any, on_cpu: Any) -> Any:
        """A size for the device."""
        return on_gpu if self.cuda else on_cpu

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def say(self, status: str, check: str, detail: object = "", **figures: Any) -> None:
        """A result: PASS, FAIL, SKIP, or INFO for figures."""
        self.results.append({"check": check, "status": status, "detail": str(detail)[:600], **figures})
        print(f"{status:4s} {self.elapsed():6.1f}s {check}: {detail}"[:400], flush=True)

    def check(self, passes: bool, name: str, detail: object = "", **figures: Any) -> bool:
        self.say("PASS" if passes else "FAIL", name, detail, **figures)
        return passes

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def timed(self, function: Callable[[], Any], repeats: int, warm: int = 2) -> float:
        """Seconds of a call."""
        for _ in range(warm):
            function()
        self.synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            function()
        self.synchronize()
        return (time.perf_counter() - began) / repeats

    def half(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16)

    # Small runs

    def write_corpus(self) -> None:
        """A small language: every word has one translation, and neighbours change places."""
        r = random.Random(5)
        there = dict(zip(WORDS, r.sample([w.upper() for w in WORDS], len(WORDS)), strict=True))
        for name, count in (("train", self.size(3000, 60)), ("valid", self.size(200, 8))):
            lines = []
            for _ in range(count):
                src = [r.choice(WORDS) for _ in range(r.randint(2, 14))]
                tgt = [there[word] for word in src]
                for i in range(0, len(tgt) - 1, 2):
                    tgt[i], tgt[i + 1] = tgt[i + 1], tgt[i]
                lines.append((" ".join(src), " ".join(tgt)))
            for ending, form in (("src", "{0}\n"), ("tgt", "{1}\n"), ("txt", "{0} {1}\n")):
                text = "".join(form.format(*line) for line in lines)
                (self.folder / f"{name}.{ending}").write_text(text, encoding="utf-8")

    def trained(self, name: str, steps: int, how: Mapping[str, Any] = {}, recipe: str = "tiny", **options: Any) -> Path:
        """The folder of a run of some updates; `how` are other settings, None leaves one out."""
        settings = {
            "model.d_model": self.size(128, 16),
            "model.d_ff": self.size(256, 32),
            "model.n_heads": 4,
            "model.n_encoder_layers": self.size(2, 1),
            "model.n_decoder_layers": self.size(2, 1),
            "train.max_steps": steps,
            "train.log_every": 1,
            "train.validate_every": steps,
            "train.checkpoint_every": max(1, steps // 4),
            "train.validate_bleu": 0,
            "train.tokens_per_batch": self.size(2000, 200),
            "train.average": 1,
            "train.threads": 1,
            "data.vocab_size": 400,
            **how,
        }
        ends = ["txt"] if options.get("task") else ["src", "tgt"]
        files, valid = ([self.folder / f"{part}.{end}" for end in ends] for part in ("train", "valid"))
        out = self.folder / name
        options = {"device": str(self.device), "show": False, **options}
        settings = {key: value for key, value in settings.items() if value is not None}
        headwise.train(files, valid, out, recipe=recipe, settings=settings, **options)
        return out

    def losses(self, name: str) -> dict[int, float]:
        """The loss of each update of a run."""
        lines = (self.folder / name / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
        return {record["step"]: record["loss"] for record in map(json.loads, filter(None, lines))}

    def sources(self, count: int) -> list[str]:
        return (self.folder / "valid.src").read_text(encoding="utf-8").split("\n")[:count]

    @cached_property
    def toy(self) -> Path:
        """A translation model that has learned something; everything experimental is switched on meanwhile."""
        if not (self.folder / "toy/config.json").is_file():
            steps = self.size(400, 4)
            how = {"train.learning_rate": 0.003, "train.warmup_steps": self.size(50, 2), "train.log_every": steps // 4}
            how |= {"train.validate_bleu": self.size(50, 2), "train.validate_every": steps // 2}
            with switched(*TRAINING, CAPTURE):
                self.trained("toy", steps, how)
        return self.folder / "toy"


@contextlib.contextmanager
def switched(*on: str) -> Iterator[None]:
    """A context manager in which these experimental parts are on, and the others off."""
    before = {name: os.environ.get(name) for name in (*TRAINING, CAPTURE)}
    os.environ.update({name: str(int(name in on)) for name in before})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def warned(about: str) -> Iterator[list[str]]:
    """A context manager that collects the warnings with this word."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield found
    found += [str(one.message)[:200] for one in seen if about in str(one.message).lower()]


def relative(a: Tensor, b: Tensor) -> float:
    """The Euclidean distance of two tensors relative to the second."""
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    return float((a - b).norm() / b.norm().clamp(min=1e-30))


def furthest(a: dict[int, float], b: dict[int, float]) -> float:
    """The largest relative difference of losses of the same updates."""
    return max((abs(a[step] - b[step]) / abs(a[step]) for step in a if a[step] and b.get(step)), default=float("nan"))


def differing(a: list[Any], b: list[Any]) -> tuple[int, float]:
    """How many translations differ, and the largest difference of log-probabilities of the others."""
    same = [(x, y) for x, y in zip(a, b, strict=True) if x.text == y.text]
    return len(a) - len(same), max((abs(x.log_prob - y.log_prob) for x, y in same), default=0.0)


def batch_of(vocab: int, n_tokens: int, mean: int = 28, longest: int = 100, seed: int = 0, sort: bool = False) -> Batch:
    """A batch of random pairs with about this many target tokens."""
    r, pairs, total = random.Random(seed), list[tuple[list[int], list[int]]](), 0
    while total < n_tokens:
        n = min(longest, max(2, int(r.gauss(mean, mean / 2.5))))
        m = min(longest, max(2, n + r.randint(-3, 3)))
        pairs.append(([r.randrange(4, vocab) for _ in range(n)], [r.randrange(4, vocab) for _ in range(m)]))
        total += m + 1
    return collate(sorted(pairs, key=lambda pair: len(pair[1])) if sort else pairs, pad_id=0, bos_id=1, eos_id=2)


PLAIN = TrainConfig(label_smoothing=0.1)
