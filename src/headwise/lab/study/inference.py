"""Claim: inference is parallel too. That holds for scoring a given text, but not for generating one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwise.contract import EncoderDecoder
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, mean_of, series_by
from headwise.lab.study.clock import seconds
from headwise.lab.study.contenders import ALL, BOS, FIRST, make, matched, size
from headwise.lab.study.graph import count_chain
from headwise.lab.study.sequential import LEVEL, exponent_by_length
from headwise.lab.study.statement import Looks, Row, Statement, exact, over_seeds
from headwise.pytorch.architectures.registry import Network

VOCAB = 256
MUCH = 2.0  # times faster


@dataclass(frozen=True)
class Condition:
    """One sentence of `length` source and target positions."""

    network: str
    length: int
    width: int  # of the Transformer; the others have as many parameters
    device: str


def conditions(plan: Plan) -> list[Condition]:
    """Every architecture at every length."""
    lengths = plan.pick([4, 8, 16], [16, 64, 256, 512])
    return [Condition(name, length, plan.pick(32, 64), plan.device) for length in lengths for name in ALL]


def measure(condition: Condition, seed: int) -> list[Row]:
    """Greedy decoding with a cache, and scoring as many given tokens at once: time per token, and longest chain."""
    c = condition
    config = matched(c.network, c.width, 2, VOCAB, max_len=c.length + 1)
    network = make(config, c.device).eval()
    src, tgt = torch.randint(FIRST, VOCAB, (2, 1, c.length), device=c.device)
    with torch.inference_mode():
        writing, scoring = (
            1e6 * seconds(lambda compute=compute: compute(network, src, tgt), c.device, repeats=3) / c.length
            for compute in (write, score)
        )
    return [
        {
            "writing": writing,
            "scoring": scoring,
            "ratio": writing / scoring,
            "writing_chain": chain_of_writing(network, src, tgt),
            "scoring_chain": count_chain(lambda: score(network, src, tgt)),
            "parameters": size(config),
        }
    ]


def greedy(logits: Tensor) -> Tensor:
    """The most probable token."""
    return logits.argmax(-1)


def write(network: EncoderDecoder, src: Tensor, tgt: Tensor, choose: Callable[[Tensor], Tensor] = greedy) -> Tensor:
    """Generate as many tokens as `tgt` has, one after another; the logits of the last."""
    mask = torch.ones_like(src, dtype=torch.bool)
    memory = network.encode(src, mask)
    cache, token, logits = network.start_cache(memory, mask), torch.full_like(tgt[:, :1], BOS), torch.empty(0)
    for _ in range(tgt.shape[1]):
        logits = network.logits(network.decode(token, memory, mask, cache))
        token = choose(logits)
    return logits


def score(network: EncoderDecoder, src: Tensor, tgt: Tensor) -> Tensor:
    """Log-probabilities at each token of `tgt`, in one pass."""
    mask = torch.ones_like(src, dtype=torch.bool)
    return network.logits(network.decode(tgt, network.encode(src, mask), mask)).log_softmax(-1)


def chain_of_writing(network: Network, src: Tensor, tgt: Tensor) -> int:
    """Operations of `write` that must wait for one another.

    Autograd does not follow the choice of a token, so embeddings are made to depend on the logits of the last choice.
    """
    chosen = [torch.zeros((), device=src.device)]

    def choose(logits: Tensor) -> Tensor:
        chosen.append(logits.amax())
        return greedy(logits)

    def depend(module: nn.Module, inputs: object, embedded: Tensor) -> Tensor:
        return embedded + 0 * chosen[-1]

    hooks = [module.register_forward_hook(depend) for module in network.modules() if isinstance(module, nn.Embedding)]
    chain = count_chain(lambda: write(network, src, tgt, choose))
    for hook in hooks:
        hook.remove()
    return chain


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Time per token and dependent operations of writing and of scoring."""
    x, lines = "length of source and of target (positions)", (rows, "network", "length")
    return [
        Figure(
            "inference",
            "Each token that is written waits for the one before it, whatever the architecture. When a text is given, "
            "all positions can be computed together, unless the network is recurrent.",
            "Line charts of time per token and of dependent operations against length, for writing and for scoring, "
            "for seven architectures.",
            [
                Panel(f"{title}: {what}", x, y, series_by(*lines, f"{key}{column}"), log_y=True)
                for what, y, column in (
                    ("time", "time per token (µs)", ""),
                    ("dependent operations", "longest chain (operations)", "_chain"),
                )
                for title, key in (("Writing", "writing"), ("Scoring", "scoring"))
            ],
        )
    ]


def saved(rows: Sequence[Row], network: str) -> float:
    """How many times faster a token is scored than generated, at the largest length."""
    return mean_of(rows, "ratio", network=network, length=max(row["length"] for row in rows))


STATEMENTS = (
    *(
        Statement(
            name,
            f"The number of operations that must wait for one another is the same for long texts when {what}.",
            "exponent of the longest chain by length (operations)",
            exact(lambda rows, key=key, network=network: exponent_by_length(rows, key, network)),
            below=LEVEL,
        )
        for name, what, key, network in (
            ("generating", "the Transformer generates them", "writing_chain", "transformer"),
            ("scoring", "the Transformer scores them", "scoring_chain", "transformer"),
            ("scoring-recurrent", "the LSTM scores them", "scoring_chain", "lstm"),
        )
    ),
    *(
        Statement(
            f"scoring-{network}",
            f"{network}: scoring a token is more than {MUCH:g} times faster than generating it, on this device and "
            "with one thread.",
            "time per generated token / time per scored token at the largest length",
            over_seeds(lambda rows, network=network: saved(rows, network)),
            above=MUCH,
        )
        for network in ("transformer", "lstm", "bahdanau")
    ),
)

CLAIM = Claim(
    name="inference",
    sentence="Attention makes inference parallel, too.",
    source="stated in many introductions; the paper, arXiv:1706.03762, section 3.1, says that the decoder is "
    "auto-regressive",
    method="Each architecture writes a text token by token with its cache, one sentence at a time, and scores a "
    "given text of the same length in one pass. The longest chain of dependent operations is counted, in which the "
    "choice of a token depends on the logits before it. The time is measured, too; on one CPU thread it shows the "
    "overhead of many small operations, and not what could run in parallel.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=5.0,
    looks=Looks(3, 3),
    timed=True,
)
