"""An update of a pretrained model in fine-tuning, compared with transformers' Trainer.

    python benchmarks/tuning.py [--models marian bert] [--turns 12] [--threads 1] [--cores 0] [--clock cpu]

"marian" has the shape of opus-mt (512 wide, 6 + 6 layers, 58,101 tokens) and is fine-tuned on batches of 32 pairs with
the lengths of Multi30k. "bert" is BERT-base (768 wide, 12 layers, 30,522 tokens) with a head for two classes, on 16
texts of 8 to 64 tokens. Parameters are random, the same for all. Both sides have the same batches, tokenised before
timing and padded by each in its own way, with the dropout of config.json, AdamW, gradients clipped at 1 and no label
smoothing. transformers' side is its `Trainer` as shipped, paused between batches; ours is an update with the functions
of `headwise.pytorch.training.trainer`. bf16: `train.precision=bf16` and `bf16=True`. Needs `accelerate`, which
`Trainer` requires. Writes `results/tuning_*`.
"""

import argparse
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import machine
import numpy as np
import torch
from opus_mt import EOS, SHAPE, START, quiet_transformers
from turns import speed_ratio, spread, take_turns
from work import draw_lengths, draw_tokens
from workers import Reply, Worker

from headwise.config.training import TrainConfig
from headwise.core.batches import collate
from headwise.pytorch.data.labelled import collate_encoded
from headwise.text.prepared.encoded import EncodedText

PAIRS, TEXTS = 32, 16  # of a batch
BERT_TOKENS, CLS, SEP, BERT_PAD = 30_522, 101, 102, 0
BERT = machine.pick({}, {"hidden_size": 48, "num_hidden_layers": 1, "intermediate_size": 96})
FIRST_TOKEN = 1_000  # of a text; smaller ids of BERT are special tokens
WARM_UP = 2
RATE, CLIP, DECAY, DROPOUT = 5e-5, 1.0, 0.01, 0.1
IGNORED = -100  # transformers' label for ignored positions
OURS, TRAINER = ("ours", "ours bf16"), ("Trainer", "Trainer bf16")  # the second of each under autocast
Rows = list[tuple[list[int], list[int]]]  # source and target for marian, text and class for bert
Update = Callable[[int], float]  # batch number -> loss


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MAKE, default=list(MAKE))
    parser.add_argument("--turns", type=int, default=machine.pick(12, 1))
    parser.add_argument("--threads", type=int, help="of each contender (default: the cores it may use)")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    threads = options.threads or cores
    about, sections, figures = machine.description(threads), list[str](), dict[str, Any]()
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            MAKE[model](Path(folder))
            seconds, replies = measure(model, folder, options.turns, threads)
        sections.append(section(model, seconds, replies))
        figures[model] = {"seconds": seconds, "peak_bytes": {name: one.peak_bytes for name, one in replies.items()}}
        print(sections[-1], flush=True)
    path = machine.result_path("tuning")
    method = __doc__.split("\n\n", 2)[2].strip()
    machine.write_result(path, "An update in fine-tuning", about, [method, *sections], figures)
    print(f"written to {path}.md")


def measure(model: str, folder: str, turns: int, threads: int) -> tuple[dict[str, list[float]], dict[str, Reply]]:
    """Seconds of each contender in each turn, and its last reply."""
    count, replies = turns + WARM_UP, dict[str, Reply]()
    workers = {name: Worker(ours, model, folder, count, name, threads=threads, keep_memory=True) for name in OURS}
    workers |= {name: Worker(trainer, model, folder, count, name, threads=threads) for name in TRAINER}

    def run(name: str, turn: int) -> float:
        replies[name] = workers[name](turn + WARM_UP)
        return replies[name].seconds

    try:
        contenders: dict[str, Update] = {name: partial(run, name) for name in workers}
        return take_turns(contenders, turns, WARM_UP), replies
    finally:
        for worker in workers.values():
            worker.close()


def section(model: str, seconds: dict[str, list[float]], replies: dict[str, Reply]) -> str:
    """The table of one model."""
    rows = []
    for name, one in replies.items():
        took, ratio = spread([1000 * value for value in seconds[name]]), speed_ratio(seconds[name], seconds[TRAINER[0]])
        update = f"{took.median:.0f} ({took.low:.0f}-{took.high:.0f})"
        rows.append([name, update, ratio, f"{one.peak_bytes / 2**20:,.0f}", f"{one.value:.3f}"])
    header = ["contender", "ms an update", "times the speed of Trainer", "peak MiB", "loss"]
    return f"## {model}\n\n{len(seconds[OURS[0]])} turns, medians with quartiles.\n\n{machine.table(header, rows)}"


# --- Models and batches ---


def make_marian(folder: Path) -> None:
    """opus-mt's shape and dropout with random weights."""
    transformers = quiet_transformers()
    torch.manual_seed(1)
    transformers.MarianMTModel(transformers.MarianConfig(**SHAPE, dropout=0.1)).save_pretrained(folder)


def make_bert(folder: Path) -> None:
    """BERT-base with two classes and random weights."""
    transformers = quiet_transformers()
    torch.manual_seed(1)
    transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2, **BERT)).save_pretrained(folder)


MAKE = {"marian": make_marian, "bert": make_bert}


def batches(model: str, count: int) -> list[Rows]:
    """The training data in batches."""
    if model == "marian":
        lengths = draw_lengths(PAIRS * count)
        sides = [[row.tolist() for row in draw_tokens(lengths[:, side], START, seed=side)] for side in (0, 1)]
        rows = [([*source[:-1], EOS], [*target[:-1], EOS]) for source, target in zip(*sides, strict=True)]
    else:
        generator = np.random.default_rng(1)
        texts = [
            generator.integers(FIRST_TOKEN, BERT_TOKENS, n).tolist() for n in generator.integers(6, 63, TEXTS * count)
        ]
        rows = [([CLS, *text, SEP], [int(generator.integers(2))]) for text in texts]
    size = PAIRS if model == "marian" else TEXTS
    return [rows[start : start + size] for start in range(0, len(rows), size)]


# --- Contenders ---


def ours(model: str, folder: str, count: int, name: str) -> Update:
    """An update by our trainer."""
    from headwise.core.optimizer import clip_gradients, gradient_norm, make_optimizer
    from headwise.pytorch.tasks.classification import classification_objective
    from headwise.pytorch.tasks.pretrained import extra_dropout_rates, make_trainable, with_head_dropout
    from headwise.pytorch.tasks.table import fine_tuning_of
    from headwise.pytorch.training.step import translation_objective

    base = fine_tuning_of("translate" if model == "marian" else "classify").read(folder)
    rates = extra_dropout_rates(base.hf_config, DROPOUT)
    rates = with_head_dropout(rates, base.config, base.hf_config, DROPOUT) if model == "bert" else rates
    network = make_trainable(base.network, DROPOUT, rates).train()
    train = TrainConfig(label_smoothing=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=DECAY)
    objective = classification_objective(network, train)
    if model == "marian":
        objective = translation_objective(network, base.generation.special.pad_id, train)
    made, optimizer = [our_batch(model, rows) for rows in batches(model, count)], make_optimizer(network, train)

    def update(turn: int) -> float:
        network.zero_grad(set_to_none=True)
        batch, size = made[turn]
        with torch.autocast("cpu", torch.bfloat16, enabled=name == OURS[1]):
            loss = objective(batch).objective / size
        loss.backward()
        norm = gradient_norm(network)
        assert norm.isfinite()
        clip_gradients(network, norm, CLIP)
        optimizer.step(RATE)
        return loss.item()

    return update


def our_batch(model: str, rows: Rows) -> tuple[Any, int]:
    """A batch for our networks, and the number of targets in its mean loss."""
    if model == "marian":
        pairs = [(np.array(source[:-1]), np.array(target[:-1])) for source, target in rows]
        batch = collate(pairs, START, START, EOS)
        return batch, batch.n_target_tokens
    texts = [EncodedText(np.array(row), len(row)) for row, _ in rows]
    return collate_encoded(texts, [label for _, (label,) in rows], BERT_PAD, typed=True), len(rows)


def their_batch(model: str, rows: Rows) -> dict[str, torch.Tensor]:
    """A batch as padded by transformers' collators."""
    ids = _padded([row for row, _ in rows], START if model == "marian" else BERT_PAD)
    labels = (
        _padded([row for _, row in rows], IGNORED) if model == "marian" else torch.tensor([row[0] for _, row in rows])
    )
    mask = _padded([[1] * len(row) for row, _ in rows], 0)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _padded(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])


def trainer(model: str, folder: str, count: int, name: str) -> Update:
    """An update of transformers' Trainer, which runs in a thread and waits for the signal before each update."""
    transformers = quiet_transformers()
    made = [their_batch(model, rows) for rows in batches(model, count)]
    go, done, losses = threading.Semaphore(0), threading.Semaphore(0), list[float]()

    class Batches(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
            return iter(made)

    class Gate(transformers.TrainerCallback):
        def on_step_begin(self, *given: Any, **named: Any) -> None:
            go.acquire()

        def on_step_end(self, *given: Any, **named: Any) -> None:
            done.release()

    class Trainer(transformers.Trainer):
        def compute_loss(self, *given: Any, **named: Any) -> Any:
            loss = super().compute_loss(*given, **named)
            losses.append(loss.item())
            return loss

    kind = transformers.MarianMTModel if model == "marian" else transformers.BertForSequenceClassification
    arguments = transformers.TrainingArguments(
        folder + "/trainer", max_steps=count, per_device_train_batch_size=1, learning_rate=RATE, max_grad_norm=CLIP,
        lr_scheduler_type="constant", use_cpu=True, bf16=name == TRAINER[1], save_strategy="no", report_to=[],
        logging_strategy="no", disable_tqdm=True, weight_decay=DECAY,
    )  # fmt: skip
    network = kind.from_pretrained(folder, attn_implementation="sdpa")
    run = Trainer(network, arguments, train_dataset=Batches(), data_collator=lambda rows: rows[0], callbacks=[Gate()])
    threading.Thread(target=run.train, daemon=True).start()

    def update(turn: int) -> float:
        go.release()
        done.acquire()
        return losses[turn]

    return update


if __name__ == "__main__":
    main()
