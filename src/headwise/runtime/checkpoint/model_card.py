"""The README.md of a model directory: what the model is, how it was made and how to use it."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.config.model import ConvConfig, ModelConfig, RecurrentConfig, TransformerConfig
from headwise.config.settings import WITH_DECODER, RunConfig
from headwise.config.tasks import LOWER_IS_BETTER, TASKS, tasks_with
from headwise.runtime.checkpoint.trained import CARD

INPUT = "input.txt"  # in the commands of model cards
DECODING = "decoding"  # the row of settings chosen after training
USAGE = Path(__file__).parents[2] / "cards"  # how to use the models of each task


def model_card(
    config: RunConfig,
    about: Mapping[str, Any],
    n_parameters: int,
    figures: Mapping[str, float],
    what: str,
    signature: str,
) -> str:
    """Markdown. `figures` are those of the validation set, `what` the step or average they belong to.

    `signature` is sacreBLEU's of the BLEU among them.
    """
    rows = card_rows(config, about, n_parameters)
    rows["recipe"] += f"; every setting is in `{about.get('settings', 'config.json')}`"
    rows |= {"weights": what, "validation": _figures(config, figures, signature, about.get("search", ""))}
    if compared := [compare_baseline(one, figures, config.train.best_metric) for one in about.get("baselines", [])]:
        rows["baselines"] = "; ".join(compared)
    rows["made with"] = f"headwise {about['headwise']}, torch {about['torch']}, Python {about['python']}"
    table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
    usage = (USAGE / f"{about.get('usage', config.model.task)}.md").read_text(encoding="utf-8")
    usage = usage.replace(" --languages FROM-TO", "") if about.get("languages") else usage
    return f"""# A {TASKS[config.model.task].noun} model made with Headwise

| | |
|---|---|
{table}

{usage}"""


def compare_baseline(baseline: Mapping[str, Any], figures: Mapping[str, float], metric: str) -> str:
    """The metrics of an entry of "baselines", with advice if the model's `figures` are worse.

    Args:
        metric: that decides, if both have it; otherwise their first common one.

    >>> simple = {"name": "3-grams", "figures": {"loss": 1.5}, "advice": "train longer"}
    >>> compare_baseline(simple, {"loss": 1.25}, "loss"), compare_baseline(simple, {"loss": 2.0}, "loss")
    ('3-grams: loss 1.5000', '3-grams: loss 1.5000, better than this model: train longer')
    """
    own = baseline.get("figures", {})
    listed = ", ".join(f"{name} {figure:.4f}" for name, figure in own.items()) or baseline.get("missing", "")
    common = [name for name in (metric, *own) if name in own and name in figures][:1]
    worse = any((figures[name] - own[name]) * (1 if name in LOWER_IS_BETTER else -1) > 0 for name in common)
    advice = f", better than this model{': ' * ('advice' in baseline)}{baseline.get('advice', '')}" if worse else ""
    return f"{baseline['name']}: {listed}{advice}"


def with_row(card: str, name: str, value: str) -> str:
    """A card with this row in its table, instead of one of the same name or before the last; without it for "".

    >>> with_row("| weights | step 9 |\\n| made with | us |\\n", "decoding", "beam 4").splitlines()
    ['| weights | step 9 |', '| decoding | beam 4 |', '| made with | us |']
    """
    rows = [f"| {name} | {value} |"] if value else []
    lines = [line for line in card.split("\n") if not line.startswith(f"| {name} | ")]
    last = max((i for i, line in enumerate(lines) if line.startswith("| ")), default=len(lines))
    return "\n".join([*lines[:last], *rows, *lines[last:]])


def card_rows(config: RunConfig, about: Mapping[str, Any], n_parameters: int) -> dict[str, str]:
    """The rows of the card: the kind of model, and its training data."""
    start = f" from the weights of `{about['init']}`" if about.get("init") else ""
    taken = " of the training files, taken out of them" if "held_out" in about["corpus"] else ""
    return {
        "architecture": _architecture(config.model),
        "parameters": f"{n_parameters:,}",
        **(about.get("material") or _material(config, about)),
        **about.get("network", {}),
        "validation data": ", ".join(about["corpus"]["valid"]) + taken,
        "recipe": f"{about['recipe']}{start}, seed {config.train.seed}",
        **({"changes": _changes(about["changes"])} if about.get("changes") else {}),
    }


def read_rows(card: str) -> dict[str, str]:
    """The rows of a card that `model_card` wrote.

    >>> read_rows("| weights | step 450 |")["weights"]
    'step 450'
    """
    return dict(re.findall(r"^\| ([a-z ]+) \| (.*) \|$", card, re.MULTILINE))


def _architecture(model: ModelConfig) -> str:
    if model.task in WITH_DECODER:
        layers = f"{model.n_encoder_layers} + {model.n_decoder_layers} layers"
        return f"{model.architecture}: {layers}, d_model {model.d_model}, {_shape(model)}"
    if model.task == "lm":
        return f"{model.architecture}: {model.n_decoder_layers} layers, d_model {model.d_model}, {_shape(model)}"
    state = f", {model.pooling} state" if model.task in tasks_with("pooled") else ""
    layers = f"{model.n_encoder_layers} layers of an encoder{state}"
    return f"{model.architecture}: {layers}, d_model {model.d_model}, {_shape(model)}"


def _material(config: RunConfig, about: Mapping[str, Any]) -> dict[str, str]:
    """Rows about the training data; other tasks provide theirs as "material"."""
    corpus, files = about["corpus"], ", ".join(about["corpus"]["train"])
    kind = f"{config.data.subword} tokens" if config.data.subword != "characters" else "characters"
    vocabulary = {"vocabulary": f"{config.model.vocab_size:,} {kind}"}
    if config.model.task in WITH_DECODER:
        if "shards" in corpus:
            return vocabulary | {"training data": f"{files}: a stream of {corpus['shards']} shards"}
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in corpus["dropped"].items()) or "none"
        amount = f"{corpus['pairs']:,} pairs" if config.model.task == "translate" else f"{corpus['texts']:,} texts"
        return vocabulary | {"training data": f"{files}: {amount} (dropped: {dropped})"}
    return {"training data": files}


def _shape(model: ModelConfig) -> str:
    """Features of the architecture other than layers and width."""
    if isinstance(model, ConvConfig):
        return f"kernel width {model.kernel_width}"
    if isinstance(model, RecurrentConfig):
        listed = [f"{model.cell} cells"]
        listed += [f"attention {model.attention}"] if model.task in WITH_DECODER else []
        listed += [name for name in ("bidirectional", "input_feeding", "reverse_source") if getattr(model, name)]
        return ", ".join(listed)
    assert isinstance(model, TransformerConfig)
    return f"d_ff {model.d_ff}, {model.n_heads} heads, {model.norm_position}-norm"


def _changes(changes: Sequence[Mapping[str, Any]]) -> str:
    """The changes that were made when a run was resumed.

    >>> _changes([{"step": 9, "name": "ranks", "before": 1, "now": 2}])
    'after step 9: ranks = 2 instead of 1'
    >>> _changes([{"step": 9, "added": ["more.en", "more.de"]}])
    'after step 9: added more.en, more.de'
    """
    steps = {change["step"]: "" for change in changes}
    for step in steps:
        own = (change for change in changes if change["step"] == step)
        steps[step] = ", ".join(
            f"added {', '.join(c['added'])}" if "added" in c else f"{c['name']} = {c['now']} instead of {c['before']}"
            for c in own
        )
    return "; ".join(f"after step {step}: {text}" for step, text in steps.items())


def _figures(config: RunConfig, figures: Mapping[str, float], signature: str, search: str) -> str:
    if config.model.task not in WITH_DECODER:
        return ", ".join(f"{name} {figure:.4f}" for name, figure in figures.items()) or "not measured"
    shown = [f"loss {figures['loss']:.4f} nats per token"] if figures else ["not measured"]
    if "bleu" in figures:
        search = search or f"beam {config.decode.beam_size}, length penalty {config.decode.length_penalty}"
        shown.append(f"BLEU {figures['bleu']:.2f} (`{signature}`; {search}; first {config.train.validate_bleu} pairs)")
    return ", ".join(shown)


def next_steps(folder: Path, names: Mapping[str, Path | str | None] = {}, text: str = "") -> str:
    """Commands for the model in `folder`, one per line.

    Args:
        names: what to write for words of the model card, such as paths of files; "" leaves the word out, None the
            command.
        text: a text to read, in place of "..." and of a file that has no name.
    """
    known = {".": folder, **({'"..."': text} if text else {}), **names}
    program = headwise_command()
    shown = ["Next:"]
    for line in [*card_commands(folder / CARD), "headwise results . --curves curves.png"]:
        words, before = line.split(" ")[1:], ""
        if text and INPUT in words and INPUT not in names:
            words, before = words[: words.index(INPUT)], f"echo {shlex.quote(text)} | "
        if any(known.get(word, word) is None for word in words):
            continue
        own = (shlex.quote(str(known[word])) if word in known else word for word in words if known.get(word) != "")
        shown.append(f"  {before}{program} {' '.join(own)}")
    return "\n".join(shown)


def card_commands(card: Path) -> list[str]:
    """The commands in a model card; the model folder is "." in them."""
    blocks = re.findall(r"```sh\n(.*?)```", card.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.split("\n") if line]


def headwise_command() -> str:
    """The command that runs the program from the current folder."""
    return "headwise" if shutil.which("headwise") else os.path.relpath(Path(sys.executable).with_name("headwise"))
