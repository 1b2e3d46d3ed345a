"""Which commands work for a model, by the methods that it has: commands check it, and `headwise info` lists it.

Not here: commands for any folder (`info`, `import`, `seal`), those whose formats decide (`export`, `pack`), and `train
--init`, whose tasks decide (`headwise.tasks.table`).
"""

from typing import Any

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


def commands_of(model: Any) -> list[str]:
    """The commands that work for a model."""
    return [command for command, methods in COMMANDS.items() if any(hasattr(model, method) for method in methods)]


def check_command(model: Any, command: str) -> None:
    """`UserError` if a command of the table does not work for a model."""
    methods = COMMANDS.get(command, ())
    if methods and not any(hasattr(model, method) for method in methods):
        getattr(model, methods[0])  # whose error lists what the model can do
