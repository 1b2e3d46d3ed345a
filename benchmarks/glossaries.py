"""Glossaries: terms that are used, BLEU and time, with and without a glossary.

    python benchmarks/glossaries.py make --train train.en train.de --test test.en test.de --out runs/terms
    headwise annotate --train train.en train.de --glossary runs/terms/train.tsv -o runs/terms/annotated.tsv
    python benchmarks/glossaries.py measure runs/a runs/b --test test.en test.de --glossary runs/terms/test.tsv

`make` writes two glossaries of nouns that occur in few training sentences. The glossary of the test set comes from its
references: a word and the word that it is most often linked with, like the entry of a terminologist who knew them. So
BLEU with it shows how well the glossary is used, not how well a model translates. The training glossary has none of
these words. Links are those of `lexical_aligner` on training and test data together, where both directions agree.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lexical_aligner
import machine

import headwise
from headwise.documents.glossary.annotation import supports_annotations
from headwise.documents.glossary.files import read_glossary
from headwise.documents.glossary.terms import Glossary, contains_term
from headwise.documents.glossary.translation import MIN_BEAM_SIZE
from headwise.evaluate.bleu import corpus_scores
from headwise.text.files.corpus import parse_corpora, read_pairs
from headwise.text.files.scripts import word_pattern
from headwise.text.files.sources import Pair

RARE = 0.01  # largest share of training sentences with the source word of a term
LEAST_LETTERS = 4
WORD = word_pattern()

Counts = Mapping[str, Counter[str]]  # of linked words


def linked(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The linked words of each pair: those that are linked in both directions."""
    words = [tuple(WORD.findall(text) for text in pair) for pair in pairs]
    forth = _links([source for source, _ in words], [target for _, target in words])
    back = _links([target for _, target in words], [source for source, _ in words])
    both = [{(i, j) for i, j in one if (j, i) in other} for one, other in zip(forth, back, strict=True)]
    return [[(s[i], t[j]) for i, j in sorted(links)] for (s, t), links in zip(words, both, strict=True)]


def _links(sources: list[list[str]], targets: list[list[str]]) -> list[set[tuple[int, int]]]:
    """The links of each target word, as pairs of source and target index."""
    numbers = lexical_aligner.number(sources, 1), lexical_aligner.number(targets, 0)
    cells = lexical_aligner.cells_of(*numbers)
    lines = lexical_aligner.links(cells, lexical_aligner.posteriors(cells, 5), numbers[1])
    return [{(int(i), int(j)) for i, _, j in (link.partition("-") for link in line.split())} for line in lines]


def counted(links: Sequence[Sequence[Pair]]) -> Counts:
    """How often each source word is linked with each target word."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target in (pair for line in links for pair in line):
        counts[source][target] += 1
    return counts


def terms(counts: Counts, rare: set[str], most: int) -> Iterator[Pair]:
    """Rare words with the `most` frequent nouns linked with them, each in at least a third of the cases."""
    for source in sorted(counts.keys() & rare):
        for target, count in sorted(counts[source].items(), key=lambda item: (-item[1], item[0]))[:most]:
            noun = target.istitle() and target.isalpha() and len(target) >= LEAST_LETTERS
            if noun and 3 * count >= counts[source].total():
                yield source, target


def make(options: argparse.Namespace) -> None:
    """Write both glossaries."""
    train, test = (list(read_pairs(parse_corpora(files))) for files in (options.train, options.test))
    found = linked([*train, *test])
    lines = Counter(word for source, _ in train for word in set(WORD.findall(source)))
    words = {word for source, _ in [*train, *test] for word in WORD.findall(source) if word.isalpha()}
    rare = {w for w in words if w.islower() and len(w) >= LEAST_LETTERS and lines[w] < RARE * len(train)}
    wanted = dict(terms(counted(found[len(train) :]), rare, 1))
    trained = [pair for pair in terms(counted(found[: len(train)]), rare, 3) if pair[0] not in wanted]
    options.out.mkdir(parents=True, exist_ok=True)
    for name, found_terms in (("test", list(wanted.items())), ("train", trained)):
        text = "".join(f"{source}\t{target}\n" for source, target in found_terms)
        (options.out / f"{name}.tsv").write_text(text, encoding="utf-8")
        print(f"{options.out / name}.tsv: {len(found_terms):,} terms")


def ways(model: Any, glossary: Glossary) -> dict[str, dict[str, Any]]:
    """Settings of `translate` for each variant, also without a glossary but with the beam size of glossary search."""
    usual = {"alone": {}, f"alone, beam {MIN_BEAM_SIZE}": {"beam_size": MIN_BEAM_SIZE}}
    return usual | {
        "terms annotated" if supports_annotations(model.tokenizer) else "terms constrained": {"glossary": glossary}
    }


def measured(model: Any, test: Sequence[Pair], glossary: Glossary, turns: int) -> dict[str, dict[str, Any]]:
    """For each variant the used terms, BLEU, and the fewest seconds of several turns."""
    sources, references = [source for source, _ in test], [target for _, target in test]
    found: dict[str, dict[str, Any]] = {}
    for _ in range(turns):
        for way, settings in ways(model, glossary).items():
            started = machine.now()
            texts = [one.text for one in model.translate(sources, **settings)]
            seconds = machine.now() - started
            before = found.get(way, {"seconds": seconds})["seconds"]
            found[way] = hits(glossary, test, texts) | {"seconds": min(seconds, before)}
            found[way]["bleu"] = corpus_scores(texts, references, ("BLEU",))["BLEU"].score
    return found


def hits(glossary: Glossary, test: Sequence[Pair], texts: Sequence[str]) -> dict[str, int]:
    """The number of terms in sources, in translations, in references, and in both of these."""
    rows = [
        (contains_term(text, term.target), contains_term(reference, term.target))
        for (source, reference), text in zip(test, texts, strict=True)
        for term in dict.fromkeys(match.term for match in glossary.matches(source))
    ]
    both = sum(in_text and in_reference for in_text, in_reference in rows)
    return {
        "wanted": len(rows),
        "written": sum(in_text for in_text, _ in rows),
        "referred": sum(in_reference for _, in_reference in rows),
        "both": both,
    }


def measure(options: argparse.Namespace) -> None:
    """Measure every model with every variant."""
    about = machine.description(machine.prepare(options))
    test, glossary = list(read_pairs(parse_corpora(options.test))), Glossary(read_glossary(options.glossary))
    models = {path.name: headwise.load(str(path), "cpu") for path in options.models}
    found = {name: measured(model, test, glossary, options.turns) for name, model in models.items()}
    rows = [
        (
            name,
            way,
            f"{one['written'] / one['wanted']:.1%}",
            f"{one['both'] / one['referred']:.1%}",
            f"{one['bleu']:.2f}",
            f"{one['seconds']:.1f}",
        )
        for name, by_way in found.items()
        for way, one in by_way.items()
    ]
    header = ("model", "way", "terms written", "of those in the reference", "BLEU", "seconds")
    first = next(iter(next(iter(found.values())).values()))
    counts = f"{first['wanted']:,} terms, {first['referred']:,} of them in the reference"
    title = f"Glossaries: {len(test):,} sentences, {counts}"
    machine.write_result(machine.result_path("glossaries"), title, about, [machine.table(header, rows)], found)
    print(machine.table(header, rows))


def main() -> None:
    """Make glossaries, or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("make", help="write two glossaries")
    making.add_argument("--train", nargs="+", required=True)
    making.add_argument("--out", type=Path, required=True)
    machine.add_quick_option(making)
    making.set_defaults(run=make)
    measuring = commands.add_parser("measure", help="translate with and without terms")
    measuring.add_argument("models", nargs="+", type=Path)
    measuring.add_argument("--glossary", required=True)
    measuring.add_argument("--turns", type=int, default=machine.pick(3, 1))
    machine.add_machine_options(measuring)
    measuring.set_defaults(run=measure)
    for one in (making, measuring):
        one.add_argument("--test", nargs="+", required=True)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
