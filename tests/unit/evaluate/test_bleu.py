"""Metrics against known answers: sacreBLEU's own on real system output, and cases worked out by hand."""

import gzip
import importlib
import json
import math
import os
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.ter import TER

from headwise.config.settings import SearchSettings
from headwise.errors import UserError
from headwise.evaluate.bleu import MULTI30K, bleu_signature, bleu_tokenizer, corpus_scores
from headwise.evaluate.measure import Length, Score, scores_as_json
from headwise.evaluate.report import evaluate_model
from headwise.evaluate.significance import compare, comparison_as_json, paired_bootstrap

REFERENCES = [
    "The cat sat on the mat .",
    "There is a dog in the garden .",
    "Two children are playing with a red ball .",
    "It was raining all day yesterday .",
]
HYPOTHESES = [
    "The cat sat on a mat .",
    "There is a dog in the garden .",
    "Two kids play with a red ball .",
    "Yesterday it was raining all day .",
]


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def without_version(signature: str) -> str:
    return re.sub(r"version:[^|]*", "version", signature)


@pytest.fixture(scope="module")
def known(shared_data: Path) -> dict[str, Any]:
    path = shared_data / "metrics" / "expected.json"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    return json.loads(path.read_text(encoding="utf-8"))["sets"]


def check(score: Score, expected: dict[str, Any]) -> None:
    assert score.score == pytest.approx(expected["score"], abs=1e-4)
    assert without_version(score.signature) == without_version(expected["signature"])


@pytest.mark.thorough
def test_known_answers_one_reference(known: dict[str, Any], shared_data: Path) -> None:
    folder, name = shared_data / "metrics", "newstest2016.de-en"
    scores = corpus_scores(lines(folder / f"{name}.hyp.gz"), lines(folder / f"{name}.ref.gz"))
    assert list(scores) == ["BLEU", "chrF++", "TER"]
    for ours, theirs in {"BLEU": "BLEU-13a", "chrF++": "chrF2++", "TER": "TER"}.items():
        check(scores[ours], known[name][theirs])


@pytest.mark.parametrize(
    ("key", "tokenize", "lowercase"),
    [
        ("BLEU-intl", "intl", False),
        ("BLEU-char", "char", False),
        ("BLEU-none", "none", False),
        ("BLEU-lc", "13a", True),
    ],
)
def test_known_answers_other_settings(
    known: dict[str, Any], shared_data: Path, key: str, tokenize: str, lowercase: bool
) -> None:
    folder, name = shared_data / "metrics", "newstest2016.de-en"
    hypotheses, references = lines(folder / f"{name}.hyp.gz"), lines(folder / f"{name}.ref.gz")
    scores = corpus_scores(hypotheses, references, ["BLEU"], tokenize, lowercase)
    check(scores["BLEU"], known[name][key])


def test_known_answers_three_references(known: dict[str, Any], shared_data: Path) -> None:
    expected = known["hi-en.dev: hyp = .en.0, refs = .en.1 .en.2 .en.3"]
    system, *references = (lines(shared_data / "metrics" / f"hi-en.dev.en.{n}.gz") for n in range(4))
    scores = corpus_scores(system, references, ["BLEU", "chrF++"])
    check(scores["BLEU"], expected["BLEU-13a"])
    check(scores["chrF++"], expected["chrF2++"])


def test_multi30k_reference_has_the_published_length(shared_data: Path) -> None:
    """The literature prints reflen 12103 for test_2016; all prepared lines together must have as many."""
    pytest.importorskip("sacremoses")
    from headwise.evaluate.bleu import _moses

    prepare, _ = _moses("de")
    references = lines(shared_data / "multi30k" / "test_2016_flickr.de.gz")
    assert sum(len(prepare(line).split()) for line in references) == 12103


def test_perfect_and_empty_output() -> None:
    assert {name: round(s.score) for name, s in corpus_scores(REFERENCES, REFERENCES).items()} == {
        "BLEU": 100,
        "chrF++": 100,
        "TER": 0,
    }
    assert corpus_scores(["", ""], ["a b", "c d"])["TER"].score == 100.0


def test_ter_worked_out_by_hand() -> None:
    """One word of seven is replaced: one edit, seven reference words."""
    assert corpus_scores(HYPOTHESES[:1], REFERENCES[:1])["TER"].score == pytest.approx(100 / 7)


def test_best_of_several_references_counts() -> None:
    one = corpus_scores(HYPOTHESES, [REFERENCES])["BLEU"]
    two = corpus_scores(HYPOTHESES, [REFERENCES, HYPOTHESES])["BLEU"]
    assert one == corpus_scores(HYPOTHESES, REFERENCES)["BLEU"]
    assert two.score == pytest.approx(100.0)
    assert "nrefs:2" in two.signature


def test_json_form() -> None:
    report = json.loads(json.dumps(scores_as_json(corpus_scores(HYPOTHESES, REFERENCES))))
    assert list(report) == ["BLEU", "chrF++", "TER"]
    assert set(report["BLEU"]) == {"score", "signature"}
    assert "nw:2" in report["chrF++"]["signature"]


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a"], ["a", "b"], "1 hypotheses but the reference has 2 lines"),
        (["a", "b"], [["a", "b"], ["a"]], "2 hypotheses but reference 2 has 1 line"),
        (["a"], [], "the reference has 0"),
        ([], [], "no hypotheses"),
    ],
)
def test_unequal_counts_are_refused(hypotheses: list[str], references: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        corpus_scores(hypotheses, references)


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'ja-mecab'"):
        corpus_scores(["a"], ["a"], tokenize="ja_mecab")
    with pytest.raises(UserError, match=r"did you mean 'chrF\+\+'"):
        corpus_scores(["a"], ["a"], ["chrf++"])


# --- Multi30k


def test_multi30k_figure_ignores_case_and_spacing_of_punctuation() -> None:
    pytest.importorskip("sacremoses")
    said = ["ein  Mann fährt „Rad“, Hund."]
    score = corpus_scores(said, ['Ein Mann fährt "Rad" , Hund .'], [], multi30k="de")[MULTI30K]
    assert score.score == pytest.approx(100.0)
    assert "Multi30k" in score.name and "tokenized, lowercased" in score.name
    for step in ("tok:none", "smooth:none", "prep:lc+norm+tok", "moses:de", "sacremoses:"):
        assert step in score.signature


@pytest.mark.parametrize(
    ("references", "tokenizer"),
    [
        (["犬が走っている。", "Python のバグ報告は docs@python.org 宛になります。"], "char"),
        (["犬 が 走っ て いる 。", "これ は 本 です 。"], "13a"),  # cut into words, as KyTea does
        (["一只狗在跑。", "The dog 跑。"], "zh"),
        (["一只狗在跑步 カ", "一只狗在跑步,一只狗在跑步,一只狗在跑步,一只狗在跑步"], "zh"),  # a name in Japanese
        (["སྤྱང་ཁུ་རྒྱུག", "ຫມາແລ່ນ", "ခွေးပြေးသည်", "ឆ្កែកំពុងរត់"], "char"),
        (["The character 犬 is a dog."], "13a"),
        (["개가 달린다.", "Собака бежит.", "كلب يجري"], "13a"),
        ([], "13a"),
        (["", "7"], "13a"),
    ],
)
def test_text_without_spaces_between_words_is_measured_by_its_letters(references: list[str], tokenizer: str) -> None:
    assert bleu_tokenizer(references) == tokenizer


def test_letters_count_in_bleu_and_ter() -> None:
    """Of one letter of nine: 13a and tercom see one wrong word, and nothing that is right."""
    scores = corpus_scores(["一只狗在公园里跑。"], ["一只猫在公园里跑。"])
    assert scores["BLEU"].score > 50 and scores["TER"].score == pytest.approx(100 / 9)
    assert "tok:zh" in scores["BLEU"].signature and "asian:yes" in scores["TER"].signature
    asked = corpus_scores(["一只狗在公园里跑。"], ["一只猫在公园里跑。"], tokenize="13a")
    assert asked["TER"].score == 100 and "tok:13a" in asked["BLEU"].signature
    assert "tok:zh" in bleu_signature(["一只猫在公园里跑。"]) and "tok:13a" in bleu_signature()


@pytest.mark.parametrize("reference", ["สุนัขวิ่ง", "ຫມາແລ່ນ", "ခွေးပြေးသည်", "ឆ្កែកំពុងរត់", "སྤྱང་ཁུ་རྒྱུག"])
def test_ter_is_of_letters_that_sacrebleu_leaves_whole(reference: str) -> None:
    """sacreBLEU's own TER cuts Chinese and Japanese alone: Thai with one wrong letter was 100 % wrong."""
    hypothesis = reference[:-1] + reference[0]
    own = TER(normalized=True, asian_support=True)
    ter = corpus_scores([hypothesis], [reference], ["TER"])["TER"]
    assert ter.score == own.corpus_score([" ".join(hypothesis)], [[" ".join(reference)]]).score
    assert 0 < ter.score < 50 and ter.signature.endswith("|letters:apart")
    compared = paired_bootstrap([hypothesis], [reference], [reference], ["TER"], n_samples=10)["TER"]
    assert compared.a.score == ter.score and "letters:apart" in compared.signature
    assert "apart" not in corpus_scores(["犬が走る"], ["犬が走る"], ["TER"])["TER"].signature


def test_multi30k_figure_is_not_smoothed() -> None:
    """Without a common word sequence of four, `multi-bleu.perl` gives zero."""
    pytest.importorskip("sacremoses")
    assert corpus_scores(["a b c x e f"], ["a b c d e f"], [], multi30k="en")[MULTI30K].score == 0.0
    assert corpus_scores(["a b c x e f"], ["a b c d e f"], ["BLEU"])["BLEU"].score > 0.0


# --- comparison


def test_a_system_does_not_differ_from_itself() -> None:
    for result in paired_bootstrap(HYPOTHESES, HYPOTHESES, REFERENCES, n_samples=50).values():
        assert result.a.score == result.b.score
        assert result.p_value == 1.0


def test_a_clear_difference_is_seen() -> None:
    better, references = HYPOTHESES * 15, REFERENCES * 15
    worse = [line.replace(" a ", " some ") if n % 2 else line[::-1] for n, line in enumerate(better)]
    for result in paired_bootstrap(better, worse, references, n_samples=100).values():
        assert result.p_value < 0.05
        assert abs(result.a.mean - result.a.score) < 5
        assert result.a.ci > 0


def test_comparison_scores_are_the_corpus_scores() -> None:
    assert paired_bootstrap(HYPOTHESES, REFERENCES, REFERENCES, n_samples=1, seed=1)
    compared = paired_bootstrap(HYPOTHESES, REFERENCES, REFERENCES, n_samples=10)
    for name, score in corpus_scores(HYPOTHESES, REFERENCES).items():
        assert compared[name].a.score == pytest.approx(score.score)
        assert compared[name].b.score == pytest.approx(0.0 if name == "TER" else 100.0)
        assert "bs:10" in compared[name].signature


def test_the_bootstrap_is_that_of_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores, intervals, p-values and signatures, but for the float32 that sacreBLEU sums in."""
    from sacrebleu.metrics import BLEU, CHRF, TER
    from sacrebleu.significance import PairedTest

    monkeypatch.setenv("SACREBLEU_SEED", "7")
    rng = random.Random(1)
    references = [" ".join(rng.choices(REFERENCES[2].split(), k=9)) for _ in range(40)]
    a, b = ([" ".join(w for w in line.split() if rng.random() > p) for line in references] for p in (0.2, 0.25))
    metrics = {"BLEU": BLEU(force=True), "chrF++": CHRF(word_order=2), "TER": TER()}
    signatures, results = PairedTest([("a", a), ("b", b)], metrics, [references], "bs", n_samples=100)()
    ours = paired_bootstrap(a, b, references, n_samples=100, seed=7)
    for comparison, (name, signature) in zip(ours.values(), signatures.items(), strict=True):
        one, two = results[name]
        assert comparison.signature == str(signature)
        assert comparison.p_value == two.p_value
        for own, their in ((comparison.a, one), (comparison.b, two)):
            assert (own.score, own.mean, own.ci) == pytest.approx((their.score, their.mean, their.ci), rel=1e-5)


def test_a_system_of_several_seeds_counts_by_its_mean() -> None:
    rng = np.random.default_rng(0)
    samples = [40 + rng.normal(size=200) for _ in range(3)]
    one = compare("BLEU", "", ([40.0, 41.0, 42.0], [40.0]), (samples, samples[:1]))
    assert (one.a.score, one.b.score) == (41.0, 40.0)
    # Chance in the choice of runs widens the interval, where runs differ by more than sentences do.
    apart = [sample + 10 * n for n, sample in enumerate(samples)]
    assert compare("BLEU", "", ([50.0] * 3, [40.0]), (apart, samples[:1])).a.ci > 5 * one.a.ci


def test_length_ratio_and_brevity_penalty() -> None:
    score = corpus_scores(["a b c"], ["a b c d"])["BLEU"]
    assert score.length == Length(3, 4, math.exp(1 - 4 / 3))
    assert score.length.ratio == 0.75
    assert corpus_scores(["a b c"], ["a b c d"])["TER"].length is None


def test_seed_decides_and_the_environment_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    one, again, other = (
        comparison_as_json(paired_bootstrap(HYPOTHESES, REFERENCES, REFERENCES, ["BLEU"], 20, seed))
        for seed in (5, 5, 6)
    )
    assert os.environ["SACREBLEU_SEED"] == "99"
    assert one == again != other
    assert "seed:5" in str(one["BLEU"]["signature"])
    json.dumps(one)


def test_comparison_refuses_what_does_not_pair_up() -> None:
    with pytest.raises(UserError, match="3 hypotheses but the reference has 4"):
        paired_bootstrap(HYPOTHESES, HYPOTHESES[1:], REFERENCES)
    with pytest.raises(UserError, match="at least 1"):
        paired_bootstrap(HYPOTHESES, HYPOTHESES, REFERENCES, seed=0)


class Untouched:
    """A model that nobody asks for anything."""

    def settings(self, **overrides: Any) -> SearchSettings:
        return SearchSettings()

    def translate(self, texts: Any, **overrides: Any) -> Any:
        raise AssertionError("translated")


@pytest.mark.parametrize(
    ("tokenize", "missing", "package"),
    [
        ("ja-mecab", "tokenizer_ja_mecab.MeCab", '"sacrebleu[ja]"'),
        ("ko-mecab", "tokenizer_ko_mecab.MeCab", '"sacrebleu[ko]"'),
        ("flores200", "", '"sentencepiece"'),
        ("flores101", "", '"sentencepiece"'),
    ],
)
def test_a_tokenizer_of_another_package(
    tokenize: str, missing: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is named with the line that installs it, and before anything is translated."""
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    if missing:
        importlib.import_module(f"sacrebleu.tokenizers.{missing.partition('.')[0]}")
        monkeypatch.setattr(f"sacrebleu.tokenizers.{missing}", None)
    told = re.escape(f"--tokenize {tokenize} needs a package: pip install {package}") + "$"
    with pytest.raises(UserError, match=told):
        corpus_scores(["a"], ["a"], tokenize=tokenize)
    with pytest.raises(UserError, match=told):
        evaluate_model(Untouched(), ["a"], [["a"]], tokenize=tokenize)


def test_a_tokenizer_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentencepiece")

    def unreachable(*_: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", "/nowhere")
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", unreachable)
    with pytest.raises(UserError, match=r"--tokenize flores200: its model.*no network"):
        corpus_scores(["a"], ["a"], tokenize="flores200")
