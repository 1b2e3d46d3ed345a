"""What a run is compared with: guessing, and a cheap model on the same data (`headwise.evaluate.baselines`)."""

import os
from collections.abc import Sequence
from typing import Any

from headwise.evaluate.baselines import Baseline
from headwise.tasks.job import Job

GUESSES = {"forecast": "the last value"}  # others: the uniform distribution, or the most frequent class


def baselines_of(job: Job) -> list[dict[str, Any]]:
    """The entry "baselines" of config.json: name and metrics of guessing and of the job's `simple_baseline`, if any.

    Only in the first process, which writes the entry.
    """
    if os.environ.get("RANK", "0") != "0":
        return []
    simple = getattr(job, "simple_baseline", lambda: None)()
    guess = Baseline(GUESSES.get(job.config.model.task, "guessing"), {**job.baseline})
    return [one.as_json() for one in (guess, simple) if one and (one.figures or one.missing)]


def baselines_text(baselines: Sequence[dict[str, Any]]) -> str:
    """One line for the terminal.

    >>> baselines_text([{"name": "guessing", "figures": {"loss": 1.25, "accuracy": 0.5}}])
    'to compare with: guessing: loss 1.25, accuracy 0.5'
    """
    parts = []
    for one in baselines:
        figures = ", ".join(f"{name} {figure:.4g}" for name, figure in one.get("figures", {}).items())
        parts.append(f"{one['name']}: {figures or one['missing']}")
    return f"to compare with: {'; '.join(parts)}" if parts else ""
