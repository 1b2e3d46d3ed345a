"""Cost of introspection: none without it, and the cost of one layer, all layers and the other readings.

    python benchmarks/recording.py MODEL --source FILE --target FILE [--sentences 32] [--turns 20]

A trained model with one thread, without other libraries. First, the same model is loaded twice and translates the same
sentences: one has never been inspected, the other has been recorded, traced and attributed before. Then forced passes
over a batch of pairs: without recording, with one attention layer recorded, and with all of them. Last, what a user
waits for: translating one sentence, and inspecting it. All take turns; every translation must be the same and every
hidden state equal to the last bit. Writes `results/recording_*`.
"""

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import machine
import torch
from turns import spread, take_turns

import headwise
from headwise.core.batches import collate
from headwise.pytorch.inspect.recording import attentions, recording

Contenders = dict[str, Callable[[int], float]]


def timed(work: Callable[[], Any]) -> Callable[[int], float]:
    """A contender that does the same work in every turn."""

    def contender(_: int) -> float:
        started = machine.now()
        work()
        return machine.now() - started

    return contender


def translations(path: str, lines: Sequence[str]) -> Contenders:
    """Translation with a model that was never inspected and with one that was."""
    untouched, inspected = (headwise.load(path, "cpu") for _ in range(2))
    inspected.attend(lines[0])
    inspected.trace(lines[0])
    inspected.attribute(lines[0], steps=2)
    if [t.text for t in untouched.translate(lines)] != [t.text for t in inspected.translate(lines)]:
        raise SystemExit("an inspected model translates differently")
    return {
        "never inspected": timed(lambda: untouched.translate(lines)),
        "inspected before": timed(lambda: inspected.translate(lines)),
    }


def forced_passes(model: Any, pairs: Sequence[tuple[str, str]]) -> Contenders:
    """One pass over a batch of pairs, with more and more attention layers recorded."""
    t = model.tokenizer
    batch = collate([(t.encode(src), t.encode(tgt)) for src, tgt in pairs], t.pad_id, t.bos_id, t.eos_id)
    stacks = attentions(model.network)
    every = {name: module for modules in stacks.values() for name, module in modules.items()}
    name, last = list(stacks["cross"].items())[-1]
    model.network.eval()

    def read(modules: Mapping[str, Any]) -> torch.Tensor:
        with torch.inference_mode(), recording(modules):
            return model.network(batch.src, batch.tgt_in, batch.src_mask)

    def plain() -> torch.Tensor:
        with torch.inference_mode():
            return model.network(batch.src, batch.tgt_in, batch.src_mask)

    if not all(torch.equal(plain(), read(modules)) for modules in ({}, {name: last}, every)):
        raise SystemExit("a recorded pass gives other hidden states")
    return {
        "plain": timed(plain),
        "no layer recorded": timed(lambda: read({})),
        "one layer": timed(lambda: read({name: last})),
        f"all {len(every)} layers": timed(lambda: read(every)),
    }


def readings(model: Any, lines: Sequence[str]) -> Contenders:
    """Inspection of one sentence, a different one in each turn."""

    def each(inspect: Callable[[str], Any]) -> Callable[[int], float]:
        return lambda turn: timed(lambda: inspect(lines[turn % len(lines)]))(turn)

    return {
        "translate": each(lambda line: model.translate([line])),
        "attend, one layer": each(lambda line: model.attend(line, layers={"cross": [-1]})),
        "attend": each(model.attend),
        "trace": each(model.trace),
        "attribute": each(model.attribute),
    }


def section(title: str, contenders: Contenders, turns: int) -> tuple[str, dict[str, list[float]]]:
    """Take turns; returns a table of seconds and of ratios to the first contender, turn by turn."""
    seconds = take_turns(contenders, turns)
    first = next(iter(seconds.values()))
    rows = [
        [name, f"{1000 * statistics.median(took):.2f}", spread([t / f for t, f in zip(took, first, strict=True)])]
        for name, took in seconds.items()
    ]
    table = machine.table(["", "milliseconds", "times the first (quartiles)"], rows)
    print(f"{title}\n\n{table}\n", flush=True)
    return f"## {title}\n\n{table}", seconds


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="model directory")
    parser.add_argument("--source", required=True, help="file of source lines")
    parser.add_argument("--target", required=True, help="file of their translations")
    parser.add_argument("--sentences", type=int, default=machine.pick(32, 4), help="(default: %(default)s)")
    parser.add_argument("--turns", type=int, default=machine.pick(20, 1), help="(default: %(default)s)")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    machine.prepare(options)
    torch.set_num_threads(1)
    about = machine.description(1)
    source, target = (
        Path(path).read_text(encoding="utf-8").splitlines()[: options.sentences]
        for path in (options.source, options.target)
    )
    model = headwise.load(options.model, "cpu")
    sections, data = [__doc__.split("\n\n", 2)[2].strip()], {}
    for title, contenders in [
        (f"Translating {len(source)} sentences", translations(options.model, source)),
        (f"A forced pass over {len(source)} pairs", forced_passes(model, list(zip(source, target, strict=True)))),
        ("A forced pass over one pair", forced_passes(model, [(source[0], target[0])])),
        ("One sentence", readings(model, source)),
    ]:
        text, data[title] = section(title, contenders, options.turns)
        sections.append(text)
    path = machine.result_path("recording")
    machine.write_result(path, "Cost of introspection", about, sections, {"seconds": data})
    print(f"written to {path}.md")


if __name__ == "__main__":
    main()
