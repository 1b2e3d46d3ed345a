"""Claim: attention is interpretable. Does it show which source word a target word was translated from?"""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, distinct, select_rows, series_by
from headwise.lab.study.statement import NoRows, NotMeasured, Row, Statement, over_problems
from headwise.lab.study.translation import GENERATED, HOPELESS, Condition, train_translator, tried_rates, write_language
from headwise.models.load import load
from headwise.text.files.alignment import words_of_tokens
from headwise.text.files.corpus import parse_corpora, read_lines, read_pairs
from headwise.text.files.links import GoldLinks, Links, read_gold

NETWORKS = ("bahdanau", "transformer")
MOST_PROBLEMS = 60  # sentences of the test
DELETIONS = 2  # target words tried in each sentence
# Gold links, and the corpus to train on; `turned` swaps its columns. All are lower-cased, as the links' texts are.
ALIGNED = {
    "deen": ("align/deen", "tatoeba/deu-eng", True),
    "enfr": ("align/enfr", "tatoeba/fra-eng", False),
}


@dataclass(frozen=True)
class Task:
    """Files to train on, and sentence pairs with links: for the choice of a head, and for the test."""

    train: list[str]
    valid: list[str]
    pairs: list[tuple[str, str]]
    gold: list[GoldLinks]

    @property
    def chosen_on(self) -> int:
        """The number of pairs, at the front, on which the head is chosen."""
        return min(len(self.pairs) // 2, MOST_PROBLEMS)


def conditions(plan: Plan) -> list[Condition]:
    """Two networks on the generated language, or in the full study on corpora with gold links."""
    if plan.scale != "full":
        networks = NETWORKS[1:] if plan.scale == "quick" else NETWORKS
        return [condition for name in networks for condition in tried_rates(plan, name)]
    folder = plan.data or Path()
    found = [name for name, (links, *_) in ALIGNED.items() if plan.data and Path(f"{folder / links}.gold").is_file()]
    found = [name for name in found if Path(f"{folder / ALIGNED[name][1]}.train.tsv.gz").is_file()]
    kinds = [condition for name in NETWORKS for condition in tried_rates(replace(plan, scale="quick"), name)]
    size = {"folder": str(plan.data), "width": 128, "layers": 4, "vocab_size": 4000, "steps": 2200}
    size |= {"tokens_per_batch": 2048, "sentences": 0}
    return [replace(condition, corpus=corpus, **size) for corpus in found for condition in kinds]


def measure(condition: Condition, seed: int) -> list[Row]:
    """For each sentence: links found and correct, and what the deletion of a source word costs."""
    c = condition
    with tempfile.TemporaryDirectory() as scratch:
        task = generated_task(Path(scratch), c) if c.corpus == GENERATED else corpus_task(Path(scratch), c)
        out = Path(scratch) / "model"
        about = train_translator(c, seed, task.train, task.valid, out)
        if about["validation"] <= HOPELESS:
            return [{"problem": 0, "links": 0, **about}]
        model = load(str(out), c.device)
        first, rest = slice(task.chosen_on), slice(task.chosen_on, task.chosen_on + MOST_PROBLEMS)
        ranked = model.rank_heads(*_sides(task.pairs[first]), task.gold[first])
        head = next(iter(ranked))
        links = model.align(*_sides(task.pairs[rest]), head=head)
        rows = zip(task.pairs[rest], links, task.gold[rest], strict=True)
        found = [{**_alignment_row(*row), **_deletion_row(model, row[0], row[1])} for row in rows]
    return [{"problem": number, "head": str(head), **row, **about} for number, row in enumerate(found)]


def generated_task(folder: Path, c: Condition) -> Task:
    """The generated language, whose links are known."""
    train, valid, test = (list(part) for part in write_language(folder, c.sentences))
    pairs = list(read_pairs(parse_corpora(test)))
    return Task(train, valid, pairs, read_gold(str(Path(test[0]).with_suffix(".gold"))))


def corpus_task(folder: Path, c: Condition) -> Task:
    """A corpus, and gold links of other sentences."""
    links, corpus, turned = ALIGNED[c.corpus]
    paths = []
    for part in ("train", "valid"):
        path = folder / f"{part}.tsv"
        pairs = read_pairs(parse_corpora([f"{Path(c.folder) / corpus}.{part}.tsv.gz"]))
        lines = ("\t".join(pair[::-1] if turned else pair).lower() for pair in pairs)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        paths.append(str(path))
    prefix = str(Path(c.folder) / links)
    src, tgt = (list(read_lines(f"{prefix}.{side}")) for side in ("src", "tgt"))
    return Task(paths[:1], paths[1:], list(zip(src, tgt, strict=True)), read_gold(f"{prefix}.gold"))


def _sides(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]


def _alignment_row(pair: tuple[str, str], links: Links, gold: GoldLinks) -> Row:
    """Counts for the error rate, of attention and of the diagonal."""
    baseline = diagonal(len(pair[0].split()), len(pair[1].split()))
    return {"sure": len(gold.sure), **_counts("", links, gold), **_counts("diagonal_", baseline, gold)}


def _counts(name: str, links: Links, gold: GoldLinks) -> Row:
    correct = len(links & gold.sure) + len(links & gold.possible)
    return {f"{name}links": len(links), f"{name}correct": correct}


def diagonal(n_src: int, n_tgt: int) -> Links:
    """Every target word linked to the source word at the same relative place.

    >>> sorted(diagonal(2, 4))
    [(0, 0), (0, 1), (1, 2), (1, 3)]
    """
    return frozenset((int((j + 0.5) * n_src / n_tgt), j) for j in range(n_tgt)) if n_src else frozenset()


def _deletion_row(model: Any, pair: tuple[str, str], links: Links) -> Row:
    """Mean loss in log-probability of target words, when the linked source word or another one is deleted."""
    src, tgt = pair[0].split(), pair[1]
    attended = {j: i for i, j in links}
    chosen = random.sample(sorted(attended), min(DELETIONS, len(attended))) if len(src) > 1 else []
    trials = [(j, attended[j], random.choice([i for i in range(len(src)) if i != attended[j]])) for j in chosen]
    if not trials:
        return {"deletions": 0, "drop_attended": 0.0, "drop_random": 0.0}
    shortened = [" ".join(src[:i] + src[i + 1 :]) for _, *deleted in trials for i in deleted]
    scores = model.score([pair[0], *shortened], [tgt] * (1 + len(shortened)))
    words = words_of_tokens(model.tokenizer, tgt)[1]
    logs = [np.array(score.token_log_probs)[: len(words)] for score in scores]
    drops = [
        [(logs[0] - after)[words == j].sum() for after in logs[1 + 2 * t : 3 + 2 * t]] for t, j in enumerate(chosen)
    ]
    attended_drop, random_drop = np.mean(drops, axis=0)
    return {"deletions": len(trials), "drop_attended": float(attended_drop), "drop_random": float(random_drop)}


def error_rate(rows: Sequence[Row], name: str = "") -> float:
    """Alignment error rate, as a share: 1 - correct / (links + sure)."""
    links = sum(row[f"{name}links"] for row in rows) + sum(row["sure"] for row in rows)
    return 1 - sum(row[f"{name}correct"] for row in rows) / links


def deletion_difference(rows: Sequence[Row]) -> float:
    """What deleting the attended word costs more than deleting another, nats per target word."""
    tried = [row for row in rows if row["deletions"]]
    if not tried:
        raise NoRows("no sentence in which a word could be deleted")
    return sum(row["drop_attended"] - row["drop_random"] for row in tried) / len(tried)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Error rates, and costs of deletions, of both networks."""
    panels = []
    for corpus in distinct(rows, "corpus"):
        here = [row for row in rows if row["corpus"] == corpus and row["links"]]
        panels.append(_by_seed(f"{corpus}: links", "alignment error rate (share)", here, error_rate, "diagonal_"))
        panels.append(_by_seed(f"{corpus}: deletion", "loss (nats per target word)", here, deletion_difference, None))
    return [
        Figure(
            "interpretability",
            "Left: the error of links read from the best head, chosen on other sentences; the line is the diagonal. "
            "Right: how much more probability a target word loses if its most attended source word is deleted than "
            "if another one is.",
            "Charts of alignment error and of the cost of deletions for two networks.",
            panels,
        )
    ]


def _by_seed(title: str, label: str, rows: Sequence[Row], value: Any, baseline: str | None) -> Panel:
    points = [
        {"network": name, "seed": seed, "value": value(select_rows(rows, network=name, seed=seed))}
        for name in distinct(rows, "network")
        for seed in distinct(select_rows(rows, network=name), "seed")
    ]
    levels = {"diagonal": error_rate(rows, baseline)} if baseline and rows else {}
    return Panel(title, "seed", label, series_by(points, "network", "seed", "value"), levels=levels)


def _on(corpus: str, network: str, value: Any) -> Any:
    def of(rows: Sequence[Row]) -> float:
        chosen = [row for row in select_rows(rows, corpus=corpus, network=network) if row["links"]]
        if not chosen:
            raise NotMeasured(f"{network} was not measured on {corpus}")
        return value(chosen)

    return over_problems(of)


STATEMENTS = tuple(
    statement
    for corpus in (GENERATED, *ALIGNED)
    for network in NETWORKS
    for statement in (
        Statement(
            f"{corpus}-{network}-diagonal",
            f"{corpus}: the attention of {network} links words better than the diagonal does.",
            "alignment error rate of the diagonal less that of attention",
            _on(corpus, network, lambda rows: error_rate(rows, "diagonal_") - error_rate(rows)),
            above=0.0,
        ),
        Statement(
            f"{corpus}-{network}-most",
            f"{corpus}: most links of {network}'s best head are right.",
            "alignment error rate",
            _on(corpus, network, error_rate),
            below=0.5,
        ),
        Statement(
            f"{corpus}-{network}-deletion",
            f"{corpus}: deleting the word that {network} attends to most costs more than deleting another.",
            "loss in log-probability of the target word, attended less other (nats)",
            _on(corpus, network, deletion_difference),
            above=0.0,
        ),
    )
)

CLAIM = Claim(
    name="interpretability",
    sentence="Attention is interpretable: it shows which source word a target word was translated from.",
    source="Bahdanau et al. 2015, arXiv:1409.0473, section 5.2.1; Vaswani et al. 2017, arXiv:1706.03762, section 4; "
    "deletion as in Serrano and Smith 2019, arXiv:1906.03731",
    method="A translator is trained; its cross-attention links every target word to a source word. The head is chosen "
    "on the first half of sentences with known links, the error measured on others. Then the linked source word, or "
    "another one, is deleted, and the target word's loss in log-probability measured.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    seeds={"toy": 1, "quick": 1, "full": 3},
    cost={"toy": 1.5, "quick": 20.0, "full": 1450.0},
    tuned=True,
    needs="the full study needs gold links and a corpus: name their folder with --data (see docs/concepts/study.md).",
)
