"""Records as a notebook shows them: the page in a frame of its own."""

from typing import NamedTuple

from headwise.inspect.page.contents import page_contents
from headwise.inspect.record import AttentionRecord, Trace
from headwise.report.document import notebook_frame


class AttentionView(AttentionRecord):
    """Attention weights; a notebook shows the page with the views of attention."""

    def _repr_html_(self) -> str:
        return notebook_frame(page_contents(self))


class Inspection(NamedTuple):
    """Attention and trace of one input; a notebook shows the page with every view, beam and probabilities too."""

    attention: AttentionRecord
    trace: Trace

    def _repr_html_(self) -> str:
        return notebook_frame(page_contents(self.attention, self.trace))
