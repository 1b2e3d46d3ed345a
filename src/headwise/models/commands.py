"""The commands that work for a model, mostly by its methods: commands check it, and `headwise info` lists them.

The commands for any folder (`info`, `import`, `seal`) are not listed, nor is `train --init`, whose tasks are in
`headwise.pytorch.tasks.table`.
"""

from collections.abc import Callable
from typing import Any

from headwise.config.settings import RunConfig

COMMANDS: dict[str, tuple[str, ...]] = {  # in the order of the list; a model needs one of these methods
    "translate": ("translate",),
    "generate": ("generate",),
    "fill": ("fill_mask",),
    "embed": ("embed",),
    "classify": ("classify",),
    "rerank": ("rerank",),
    "tag": ("tag",),
    "answer": ("answer",),
    "label": ("label",),
    "caption": ("caption",),
    "transcribe": ("transcribe",),
    "forecast": ("forecast",),
    "score": ("score", "perplexity"),
    "evaluate": ("translate", "evaluate"),
    "align": ("align",),
    "inspect": ("attend",),
    "explore": ("attend",),
    "prune": ("head_importance",),
    "distill": ("translate",),
    "backtranslate": ("translate",),
    "shortlist": ("translate",),
    "serve": ("translate",),
    "tune": ("translate",),
}
BY_NETWORK: dict[str, Callable[[Any], bool]] = {  # commands that read the folder themselves
    "export": lambda model: hasattr(model, "translate") or not isinstance(model.config, RunConfig),
    "pack": lambda model: getattr(model, "compiled", False) and bool(getattr(model.config, "decoder", True)),
}


def commands_of(model: Any) -> list[str]:
    """The commands that work for a model."""
    by_method = [command for command, methods in COMMANDS.items() if any(hasattr(model, name) for name in methods)]
    return by_method + [command for command, works in BY_NETWORK.items() if works(model)]


def check_command(model: Any, command: str) -> None:
    """`UserError` if a command of the table does not work for a model."""
    methods = COMMANDS.get(command, ())
    if methods and not any(hasattr(model, method) for method in methods):
        getattr(model, methods[0])  # whose error lists what the model can do
