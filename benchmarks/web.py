"""The page of `headwise export --to web` in Chromium compared with translation here, in words a second.

    python benchmarks/web.py MODEL --source FILE [--limit 500] [--turns 3] [--cores N]

Contenders take turns over the same sentences with the model's own settings in int8: the page with both builds of the
library, and `translate` in this process, batched and, as in the page, one sentence at a time. Seconds are Linux's
processor time of this process or of the page's worker (without V8's compiler, which has its own threads). All must
write the same texts. Writes `results/web_*`.
"""

import argparse
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import machine
from turns import spread, take_turns

import headwise
from headwise.runtime.checkpoint.read import read_folder
from headwise.serve.web import page, wasm

WORKER = "DedicatedWorker"  # Chromium's name of the thread
TICKS = os.sysconf("SC_CLK_TCK")
CHROMIUM = "/usr/bin/chromium"
SUBMIT = "(node, text) => { node.value = text; node.form.requestSubmit(); }"
OUTPUTS = "(nodes) => nodes.map((node) => node.textContent)"


def main() -> None:
    """Measure and write."""
    options = arguments()
    threads = machine.prepare(options)
    lines = Path(options.source).read_text(encoding="utf-8").splitlines()[: options.limit]
    about = machine.description(1) | {"cores": threads}
    written: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        pages = write_pages(options.model, Path(folder))
        size = pages["relaxed"].stat().st_size
        with opened(pages) as tabs:
            contenders: dict[str, Callable[[int], float]] = {
                f"page, {build}": functools.partial(in_page, tab, lines, written, build) for build, tab in tabs.items()
            }
            contenders |= here(options.model, lines, written)
            seconds = take_turns(contenders, options.turns, warm_up=1)
    texts = {name: found == written["batches"] for name, found in written.items()}
    words = sum(len(line.split()) for line in lines)
    rates = {name: [words / second for second in found] for name, found in seconds.items()}
    rows = [[name, spread(found)] for name, found in rates.items()]
    summary = (
        f"{words} words in {len(lines)} lines; the page has {size / 1e6:.1f} MB. Same texts: {all(texts.values())}."
    )
    about["versions"] |= {"chromium": tabs.versions[0]}
    sections = [summary, machine.table(["contender", "words/s (quartiles)"], rows)]
    data = {"seconds": seconds, "words": words, "bytes": size, "same": texts}
    machine.write_result(machine.result_path("web"), "The translation page in Chromium", about, sections, data)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--source", required=True)
    parser.add_argument("--limit", type=int, default=machine.pick(500, 8))
    parser.add_argument("--turns", type=int, default=machine.pick(3, 1))
    parser.add_argument("--cores", type=int, nargs="+", help="use only these cores")
    machine.add_quick_option(parser)
    parser.set_defaults(clock="cpu")
    return parser.parse_args()


def write_pages(model: str, folder: Path) -> dict[str, Path]:
    """The page, and a copy for browsers without relaxed SIMD."""
    made, binaries = {}, wasm.wasm_builds()
    for build, relaxed in (("relaxed", binaries["relaxed"]), ("simd", b"not understood")):
        page.wasm_builds = lambda relaxed=relaxed: binaries | {"relaxed": relaxed}
        made[build] = folder / f"{build}.html"
        page.export_page([read_folder(model)], made[build])
    return made


class opened:
    """A browser for each page, in its own process."""

    def __init__(self, pages: dict[str, Path]) -> None:
        self.pages = pages
        self.versions: list[str] = []

    def __enter__(self) -> Any:
        from playwright.sync_api import sync_playwright

        self.playwright = sync_playwright().start()
        self.browsers = {}
        for build, path in self.pages.items():
            browser = self.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            self.browsers[build] = (browser, browser.new_page())
            self.browsers[build][1].goto(path.as_uri())
            self.browsers[build][1].wait_for_selector("#translate:not([disabled])", timeout=120_000)
            self.versions.append(browser.version)
        return self

    def items(self) -> Iterator[tuple[str, Any]]:
        """Builds and their pages."""
        return ((build, tab) for build, (_, tab) in self.browsers.items())

    def __exit__(self, *_: object) -> None:
        for browser, _ in self.browsers.values():
            browser.close()
        self.playwright.stop()


def in_page(tab: Any, lines: Sequence[str], written: dict[str, list[str]], build: str, turn: int) -> float:
    """Seconds of all workers while this page translates; the other page is idle."""
    before = worker_seconds()
    tab.eval_on_selector("#source", SUBMIT, "\n".join(lines))
    tab.wait_for_selector('#output[aria-busy="false"]:not(:empty)', state="attached", timeout=600_000)
    seconds = max(1 / TICKS, worker_seconds() - before)  # which is counted in such steps
    written[build] = tab.eval_on_selector_all("#output p", OUTPUTS)
    return seconds


def here(model: str, lines: Sequence[str], written: dict[str, list[str]]) -> dict[str, Callable[[int], float]]:
    """The same translations in this process."""
    loaded = headwise.load(model, "cpu")

    def timed(name: str, work: Callable[[], list[Any]]) -> Callable[[int], float]:
        def run(turn: int) -> float:
            started = machine.now()
            found = work()
            written[name] = [translation.text for translation in found]
            return machine.now() - started

        return run

    def one_by_one() -> list[Any]:
        return [loaded.translate([line], compute="int8")[0] for line in lines]

    return {
        "translate, batches": timed("batches", lambda: loaded.translate(list(lines), compute="int8")),
        "translate, one sentence at a time": timed("one by one", one_by_one),
    }


def worker_seconds() -> float:
    """Processor time of the worker threads of browsers started by this process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return sum(ticks for process in parents if descends(process, parents) for ticks in worker_ticks(process)) / TICKS


def descends(process: int, parents: dict[int, int]) -> bool:
    """Whether a process is a descendant of this process.

    >>> descends(os.getpid(), {})
    True
    """
    while process and process != os.getpid():
        process = parents.get(process, 0)
    return process == os.getpid()


def worker_ticks(process: int) -> Iterator[int]:
    """Ticks of each worker thread of a process."""
    for task in Path(f"/proc/{process}/task").glob("*/stat"):
        name, _, rest = task.read_text().partition("(")[2].rpartition(")")
        if name.startswith(WORKER):
            yield sum(map(int, rest.split()[11:13]))


if __name__ == "__main__":
    main()
