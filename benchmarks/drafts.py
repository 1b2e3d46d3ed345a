"""Latency of single sentences: time to the first token and to the end, with and without drafts (speculative decoding).

    python benchmarks/drafts.py MODEL --source FILE [--memory FILE ...] [--draft MODEL] [--sentences 60]

Greedy search of a trained model with one thread, without other libraries. `none` is plain streaming; the others use the
drafts of `headwise translate --draft`. All take turns on each sentence, and all outputs must be the same. Tokens per
step show how good the guesses are; near 1, a draft only costs time. Writes `results/drafts_*`.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import torch
from turns import speed_ratio

import headwise
from headwise.config.settings import SETTINGS
from headwise.runtime.search import speculative


class StepCounter:
    """While installed, counts verification steps and the tokens that they yield."""

    def __init__(self) -> None:
        self.steps = self.tokens = 0
        self._begin: Callable[..., Any] = speculative.begin

    def __enter__(self) -> "StepCounter":
        def begin(*arguments: Any) -> Any:
            search = self._begin(*arguments)
            advance = search.advance

            def counted(guesses: Any) -> Any:
                found = advance(guesses)
                self.steps, self.tokens = self.steps + bool(found), self.tokens + len(found)
                return found

            search.advance = counted
            return search

        speculative.begin = begin
        return self

    def __exit__(self, *_: object) -> None:
        speculative.begin = self._begin


def first_and_whole(stream: Any) -> tuple[float, float, str]:
    """Seconds until the first token and until the end, and the text."""
    started, first, text = machine.now(), None, ""
    for text_part in stream:
        first = first or machine.now() - started
        text += text_part
    whole = machine.now() - started
    return first or whole, whole, text


def measure(model: Any, drafts: dict[str, Any], lines: list[str], compute: str) -> list[list[object]]:
    """A row for each draft."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in drafts}
    counters = {name: StepCounter() for name in drafts}
    first_and_whole(model.stream(lines[0], compute=compute))  # graphs are recorded on the first call
    for line in lines:
        texts = set()
        for name, draft in drafts.items():
            with counters[name]:
                first, whole, text = first_and_whole(model.stream(line, draft=draft, compute=compute))
            seconds[name].append((first, whole))
            texts.add(text)
        assert len(texts) == 1, f"a draft changed an output: {texts}"
    plain = [whole for _, whole in seconds["none"]]
    rows = []
    for name, found in seconds.items():
        firsts, wholes = zip(*found, strict=True)
        milliseconds = [f"{1000 * x:.1f}" for x in (*_p50_p99(firsts), *_p50_p99(wholes))]
        counter = counters[name]
        per_step = f"{counter.tokens / counter.steps:.2f}" if counter.steps else "1"
        rows.append([name, *milliseconds, speed_ratio(wholes, plain), per_step])
    return rows


def _p50_p99(seconds: Any) -> tuple[float, float]:
    return statistics.median(seconds), statistics.quantiles(seconds, n=100, method="inclusive")[98]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--source", type=Path, required=True, help="text to translate")
    parser.add_argument("--memory", nargs="+", default=[], help="translation memories")
    parser.add_argument("--draft", help="a smaller model with the same tokenizer")
    parser.add_argument("--sentences", type=int, default=machine.pick(60, 4))
    parser.add_argument("--compute", choices=SETTINGS["decode.compute"].choices, nargs="+", default=["float32", "int8"])
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    torch.set_num_threads(1)
    model = headwise.load(options.model, "cpu")
    lines = [line for line in options.source.read_text().split("\n") if line][: options.sentences]
    drafts: dict[str, Any] = {"none": "", "input": model.draft("input")}
    drafts |= {Path(path).name: model.draft(path) for path in [*options.memory, *filter(None, [options.draft])]}
    header = ["draft", "first token p50 ms", "p99", "whole p50 ms", "p99", "faster than none by", "tokens per step"]
    sections, data = [], {}
    for compute in options.compute:
        rows = measure(model, drafts, lines, compute)
        data[compute] = [[str(cell) for cell in row] for row in rows]
        sections.append(f"### {compute}, {len(lines)} sentences\n\n{machine.table(header, rows)}")
        print(sections[-1], flush=True)
    path = machine.result_path("drafts")
    machine.write_result(path, "One sentence at a time, with drafts", machine.description(cores), sections, data)
    print(f"written to {path}.md")


if __name__ == "__main__":
    main()
