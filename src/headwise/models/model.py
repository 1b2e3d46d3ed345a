"""`Model`: the base class of all models that `headwise.load` returns.

It has the properties of every model. Each kind of model is a subclass with the methods that suit its network; `KINDS`
in `kinds` lists them. Methods that look inside a network are in `introspection`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.config.network import NetworkConfig, compact_config
from headwise.config.settings import RunConfig
from headwise.config.settings import meaningful as own_settings
from headwise.errors import UserError
from headwise.runtime.checkpoint.folder import Folder

METHODS = (  # the methods of all kinds of models; a model has some of them
    *("translate", "translate_lines", "between", "restore", "generate", "stream", "perplexity"),
    *("score", "align", "rank_heads", "attribute", "walk", "walks"),
    *("attend", "trace", "look_inside", "mask_heads", "head_importance", "prune"),
    *("fill_mask", "embed", "classify", "rerank", "tag", "answer", "label", "caption", "transcribe", "forecast"),
    *("evaluate", "settings"),
)


def refuse_single(texts: object, method: str) -> None:
    """`UserError` for one text or conversation instead of a list, whose parts would be taken for texts."""
    if isinstance(texts, str):
        raise UserError(f"{method} takes a list; write {method}([text]) for a single one")
    if isinstance(texts, Sequence) and texts and isinstance(texts[0], Mapping):
        raise UserError(f"{method} takes a list of conversations; write {method}([messages]) for a single one")


class Unable(UserError, AttributeError):
    """Models of another kind have this method; `hasattr` is False for it."""


class Model:
    """A loaded model: network, tokenizer and settings of a folder, with the methods that suit the network.

    `headwise.load` returns a subclass. `help(model)` describes its methods, and `model.methods` lists them. Calling a
    method that only other kinds of models have raises a `UserError` with this list.
    """

    does = "has a network that no command uses"  # what the network reads and writes, for errors
    reads = "text"  # what `head_importance` takes: "text" or "pairs"; files: "picture", "sound", "series"
    writes = False  # whether it puts a picture or a sound into words
    usual_task = "translate"  # that it is trained for where none is named
    missing_head = ""  # the class that config.json names, if the file lacks its head

    path: Path
    """The folder."""
    config: Any
    """The axes of a pretrained network; the settings of a model trained here."""
    about: Any
    """config.json of a pretrained model; of one trained here versions, recipe and corpus."""
    decode_config: Any
    """Settings of the search unless a call changes them."""
    alignment_head: Any
    """The attention that `align` reads."""
    known_alignment_head: Any
    """The same, if it was chosen for this folder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.path, self.config, self.about = folder.path, folder.config, folder.about

    @cached_property
    def network(self) -> Any:
        """The torch module, in evaluation mode."""
        return self.folder.network

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, which converts between text and ids; `UserError` if the folder has no vocabulary."""
        return self.folder.tokenizer

    @cached_property
    def hf_config(self) -> dict[str, Any]:
        """config.json of a pretrained model."""
        return self.folder.about

    @cached_property
    def device(self) -> Any:
        """The device of the network, a `torch.device`."""
        return next(iter(self.network.parameters())).device

    @property
    def dtype(self) -> str:
        """The precision of the parameters, such as "float32"."""
        return self.folder.stored.dtype

    @property
    def head(self) -> str:
        """The head of the network; some methods depend on it."""
        return getattr(self.config, "head", "")

    @property
    def methods(self) -> list[str]:
        """The names of the methods that this model has."""
        return [name for name in METHODS if hasattr(type(self), name)]

    if not TYPE_CHECKING:  # for the type checker, a model has the methods of its class and no others

        def __getattr__(self, name: str) -> Any:
            if name in METHODS:
                raise Unable(f"{self}; it can {', '.join(self.methods)}, and not {name}")
            return object.__getattribute__(self, name)  # raises the usual error, or that of a property

    def info(self) -> dict[str, Any]:
        """The size, settings and training of the model."""
        if isinstance(self.config, RunConfig):
            size = {"vocabulary": self.tokenizer.vocab_size} if self.tokenizer else {}
            return {"parameters": self.n_parameters, **size, **self.about, **own_settings(self.config)}
        axes = compact_config(self.config) if isinstance(self.config, NetworkConfig) else asdict(self.config)
        return {"family": self.config.family, "parameters": self.n_parameters, **axes}

    @property
    def n_parameters(self) -> int:
        """Number of trained values, shared ones counted once."""
        return self.folder.stored.n_parameters

    @property
    def compiled(self) -> bool:
        """Whether the compiled library runs the network as it is in its files."""
        return getattr(self.folder.stored, "parameters", None) is not None

    def __repr__(self) -> str:
        """The kind of model, its folder, architecture, size and languages: what a notebook shows."""
        info = self.info()
        shape = info.get("model", info)  # of a model trained here; otherwise stacks, or one stack
        stacks = [shape[side] for side in ("encoder", "decoder") if isinstance(shape.get(side), dict)] or [shape]
        names = ("n_encoder_layers", "n_decoder_layers", "n_layers")
        layers = " + ".join(str(stack[name]) for stack in stacks for name in names if stack.get(name))
        between = [getattr(self, f"{side}_language", "") for side in ("source", "target")]
        listed = [
            shape.get("architecture") or shape.get("family", ""),
            f"{layers} layers" * bool(layers),
            f"d_model {stacks[0].get('d_model')}",
            f"{info['parameters']:,} parameters",
            "-".join(filter(None, between)) or self.about.get("languages", ""),
        ]
        return f"{type(self).__name__}({self.path.name}: {', '.join(filter(None, listed))})"

    def __str__(self) -> str:
        """The kind of model, for error messages."""
        lacking = f" (its file lacks the head of {self.missing_head})" if self.missing_head else ""
        return f"{self.path}: this {getattr(self.config, 'family', 'model')} {self.does}{lacking}"
