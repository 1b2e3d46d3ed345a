"""Claim: attention lifted translation, most of all for long sentences (Bahdanau 2015, figure 2)."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwise.core.build import count_parameters
from headwise.errors import UserError
from headwise.evaluate.bleu import corpus_scores
from headwise.evaluate.logs import training_history
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import RATES, Claim, Plan, distinct, mean_of, select_rows, series_by
from headwise.lab.study.contenders import RECIPES, matched
from headwise.lab.study.statement import NotMeasured, Row, Statement, over_seeds
from headwise.models.load import load
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model
from headwise.pytorch.training.divergence import MAX_SKIPPED_IN_A_ROW
from headwise.text.files.corpus import parse_corpora, read_pairs

NETWORKS = ("lstm", "bahdanau", "luong", "conv", "transformer")
ATTENDING = NETWORKS[1:]
GENERATED = "generated"
WORDS = 10  # nouns, and as many adjectives, of the generated language
GENERATED_RATE, CORPUS_RATE = 0.006, 0.004  # learning rates
HOPELESS = -1e9  # validation of a run that ended because its loss was not finite
MARGIN = 1.0  # BLEU
LONGEST = 10_000  # words: the end of the last bucket


@dataclass(frozen=True)
class Condition:
    """One network on one corpus, trained by the project's own trainer on a budget of tokens."""

    network: str
    corpus: str  # GENERATED, or a name of CORPORA
    folder: str  # of the corpora
    width: int  # of the Transformer; the others have as many parameters
    layers: int
    vocab_size: int  # tokens
    steps: int
    tokens_per_batch: int
    ends: tuple[int, ...]  # of the buckets of source length, words
    sentences: int  # of the test set, if the corpus is generated
    device: str
    rate: float  # learning rate
    changes: tuple[str, ...] = ()  # settings that differ from the recipe, as of `headwise train --set`


# Training, validation and test files of each corpus, as `headwise train` takes them.
CORPORA = {
    "multi30k": (
        ("multi30k/train.en.gz", "multi30k/train.de.gz"),
        ("multi30k/val.en.gz", "multi30k/val.de.gz"),
        ("multi30k/test_2016_flickr.en.gz", "multi30k/test_2016_flickr.de.gz"),
    ),
    "tatoeba": (
        ("tatoeba/deu-eng.train.tsv.gz",),
        ("tatoeba/deu-eng.valid.tsv.gz",),
        ("tatoeba/deu-eng.test.tsv.gz",),
    ),
}


def conditions(plan: Plan) -> list[Condition]:
    """A small generated language, or in the full study the available corpora."""
    networks = plan.pick(NETWORKS, ("lstm", "bahdanau", "transformer"), NETWORKS)
    return [condition for name in networks for condition in tried_rates(plan, name)]


def tried_rates(plan: Plan, network: str, changes: tuple[str, ...] = ()) -> list[Condition]:
    """One network on every corpus of the plan, with every learning rate; also for claims about its settings."""
    corpora = [GENERATED] if plan.scale != "full" else available(plan)
    return [_condition(network, corpus, plan, rate, changes) for corpus in corpora for rate in RATES]


def available(plan: Plan) -> list[str]:
    """The corpora in the folder of the plan."""
    return [name for name, parts in CORPORA.items() if plan.data and (plan.data / parts[0][0]).is_file()]


def _condition(network: str, corpus: str, plan: Plan, rate: float, changes: tuple[str, ...]) -> Condition:
    if corpus != GENERATED:
        ends = (8, 12, 16, 20, LONGEST)
        size = (128, 4, 4000, 2200, 2048)
        return Condition(network, corpus, str(plan.data), *size, ends, 0, plan.device, CORPUS_RATE * rate, changes)
    size = (32, 1, 300, 2, 256) if plan.scale == "toy" else (48, 2, 300, 450, 512)
    sentences = 24 if plan.scale == "toy" else 160
    return Condition(
        network, GENERATED, "", *size, (5, 10, 15, 20), sentences, plan.device, GENERATED_RATE * rate, changes
    )


def measure(condition: Condition, seed: int) -> list[Row]:
    """BLEU of each bucket of source length after one training."""
    c = condition
    with tempfile.TemporaryDirectory() as scratch:
        parts = write_language(Path(scratch), c.sentences) if c.corpus == GENERATED else CORPORA[c.corpus]
        train, valid, test = ([str(Path(c.folder) / name) for name in names] for names in parts)
        out = Path(scratch) / "model"
        pairs = list(read_pairs(parse_corpora(test)))
        about = train_translator(c, seed, train, valid, out)
        outputs = [""] * len(pairs)  # of a run that ended early
        if about["validation"] > HOPELESS:
            model = load(str(out), c.device)
            outputs = [t.text for t in model.translate([src for src, _ in pairs], beam_size=1, max_length_extra=10)]
            about["parameters"] = count_parameters(model.network)
    return [{**about, **row} for row in bleu_by_length(pairs, outputs, c.ends)]


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
    if c.corpus == GENERATED:  # small and exact, so no dropout and no smoothing
        budget |= {"warmup_steps": max(1, c.steps // 10), "label_smoothing": 0.0}
        changed.append("model.dropout=0.0")
    settings = [
        *changed,
        f"data.vocab_size={c.vocab_size}",
        *(f"train.{name}={value}" for name, value in budget.items()),
    ]
    return [*settings, *c.changes]  # a later setting replaces an earlier one


def bleu_by_length(pairs: Sequence[tuple[str, str]], outputs: Sequence[str], ends: Sequence[int]) -> list[Row]:
    """BLEU of each bucket of source lengths; `ends` are the upper bounds."""
    rows, start = [], 0
    for end in ends:
        chosen = [i for i, (src, _) in enumerate(pairs) if start < len(src.split()) <= end]
        if chosen:
            score = corpus_scores([outputs[i] for i in chosen], [pairs[i][1] for i in chosen], metrics=["BLEU"])[
                "BLEU"
            ].score
            words = sum(len(pairs[i][0].split()) for i in chosen) / len(chosen)
            rows.append({"bucket": end, "words": round(words, 1), "sentences": len(chosen), "bleu": score})
        start = end
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


def figures(rows: Sequence[Row]) -> list[Figure]:
    """BLEU against source length, a panel for each corpus."""
    panels = [
        Panel(
            "Generated language" if corpus == GENERATED else corpus.capitalize(),
            "source length (words, mean of a bucket)",
            "BLEU",
            series_by(select_rows(rows, corpus=corpus), "network", "words", "bleu"),
            log_x=False,
            y_range=(0, 100 if corpus == GENERATED else 60),
        )
        for corpus in distinct(rows, "corpus")
    ]
    return [
        Figure(
            "translation",
            "Each network was trained on as many tokens by the project's own trainer, and translates greedily.",
            "Line charts of BLEU against source length for five networks: the lstm has no attention, the others do.",
            panels,
        )
    ]


def score(rows: Sequence[Row], corpus: str, network: str, long: bool) -> float:
    """BLEU of the bucket with the longest or the shortest sources."""
    here = select_rows(rows, corpus=corpus, network=network)
    if not here:
        raise NotMeasured(f"{network} was not measured on {corpus}")
    buckets = distinct(here, "bucket")
    return mean_of(here, "bleu", bucket=max(buckets) if long else min(buckets))


def bleu_lead(rows: Sequence[Row], corpus: str, network: str, long: bool) -> float:
    """BLEU of a network less that of the LSTM without attention."""
    return score(rows, corpus, network, long) - score(rows, corpus, "lstm", long)


def lead_growth(rows: Sequence[Row], corpus: str, network: str) -> float:
    """The lead on the longest sentences less that on the shortest."""
    return bleu_lead(rows, corpus, network, long=True) - bleu_lead(rows, corpus, network, long=False)


STATEMENTS = tuple(
    statement
    for corpus in (GENERATED, *CORPORA)
    for network in ("bahdanau", "transformer")
    for statement in (
        Statement(
            f"{corpus}-{network}-leads",
            f"{corpus}: on long sentences {network} is more than {MARGIN:g} BLEU ahead of the LSTM without attention.",
            "BLEU of the longest sentences less that of the LSTM",
            over_seeds(lambda rows, corpus=corpus, network=network: bleu_lead(rows, corpus, network, long=True)),
            above=MARGIN,
        ),
        Statement(
            f"{corpus}-{network}-grows",
            f"{corpus}: the lead of {network} grows with the length of the sentence.",
            "lead in BLEU on the longest sentences less that on the shortest",
            over_seeds(lambda rows, corpus=corpus, network=network: lead_growth(rows, corpus, network)),
            above=0.0,
        ),
    )
)

CLAIM = Claim(
    name="translation",
    sentence="Attention lifted translation, most of all for long sentences.",
    source="Bahdanau et al. 2015, arXiv:1409.0473, figure 2",
    method="The project's own trainer and translator, recipe by recipe, at equal parameters and on as many tokens; "
    "BLEU is "
    "counted by the length of the source. The lstm, without attention, reads its source backwards, as its paper does.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    seeds={"toy": 2, "quick": 3, "full": 3},
    cost={"toy": 1.0, "quick": 20.0, "full": 1450.0},
    tuned=True,
    needs="the full study translates real corpora: name their folder with --data (see docs/concepts/study.md).",
)
