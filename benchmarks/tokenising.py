"""Speed of tokenisation: Headwise compared with sentencepiece and subword-nmt, each with its own BPE of 8,000 tokens.

    python benchmarks/tokenising.py [--text FILE] [--turns 6] [--cores 0 1]

Each trains on the text, then all take turns to encode it. Without `--text` it is generated: words out of 20,000, some
much more frequent than others. `ours` is `Tokenizer.encode_batch`; `ours, prepared` is the whole preparation of a
corpus of pairs (reading, checks, encoding both sides, writing to disk), per sentence. subword-nmt is plain Python on
one core and returns strings; sentencepiece returns ids.
Writes `results/tokenising_*`.
"""

import argparse
import contextlib
import importlib.util
import io
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import machine
from decoding import lines
from figures import bars
from growth import write_corpus
from turns import speed_ratio, spread, take_turns
from workers import Worker

TOKENS = machine.pick(8000, 500)
Encode = Callable[[], int]  # encodes all the text; returns the number of tokens


def ours(path: str, threads: int) -> Encode:
    """Our tokenizer; `RAYON_NUM_THREADS` is its number of threads."""
    from headwise.config.data import TranslationData
    from headwise.text.tokens.tokenizer import Tokenizer

    text = lines(Path(path))
    tokenizer = Tokenizer.train(text, TranslationData(vocab_size=TOKENS))
    return lambda: sum(map(len, tokenizer.encode_batch(text)))


def ours_prepared(path: str, threads: int) -> Encode:
    """Our preparation of a corpus whose two sides are both the text."""
    from headwise.config.data import TranslationData
    from headwise.text.files.corpus import Corpus
    from headwise.text.prepared.prepared import prepare, train_tokenizer

    def work() -> int:
        with tempfile.TemporaryDirectory() as cache:
            prepared = prepare([Corpus((path, path))], tokenizer, TranslationData(), Path(cache), progress=False)
            return int(prepared.src_lengths.sum() - len(prepared))

    with tempfile.TemporaryDirectory() as cache:
        tokenizer = train_tokenizer([Corpus((path, path))], TranslationData(vocab_size=TOKENS), cache_dir=Path(cache))
    return work


def sentencepiece(path: str, threads: int) -> Encode:
    """sentencepiece, BPE."""
    import sentencepiece as library

    text = lines(Path(path))
    with tempfile.TemporaryDirectory() as folder:
        prefix = f"{folder}/model"
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(text), model_prefix=prefix, vocab_size=TOKENS, model_type="bpe", minloglevel=2
        )
        processor = library.SentencePieceProcessor(model_file=f"{prefix}.model")
    return lambda: sum(map(len, processor.encode(text, out_type=int, num_threads=threads)))


def subword_nmt(path: str, threads: int) -> Encode:
    """subword-nmt: words split at spaces, merges applied with its cache."""
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    text = lines(Path(path))
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        learn_bpe(io.StringIO("\n".join(text)), codes, TOKENS)
    codes.seek(0)
    bpe = BPE(codes)
    return lambda: sum(len(bpe.process_line(line).split()) for line in text)


CONTENDERS = {
    "ours": ours,
    "ours, prepared": ours_prepared,
    "sentencepiece": sentencepiece,
    "subword-nmt": subword_nmt,
}


def contenders() -> dict[str, Callable[[str, int], Encode]]:
    """All contenders; a quick run leaves out peers that are not installed."""
    here = {name: importlib.util.find_spec(name.replace("-", "_")) or name.startswith("ours") for name in CONTENDERS}
    return {name: make for name, make in CONTENDERS.items() if here[name] or not machine.QUICK}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="one sentence a line, may be gzipped")
    parser.add_argument("--turns", type=int, default=machine.pick(6, 1))
    machine.add_machine_options(parser)
    parser.add_argument("--name", default="tokenising", help="of the result files")
    options = parser.parse_args()
    threads = machine.prepare(options)
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    about = machine.description(threads)
    with tempfile.TemporaryDirectory() as folder:
        text = str(options.text) if options.text else write_corpus(Path(folder), machine.pick(50_000, 1_000))[0]
        count = len(lines(Path(text)))
        workers = {name: Worker(make, text, threads, threads=threads) for name, make in contenders().items()}
        tokens: dict[str, int] = {}

        def run(name: str) -> float:
            reply = workers[name]()
            tokens[name] = reply.value
            sides = 2 if name == "ours, prepared" else 1
            return reply.seconds / sides

        seconds = take_turns({name: (lambda turn, name=name: run(name)) for name in workers}, options.turns, warm_up=1)
        for worker in workers.values():
            worker.close()
    rates = {name: spread([count / s for s in took]) for name, took in seconds.items()}
    rows = [
        [
            name,
            f"{rates[name].median:,.0f} ({rates[name].low:,.0f}-{rates[name].high:,.0f})",
            speed_ratio(seconds["ours"], took),
            f"{tokens[name] / count:.2f}",
        ]
        for name, took in seconds.items()
    ]
    table = machine.table(["contender", "sentences/s", "ours is faster by", "tokens per sentence"], rows)
    path = machine.result_path(options.name)
    figure = bars(
        path, {f"{count:,} sentences": {n: (r.low, r.median, r.high) for n, r in rates.items()}}, "sentences/s"
    )
    sections = [__doc__.split("\n\n", 2)[2].strip(), table, f"![sentences per second]({figure.name})"]
    data = {"seconds": seconds, "tokens": tokens, "sentences": count}
    machine.write_result(path, "Speed of tokenising", about, sections, data)
    print(table)
    print(f"median of ours: {statistics.median(seconds['ours']):.2f} s; written to {path}.md")


if __name__ == "__main__":
    main()
