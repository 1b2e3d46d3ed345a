"""What a model is asked that reads no pair of texts, but one text, a picture or a sound: where its heads look.

Verbs of pairs are in `models/pairs.py`. How it is done is imported where it is asked for.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sightline.errors import UserError
from sightline.models.pairs import HeadVerbs

if TYPE_CHECKING:
    from sightline.inspect.attend import Layers
    from sightline.inspect.heads import Head
    from sightline.inspect.importance import Example
    from sightline.inspect.pair import Shown
    from sightline.inspect.record import AttentionRecord, Inspection, Trace


class LookVerbs(HeadVerbs):
    """Look into a network at one text, picture or sound."""

    reads = "text"  # or "picture", "sound"
    tells = False  # whether it writes down what it sees or hears
    shown: "Callable[..., Shown]"  # what is given, as the network reads it; options as of `attend`

    def example(self, given: Any, target: Any) -> "Example":
        """What is given with its loss, for `head_importance`; `UserError` where the network's head has none."""
        raise UserError("head_importance: the head of this network is trained on nothing that could be measured here")

    def attend(
        self, given: Any, layers: "Layers | None" = None, heads: Sequence[int] | None = None, **options: Any
    ) -> "AttentionRecord":
        """Who looks at what in a text, or in the file of a picture or a sound.

        `layers` is for every stack there is, or says for each of them: `{"encoder": [-1]}`; `heads` are those of these
        layers. A sound takes `target`, its transcript, which is made if none is given, `n_times`, the stretches it is
        shown in (300; 0 = as many as the encoder has positions), and what `transcribe` takes; a picture that is
        described its caption, likewise, and what `caption` takes.

        Raises:
            UserError: the input cannot be read, is blank or too long, or there is no such layer or head.
        """
        from sightline.inspect.attend import choose, look
        from sightline.inspect.recording import attentions

        choose(attentions(self.network), layers, heads)  # before anything is heard
        return look(self.network, self.shown(given, **options), layers, heads)

    def trace(self, given: Any, top: int = 10, **options: Any) -> "Trace":
        """What the head says at each position, after every layer.

        A decoder says what comes next, an encoder what stands at a place (masked or not) or which label the whole has;
        without such a head there are no positions. Options as of `attend`.
        """
        from sightline.inspect.trace import trace_of

        return trace_of(self.network, self.shown(given, **options), top)

    def look_inside(self, given: Any, **options: Any) -> "Inspection":
        """`attend` and `trace`, from one reading; a notebook shows the whole page."""
        from sightline.inspect.attend import look
        from sightline.inspect.record import Inspection
        from sightline.inspect.trace import trace_of

        shown = self.shown(given, **options)
        return Inspection(look(self.network, shown), trace_of(self.network, shown, 10))

    def head_importance(self, given: Sequence[Any], targets: Sequence[Any] = ()) -> "dict[Head, float]":
        """How much the loss on these inputs would change with each head; see `sightline.inspect.importance`.

        Args:
            given: texts, or files of pictures or sounds.
            targets: labels, by name or number, for a network that labels; transcripts of sounds, captions. A network
                that writes on, or fills in what is masked, needs none.

        Raises:
            UserError: no inputs, other numbers of inputs and targets, or a network without such a loss.
        """
        from sightline.inspect.importance import importance_over

        if not given or len(targets) not in (0, len(given)):
            raise UserError(f"{len(given)} inputs and {len(targets)} targets; target n must belong to input n")
        pairs = zip(given, targets or [None] * len(given), strict=True)
        return importance_over(self.network, (self.example(one, target) for one, target in pairs))
