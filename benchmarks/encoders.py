"""Embeddings of sentences: Headwise beside transformers, ONNX Runtime, OpenVINO and CTranslate2, with the same weights.

    python benchmarks/encoders.py [MODEL] [--sentences 512] [--threads 1] [--turns 9] [--cores 0] [--clock cpu]

Every contender turns the same token ids into vectors: the mean of the last hidden states, scaled to length 1. "batched"
is all sentences, sorted by length as sentence-transformers sorts them, in batches of 32 where a contender pads them
(Headwise does not pad); "single" is 64 of them, one call each. transformers in torch is what sentence-transformers
runs. ONNX Runtime and OpenVINO, where it is installed, get the graph that torch exports, as it is and with dynamic
quantisation (`quantize_dynamic`).
Sentences are those of Headwise's documentation; without MODEL the network has the sizes of all-MiniLM-L6-v2, random
parameters and random ids. Figures are medians with quartiles; "ratio" is the time of the fastest other contender in a
turn over that of Headwise. Vectors are compared first. Writes `results/encoders_*`.
"""

import argparse
import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ctranslate2
import machine
import numpy as np
import onnxruntime
import tokenizers
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic
from turns import fastest, speed_ratio, spread, take_turns

import headwise
from headwise.models.encoding.library_encoder import LibraryEncoder

SIZES: dict[str, Any] = machine.pick(
    {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
)
ABSOLUTE: dict[str, Any] = {"position_embedding_type": "absolute"}  # which CTranslate2 asks for
VOCABULARY = machine.pick(30_522, 200)
BATCH = 32  # sentences that are padded together
SINGLE = machine.pick(64, 4)  # sentences of a turn that are read one at a time
LEAST = {"float32": 0.99999, "int8": 0.9}  # cosines of the vectors with those of torch
Ids = list[list[int]]
Encode = Callable[[Ids], np.ndarray]


# --- The model and its sentences ---


def random_model(folder: Path) -> Path:
    """A BERT of these sizes with a vocabulary of numbered words."""
    torch.manual_seed(1)
    transformers.BertModel(transformers.BertConfig(vocab_size=VOCABULARY, **ABSOLUTE, **SIZES)).save_pretrained(folder)
    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{i}": i for i in range(2, VOCABULARY)}}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
    tokenizer.save_pretrained(folder)
    return folder


def sentences(count: int) -> list[str]:
    """Sentences of the documentation, of 20 to 200 characters."""
    pages = sorted((machine.ROOT / "docs").rglob("*.md"))
    text = " ".join(page.read_text(encoding="utf-8") for page in pages)
    return [one.strip() for one in re.findall(r"[A-Z][a-z][^.!?|`#*\n]{20,200}[.!?]", text)][:count]


def ids_of(model: Any, count: int, is_random: bool) -> Ids:
    """The sentences as ids, or random ids of as many as they have words."""
    if not is_random:
        return [model.tokenizer.encode(text) for text in sentences(count)]
    draw = np.random.default_rng(1)
    return [draw.integers(2, VOCABULARY, len(text.split()) + 4).tolist() for text in sentences(count)]


# --- Contenders: from ids to vectors ---


def padded(batch: Ids) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask, int64."""
    rows = np.zeros((len(batch), max(map(len, batch))), np.int64)
    mask = np.zeros_like(rows)
    for row, one, ids in zip(rows, mask, batch, strict=True):
        row[: len(ids)], one[: len(ids)] = ids, 1
    return rows, mask


def in_batches(encode: Encode, ids: Ids) -> np.ndarray:
    """Vectors in the order of the sentences, which are read in batches of similar length."""
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    found: list[Any] = [None] * len(ids)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        for i, vector in zip(chosen, encode([ids[i] for i in chosen]), strict=True):
            found[i] = vector
    return np.stack(found)


def pooled(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean of the states of real tokens, of length 1."""
    sums = (hidden * mask[..., None].astype(np.float32)).sum(1)
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


def with_headwise(model: Any, compute: str) -> Encode:
    """The network in the compiled library."""
    texts = LibraryEncoder(model.folder.stored.encoder(compute), "first", False)

    def encode(ids: Ids) -> np.ndarray:
        found = np.empty((len(ids), model.config.encoder.d_model), np.float32)
        for i, states in texts.states(ids, len(ids)):
            found[i] = states.mean(0)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return encode


def with_torch(folder: Path) -> Encode:
    """transformers with fused attention."""
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()

    def encode(ids: Ids) -> np.ndarray:
        rows, mask = padded(ids)
        with torch.inference_mode():
            states = model(input_ids=torch.from_numpy(rows), attention_mask=torch.from_numpy(mask)).last_hidden_state
        return pooled(states.numpy(), mask)

    return partial(in_batches, encode)


class Exported(torch.nn.Module):
    """The states alone, from positional inputs."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The last hidden states."""
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


def export_onnx(folder: Path, out: Path) -> None:
    """Write the graph, and the graph in int8."""
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids, axes = torch.ones(2, 8, dtype=torch.int64), {0: "batch", 1: "length"}
    names: dict[str, Any] = {"input_names": ["ids", "mask"], "output_names": ["states"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Exported(model), (ids, ids), str(out / "float32.onnx"), dynamo=False, **names,
                          dynamic_axes={"ids": axes, "mask": axes, "states": axes})  # fmt: skip
        quantize_dynamic(out / "float32.onnx", out / "int8.onnx", weight_type=QuantType.QInt8)


def with_onnx(path: Path, threads: int) -> Encode:
    """ONNX Runtime with all of its graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def encode(ids: Ids) -> np.ndarray:
        rows, mask = padded(ids)
        return pooled(session.run(None, {"ids": rows, "mask": mask})[0], mask)

    return partial(in_batches, encode)


def with_openvino(path: Path, threads: int) -> Encode:
    """OpenVINO, which compiles the same graph for this processor."""
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)

    def encode(ids: Ids) -> np.ndarray:
        rows, mask = padded(ids)
        return pooled(compiled([rows, mask])[0], mask)

    return partial(in_batches, encode)


def with_ctranslate2(folder: Path, out: Path, compute: str, threads: int) -> Encode:
    """CTranslate2's encoder of the converted model."""
    converter = ctranslate2.converters.TransformersConverter(str(folder))
    converter.convert(str(out / f"ctranslate2-{compute}"), quantization=compute)
    encoder = ctranslate2.Encoder(str(out / f"ctranslate2-{compute}"), compute_type=compute, intra_threads=threads)

    def encode(ids: Ids) -> np.ndarray:
        return pooled(np.array(encoder.forward_batch(ids).last_hidden_state), padded(ids)[1])

    return partial(in_batches, encode)


def contenders(folder: Path, out: Path, model: Any, compute: str, threads: int) -> dict[str, Encode]:
    """All contenders in one precision."""
    found = {
        "Headwise": with_headwise(model, compute),
        "ONNX Runtime": with_onnx(out / f"{compute}.onnx", threads),
        "CTranslate2": with_ctranslate2(folder, out, compute, threads),
    }
    if find_spec("openvino"):
        found["OpenVINO"] = with_openvino(out / f"{compute}.onnx", threads)
    return {**found, "transformers": with_torch(folder)} if compute == "float32" else found


# --- Measuring ---


def seconds_of(encode: Encode, ids: Ids, one_by_one: bool) -> float:
    """Seconds for these sentences."""
    begin = machine.now()
    for part in [[one] for one in ids[:SINGLE]] if one_by_one else [ids]:
        encode(part)
    return machine.now() - begin


def row_of(what: str, seconds: dict[str, list[float]], names: Sequence[str], sentences_read: int) -> list[Any]:
    """Milliseconds a sentence, and how many times faster Headwise is than the fastest of the others."""
    best = fastest(seconds, [name for name in seconds if name != "Headwise"])
    scale = 1000 / sentences_read
    times = [spread([scale * one for one in seconds[name]]) if name in seconds else "" for name in names]
    return [what, *times, best, speed_ratio(seconds["Headwise"], seconds[best])]


def check(encode: dict[str, Encode], exact: np.ndarray, ids: Ids, compute: str) -> str:
    """The smallest cosine of each contender's vectors with torch's; an assertion if it is too small."""
    found = {name: float((one(ids) * exact).sum(1).min()) for name, one in encode.items()}
    assert min(found.values()) > LEAST[compute], found
    return f"{compute}: " + ", ".join(f"{name} {cosine:.4f}" for name, cosine in found.items())


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a folder in the Hugging Face layout; none: random parameters")
    parser.add_argument("--sentences", type=int, default=machine.pick(512, 8), help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--turns", type=int, default=machine.pick(9, 1), help="(default: %(default)s)")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    machine.prepare(options)
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    names, rows, cosines, data = ["Headwise", "ONNX Runtime", "OpenVINO", "CTranslate2", "transformers"], [], [], {}
    with tempfile.TemporaryDirectory() as work:
        out = Path(work)
        folder = Path(options.model) if options.model else random_model(out / "model")
        model: Any = headwise.load(folder, "cpu")
        ids = ids_of(model, options.sentences, not options.model)
        export_onnx(folder, out)
        exact = with_torch(folder)(ids)
        for compute in ("float32", "int8"):
            encode = contenders(folder, out, model, compute, options.threads)
            cosines.append(check(encode, exact, ids, compute))
            for what, alone in (("batched", False), ("single", True)):
                runs = {
                    name: lambda _, one=one, alone=alone: seconds_of(one, ids, alone) for name, one in encode.items()
                }
                data[f"{compute}, {what}"] = found = take_turns(runs, options.turns, warm_up=1)
                rows.append(row_of(f"{compute}, {what}", found, names, SINGLE if alone else len(ids)))
    lengths = [len(one) for one in ids]
    table = machine.table(["", *(f"{name}, ms" for name in names), "fastest other", "ratio"], rows)
    about = f"{len(ids)} sentences of {np.mean(lengths):.1f} tokens on average, {min(lengths)} to {max(lengths)}."
    print(table)
    path = machine.result_path("encoders" if options.threads == 1 else f"encoders-{options.threads}-threads")
    head = __doc__.split("\n\n", 2)[2].strip()
    agreement = "Smallest cosine with torch's vectors: " + "; ".join(cosines) + "."
    machine.write_result(path, "Embeddings of sentences", machine.description(options.threads),
                         [head, about, table, agreement], data)  # fmt: skip
    print(f"written to {path}.md")


if __name__ == "__main__":
    main()
