"""The one class of models: what `sightline.load` returns, whatever the folder holds and wherever it came from.

What a model can be asked depends on what its network reads and writes, and on nothing else. `signatures.Verbs` has
every verb with its types, for editors and for readers; each kind of model brings those it can do (`verbs`, `pairs`,
`models.kinds`, `tasks`), and to be asked for another is a `UserError` that says what it can do.
"""

from typing import TYPE_CHECKING, Any

from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.signatures import Verbs
else:
    Verbs = object

VERBS = (
    *("translate", "translate_lines", "generate", "stream", "restore", "score", "perplexity", "align", "rank_heads"),
    *("attend", "attribute", "trace", "look_inside", "walk", "mask_heads", "head_importance", "prune", "between"),
    *("fill_mask", "embed", "label", "classify", "tag", "answer", "transcribe", "caption", "forecast", "evaluate"),
    "info",
)


class Unable(UserError, AttributeError):
    """A model of another kind has this verb. For `hasattr` it is not there, and `dir` does not list it."""


class Model(Verbs):
    """A network with all that stands in its folder, and the verbs that suit it; made by `sightline.load`."""

    does = "computes, and nobody knows what for"  # what its network reads and writes

    def __str__(self) -> str:
        """What it is, for errors."""
        return f"{self.path}: this model {self.does}"

    if not TYPE_CHECKING:  # or every name would be one, for the type checker

        def __getattr__(self, name: str) -> Any:
            if name not in VERBS:
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)
            able = ", ".join(verb for verb in VERBS if hasattr(type(self), verb))
            raise Unable(f"{self}; it can {able}, and not {name}")
