"""Settings for the number of pairs and minutes, where no recipe is given: `headwise train --minutes 60`.

The size is the better one of the nearest measurement in `recipes/minutes.tsv`. Minutes are compared as minutes of one
core of the processor that was measured, so a few updates are timed first. Nothing is computed beyond the table: what is
not measured is named.
"""

import csv
import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from headwise.config.settings import RECIPES, RunConfig, apply_settings, load_recipe
from headwise.core.batches import collate
from headwise.core.optimizer import make_optimizer
from headwise.device import capability_of, choose_device, trains_in_bfloat16, usable_threads
from headwise.errors import UserError
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.tasks.automatic import with_precision
from headwise.pytorch.tasks.job import TrainRequest, notify
from headwise.pytorch.tasks.parallel_text import MEASURED, better_vocabulary
from headwise.pytorch.training.step import translation_objective
from headwise.runtime.checkpoint.trained import CONFIG, read_run
from headwise.text.files.corpus import read_pairs
from headwise.text.files.file_checks import parse_pairs
from headwise.text.files.sources import STANDARD_INPUT, STREAM_PREFIX, Pair

TABLE = RECIPES / "minutes.tsv"
TOKENS_PER_WORD, BYTES_PER_TOKEN = 1.3, 6  # the larger estimate counts; the second is for texts without spaces
# With 0.1 instead of 0.3, a run of `paper-tiny` of 8 passes over the pairs gained 3.6 BLEU, runs of `tiny` of 3 and 19
# passes 4.6 and 3.2; runs of 23 and 32 passes lost 0.6 and 0.1 (benchmarks/results/minutes_1-core-cpu_2026-11-30.md,
# early-lead_1-core-cpu_2026-11-27.md, unseen-pair_1-core-cpu_2026-11-29.md).
SHORT, SHORT_DROPOUT = 21, 0.1
NEAR = 4.0  # the expected BLEU comes from measurements whose pairs and minutes differ by at most this factor
FAR = 2.0  # farther from the nearest measurement, the choice comes with a warning
TIMED = 4  # updates
# Terms that were written with a glossary and without, in percent, and BLEU that it cost
# (benchmarks/results/glossaries_1-core-cpu-avx2_2026-11-23.md)
GLOSSARY = 100.0, 36.8, 4.4


@dataclass(frozen=True)
class Measurement:
    """A row of the table: what a recipe reached on a corpus."""

    corpus: str
    pairs: int
    words: float  # of a target text
    recipe: str
    dropout: float
    updates: int
    seconds: float  # of an update, on one core
    bleu: float
    source: str  # file in benchmarks/results

    @property
    def minutes(self) -> float:
        """Of one core."""
        return self.updates * self.seconds / 60

    def __str__(self) -> str:
        return f"{self.bleu} BLEU after {_shown(self.minutes)} minutes with {self.pairs:,} pairs ({self.corpus})"


@cache
def measurements() -> tuple[Measurement, ...]:
    """All rows of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        kinds = Measurement.__annotations__
        return tuple(Measurement(**{name: kinds[name](value) for name, value in row.items()}) for row in rows)


@dataclass(frozen=True)
class CorpusSize:
    """What a choice depends on."""

    pairs: int
    source_tokens: int  # about, because there is no tokenizer yet
    target_tokens: int

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> "CorpusSize":
        """Count all pairs.

        >>> CorpusSize.of([("a man walks", "ein Mann läuft"), ("no", "nein")])
        CorpusSize(pairs=2, source_tokens=7, target_tokens=7)
        """
        n, source_tokens, target_tokens = 0, 0.0, 0.0
        for source, target in pairs:
            n += 1
            source_tokens += _tokens(source)
            target_tokens += _tokens(target)
        return cls(n, round(source_tokens), round(target_tokens))


def _tokens(text: str) -> float:
    """The approximate number of tokens, with the end token."""
    return 1 + max(TOKENS_PER_WORD * len(text.split()), len(text.encode()) / BYTES_PER_TOKEN)


@dataclass(frozen=True)
class Choice:
    """A recipe, changes of its settings, and lines that explain them."""

    recipe: str
    settings: tuple[str, ...]
    before: tuple[str, ...]  # training
    after: str


def choose(
    corpus: CorpusSize, minutes: float, speed: float = 1.0, table: Sequence[Measurement] | None = None
) -> Choice:
    """The settings for a corpus.

    Args:
        minutes: time for the run.
        speed: of this machine, compared with the core of the measurements.
    """
    table, core_minutes = table or measurements(), minutes * speed
    nearest = min(table, key=lambda row: _distance(row, corpus.pairs, core_minutes))
    compared = [row for row in table if (row.corpus, row.pairs) == (nearest.corpus, nearest.pairs)]
    compared = [row for row in compared if _ratio(row.minutes, nearest.minutes) < 1.5]
    best = max(compared, key=lambda row: row.bleu)
    config = load_recipe(best.recipe)
    model, batch = config.model, config.train.tokens_per_batch
    updates = max(1, round(60 * core_minutes / best.seconds))
    passes = updates * batch / max(1, corpus.target_tokens)
    dropout = SHORT_DROPOUT if passes < SHORT else model.dropout
    vocabulary = better_vocabulary(config.data.vocab_size, corpus.source_tokens + corpus.target_tokens)
    chosen = (
        f"chosen: {best.recipe} (d {model.d_model}, {model.n_encoder_layers} + {model.n_decoder_layers} layers), "
        f"{vocabulary:,} tokens, dropout {dropout:g}, batches of {batch:,}, about {updates:,} updates "
        f"({_shown(passes)} passes over {corpus.pairs:,} pairs)"
    )
    by_recipe = {row.recipe: row.bleu for row in sorted(compared, key=lambda row: row.bleu)}
    others = "".join(f", {recipe} {bleu}" for recipe, bleu in by_recipe.items() if recipe != best.recipe)
    length = "short" if passes < SHORT else "long"
    why = (
        f"because: {best.recipe} had {best}{others}; a {length} run has dropout {dropout:g}; this machine is "
        f"{speed:.2g} times as fast as the core of the measurements"
    )
    more = "".join(f"; {line}" for line in gain("pairs", best.recipe, corpus.pairs, core_minutes, table))
    lines = (chosen, why, expected(best.recipe, corpus.pairs, core_minutes, table) + more)
    if max(_ratio(nearest.pairs, corpus.pairs), _ratio(nearest.minutes, core_minutes)) > FAR:
        far = f"not measured: {corpus.pairs:,} pairs with {_shown(core_minutes)} minutes of that core; the nearest "
        far += f"measurement has {nearest.pairs:,} pairs and {_shown(nearest.minutes)} minutes. small and base are "
        far += "larger recipes"
        lines = (*lines, far)
    settings = (f"model.dropout={dropout:g}", f"data.vocab_size={vocabulary}")
    return Choice(best.recipe, settings, lines, outlook(best.recipe, corpus.pairs, core_minutes, table))


def _shown(number: float) -> str:
    """
    >>> _shown(0.123), _shown(1234.5)
    ('0.1', '1,234')
    """
    return f"{number:,.{0 if number >= 10 else 1}f}"


def _ratio(one: int | float, other: int | float) -> float:
    """How many times as large the larger number is."""
    return max(one, other) / max(1e-9, min(one, other))


def _distance(row: Measurement, pairs: int, minutes: float) -> float:
    """How far a measurement is from a run: in doublings of pairs and of minutes."""
    return abs(math.log2(max(1, pairs) / row.pairs)) + abs(math.log2(minutes / row.minutes))


def expected(recipe: str, pairs: int, minutes: float, table: Sequence[Measurement]) -> str:
    """One line: the mean of the nearest measurement of each corpus, and how far one corpus is from the others."""
    near = dict[str, Measurement]()
    for row in sorted(table, key=lambda row: _distance(row, pairs, minutes)):
        if row.recipe == recipe and max(_ratio(row.pairs, pairs), _ratio(row.minutes, minutes)) <= NEAR:
            near.setdefault(row.corpus, row)
    found = [row.bleu for row in near.values()]
    if len(found) < 2:
        return "expected: not known; fewer than two corpora of about this size were measured for about so long"
    mean = sum(found) / len(found)
    error = sum(abs(one - (sum(found) - one) / (len(found) - 1)) for one in found) / len(found)
    listed = ", ".join(f"{row.bleu} {row.corpus}" for row in near.values())
    return f"expected: {mean:.0f} BLEU, with a mean error of {error:.0f} between corpora ({listed})"


def gain(name: str, recipe: str, pairs: int, minutes: float, table: Sequence[Measurement]) -> list[str]:
    """What more of "minutes" or "pairs" gained in the nearest measurements; nothing if that was not measured."""
    rows = [row for row in table if row.recipe == recipe]
    steps = [
        (low, high)
        for low in rows
        for high in rows
        if (low.corpus, low.dropout) == (high.corpus, high.dropout)
        and getattr(high, name) > 1.5 * getattr(low, name)
        and (name == "pairs" or low.pairs == high.pairs)
    ]
    if not steps:
        return []
    low, high = min(steps, key=lambda step: sum(_distance(row, pairs, minutes) for row in step))
    times = getattr(high, name) / getattr(low, name)
    return [f"{times:.1f} times the {name} gained {high.bleu - low.bleu:.1f} BLEU ({low.corpus})"]


def outlook(recipe: str, pairs: int, minutes: float, table: Sequence[Measurement]) -> str:
    """What more time, more pairs, a larger model, fine-tuning and a glossary brought in the nearest measurements: the
    last lines of a run.
    """
    lines = [line for name in ("minutes", "pairs") for line in gain(name, recipe, pairs, minutes, table)]
    rows = sorted((row for row in table if row.recipe == recipe), key=lambda row: _distance(row, pairs, minutes))
    for own in rows:
        same = [row for row in table if (row.corpus, row.pairs) == (own.corpus, own.pairs)]
        best = {
            row.recipe: row for row in sorted(same, key=lambda row: row.bleu) if _ratio(row.minutes, own.minutes) < 1.5
        }
        if others := [f"{row.recipe} had {row.bleu}" for row in best.values() if row.recipe != recipe]:
            lines.append(
                f"{', '.join(others)} instead of {best[recipe].bleu} BLEU in about the same time ({own.corpus})"
            )
            break
    nearest = min(MEASURED, key=lambda measured: _ratio(measured, pairs))
    if _ratio(nearest, pairs) <= NEAR:
        scratch, tuned = MEASURED[nearest]
        lines.append(f"fine-tuning a general model had {tuned} instead of {scratch} BLEU with {nearest:,} pairs")
    with_terms, without, loss = GLOSSARY
    lines.append(
        f"a glossary of rare words: {with_terms:g} % were written instead of {without} %, with {loss} BLEU less"
    )
    return "\n  ".join(["what else would bring something, as measured:", *lines])


def has_only_minutes(request: TrainRequest) -> bool:
    """Whether the request has minutes instead of a recipe. `UserError` if its task needs one."""
    if request.recipe or request.init or not minutes_of(request.settings):
        return False
    if request.task not in ("", "translate"):
        raise UserError(f"--task {request.task} needs --recipe: --minutes chooses settings for translation only")
    return True


def with_earlier_choice(request: TrainRequest) -> tuple[TrainRequest, str]:
    """A request that resumes, with the recipe and settings of its run, and lines for the end of the run."""
    if not (request.resume and (Path(request.out) / CONFIG).is_file() and has_only_minutes(request)):
        return request, ""
    before, about = read_run(Path(request.out))
    own = (f"model.dropout={before.model.dropout:g}", f"data.vocab_size={before.data.vocab_size}")
    pairs = about.get("corpus", {}).get("pairs", 0)  # those of a stream are not counted
    after = outlook(about["recipe"], pairs, minutes_of(request.settings), measurements()) if pairs else ""
    return replace(request, recipe=about["recipe"], settings=[*own, *request.settings]), after


def chooses_recipe(request: TrainRequest) -> bool:
    """Whether a recipe is to be chosen for the request. `UserError` if none can be."""
    if not has_only_minutes(request):
        return False
    once = any(path == STANDARD_INPUT or path.startswith(STREAM_PREFIX) for path in request.train)
    if once or "WORLD_SIZE" in os.environ:
        raise UserError("--recipe is required with torchrun, standard input or stream: the pairs are not counted first")
    return True


def with_choice(request: TrainRequest) -> tuple[TrainRequest, str]:
    """The request with a recipe and settings for its minutes, and lines for the end of the run."""
    corpus = CorpusSize.of(read_pairs(parse_pairs("--train", request.train)))
    measured = measurements()[0]
    speed = measured.seconds / seconds_of_update(request, apply_settings(load_recipe(measured.recipe), _own(request)))
    choice = choose(corpus, minutes_of(request.settings), speed)
    for line in choice.before:
        notify(request, line)
    return replace(request, recipe=choice.recipe, settings=[*choice.settings, *request.settings]), choice.after


def minutes_of(settings: Sequence[str]) -> float:
    """`train.minutes` in settings; 0 = not given."""
    given = [one for one in settings if one.partition("=")[0].strip() == "train.minutes"]
    return apply_settings(RunConfig(), given).train.minutes


def _own(request: TrainRequest) -> list[str]:
    """The settings that change the speed and nothing else."""
    return [one for one in request.settings if one.startswith(("train.threads=", "train.precision="))]


def seconds_of_update(request: TrainRequest, config: RunConfig) -> float:
    """The seconds that an update of a recipe takes here, without validation and data."""
    device = choose_device(request.device)
    config = replace(config, model=replace(config.model, vocab_size=config.data.vocab_size))
    config = with_precision(request, config, Path(request.out))
    torch.set_num_threads(config.train.threads or usable_threads())
    half = trains_in_bfloat16(config.train.precision, capability_of(str(device)))
    text = [*range(4, 18)]  # of 15 tokens with the end token
    batch: Any = collate([(text, text)] * (config.train.tokens_per_batch // 15), 0, 1, 2).to(device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(config.train.seed)
        network = build_network(config.model).to(device).train()
        optimizer, objective = make_optimizer(network, config.train), translation_objective(network, 0, config.train)
        started = 0.0
        for turn in range(1 + TIMED):
            started = started if turn > 1 else time.monotonic()
            network.zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                loss = objective(batch).objective / batch.n_targets
            loss.backward()
            optimizer.step(1e-4)
            loss.item()
        return (time.monotonic() - started) / TIMED
