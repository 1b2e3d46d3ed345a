"""`headwise demo`: generate a corpus, train, test and show, with files, recipe and model folder as usual."""

import sys
from collections.abc import Sequence
from pathlib import Path

from headwise.lab.demo.corpus import SPECIAL_TOKENS, DemoCorpus, Pair, generate_corpus, write_demo_corpus
from headwise.models.kinds import AnyModel
from headwise.models.load import load
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model
from headwise.pytorch.training.checkpoint import CHECKPOINTS
from headwise.runtime.checkpoint.model_card import headwise_command, next_steps
from headwise.view.picture import save_attention

SHOWN = 12  # translations printed, three for each language
DRAWN = "<2de> 5 March 2021 at 3:07 pm"


def demo(folder: Path, corpus: DemoCorpus | None = None, settings: Sequence[str] = ()) -> float:
    """Train the demo model into `folder`, print translations, and return its exact match on unseen dates, 0 to 1.

    A model in `folder` is shown without training; an interrupted training is resumed. `corpus` is
    `generate_corpus()` unless given; `settings` change the recipe, as in `headwise train --set`.
    """
    corpus = corpus or generate_corpus()
    files = write_demo_corpus(corpus, folder / "corpus")
    if not (folder / "done").exists():
        print(f"Training on {len(corpus.train):,} generated pairs; two to three minutes on two CPU cores.")
        request = TrainRequest(
            recipe="demo",
            train=[str(path) for path in files["train"]],
            valid=[str(path) for path in files["valid"]],
            out=str(folder),
            resume=(folder / CHECKPOINTS).exists(),
            device="cpu",
            settings=settings,
            special=SPECIAL_TOKENS,
        )
        if train_model(request).startswith("SIG"):
            raise KeyboardInterrupt
        (folder / "done").touch()
    model = load(folder, "cpu")
    share = _show(model, corpus.test)
    picture = folder / "cross-attention.png"
    draw_cross_attention(model, DRAWN, picture)
    _print_next_steps(folder, files["test"], picture)
    return share


def draw_cross_attention(model: AnyModel, text: str, path: Path) -> None:
    """Draw the cross-attention of the last layer for the translation of `text`."""
    record = model.attend(text, layers={"cross": [-1]})
    weights = record.cross[-1]
    assert weights is not None
    title = f"Cross-attention, last decoder layer: {record.translation}"
    boxes = save_attention(weights, record.tgt_pieces, record.src_pieces, path, title)
    if boxes:
        print(boxes, file=sys.stderr)


def _show(model: AnyModel, test: Sequence[Pair]) -> float:
    outputs = [translation.text for translation in model.translate([source for source, _ in test])]
    right = [output == target for output, (_, target) in zip(outputs, test, strict=True)]
    for token in SPECIAL_TOKENS:
        rows = [row for row, (source, _) in enumerate(test) if source.startswith(token)]
        for row in rows[: SHOWN // len(SPECIAL_TOKENS)]:
            mark = "" if right[row] else f"   (should be: {test[row][1]})"
            print(f"  {test[row][0]:<58} {outputs[row]}{mark}")
    share = sum(right) / len(right)
    print(f"\nExact match on {len(right):,} dates never seen in training: {share:.1%}")
    return share


def _print_next_steps(folder: Path, test_files: tuple[Path, Path], picture: Path) -> None:
    source, reference = test_files
    print(
        f"""
Model folder: {folder}
Cross-attention of one translation: {picture}

{next_steps(folder, {"source.txt": source, "reference.txt": reference, "FROM-TO": "en-de"}, DRAWN)}

On your own files:
  {headwise_command()} train --recipe tiny --train SOURCE TARGET --valid SOURCE TARGET --out runs/mine"""
    )
