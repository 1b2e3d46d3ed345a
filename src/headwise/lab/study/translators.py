"""The trainings of translators that several claims share: one network on one corpus, by the project's own trainer.

A training leaves a record of numbers: losses, BLEU by length of the source beside that of the best constant output, and
how well attention links words. `translation.py`, `variants.py` and `interpretability.py` look at these records.
"""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from headwise.core.build import count_parameters
from headwise.errors import UserError
from headwise.evaluate.bleu import corpus_scores
from headwise.evaluate.logs import training_history
from headwise.lab.study.claim import Plan
from headwise.lab.study.contenders import RECIPES, matched
from headwise.lab.study.links import attention_row
from headwise.lab.study.statement import AtFloor, NotMeasured, Row
from headwise.models.load import load
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model
from headwise.pytorch.training.divergence import MAX_SKIPPED_IN_A_ROW
from headwise.text.files.corpus import parse_corpora, read_pairs

GENERATED, CORPUS = "generated", "multi30k"
WORDS = 10  # nouns, and as many adjectives, of the generated language
RATES = {GENERATED: 0.006, CORPUS: 0.004}  # learning rates, from which tuning begins
HOPELESS = -1e9  # validation of a run that ended because its loss was not finite
LONGEST = 10_000  # words: the end of the last bucket
ENDS = {GENERATED: (5, 10, 15, 20), CORPUS: (8, 12, 16, LONGEST)}  # of the buckets of source length, words
ALL = 0  # the "bucket" of all sentences
CONSTANTS = 20  # training targets of which the best constant output is chosen
LEFT = 1.0  # BLEU above the best constant output with which a network has learned something
FILES = (  # training, validation and test files of the corpus, as `headwise train` takes them
    ("multi30k/train.en.gz", "multi30k/train.de.gz"),
    ("multi30k/val.en.gz", "multi30k/val.de.gz"),
    ("multi30k/test_2016_flickr.en.gz", "multi30k/test_2016_flickr.de.gz"),
)
NEEDS = "it translates Multi30k: name its folder with --data (see docs/concepts/study.md)."


@dataclass(frozen=True)
class Condition:
    """One network on one corpus, trained on a budget of tokens."""

    network: str
    corpus: str
    folder: str  # of the corpus
    width: int  # of the Transformer; the others have as many parameters
    layers: int
    vocab_size: int  # tokens
    steps: int
    tokens_per_batch: int
    sentences: int  # of the test set, if the corpus is generated
    device: str
    rate: float  # learning rate
    changes: tuple[str, ...] = ()  # settings that differ from the recipe, as of `headwise train --set`


def on_corpus(plan: Plan, network: str, changes: tuple[str, ...] = ()) -> list[Condition]:
    """One network on the corpus; none without its folder. On the generated language if the study is quick."""
    if plan.scale == "quick":
        return [on_generated(plan, network, changes)]
    if not plan.file(FILES[0][0]):
        return []
    folder, rate = str(plan.data), RATES[CORPUS]
    return [Condition(network, CORPUS, folder, 64, 2, 4000, 2000, 2048, 0, plan.device, rate, changes)]


def on_generated(plan: Plan, network: str, changes: tuple[str, ...] = ()) -> Condition:
    """One network on the generated language, whose word links are known."""
    size: tuple[int, int, int, int, int, int] = plan.pick((32, 1, 300, 2, 256, 24), (48, 2, 300, 1000, 512, 160))
    return Condition(network, GENERATED, "", *size, plan.device, RATES[GENERATED], changes)


def measure(condition: Condition, seed: int) -> list[Row]:
    """A row for each bucket of source lengths and one for all sentences, after one training."""
    c = condition
    with tempfile.TemporaryDirectory() as scratch:
        parts = write_language(Path(scratch), c.sentences) if c.corpus == GENERATED else FILES
        train, valid, test = ([str(Path(c.folder) / name) for name in names] for names in parts)
        out = Path(scratch) / "model"
        pairs = list(read_pairs(parse_corpora(test)))
        constant = best_constant(train, valid)
        about = train_translator(c, seed, train, valid, out)
        outputs = [""] * len(pairs)  # of a run that ended early
        if about["validation"] > HOPELESS:
            model = load(str(out), c.device)
            outputs = [t.text for t in model.translate([src for src, _ in pairs], beam_size=1, max_length_extra=10)]
            about["parameters"] = count_parameters(model.network)
            if c.network != "lstm":
                gold = Path(test[0]).with_suffix(".gold")
                about |= attention_row(model, pairs, str(gold) if c.corpus == GENERATED else "")
    scores = bleu_by_length(pairs, outputs, ENDS[c.corpus])
    floors = bleu_by_length(pairs, [constant] * len(pairs), ENDS[c.corpus])
    return [{**about, **row, "floor": floor["bleu"]} for row, floor in zip(scores, floors, strict=True)]


def best_constant(train: list[str], valid: list[str]) -> str:
    """The training target that, as the translation of everything, has the highest BLEU on validation pairs."""
    candidates = [tgt for _, tgt in islice(read_pairs(parse_corpora(train)), CONSTANTS)]
    targets = [tgt for _, tgt in islice(read_pairs(parse_corpora(valid)), 100)]
    return max(candidates, key=lambda tgt: bleu([tgt] * len(targets), targets))


def bleu(outputs: list[str], references: list[str]) -> float:
    """BLEU of a corpus."""
    return corpus_scores(outputs, references, metrics=["BLEU"])["BLEU"].score


def train_translator(c: Condition, seed: int, train: list[str], valid: list[str], out: Path) -> Row:
    """Train a model into the folder `out`; the negative validation loss, and the number of diverged updates."""
    request = TrainRequest(
        RECIPES.get(c.network, c.network), train, valid, str(out), run_settings(c, seed), device=c.device, show=False
    )
    try:
        if train_model(request).startswith("SIG"):  # the trainer has ended cleanly; so does the study
            raise KeyboardInterrupt
    except UserError as error:
        if "has not been finite" not in str(error):
            raise
        return {"validation": HOPELESS, "diverged": MAX_SKIPPED_IN_A_ROW, "parameters": 0}
    history = training_history(out)
    return {"validation": -history.validation[-1]["loss"], "diverged": history.training[-1]["skipped"]}


def run_settings(c: Condition, seed: int) -> list[str]:
    """The settings that differ from the recipe: size, budget, learning rate, and what a claim changes.

    All networks get the same batches and compute in float32. With "auto" only the Transformer might have random batches
    and bfloat16, if the compiled library and the processor support them.
    """
    config = matched(c.network, c.width, c.layers, c.vocab_size, max_len=256)
    size = ["d_model", "n_encoder_layers", "n_decoder_layers"]
    size += ["d_ff", "n_heads"] if c.network == "transformer" else []
    changed = [f"model.{name}={getattr(config, name)}" for name in size]
    budget = {
        "max_steps": c.steps,
        "validate_every": c.steps,
        "checkpoint_every": c.steps,
        "tokens_per_batch": c.tokens_per_batch,
    }
    budget |= {"batching": '"bucketed"', "precision": '"float32"'}
    budget |= {"learning_rate": c.rate, "log_every": min(100, c.steps)}
    budget |= {"seed": seed, "validate_bleu": 0, "best_metric": '"loss"', "average": 1, "keep_last": 1}
    budget |= {"warmup_steps": max(1, c.steps // 10)}
    if c.corpus == GENERATED:  # exact, so no smoothing
        budget |= {"label_smoothing": 0.0}
    changed.append(f"model.dropout={0.0 if c.corpus == GENERATED else 0.1}")  # nothing overfits in so few updates
    settings = [
        *changed,
        f"data.vocab_size={c.vocab_size}",
        *(f"train.{name}={value}" for name, value in budget.items()),
    ]
    return [*settings, *c.changes]  # a later setting replaces an earlier one


def bleu_by_length(pairs: Sequence[tuple[str, str]], outputs: Sequence[str], ends: Sequence[int]) -> list[Row]:
    """BLEU of all sentences, and of each bucket of source lengths; `ends` are the upper bounds."""
    rows = []
    for start, end in zip((0, 0, *ends), (ALL, *ends), strict=False):
        chosen = [i for i, (src, _) in enumerate(pairs) if end == ALL or start < len(src.split()) <= end]
        if chosen:
            score = bleu([outputs[i] for i in chosen], [pairs[i][1] for i in chosen])
            words = sum(len(pairs[i][0].split()) for i in chosen) / len(chosen)
            rows.append({"bucket": end, "words": round(words, 1), "sentences": len(chosen), "bleu": score})
    return rows


def write_language(
    folder: Path, sentences: int, seed: int = 1
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Write a made-up language pair: every word has one translation, and adjectives move behind their nouns.

    `sentences` is the size of the test set; the training set is 25 times as large. Beside each file stand the word
    links of its pairs (`test.gold`).
    """
    rng = random.Random(seed)
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    names = rng.sample([a + b for a in syllables for b in syllables], 4 * WORDS)
    pairs = list(zip(names[::2], names[1::2], strict=True))
    nouns, adjectives = pairs[:WORDS], pairs[WORDS:]

    def sentence() -> tuple[str, str, str]:
        src: list[str] = []
        tgt: list[str] = []
        links: list[str] = []
        length = rng.randint(2, 19)
        while len(src) < length:
            noun, adjective = rng.choice(nouns), rng.choice(adjectives)
            described = rng.random() < 0.5
            at = len(src)
            src += [adjective[0], noun[0]] if described else [noun[0]]
            tgt += [noun[1], adjective[1]] if described else [noun[1]]
            links += [f"{at}-{at + 1}", f"{at + 1}-{at}"] if described else [f"{at}-{at}"]
        return " ".join(src), " ".join(tgt), " ".join(links)

    paths = []
    for part, size in (("train", 25 * sentences), ("valid", 20), ("test", sentences)):
        path = folder / f"{part}.tsv"
        sentences_and_links = [sentence() for _ in range(size)]
        path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt, _ in sentences_and_links), encoding="utf-8")
        path.with_suffix(".gold").write_text("".join(f"{x}\n" for *_, x in sentences_and_links), encoding="utf-8")
        paths.append((str(path),))
    return paths[0], paths[1], paths[2]


def lead(rows: Sequence[Row], other: Sequence[Row], both: bool = True) -> float:
    """BLEU of the first rows less that of the others.

    Raises:
        NotMeasured: one of them is empty.
        AtFloor: a network, or without `both` the first, is no better than the best constant output.
    """
    if not rows or not other:
        raise NotMeasured("a network was not measured")
    for own in (rows, other) if both else (rows,):
        check_learned(own)
    return _mean(rows, "bleu") - _mean(other, "bleu")


def check_learned(rows: Sequence[Row]) -> None:
    """Raise `AtFloor` if a network is no better than the best constant output."""
    if _mean(rows, "bleu") < _mean(rows, "floor") + LEFT:
        raise AtFloor("a network has learned nothing")


def _mean(rows: Sequence[Row], key: str) -> float:
    return sum(row[key] for row in rows) / len(rows)
