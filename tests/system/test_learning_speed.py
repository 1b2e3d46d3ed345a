"""Loss after 200 updates: detects changes that slow training down, such as batches of similar pairs."""

import random

import numpy as np
import pytest
import torch

from headwise.config.model import TransformerConfig
from headwise.config.training import TrainConfig
from headwise.core.batches import collate
from headwise.core.optimizer import learning_rate, make_optimizer
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.training.step import nll_of, translation_objective
from headwise.text.prepared.batch_planning import plan_batches

WORDS, STEPS, RATE, TOKENS, SEED = 150, 200, 0.005, 500, 1
Pairs = list[tuple[list[int], list[int]]]


def pairs(n: int, seed: int) -> Pairs:
    """Sentences of 1 to 30 words, short ones and frequent words more often; every word is replaced, neighbours are
    swapped.
    """
    rng, dictionary = random.Random(seed), [4 + random.Random(word).randrange(WORDS) for word in range(WORDS)]
    made = []
    for _ in range(n):
        length = min(30, 1 + int(rng.expovariate(1 / 9)))
        words = [min(WORDS - 1, int(rng.expovariate(1 / 40))) for _ in range(length)]
        target = [dictionary[word] for word in words]
        made.append(([word + 4 for word in words], [x for i in range(0, length, 2) for x in target[i : i + 2][::-1]]))
    return made


@pytest.mark.thorough
@pytest.mark.slow
def test_loss_after_two_hundred_updates() -> None:
    """Validation nll 2.97 with batches sampled at random (other seeds 3.12, 2.91); bucketed within windows 3.46 to
    3.48, sorted by length over the whole corpus 3.36 to 3.51; untrained 5.0.
    """
    train, valid = pairs(4000, 1), pairs(300, 2)
    lengths = [np.array([len(pair[side]) + 1 for pair in train]) for side in (0, 1)]
    torch.manual_seed(SEED)
    sizes = {"d_model": 64, "d_ff": 128, "n_heads": 4, "n_encoder_layers": 2, "n_decoder_layers": 2}
    model = build_network(TransformerConfig(vocab_size=WORDS + 4, dropout=0.1, **sizes))
    config = TrainConfig(max_steps=STEPS, warmup_steps=STEPS // 5, schedule="linear", label_smoothing=0.0)
    objective, optimizer = translation_objective(model, 0, config), make_optimizer(model, config)
    plans = (plan_batches(*lengths, TOKENS, SEED, epoch, bucketed=False) for epoch in range(STEPS))
    batches = (collate([train[row] for row in rows], 0, 1, 2) for plan in plans for rows in plan)
    for step, batch in zip(range(1, STEPS + 1), batches, strict=False):
        model.zero_grad()
        (objective(batch).objective / batch.n_targets).backward()
        optimizer.step(learning_rate(step, RATE, config))
    model.eval()
    batches = [collate(valid[i : i + 50], 0, 1, 2) for i in range(0, len(valid), 50)]
    nll = sum(nll_of(model, batch, 0, torch.device("cpu")) for batch in batches)
    assert nll / sum(batch.n_target_tokens for batch in batches) < 3.25
