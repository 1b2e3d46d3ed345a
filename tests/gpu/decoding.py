"""Checks of decoding: captured steps, half precision, threads, a second GPU; the CPU and its C library as reference."""

import json
import threading
from typing import Any

import torch
from gpu.checking import Checks, Skipped, differing, furthest, switched, warned

import headwise
from headwise.device import CAPTURE
from headwise.pytorch.search import stepwise


def training_with_validation(c: Checks) -> None:
    """A run with dropout and a validation that translates, during which no step is captured."""
    with warned("graph") as graphs:
        path = c.toy
    lines = (path / "validation.jsonl").read_text(encoding="utf-8").split("\n")
    first, *_, last = map(json.loads, filter(None, lines))
    passes = not graphs and (not c.cuda or last["loss"] < first["loss"])
    c.check(passes, "training_with_validation", graphs or f"loss {last['loss']:.3f}, BLEU {last.get('bleu')}")


def captured_decoding(c: Checks) -> None:
    """Captured, as usual, and by the library on a CPU: the same translations and scores, in float32."""
    texts = c.sources(c.size(100, 4))
    here, there = (headwise.load(c.toy, device=name) for name in (str(c.device), "cpu"))
    ways: list[dict[str, Any]] = [{"beam_size": 1}, {"beam_size": 4}, {"beam_size": 4, "batch_tokens": 64}]
    for how in (*ways, {"sample": True, "n_best": 1, "seed": 3}):
        allowed = len(texts) // 20 if how.get("sample") else 0
        with switched(CAPTURE), warned("graph") as failed:
            found = here.translate(texts, compute="float32", **how)
        with switched():
            usual, cpu = (model.translate(texts, compute="float32", **how) for model in (here, there))
        (other, _), (elsewhere, score) = differing(found, usual), differing(found, cpu)
        passes = not failed and other <= allowed and elsewhere <= max(allowed, len(texts) // 50) and score < 0.01
        detail = f"{other} differ from uncaptured, {elsewhere} from the CPU; log-probabilities within {score:.1e}"
        c.check(passes, f"captured_decoding.{how}", failed or detail)


def half_decoding(c: Checks) -> None:
    """Translations in half precision, without captures."""
    texts, model = c.sources(c.size(100, 4)), headwise.load(c.toy, device=str(c.device))
    exact = model.translate(texts, compute="float32", beam_size=4)
    for compute in c.size(("float16", "bfloat16", "auto"), ("bfloat16", "auto")):
        other, score = differing(model.translate(texts, compute=compute, beam_size=4), exact)
        passes = other <= c.size(len(texts) // (5 if compute == "bfloat16" else 20) + 1, len(texts))
        c.check(passes, f"half_decoding.{compute}", f"{other} differ from float32; scores within {score:.2g}")


def language_model(c: Checks) -> None:
    """Texts of a decoder alone, captured and not."""
    path = c.folder / "lm half"
    if not (path / "config.json").is_file():
        raise Skipped("needs curve_lm")
    model, prompts, found = headwise.load(path, device=str(c.device)), ["ba", "be ki do", "da"], []
    for switches in ((CAPTURE,), ()):
        with switched(*switches):
            outputs = model.generate(prompts, max_length_extra=c.size(24, 4))
            found.append([str(getattr(output, "text", output)) for output in outputs])
    c.check(found[0] == found[1], "language_model", "the same texts, captured and not")


def failed_capture(c: Checks) -> None:
    """A step that waits for the GPU cannot be captured: there is a warning, and torch stays usable."""
    texts, known = c.sources(8), stepwise.captured_steps

    def waiting(model: Any, step: Any) -> Any:
        def slow(tokens: torch.Tensor, cache: Any) -> torch.Tensor:
            logits = step(tokens, cache)
            float(logits.sum())  # not allowed in a capture
            return logits

        return known(model, slow)

    model = headwise.load(c.toy, device=str(c.device))

    def translated() -> list[str]:
        return [t.text for t in model.translate(texts, compute="float32")]

    with switched():
        want = translated()
    stepwise.captured_steps = waiting
    try:
        with switched(CAPTURE), warned("without cuda graphs") as seen:
            found = translated()
    finally:
        stepwise.captured_steps = known
    c.check(found == want and bool(seen), "failed_capture.result", seen)
    streams = torch.cuda.current_stream(), torch.cuda.default_stream()
    c.check(streams[0] == streams[1], "failed_capture.stream", streams[0])
    try:
        torch.nn.functional.dropout(torch.ones(1000, device=c.device), 0.5)
        torch.rand(3, device=c.device)
        torch.cuda.synchronize()
        c.check(True, "failed_capture.dropout", "random numbers still work")
    except Exception as error:
        c.check(False, "failed_capture.dropout", f"{type(error).__name__}: {error}")
    with switched(CAPTURE):
        c.check(translated() == want, "failed_capture.next_search", "the same translations")


def threads(c: Checks) -> None:
    """Four threads translate with one model, and two with another."""
    texts, bad = c.sources(c.size(40, 2)), list[str]()
    models = [headwise.load(c.toy, device=str(c.device)) for _ in range(2)]
    want = [t.text for t in models[0].translate(texts)]

    def work(number: int) -> None:
        try:
            if [t.text for t in models[number % 3 // 2].translate(texts)] != want:
                bad.append("differs")
        except Exception as error:
            bad.append(f"{type(error).__name__}: {error}"[:200])

    with switched(CAPTURE), warned("graph") as graphs:
        running = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    c.check(not bad and not graphs, "threads", bad or graphs or "6 threads, 2 models: all the same")


def second_device(c: Checks) -> None:
    """`--device cuda:1` beside cuda:0: events and graphs have to be of the device of the model."""
    if torch.cuda.device_count() < 2:
        raise Skipped("one GPU only; not tested: --device cuda:1")
    names, texts = ("cuda:0", "cuda:1"), c.sources(50)
    with switched("HEADWISE_PACK", "HEADWISE_DEFER", CAPTURE):
        for name in names:
            c.trained(f"on {name}", 8, {"model.dropout": 0.0}, device=name)
        off = furthest(*(c.losses(f"on {name}") for name in names))
        c.check(off < 0.01, "second_device.training", f"losses within {off:.1e}")
        models = [headwise.load(c.toy, device=name) for name in names]  # the second one is the current device
        other, _ = differing(*(model.translate(texts, compute="float32") for model in models))
        c.check(not other, "second_device.decoding", f"{other} differ")
