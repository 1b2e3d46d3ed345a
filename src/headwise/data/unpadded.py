"""Batches of which nothing is padding: blocks of running text, pictures of one size."""

from headwise.data.batch import OnDevices


class Unpadded(OnDevices):
    """All that is read is real; a subclass says how much that is, and in what speed is counted (`n_tokens`)."""

    @property
    def n_tokens(self) -> int:
        """All of them."""
        raise NotImplementedError

    @property
    def n_real(self) -> int:
        """As many."""
        return self.n_tokens

    @property
    def n_cells(self) -> int:
        """As many."""
        return self.n_tokens
