"""Does any attention head link a pronoun to the noun it refers to? "The animal didn't cross ... because it was tired."

    python benchmarks/coreference.py MODEL --data DATA

DATA holds WinoBias (Zhao et al. 2018, arXiv:1804.06876): `winobias.{pro,anti}_stereotyped_type{1,2}.dev.txt`, sentences
with two occupations and a pronoun, whose antecedent is marked. A head's answer is the occupation that gets more of the
pronoun's attention in the encoder, summed over the words of each. The best head (or layer, or rollout) is chosen on a
random half of the sentences and evaluated on the other half, and vice versa, so that no sentence is used for choosing
its own head. The best head on the *same* sentences is also shown, as a warning. For the two sentences of the famous
example, all heads are printed. Writes `results/coreference_*`.
"""

import argparse
import math
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import numpy as np
import torch

import headwise
from headwise.view.readings import between_words, layer_average, stack_rollout
from headwise.view.record import AttentionRecord

LISTS = [f"{kind}_stereotyped_type{n}" for n in (1, 2) for kind in ("pro", "anti")]
PRONOUNS = frozenset({"he", "she", "him", "her", "his", "hers"})
EXAMPLES = (
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
)


@dataclass(frozen=True)
class Sentence:
    """A text, the position of its pronoun among its words, and the positions of its two candidates."""

    text: str
    pronoun: int
    right: range  # the antecedent
    wrong: range


def read(folder: Path) -> dict[str, list[Sentence]]:
    """The sentences of each list, without those whose two occupations cannot be identified."""
    lines = {name: (folder / f"winobias.{name}.dev.txt").read_text(encoding="utf-8").splitlines() for name in LISTS}
    phrases = [one for rows in lines.values() for line in rows for one in re.findall(r"\[(.*?)\]", line)]
    occupations = {plain(phrase) for phrase in phrases} - PRONOUNS
    parsed = {name: [parse(line, occupations) for line in rows] for name, rows in lines.items()}
    return {name: [sentence for sentence in rows if sentence] for name, rows in parsed.items()}


def plain(phrase: str) -> str:
    """
    >>> plain("The construction worker,")
    'construction worker'
    """
    return re.sub(r"^(the|a|an) ", "", phrase.lower().strip(" .,"))


def parse(line: str, occupations: set[str]) -> Sentence | None:
    """A line of WinoBias.

    >>> parse("1 [The cook] thanked the guard because [she] was hungry.", {"cook", "guard"})
    Sentence(text='The cook thanked the guard because she was hungry.', pronoun=6, right=range(1, 2), wrong=range(4, 5))
    """
    marked = line.split(" ", 1)[1].strip()
    text = marked.replace("[", "").replace("]", "")
    words = [re.sub(r"\W", "", word).lower() for word in text.split()]
    brackets = [(plain(match.group(1)), match.start()) for match in re.finditer(r"\[(.*?)\]", marked)]
    antecedents = [name for name, _ in brackets if name not in PRONOUNS]
    before = next((marked[:start] for name, start in brackets if name in PRONOUNS), None)
    pronoun = None if before is None else len(re.sub(r"[\[\]]", "", before).split())
    found = {name: at for name in occupations if (at := find(words, name.split()))}
    found = {n: p for n, p in found.items() if not any(p != q and set(p) < set(q) for q in found.values())}
    if pronoun is None or len(antecedents) != 1 or antecedents[0] not in found or len(found) != 2:
        return None
    right = found.pop(antecedents[0])
    return Sentence(text, pronoun, right, next(iter(found.values())))


def find(words: list[str], phrase: list[str]) -> range | None:
    """The position of `phrase`.

    >>> find(["the", "old", "cook"], ["old", "cook"])
    range(1, 3)
    """
    starts = [i for i in range(len(words)) if words[i : i + len(phrase)] == phrase]
    return range(starts[0], starts[0] + len(phrase)) if starts else None


def views(record: AttentionRecord) -> dict[str, np.ndarray]:
    """Attention between words: every head of the encoder, each layer's mean, the mean of all, rollout."""
    layers = [layer for layer in record.encoder if layer is not None]
    found = {f"layer {i}, head {j}": head for i, layer in enumerate(layers) for j, head in enumerate(layer)}
    found |= {f"layer {i}, mean": layer.mean(0) for i, layer in enumerate(layers)}
    found |= {"mean of all layers": layer_average(layers), "rollout": stack_rollout(layers)}
    return {name: between_words(weights, record.src_words, record.src_words) for name, weights in found.items()}


def answers(model: Any, sentence: Sentence) -> dict[str, bool]:
    """For each view, whether the right candidate gets more of the pronoun's attention."""
    record = model.attend(sentence.text, "", layers={"encoder": range(len(model.network.encoder.layers))})
    assert [word.text for word in record.src_words] == sentence.text.split()
    rows = {name: weights[sentence.pronoun] for name, weights in views(record).items()}
    return {name: bool(row[sentence.right].sum() > row[sentence.wrong].sum()) for name, row in rows.items()}


def positions(sentence: Sentence) -> dict[str, bool]:
    """The answers of two rules without a model: the candidate named first, and the one nearer to the pronoun."""
    right, wrong = sentence.right, sentence.wrong
    near = min(abs(i - sentence.pronoun) for i in right) < min(abs(i - sentence.pronoun) for i in wrong)
    return {"first named": right.start < wrong.start, "nearest": near}


def chosen_by_halves(table: list[dict[str, bool]]) -> tuple[list[bool], str]:
    """The answers of each half by the best view of the other half, and the names of these views."""
    judged, names = [False] * len(table), []
    order = random.Random(1).sample(range(len(table)), len(table))  # neighbours in the file are similar
    for half, other in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        best = max(table[0], key=lambda name: sum(table[i][name] for i in other))
        for i in half:
            judged[i] = table[i][best]
        names.append(best)
    return judged, " / ".join(dict.fromkeys(names))


def share(judged: list[bool]) -> str:
    """Percent right, with the Wilson interval at 95%.

    >>> share([True, False])
    '50.0 (9.5-90.5)'
    """
    n, p, z = len(judged), sum(judged) / len(judged), 1.96
    centre, width = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (max(0.0, centre + sign * width) / (1 + z * z / n) for sign in (-1, 1))
    return f"{100 * p:.1f} ({100 * low:.1f}-{100 * high:.1f})"


def example(model: Any) -> list[list[object]]:
    """For each view, the attention of "it" to "animal" and to "street" in both sentences."""
    columns = []
    for text in EXAMPLES:
        record = model.attend(text, "", layers={"encoder": range(len(model.network.encoder.layers))})
        words = [word.text for word in record.src_words]
        it, animal, street = (words.index(word) for word in ("it", "animal", "street"))
        columns.append({name: (row[it, animal], row[it, street]) for name, row in views(record).items()})
    tired, wide = columns
    return [[name, *(f"{x:.3f}" for x in (*tired[name], *wide[name]))] for name in tired]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    machine.add_machine_options(parser)
    options = parser.parse_args()
    about = machine.description(machine.prepare(options))
    torch.set_num_threads(1)
    model = headwise.load(options.model, "cpu")
    rows, numbers = [], {}
    for name, sentences in read(options.data).items():
        table = [answers(model, sentence) for sentence in sentences]
        rules = [positions(sentence) for sentence in sentences]
        judged, which = chosen_by_halves(table)
        best = max(table[0], key=lambda view: sum(row[view] for row in table))
        plain_rows = [share([row[rule] for row in rules]) for rule in rules[0]]
        same = f"{share([row[best] for row in table])}, {best}"
        rows.append([name.replace("_", " "), len(sentences), share(judged), which, same, *plain_rows])
        numbers[name] = {view: sum(row[view] for row in table) / len(table) for view in table[0]}
    header = [
        "WinoBias, dev",
        "sentences",
        "% right",
        "chosen on the other half",
        "best on the same sentences",
        "first named",
        "nearest",
    ]
    parts = ["it -> animal (tired)", "it -> street (tired)", "it -> animal (wide)", "it -> street (wide)"]
    sections = [
        machine.table(header, rows),
        "\n".join(f"> {text}" for text in EXAMPLES),
        machine.table(["weights", *parts], example(model)),
    ]
    print("\n\n".join(sections))
    path = machine.result_path(f"coreference-{Path(options.model).name}")
    machine.write_result(path, "Pronouns and their antecedents", about, sections, numbers)


if __name__ == "__main__":
    main()
