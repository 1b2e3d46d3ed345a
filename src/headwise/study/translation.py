"""Claim: attention lifted translation, most of all for long sentences (Bahdanau 2015, figure 2)."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwise.data.corpus import parse_corpora, read_pairs
from headwise.evaluate.bleu import corpus_scores
from headwise.models.load import load
from headwise.network.parameters import count_parameters
from headwise.report.figures import Figure, Panel
from headwise.report.statistics import paired_difference
from headwise.study.claim import Claim, Plan, Row, Verdict, column, distinct, mean_of, select_rows, series_by
from headwise.study.contenders import RECIPES, matched
from headwise.tasks.run import TrainRequest
from headwise.tasks.train import train_model

NETWORKS = ("lstm", "bahdanau", "luong", "conv", "transformer")
ATTENDING = NETWORKS[1:]
GENERATED = "generated"
WORDS = 10  # nouns, and as many adjectives, of the generated language
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
    if plan.scale != "full":
        size = plan.pick((32, 1, 300, 2, 256), (48, 2, 300, 600, 512), None)
        return [_condition(name, GENERATED, plan, *size, ends=(5, 10, 15, 20)) for name in NETWORKS]
    found = [name for name, parts in CORPORA.items() if plan.data and (plan.data / parts[0][0]).is_file()]
    return [
        _condition(network, corpus, plan, 128, 4, 4000, 6000, 2048, ends=(8, 12, 16, 20, LONGEST))
        for corpus in found
        for network in NETWORKS
    ]


def _condition(
    network: str,
    corpus: str,
    plan: Plan,
    width: int,
    layers: int,
    vocab_size: int,
    steps: int,
    tokens: int,
    ends: tuple[int, ...],
) -> Condition:
    folder = str(plan.data) if corpus != GENERATED else ""
    sentences = plan.pick(24, 160, 0)
    return Condition(network, corpus, folder, width, layers, vocab_size, steps, tokens, ends, sentences, plan.device)


def measure(condition: Condition, seed: int) -> list[Row]:
    """BLEU of each bucket of source length after one training."""
    c = condition
    with tempfile.TemporaryDirectory() as scratch:
        parts = write_language(Path(scratch), c.sentences) if c.corpus == GENERATED else CORPORA[c.corpus]
        train, valid, test = ([str(Path(c.folder) / name) for name in names] for names in parts)
        out = str(Path(scratch) / "model")
        request = TrainRequest(
            RECIPES.get(c.network, c.network), train, valid, out, run_settings(c, seed), device=c.device, show=False
        )
        if train_model(request).startswith("SIG"):  # the trainer has ended cleanly; so does the study
            raise KeyboardInterrupt
        model = load(out, c.device)
        pairs = list(read_pairs(parse_corpora(test)))
        outputs = [t.text for t in model.translate([src for src, _ in pairs], beam_size=1, max_length_extra=10)]
        parameters = count_parameters(model.network)
    return [{"parameters": parameters, **row} for row in bleu_by_length(pairs, outputs, c.ends)]


def run_settings(c: Condition, seed: int) -> list[str]:
    """The settings that differ from the recipe: size, budget, and for the generated language the learning rate.

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
    budget |= {"seed": seed, "validate_bleu": 0, "best_metric": '"loss"', "average": 1, "keep_last": 1}
    if c.corpus == GENERATED:  # small and exact, so no dropout and no smoothing
        budget |= {"learning_rate": 0.006, "warmup_steps": max(1, c.steps // 10), "label_smoothing": 0.0}
        changed.append("model.dropout=0.0")
    return [*changed, f"data.vocab_size={c.vocab_size}", *(f"train.{name}={value}" for name, value in budget.items())]


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

    `sentences` is the size of the test set; the training set is 25 times as large.
    """
    rng = random.Random(seed)
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    names = rng.sample([a + b for a in syllables for b in syllables], 4 * WORDS)
    pairs = list(zip(names[::2], names[1::2], strict=True))
    nouns, adjectives = pairs[:WORDS], pairs[WORDS:]

    def sentence() -> tuple[str, str]:
        src: list[str] = []
        tgt: list[str] = []
        length = rng.randint(2, 19)
        while len(src) < length:
            noun, adjective = rng.choice(nouns), rng.choice(adjectives)
            described = rng.random() < 0.5
            src += [adjective[0], noun[0]] if described else [noun[0]]
            tgt += [noun[1], adjective[1]] if described else [noun[1]]
        return " ".join(src), " ".join(tgt)

    paths = []
    for part, size in (("train", 25 * sentences), ("valid", 20), ("test", sentences)):
        path = folder / f"{part}.tsv"
        path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in (sentence() for _ in range(size))), encoding="utf-8")
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


def judge(rows: Sequence[Row]) -> Verdict:
    """Held if attention wins on every corpus and its lead grows with length; in part if it only wins."""
    wins, grows, sentences = [], [], []
    for corpus in distinct(rows, "corpus"):
        here = select_rows(rows, corpus=corpus)
        networks = distinct(here, "network")
        short, long = min(row["bucket"] for row in here), max(row["bucket"] for row in here)
        score = {
            (name, end): mean_of(here, "bleu", network=name, bucket=end) for name in networks for end in (short, long)
        }
        lead = {end: score["bahdanau", end] - score["lstm", end] for end in (short, long)}
        pair = [column(select_rows(here, network=name, bucket=long), "bleu") for name in ("bahdanau", "lstm")]
        wins.append(lead[long] > 1 and (len(pair[0]) < 3 or paired_difference(*pair).significant))
        grows.append(lead[long] > lead[short])
        shown = ", ".join(f"{name} {score[name, short]:.0f} and {score[name, long]:.0f}" for name in networks)
        sentences.append(
            f"{corpus}: BLEU of the shortest and of the longest sentences {shown}; bahdanau leads the lstm by "
            f"{lead[short]:.0f} and {lead[long]:.0f}"
        )
    small = (
        " The language is generated and the training short: it shows the effect, not the quality of any of them."
        * (GENERATED in distinct(rows, "corpus"))
    )
    reason = f"on {'; on '.join(sentences)}.{small}"
    return Verdict("held" if all(wins) and all(grows) else "held in part" if any(wins) else "not held", reason)


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
    judge=judge,
    seeds={"toy": 1, "quick": 1, "full": 3},
    cost={"toy": 1.0, "quick": 24.0, "full": 4000.0},
    needs="the full study translates real corpora: name their folder with --data (see docs/concepts/study.md).",
)
