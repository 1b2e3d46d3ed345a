"""Checks of training: packed attention and updates against float32, curves of loss, resuming, processes, memory."""

import copy
import os
import signal
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gpu.checking import PLAIN, TRAINING, Checks, Skipped, batch_of, furthest, relative, switched, warned
from torch import Tensor, nn

import headwise
from headwise.config.model import TransformerConfig
from headwise.core import train as loop
from headwise.core.attention import scaled_dot_product_attention
from headwise.core.masks import PackedRows, Packing
from headwise.core.optimizer import gradient_norm, make_optimizer
from headwise.device import OFFLOAD, PACK
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.training import packed
from headwise.pytorch.training.deferred import step_if_finite
from headwise.pytorch.training.step import translation_objective

LENGTHS = [1, 7, 64, 129, 1, 33], [2, 1, 50, 200, 3, 31]  # of queries, and of the keys of another side
WIDTHS = (8, 16, 32, 64, 72, 128, 160, 192)
VARIANTS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm_position": "pre"},
    "rotary": {"positions": "rotary"},
    "learned": {"positions": "learned", "max_len": 120},
    "untied": {"tied_embeddings": "none"},
}


def varlen_kernel(c: Checks) -> None:
    """Values and gradients of packed attention, by widths of heads, against attention in float32 one by one."""
    if not c.cuda and packed.training_library() is None:
        raise Skipped("no compiled library")
    bad, largest = list[object](), 0.0
    for width in c.size(WIDTHS, (8, 32)):
        for causal in (False, True):
            try:
                errors, usual = _attention_errors(c, width, causal)
                largest = max(largest, *errors)
                if any(not e <= 2 * u + 0.005 for e, u in zip(errors, usual, strict=True)):
                    bad.append((width, causal, errors, usual))
            except Exception as error:
                bad.append((width, causal, type(error).__name__, str(error)[:150]))
    c.check(not bad, "varlen_kernel", bad or f"largest relative error {largest:.4f}", error=largest)


def _attention_errors(c: Checks, width: int, causal: bool) -> tuple[list[float], list[float]]:
    """Errors of packed attention in bfloat16 (output, gradients), and of attention one by one in bfloat16."""
    torch.manual_seed(width)
    rows = [PackedRows((torch.arange(max(n))[None] < torch.tensor(n)[:, None]).to(c.device), sum(n)) for n in LENGTHS]
    own, other = (0, 0) if causal else (0, 1)
    packing = Packing(rows[own], rows[other], causal, packed.attend_by_varlen)
    joined = torch.randn(1, rows[own].count, 3 * 4 * width, device=c.device)  # rows with gaps, as in the model
    keys = torch.randn(1, rows[other].count, 2 * 4 * width, device=c.device).chunk(2, -1)
    inputs = [x.unflatten(-1, (4, width)).transpose(1, 2) for x in (joined[..., : 4 * width], *keys)]
    grad = torch.randn(1, 4, rows[own].count, width, device=c.device)
    attention = packed.varlen_attention if c.cuda else packed.packed_attention

    def one_by_one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pieces = (x.split(LENGTHS[side], 2) for x, side in ((q, own), (k, other), (v, other)))
        masks = (torch.ones(n, n, dtype=torch.bool, device=c.device).tril() if causal else None for n in LENGTHS[own])
        parts = [scaled_dot_product_attention(*part)[0] for part in zip(*pieces, masks, strict=True)]
        return torch.cat(parts, 2)

    def gradients(function: Any, dtype: torch.dtype) -> list[Tensor]:
        given = [x.detach().to(dtype).requires_grad_() for x in inputs]
        out = function(*given)
        out.backward(grad.to(out.dtype))
        return [out, *(x.grad for x in given if x.grad is not None)]

    found = gradients(lambda *given: attention(*given, packing), torch.bfloat16)
    plain, exact = (gradients(one_by_one, dtype) for dtype in (torch.bfloat16, torch.float32))
    return [*map(relative, found, exact)], [*map(relative, plain, exact)]


def packed_training(c: Checks) -> None:
    """Loss and gradients: float32 with padding, bfloat16 with padding, bfloat16 packed."""
    d, known = c.size(256, 32), packed.varlen_attention
    for name, r_drop in [("post", 1.0), *((name, 0.0) for name in VARIANTS)]:
        torch.manual_seed(1)
        shape = TransformerConfig(
            vocab_size=500, d_model=d, d_ff=2 * d, n_heads=4, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0
        )
        model = build_model(replace(shape, **VARIANTS[name])).to(c.device)
        batch = batch_of(500, c.size(1500, 150), mean=15, longest=60).to(c.device)
        train, loss, gradient, calls = replace(PLAIN, r_drop=r_drop), {}, {}, list[int]()
        packed.varlen_attention = lambda *given, calls=calls: calls.append(1) or known(*given)
        try:
            for how in ("exact", "padded", "packed"):
                model.zero_grad()
                with switched(PACK), nullcontext() if how == "exact" else c.half():
                    found = translation_objective(model, 0, train, padded=how != "packed")(batch)
                found.objective.backward()
                loss[how], gradient[how] = found.objective, torch.cat([p.grad.flatten() for p in model.parameters()])
        finally:
            packed.varlen_attention = known
        errors = {how: relative(gradient[how], gradient["exact"]) for how in ("padded", "packed")}
        off = {how: relative(loss[how], loss["exact"]) for how in errors}
        passes = errors["packed"] < c.size(1.5, 3) * errors["padded"] + 0.003
        passes = passes and off["packed"] < 1.5 * off["padded"] + 0.002
        detail = f"errors of gradients {errors}, of the loss {off}; {len(calls)} calls of varlen_attn"
        name = f"packed_training.{name}{'.r_drop' if r_drop else ''}"
        c.check(passes and bool(calls) == c.cuda, name, detail, error=errors["packed"])


def fused_update(c: Checks) -> None:
    """`step_if_finite` skips what is not finite, clips, counts steps, and equals a plain AdamW."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(33, 65), nn.Linear(65, 7)).to(c.device)
    other = copy.deepcopy(model).cpu().double()
    optimizer = make_optimizer(model, replace(PLAIN, weight_decay=0.01))
    parts = ([p for p in other.parameters() if (p.dim() > 1) == decays] for decays in (True, False))
    groups = [{"params": own, "weight_decay": decay} for own, decay in zip(parts, (0.01, 0.0), strict=True)]
    plain, problems = torch.optim.AdamW(groups, lr=1e-2, betas=PLAIN.betas, eps=PLAIN.eps), list[str]()
    for step in range(6):
        x = torch.randn(16, 33, generator=torch.Generator().manual_seed(step))
        for net, given in ((model, x.to(c.device)), (other, x.double())):
            net.zero_grad()
            net(given).square().sum().backward()
        bad, before = step in (2, 4), [p.detach().clone() for p in model.parameters()]
        objective = torch.tensor(float("nan") if step == 2 else 1.0, device=c.device, dtype=torch.float64)
        norm = gradient_norm(model) * (float("inf") if step == 4 else 1.0)
        step_if_finite(optimizer, objective, norm, 1e-2, 0.5)
        if not bad:
            nn.utils.clip_grad_norm_(other.parameters(), 0.5)
            plain.step()
        if all(map(torch.equal, before, model.parameters())) != bad:
            problems.append(f"update {step}: {'changed' if bad else 'unchanged'}")
    steps = {float(state["step"]) for part in optimizer.parts for state in part.state.values()}
    problems += [f"counts of steps {steps}, expected 4"] * (steps != {4.0})
    error = max(map(relative, model.parameters(), other.parameters()))
    detail = problems or f"6 updates, 2 of them not finite; error {error:.2e}"
    c.check(not problems and error < 1e-4, "fused_update", detail, error=error)


def _curve(c: Checks, name: str, how: dict[str, Any], **options: Any) -> None:
    """Losses against those of float32 on a CPU: in float32, in bfloat16, and with everything that is experimental."""
    steps = c.size(30, 3)
    how = {"model.dropout": 0.0, "train.warmup_steps": c.size(5, 1), "train.learning_rate": 0.001, **how}
    runs = {"cpu": ("float32", (), "cpu"), "half": ("bf16", (), str(c.device))}
    if c.cuda:
        runs |= {"exact": ("float32", (), str(c.device)), "experimental": ("bf16", TRAINING, str(c.device))}
    for run, (precision, switches, device) in runs.items():
        with switched(*switches):
            c.trained(f"{name} {run}", steps, {**how, "train.precision": precision}, device=device, **options)
    found = {run: c.losses(f"{name} {run}") for run in runs}
    off = {run: furthest(found["cpu"], losses) for run, losses in found.items() if run != "cpu"}
    passes = all(error < (0.02 if run == "exact" else 0.06) for run, error in off.items())
    passes = passes and all(len(losses) == steps for losses in found.values())
    passes = passes and (not c.cuda or all(losses[steps] < losses[1] for losses in found.values()))
    ends = f"{found['half'][1]:.3f} -> {found['half'][steps]:.3f}"
    c.check(passes, f"curve.{name}", f"{steps} losses, {ends}; off {off}", **off)


def curve_translate(c: Checks) -> None:
    """A curve of losses of translation."""
    _curve(c, "translate", {"train.batching": "bucketed"})


def curve_lm(c: Checks) -> None:
    """A curve of losses of a language model."""
    how = {"train.validate_bleu": None, "data.block_length": 32, "model.n_encoder_layers": None}
    _curve(c, "lm", how, recipe="gpt", task="lm")


def curve_mlm(c: Checks) -> None:
    """A curve of losses of a masked language model."""
    how = {"train.validate_bleu": None, "data.block_length": 32, "model.n_decoder_layers": None}
    _curve(c, "mlm", how, recipe="bert", task="mlm")


def resume(c: Checks) -> None:
    """The same run twice, and one that is stopped and resumed."""
    steps, at = c.size((24, 14), (4, 2))

    class Stop(headwise.Callback):
        def on_log(self, record: dict[str, Any]) -> None:
            if record["step"] == at:
                signal.raise_signal(signal.SIGTERM)

    for what, switches in c.size({"plain": (), "experimental": TRAINING}, {"plain": ()}).items():
        with switched(*switches):
            for name in ("whole", "again"):
                c.trained(f"{name} {what}", steps)
            try:
                c.trained(f"cut {what}", steps, callbacks=[Stop()])
            except UserError as error:
                if "SIGTERM" not in str(error):
                    raise
            c.trained(f"cut {what}", steps, resume=True)
        whole, again, cut = (c.losses(f"{name} {what}") for name in ("whole", "again", "cut"))
        twice, resumed = furthest(whole, again), furthest(whole, cut)
        passes = set(whole) == set(cut) and resumed <= max(10 * twice, c.size(0.01, 0.0))
        detail = f"losses of the resumed run within {resumed:.1e}, of the same run again {twice:.1e}"
        c.check(passes, f"resume.{what}", detail, bit_equal={"resumed": whole == cut, "again": whole == again})


def deterministic(c: Checks) -> None:
    """`train.deterministic` repeats a run; torch warns of what it cannot repeat."""
    with warned("determin") as names:
        for name in ("one", "two"):
            c.trained(f"deterministic {name}", c.size(12, 2), {"train.deterministic": True})
    equal = c.losses("deterministic one") == c.losses("deterministic two")
    c.check(equal or bool(names), "deterministic", {"bit-equal": equal, "not deterministic": sorted({*names})})


def other_device(c: Checks) -> None:
    """A checkpoint of a CPU is resumed on the GPU, and one of the GPU on a CPU."""
    how = {"train.schedule": "constant"}
    for steps, device in ((8, "cpu"), (16, str(c.device)), (20, "cpu")):
        c.trained("moved", steps, how, device=device, resume=steps > 8)
    c.check(len(c.losses("moved")) == 20, "other_device", "CPU -> GPU -> CPU")


def other_settings(c: Checks) -> None:
    """Settings with which updates are not deferred, and others."""
    close = ("recompute", "ema", "float32")
    for name, how in {
        "plain": {},
        "recompute": {"train.recompute": True},
        "ema": {"train.ema": 0.9},
        "muon": {"train.optimizer": "muon"},
        "accumulate": {"train.accumulate": 2},
        "float32": {"train.precision": "float32"},
    }.items():
        with switched(*TRAINING):
            c.trained(f"other {name}", c.size(5, 1), {"model.dropout": 0.0, **how})
        off = furthest(c.losses("other plain"), c.losses(f"other {name}"))
        detail = f"losses within {off:.1e} of the plain run"
        c.check(off < (0.02 if name in close else 10), f"other_settings.{name}", detail)


def waits(c: Checks) -> None:
    """How often a deferred update waits for the GPU (torch.cuda.set_sync_debug_mode)."""
    counts, known = list[list[str]](), loop.update

    def watched(*given: Any) -> None:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                known(*given)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        counts.append([f"{Path(w.filename).name}:{w.lineno}" for w in seen if "synchroniz" in str(w.message)])

    loop.update = watched
    try:
        ways = {"packed": {}, "padded": {"train.precision": "float32"}, "clip": {"train.clip_norm": 1.0}}
        for name, how in ways.items():
            counts.clear()
            with switched(*TRAINING):
                c.trained(f"waits {name}", 8, {"train.log_every": 100, **how})
            where = sorted({place for one in counts[3:] for place in one})
            c.check(not where, f"waits.{name}", f"{sum(map(len, counts[3:])) / 5:.1f} waits of an update {where[:6]}")
    finally:
        loop.update = known


def group(c: Checks) -> None:
    """One process as torchrun starts it: NCCL, DDP, FSDP2 and offloading on the only GPU."""
    how = {"model.dropout": 0.0, "train.clip_norm": 1.0}
    c.trained("group of none", c.size(6, 2), how)
    own = {"MASTER_ADDR": "localhost", "MASTER_PORT": "0", OFFLOAD: "1"}  # any port
    own |= {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for shard in c.size(("none", "full", "offload"), ("none", "full")):
        os.environ.update(own)
        try:
            c.trained(f"group {shard}", c.size(6, 2), {**how, "train.shard": shard}, device=c.device.type)
        finally:
            for name in own:
                del os.environ[name]
        off = furthest(c.losses("group of none"), c.losses(f"group {shard}"))
        detail = f"losses within {off:.1e} of those without a group"
        c.check(off < c.size(0.02, 1e-3), f"group.{shard}", detail, error=off)


def refusals(c: Checks) -> None:
    """Messages for devices that are not there."""
    n = torch.cuda.device_count()
    for options in ({"device": "cuda:99"}, {"device": "mps"}, {"device": "cuda", "devices": n + 1}):
        try:
            c.trained("refused", 2, **options)
            c.check(False, f"refusals.{options}", "trains")
        except UserError as error:
            c.check("\n" not in str(error), f"refusals.{options}", error)


def out_of_memory(c: Checks) -> None:
    """A training and a search that need more than there is; then it is as before."""
    total = torch.cuda.get_device_properties(c.device).total_memory
    path, texts = c.toy, [" ".join(c.sources(1)[0].split()[:1] * 60)] * 400
    model = headwise.load(path, device=str(c.device))
    want = [t.text for t in model.translate(texts[:2], compute="float32", beam_size=4)]

    def limit(n_bytes: float) -> None:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved() + n_bytes) / total))

    limit(6e7)
    try:
        found = [t.text for t in model.translate(texts, compute="float32", beam_size=4, batch_tokens=10**6)]
        c.check({*found} == {*want}, "out_of_memory.decoding", "decoded in smaller batches")
    except UserError as error:
        c.check("memory" in str(error), "out_of_memory.decoding", error)
    limit(total)
    again = [t.text for t in model.translate(texts[:2], compute="float32", beam_size=4)]
    c.check(again == want, "out_of_memory.afterwards", "translates as before")
    limit(5e8)
    try:
        c.trained("memory", 4, {"model.d_model": 512, "model.d_ff": 2048, "train.tokens_per_batch": 30000})
        c.check(False, "out_of_memory.training", "trains")
    except UserError as error:
        c.check("tokens_per_batch" in str(error), "out_of_memory.training", error)
    limit(total)
