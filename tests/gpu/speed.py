"""Figures: training steps and their share of the peak, the longest kernels, compilation, and tokens of decoding."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from gpu.checking import TRAINING, Checks, batch_of, switched
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiled

import headwise
from headwise.cli import main as run_command
from headwise.config.settings import SearchSettings, load_recipe
from headwise.core.optimizer import gradient_norm, make_optimizer
from headwise.device import CAPTURE
from headwise.lab.study.claim import Plan
from headwise.lab.study.run import StudyRequest, run_study
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of
from headwise.pytorch.training.deferred import step_if_finite
from headwise.pytorch.training.step import translation_objective
from headwise.pytorch.training.utilisation import device_peak, operations_of
from headwise.runtime.search.engine import decode_tokens


@dataclass
class Steps:
    """Training steps of a network with generated batches."""

    step: Callable[[], None]
    operations: float  # of a step
    n_targets: float  # of a step
    losses: list[torch.Tensor]  # of all steps so far, per target


def network_of(c: Checks, recipe: str) -> torch.nn.Module:
    shape = replace(load_recipe(recipe).model, vocab_size=c.size(37000, 300))
    if not c.cuda:
        shape = replace(shape, d_model=32, d_ff=64, n_heads=2, n_encoder_layers=1, n_decoder_layers=1)
    torch.manual_seed(0)
    return build_model(shape).to(c.device)


def steps_of(c: Checks, recipe: str, n_tokens: int, padded: bool, deferred: bool, compiled: bool = False) -> Steps:
    model, train = network_of(c, recipe).train(), replace(load_recipe(recipe).train, compile=compiled)
    objective, optimizer = translation_objective(model, 0, train, padded=padded), make_optimizer(model, train)
    batches = [batch_of(c.size(37000, 300), n_tokens, seed=i, sort=padded).to(c.device) for i in range(3)]
    losses: list[torch.Tensor] = []

    def step() -> None:
        batch = batches[len(losses) % len(batches)]
        model.zero_grad(set_to_none=True)
        with c.half():
            loss = objective(batch)
        (loss.objective / batch.n_targets).backward()
        norm = gradient_norm(model)
        if deferred:
            step_if_finite(optimizer, loss.objective.detach().double(), norm, 1e-5, 0.0)
        elif bool(norm.isfinite()):  # waits
            optimizer.step(1e-5)
        losses.append(loss.objective.detach() / batch.n_targets)

    operations = statistics.mean(map(operations_of(model), batches))
    return Steps(step, operations, statistics.mean(batch.n_targets for batch in batches), losses)


def speed(c: Checks) -> None:
    """Tokens per second and share of the peak of training steps, by recipe and size of batches."""
    peak, plain = device_peak(c.device), c.size(25000, 150)
    for recipe in c.size(("base", "big"), ("base",)):
        found: dict[str, float] = {}
        for n_tokens in c.size((4000, 12000, 25000, 50000), (150,)):
            ways = {"packed.deferred": (False, True)}
            if n_tokens == plain:
                ways = {"padded": (True, False), "padded.deferred": (True, True), "packed": (False, False), **ways}
            for way, (padded, is_deferred) in ways.items():
                name = f"speed.{recipe}.{n_tokens}.{way}"
                try:
                    with switched(*TRAINING):
                        seconds = _measured(c, name, steps_of(c, recipe, n_tokens, padded, is_deferred), peak)
                except torch.OutOfMemoryError as error:
                    c.say("FAIL", name, f"out of memory: {error}")
                    continue
                if n_tokens == plain:
                    found[way] = seconds
        for what, new, old in (("packing", "packed", "padded"), ("deferring", "padded.deferred", "padded")):
            if c.cuda and {new, old} <= {*found}:
                ratio = found[old] / found[new]
                c.check(ratio > 0.98, f"pays.{what}.{recipe}", f"{ratio:.2f} times the speed", ratio=ratio)


def _measured(c: Checks, name: str, steps: Steps, peak: float | None) -> float:
    """Seconds per target token, which are reported."""
    if c.cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seconds = c.timed(steps.step, c.size(8, 1), c.size(3, 1))
    mfu = steps.operations / seconds / peak if peak else None
    gib = torch.cuda.max_memory_allocated() / 2**30 if c.cuda else 0.0
    rate = steps.n_targets / seconds
    figures = {"ms": 1000 * seconds, "tokens_per_second": rate, "mfu": mfu, "gib": gib, "loss": float(steps.losses[-1])}
    c.say("INFO", name, ", ".join(f"{what} {figure:.4g}" for what, figure in figures.items() if figure), **figures)
    return 1 / rate


def profile(c: Checks) -> None:
    """A step of base: the kernels that take longest, and how long the GPU has nothing to do."""
    with switched(*TRAINING):
        steps = steps_of(c, "base", c.size(25000, 150), padded=False, deferred=True)
        for _ in range(c.size(3, 1)):
            steps.step()
        c.synchronize()
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if c.cuda else [])]
        with profiled(activities=kinds) as seen:
            began = time.perf_counter()
            for _ in range(2):
                steps.step()
            c.synchronize()
            wall = time.perf_counter() - began
    own = "self_device_time_total" if c.cuda else "self_cpu_time_total"
    rows = sorted(seen.key_averages(), key=lambda row: -getattr(row, own, 0))
    if c.cuda:  # kernels only: operations of the host also carry the time of theirs
        rows = [row for row in rows if str(getattr(row, "device_type", "")).endswith("CUDA")]
    idle = max(0.0, 1 - sum(getattr(row, own, 0) for row in rows) / 1e6 / wall)
    c.say("INFO", "profile.idle", f"{idle:.0%} of a step of {1000 * wall / 2:.1f} ms (with the profiler)", share=idle)
    for row in rows[:15]:
        c.say("INFO", "profile.kernel", f"{getattr(row, own) / 2000:8.2f} ms {row.count // 2:5d} x {row.key[:100]}")


def compilation(c: Checks) -> None:
    """Padded steps, compiled or not."""
    found = {}
    for compiled in (False, True):
        steps, began = steps_of(c, "base", c.size(12000, 150), True, False, compiled), time.perf_counter()
        steps.step()
        c.synchronize()
        first = time.perf_counter() - began
        found[compiled] = 1000 * c.timed(steps.step, c.size(5, 1), warm=4), float(steps.losses[0]), first
    (plain, loss, _), (ms, other, first) = found[False], found[True]
    off = abs(other - loss) / loss
    figures = {"plain": plain, "compiled": ms, "first": 1000 * first}
    figures["breaks"] = len(torch._dynamo.utils.counters["graph_break"])
    c.check(off < 0.02, "compilation", f"loss within {off:.1e}; ms: {figures}", **figures)


def throughput(c: Checks) -> None:
    """Tokens per second of decoding: base in half precision, captured and not; CTranslate2 if it is installed."""
    engine = engine_of(prepare_for_inference(network_of(c, "base").eval(), c.size("float16", "torch")))
    length = c.size(40, 4)
    fixed = {"max_length_factor": 0.0, "max_length_extra": length, "min_length_extra": length - 1}
    settings = SearchSettings(beam_size=4, batch_tokens=10**6, min_length_factor=0.0, **fixed)
    for rows in c.size((1, 32, 256), (2,)):
        src = batch_of(c.size(37000, 300), rows * 30, seed=1).src[:rows].tolist()
        found = {}
        for switches in ((CAPTURE,), ()):
            with switched(*switches):
                seconds = c.timed(lambda src=src: decode_tokens(engine, src, settings), c.size(2, 1), c.size(1, 0))
            found[bool(switches)] = len(src) * length / seconds
        c.say("INFO", f"throughput.base.{rows}", f"tokens/s, captured or not: {found}")
        if c.cuda:
            ratio = found[True] / found[False]
            c.check(ratio > 0.95, f"pays.capturing.{rows}", f"{ratio:.2f} times the speed", ratio=ratio)
    texts, model = c.sources(c.size(100, 2)) * c.size(5, 1), headwise.load(c.toy, device=str(c.device))
    for switches in ((CAPTURE,), ()):
        with switched(*switches):
            seconds = c.timed(lambda: model.translate(texts, beam_size=4), 1, c.size(1, 0))
        rate, what = len(texts) / seconds, "captured" if switches else "plain"
        c.say("INFO", f"throughput.toy.{what}", f"{rate:,.0f} texts/s", texts_per_second=rate)


def peer(c: Checks) -> None:
    """Texts per second of the same model here and in CTranslate2, if that is installed."""
    try:
        import ctranslate2
        import tokenizers
    except ImportError as error:
        c.say("SKIP", "peer", error)
        return
    texts, out = c.sources(c.size(100, 2)) * c.size(5, 1), c.folder / "paper ct2"
    path = c.trained("paper", c.size(20, 1), recipe="paper-tiny")
    code = run_command(["export", str(path), str(out), "--to", "ctranslate2"])
    if not c.check(code == 0, "peer.export", f"exit code {code}"):
        return
    model = headwise.load(path, device=str(c.device))
    reader = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    inputs = [[*reader.encode(text).tokens, reader.id_to_token(model.tokenizer.eos_id)] for text in texts]
    other = ctranslate2.Translator(str(out), device=c.device.type, compute_type=c.size("float16", "float32"))
    limits = {"beam_size": 4, "max_batch_size": 4096, "batch_type": "tokens", "max_decoding_length": 40}
    theirs = c.timed(lambda: other.translate_batch(inputs, **limits), 1, warm=1)
    how = {"beam_size": 4, "max_length_factor": 0.0, "max_length_extra": 40}
    ours = c.timed(lambda: model.translate(texts, **how), 1, warm=1)
    rates = {"ours": len(texts) / ours, "theirs": len(texts) / theirs}
    c.say("INFO", "peer.ctranslate2", f"texts/s: {rates}", **rates)


def study(c: Checks) -> None:
    """What the timed claims of the study find on this device: cost of layers, and steps over long sequences."""
    plan = Plan(c.size("full", "quick"), str(c.device))
    page, findings = run_study(StudyRequest(c.folder / "study", ("layer-cost", "sequential"), plan))
    for finding in findings:
        name = f"study.{finding.claim.name}"
        for result in finding.claim.judge(finding.rows):  # chains are counted, so they are the same everywhere
            status = "PASS" if result.verdict == "supported" else "FAIL"
            status = status if result.statement.name.startswith("chain-") else "INFO"
            c.say(status, f"{name}.{result.statement.name}", result.sentence)
        c.check(bool(finding.units) and not finding.waiting, name, page)
