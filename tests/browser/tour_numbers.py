"""What the cards of the tour must show, computed by torch from the recorded steps of the model."""

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

OUTPUTS = 8  # of the tokens after a row, those that cards list
EQUAL = 1e-6  # relative: what float32 rounds away
CHOSEN_ROW = 1
HALFWAY = ("scores", "scale", "softmax", "weighted-sum", "heads")  # begin where the greatest weight is near a half
CROSSING = ("alignment", "cross")
WRITING = ("mask", "logits", "temperature", "loss")
Numbers = dict[str, float]


def readable(piece: str) -> bool:
    """Whether a token is text with a letter or a digit."""
    return not re.fullmatch(r"<[^>]+>", piece) and any(sign.isalnum() for sign in piece)


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def bars(values: Tensor) -> Numbers:
    return {f"bar.{i}": value for i, value in enumerate(values.tolist())}


def table(name: str, values: Tensor) -> Numbers:
    return {f"{name}.{i}.{j}": x for i, line in enumerate(values.tolist()) for j, x in enumerate(line)}


class Expected:
    """The numbers of each card for one text.

    Args:
        model: a translation model.
        text: its input.
        beam: the beam size of the output that is walked through.
        aligns: layer and head of the cards about cross-attention.
    """

    def __init__(self, model: Any, text: str, beam: int, aligns: tuple[int, int]) -> None:
        self.model, self.text, self.beam = model, text, beam
        record = model.walks(text, beam_size=beam, n_best=1)
        self.heads = [self._steps(record, "encoder", 0, head) for head in range(record.figure["encoder"].heads[0])]
        self.encoder, self.decoder = self.heads[0], self._steps(record, "decoder", 0, 0)
        self.crossing = self._steps(record, "decoder", *aligns)
        self.network = model.network

    @staticmethod
    def _steps(record: Any, stack: str, layer: int, head: int) -> dict[str, Any]:
        return {step.id: step for step in record.steps(stack, layer, head)}

    def row(self, card: str) -> int:
        """The row that a card begins with."""
        if card == "by-hand":
            return 0
        steps = self.crossing if card in CROSSING else self.decoder if card in WRITING else self.encoder
        rows = steps["cross_attn.softmax" if card in CROSSING else "self_attn.softmax"].rows
        order, weights = [*range(CHOSEN_ROW, len(rows)), *range(CHOSEN_ROW)], None
        if card in HALFWAY:
            weights = self.values("self_attn.softmax")
            away = (weights.max(1).values - 0.5).abs().where(self.values("self_attn.scores").isfinite().sum(1) >= 3, 1)
            order = away.argsort(stable=True).tolist()
        elif card in CROSSING:
            weights = self.values("cross_attn.softmax", steps)
        columns = steps["cross_attn.softmax" if card in CROSSING else "self_attn.softmax"].columns
        own = [row for row in order if readable(rows[row])]
        aiming = [] if weights is None else [row for row in own if readable(columns[int(weights[row].argmax())])]
        return [*aiming, *own, *order][0]

    def card(self, name: str, knob: str = "", row: int | None = None) -> Numbers:
        cards: dict[str, Callable[[str, int], Numbers]] = {
            one.removeprefix("_card_").replace("_", "-"): getattr(self, one)
            for one in dir(self)
            if one.startswith("_card_")
        }
        return cards[name](knob, self.row(name) if row is None else row)

    def values(self, step: str, steps: dict[str, Any] | None = None) -> Tensor:
        return tensor((steps or self.encoder)[step].values)

    def _scores(self, scaled: bool) -> Tensor:
        q, k = self.values("self_attn.queries"), self.values("self_attn.keys")
        return q @ k.T / (q.size(1) ** 0.5 if scaled else 1)

    def _card_recurrence(self, knob: str, row: int) -> Numbers:
        n = len(self.encoder["embeddings"].rows) * int(knob or 1)
        length = len(self.encoder["embeddings"].rows)
        return {"length": length, "recurrent": n - 1, "path": 1, "pairs": n * n, "tokens": n}

    def _crossing(self, row: int) -> Numbers:
        weights = self.values("cross_attn.softmax", self.crossing)
        n = weights.size(1)
        return {"weight": weights[row].max().item(), "tokens": n, "chance": 1 / n} | bars(weights[row])

    def _card_alignment(self, knob: str, row: int) -> Numbers:
        return self._crossing(row)

    def _card_cross(self, knob: str, row: int) -> Numbers:
        read, n = self.values("cross_attn.softmax", self.crossing).shape
        return self._crossing(row) | {"read": read, "pairs": read * n}

    def _card_tokens(self, knob: str, row: int) -> Numbers:
        n = len(self.encoder["embeddings"].rows)
        words = {"tokens": n, "words": len(self.text.split()), "characters": len(self.text), "special": 1}
        return words | {f"cell.0.{i}": i for i in range(n)}

    def _card_embeddings(self, knob: str, row: int) -> Numbers:
        front = self.network.src_embeddings
        ids = [*self.model.tokenizer.encode(self.text), self.model.tokenizer.eos_id]
        width = front.tokens.weight.size(1)
        return {
            "d_model": width,
            "tokens": len(ids),
            "scale": width**0.5,
            "value": front.tokens.weight[ids[row], 0].item() * width**0.5,
        }

    def _card_positions(self, knob: str, row: int) -> Numbers:
        e, p = self.values("embeddings"), self.values("position-codes")
        other = 0
        bare = (e[row] @ e[other]).item()
        here, swapped = ((e[row] + p[i]) @ (e[other] + p[j]) for i, j in ((row, other), (other, row)))
        return {"here": here.item(), "swapped": swapped.item(), "bare": bare}

    def _card_by_hand(self, knob: str, row: int) -> Numbers:
        q, k, v = (self.values(f"self_attn.{name}")[:3, :2] for name in ("queries", "keys", "values"))
        products = k @ q[row]
        weights = (products / 2**0.5).softmax(0)
        result = weights @ v
        cells = table("given", torch.cat([q[row, None], k]))
        cells |= table("cell", torch.cat([products[:, None], weights[:, None], v], 1))
        best = products.argmax()
        return cells | {
            "q0": q[row, 0].item(),
            "q1": q[row, 1].item(),
            "tokens": len(k),
            "two": 2,
            "d_k": self.values("self_attn.queries").size(1),
            "product": products[best].item(),
            "weight": weights[best].item(),
            "o0": result[0].item(),
            "o1": result[1].item(),
        }

    def _card_scores(self, knob: str, row: int) -> Numbers:
        raw = self._scores(scaled=False)[row]
        d_k = self.values("self_attn.queries").size(1)
        return {"d_k": d_k, "product": raw.max().item(), "tokens": raw.numel(), "mean": raw.mean().item()}

    def _card_scale(self, knob: str, row: int) -> Numbers:
        scaled, unscaled = self._scores(scaled=True)[row].softmax(0), self._scores(scaled=False)[row].softmax(0)
        numbers = {"root": self.values("self_attn.queries").size(1) ** 0.5, "chance": 1 / scaled.numel()}
        numbers |= {"scaled": scaled.max().item(), "unscaled": unscaled.max().item()}
        return numbers | bars(unscaled if knob == "off" else scaled)

    def _card_softmax(self, knob: str, row: int) -> Numbers:
        scores = self._scores(scaled=True)[row]
        total = (scores - scores.max()).exp().sum().item()
        numbers = {"score": scores.max().item(), "total": total, "weight": 1 / total, "one": 1, "whole": 1}
        return numbers | {"chance": 1 / scores.numel()} | bars(scores.softmax(0))

    def _card_weighted_sum(self, knob: str, row: int) -> Numbers:
        weights, values = self._scores(scaled=True)[row].softmax(0), self.values("self_attn.values")
        result, mean = weights @ values, values.mean(0)
        return {
            "result": result[0].item(),
            "mean": mean[0].item(),
            "weight": weights.max().item(),
            "distance": (values - result).norm(dim=1)[weights.argmax()].item(),
            "even": (mean - result).norm().item(),
        }

    def _card_heads(self, knob: str, row: int) -> Numbers:
        weights = torch.stack([self.values("self_attn.softmax", steps)[row] for steps in self.heads])
        heads, n = weights.shape
        return {
            "heads": heads,
            "distinct": weights.argmax(1).unique().numel(),
            "chance": n * (1 - (1 - 1 / n) ** heads),
        } | table("cell", weights.max(1).values[:, None])

    def _card_concat(self, knob: str, row: int) -> Numbers:
        attention = self.network.encoder.layers[0].self_attn
        joined = self.values("self_attn.concat")
        heads = len(self.heads)
        d_v, head = joined.size(1) // heads, int(knob or 0)
        part = slice(head * d_v, (head + 1) * d_v)
        lost = joined[row, part] @ attention.o_proj.weight.double()[:, part].T
        change = (lost.norm() / self.values("self_attn.heads")[row].norm()).item()
        sizes = {"heads": heads, "d_v": d_v, "width": heads * d_v, "d_model": joined.size(1)}
        return sizes | {"head": head, "change": change}

    def _card_residual(self, knob: str, row: int) -> Numbers:
        x, output = self.values("embedded")[row], self.values("self_attn.heads")[row]
        near = {"x": cosine_similarity(x + output, x, dim=0), "output": cosine_similarity(x + output, output, dim=0)}
        near["bare"] = cosine_similarity(output, x, dim=0)
        return {name: value.item() for name, value in near.items()} | {
            "chance": (x.norm() / torch.cat([x, output]).norm()).item()
        }

    def _card_norm(self, knob: str, row: int) -> Numbers:
        x = self.values("self_attn.add")[row]
        normed = torch.nn.functional.layer_norm(x, x.shape, eps=self.encoder["self_attn.norm"].settings["eps"])
        deviation = x.std(correction=0).item()
        return {"mean": x.mean().item(), "deviation": deviation, "normed": normed.std(correction=0).item()}

    def _card_feed_forward(self, knob: str, row: int) -> Numbers:
        up = self.network.encoder.layers[0].ffn.up_proj
        inside = up(self.values("self_attn.norm")[row].float()).relu()
        return {"count": int((inside > 0).sum()), "d_ff": inside.numel(), "chance": inside.numel() / 2}

    def _card_memory(self, knob: str, row: int) -> Numbers:
        tokens, width = self.values("memory", self.decoder).shape
        return {"tokens": tokens, "d_model": width, "recurrent": 1}

    def _card_mask(self, knob: str, row: int) -> Numbers:
        q, k = self.values("self_attn.queries", self.decoder), self.values("self_attn.keys", self.decoder)
        scores = q @ k.T / q.size(1) ** 0.5
        mask = torch.ones_like(scores, dtype=torch.bool).tril()
        opened = scores.softmax(1)
        weights = opened if knob == "off" else scores.masked_fill(~mask, -math.inf).softmax(1)
        numbers = {"visible": row + 1, "read": len(q), "hidden": int((~mask).sum()), "pairs": scores.numel()}
        numbers |= {"later": opened[row, row + 1 :].sum().item()}
        return numbers | {"chance": 1 / (len(q) if knob == "off" else row + 1)} | bars(weights[row])

    def _logits(self) -> Tensor:
        hidden = self.values("output", self.decoder).float()
        with torch.inference_mode():
            return self.network.logits(hidden[None])[0].double()

    def _predicted(self, row: int) -> Numbers:
        logits = self._logits()[row]
        best = logits.softmax(0).max().item()
        return {"logit": logits.max().item(), "probability": best, "size": logits.numel(), "chance": 1 / logits.numel()}

    def _card_logits(self, knob: str, row: int) -> Numbers:
        return self._predicted(row) | self._likeliest(row, 1)

    def _likeliest(self, row: int, temperature: float) -> Numbers:
        shown = (self._logits()[row] / temperature).softmax(0).sort(descending=True).values[:OUTPUTS]
        return {"listed": OUTPUTS, "rest": 1 - shown.sum().item()} | bars(shown)

    def _card_greedy(self, knob: str, row: int) -> Numbers:
        probabilities = self._logits().softmax(1)[:-1]
        read = self.decoder["probabilities"].rows
        favourites = self.model.tokenizer.pieces(probabilities.argmax(1).tolist())
        agree = sum(one == other for one, other in zip(favourites, read[1:], strict=True))
        most = probabilities.max(1).values
        numbers = {"steps": len(probabilities), "agree": agree, "least": most.min().item()}
        return numbers | {
            f"{name}.{row}.{column}": value
            for name, column in (("given", 1), ("cell", 2))
            for row, value in enumerate(most.tolist())
        }

    def _translated(self, beam: int) -> Any:
        return self.model.translate([self.text], beam_size=beam, n_best=1)[0]

    def _card_beam(self, knob: str, row: int) -> Numbers:
        size = int(knob or 4)
        greedy, found = map(self._translated, (1, size))
        shown = [greedy, found][: 1 + (greedy.text != found.text)]
        numbers = {"one": greedy.log_prob, "several": found.log_prob, "size": 4, "beam": size}
        return numbers | bars(tensor([one.log_prob for one in shown]).exp())

    def _card_temperature(self, knob: str, row: int) -> Numbers:
        logits, size = self._logits()[row], self._logits().size(1)
        heats = {"cold": 0.5, "plain": 1, "warm": 2}
        best = {name: (logits / heat).softmax(0).max().item() for name, heat in heats.items()}
        numbers = {"low": 0.5, "one": 1, "high": 2, "temperature": float(knob or 1), "size": size, "chance": 1 / size}
        return numbers | best | self._likeliest(row, float(knob or 1))

    def _card_loss(self, knob: str, row: int) -> Numbers:
        numbers = self._predicted(row)
        loss, guess = -math.log(numbers["probability"]), math.log(numbers["size"])
        return {
            "probability": numbers["probability"],
            "size": numbers["size"],
            "loss": loss,
            "guess": guess,
            "bar.0": loss,
            "chance": guess,
        }

    def _card_warm_up(self, knob: str, row: int) -> Numbers:
        warmup, width = int(knob or 4000), self.values("embeddings").size(1)
        rate = [width**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in (warmup, 64000)]
        steps = {"paper": 4000, "later": 16000, "share": 0.5, "warmup": warmup, "last": 64000, "d_model": width}
        return steps | {"peak": rate[0], "rate": rate[1]}

    def _card_families(self, knob: str, row: int) -> Numbers:
        n = len(self.encoder["embeddings"].rows)
        return {"tokens": n, "pairs": n * n, "triangle": n * (n + 1) / 2}

    def _card_pictures(self, knob: str, row: int) -> Numbers:
        patch = int(knob or 16)
        patches = (224 // patch) ** 2
        sound = {"seconds": 30, "frames": 1500}
        sizes = {"patches": patches, "read": patches + 1, "pairs": (patches + 1) ** 2}
        return {"side": 224, "patch": 16, "cut": patch} | sizes | sound

    def answers(self, name: str, row: int | None = None) -> set[str | float]:
        """The right answers to the question of a card: a token, a number, or the number of an option."""
        numbers, at = self.card(name, "", row), self.row(name) if row is None else row
        named = {
            "recurrence": "recurrent", "tokens": "tokens", "embeddings": "d_model", "heads": "distinct",
            "concat": "width", "memory": "tokens", "mask": "visible", "cross": "pairs", "greedy": "agree",
            "loss": "loss", "warm-up": "share", "families": "triangle", "pictures": "read",
        }  # fmt: skip
        options = {
            "weighted-sum": lambda: numbers["distance"] > numbers["even"],
            "positions": lambda: abs(numbers["here"] - numbers["swapped"]) < 1e-6,
            "scale": lambda: numbers["unscaled"] < numbers["scaled"],
            "residual": lambda: numbers["x"] < numbers["output"],
            "feed-forward": lambda: numbers["count"] >= numbers["d_ff"] / 2,
            "beam": lambda: numbers["several"] <= numbers["one"] + 1e-6,
            "temperature": lambda: numbers["cold"] < numbers["plain"],
        }
        if name in named:
            return {numbers[named[name]]}
        if name in options:
            return {int(options[name]())}
        return {1} if name in ("softmax", "norm") else self._best_tokens(name, at)

    def _best_tokens(self, name: str, row: int) -> set[str | float]:
        """The tokens with the greatest value, with a number where there are several of that name."""
        read, logits = self.encoder["embeddings"].rows, self._logits()[row] if name == "logits" else tensor([])
        if name == "logits":
            return {piece.removeprefix("\u2581") for piece in self.model.tokenizer.pieces([int(logits.argmax())])}
        q, k = (self.values(f"self_attn.{name}")[:3, :2] for name in ("queries", "keys"))
        found = {
            "alignment": lambda: self.values("cross_attn.softmax", self.crossing)[row],
            "by-hand": lambda: k @ q[row],
            "scores": lambda: self._scores(scaled=False)[row],
        }[name]()
        bests = (found >= found.max() - EQUAL * found.max().abs()).nonzero()[:, 0].tolist()
        return {numbered(read, best) for best in bests}


def numbered(pieces: list[str], at: int) -> str:
    names = [piece.removeprefix("\u2581") for piece in pieces]
    return names[at] if names.count(names[at]) == 1 else f"{names[at]} #{names[: at + 1].count(names[at])}"
