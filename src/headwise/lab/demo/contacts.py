"""An example of the Evoformer: predict which residues of a chain touch each other from aligned sequences.

    python -m headwise.lab.demo.contacts

A chain is a walk on a square lattice (Lau and Dill 1989, doi:10.1021/ma00200a030). Two residues are in contact if they
are neighbours on the lattice but not in the chain. A family is a chain and sequences that evolved from one ancestor.
Mutations that separate kinds of residues which attract each other are often rejected, so residues in contact change
together. Contacts are known, and no data are needed.

Two baselines: mutual information of columns with average product correction (Dunn et al. 2008,
doi:10.1093/bioinformatics/btm604), which needs no training, and a linear model of the frequencies of pairs of kinds.
"""

import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.pytorch.architectures.evoformer import EvoformerShape, build_evoformer

SIDE, LENGTH = 5, 20  # cells of a side of the lattice, residues of a chain
KINDS = 8  # of residues; 2k and 2k + 1 attract each other
ATTRACTION = 2.0  # energy of such a contact, in units of the temperature
TRIED = 0.5  # share of the residues at which a mutation is tried between two branchings of a family's tree
SHAPE = EvoformerShape(
    n_blocks=2,
    c_m=32,
    c_z=32,
    c_s=1,
    msa_heads=2,
    pair_heads=2,
    c_head=8,
    c_outer=8,
    c_triangle=16,
    expansion=2,
    msa_dropout=0.0,
    pair_dropout=0.0,
)
DISTANCE = np.abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH)))  # along the chain, of each pair of residues
CANDIDATES = DISTANCE >= 3  # pairs that a lattice allows to touch

Scores = Callable[[NDArray[np.int64]], NDArray[np.float64]]  # (sequences, residues) -> (residues, residues)


class Families(NamedTuple):
    """The alignments and the contacts of several families."""

    alignments: NDArray[np.int64]  # (families, sequences, residues), kinds
    contacts: NDArray[np.bool_]  # (families, residues, residues), symmetric


def sample_families(count: int, depth: int, random: np.random.Generator) -> Families:
    """`count` families with a random chain and `depth` sequences each."""
    contacts = np.stack([contacts_of(sample_chain(random)) for _ in range(count)])
    sequences = random.integers(KINDS, size=(count, 1, LENGTH))  # the ancestors
    for _ in range(10):
        sequences = _mutated(sequences, contacts, 1.0, random)
    while sequences.shape[1] < depth:
        sequences = _mutated(np.repeat(sequences, 2, axis=1), contacts, TRIED, random)
    return Families(sequences[:, :depth], contacts)


def sample_chain(random: np.random.Generator) -> NDArray[np.int64]:
    """The cells (residues, 2) of a random walk that visits no cell twice."""
    while True:
        cells = [tuple(random.integers(SIDE, size=2).tolist())]
        while len(cells) < LENGTH:
            row, column = cells[-1]
            near = [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
            free = [cell for cell in near if cell not in cells and min(cell) >= 0 and max(cell) < SIDE]
            if not free:
                break
            cells.append(free[random.integers(len(free))])
        else:
            return np.array(cells)


def contacts_of(cells: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The contacts (residues, residues) of a chain."""
    return (np.abs(cells[:, None] - cells[None]).sum(-1) == 1) & CANDIDATES


def _mutated(
    sequences: NDArray[np.int64], contacts: NDArray[np.bool_], tried: float, random: np.random.Generator
) -> NDArray[np.int64]:
    """The sequences (families, sequences, residues) after random mutations, accepted by the Metropolis rule."""
    sequences = sequences.copy()

    def attracted(residue: int, kinds: NDArray[np.int64]) -> NDArray[np.int64]:
        return ((sequences == (kinds ^ 1)[..., None]) & contacts[:, None, residue]).sum(-1)

    for residue in range(LENGTH):
        old, new = sequences[:, :, residue], random.integers(KINDS, size=sequences.shape[:2])
        gain = ATTRACTION * (attracted(residue, new) - attracted(residue, old))
        accepted = random.random(gain.shape) < tried * np.exp(np.minimum(gain, 0.0))
        sequences[:, :, residue] = np.where(accepted, new, old)
    return sequences


def pair_frequencies(alignment: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of sequences with kind a at residue i and kind b at j: (residues, residues, kinds, kinds)."""
    one_hot = np.eye(KINDS)[alignment]
    return np.einsum("sia,sjb->ijab", one_hot, one_hot) / len(alignment)


def mutual_information(alignment: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mutual information in nats (residues, residues) of columns, with average product correction."""
    joint = pair_frequencies(alignment)
    single = np.einsum("iiaa->ia", joint)
    ratio = np.divide(joint, np.einsum("ia,jb->ijab", single, single), out=np.ones_like(joint), where=joint > 0)
    information = (joint * np.log(ratio)).sum((2, 3))
    np.fill_diagonal(information, 0.0)
    mean = information.sum(0) / (LENGTH - 1)
    return information - np.outer(mean, mean) / max(mean.mean(), 1e-12)


def fit_pair_frequencies(families: Families) -> Scores:
    """A ridge regression of contacts on `pair_frequencies`."""
    size = KINDS**2 + 1
    products, sums = np.eye(size) * 1e-3, np.zeros(size)
    for alignment, contacts in zip(*families, strict=True):
        x = np.ones((CANDIDATES.sum(), size))
        x[:, 1:] = pair_frequencies(alignment)[CANDIDATES].reshape(len(x), -1)
        products += x.T @ x
        sums += x.T @ contacts[CANDIDATES]
    weights = np.linalg.solve(products, sums)[1:].reshape(KINDS, KINDS)
    return lambda alignment: (pair_frequencies(alignment) * weights).sum((2, 3))


class ContactNetwork(nn.Module):
    """Embeddings, the Evoformer, and one logit for each pair of residues.

    As in AlphaFold 2, `m` begins with the kinds of residues and `z` with the distances along the chain (algorithm 4).
    """

    def __init__(self, shape: EvoformerShape) -> None:
        super().__init__()
        self.kinds = nn.Embedding(KINDS, shape.c_m)
        self.offsets = nn.Embedding(2 * LENGTH - 1, shape.c_z)
        self.evoformer = build_evoformer(shape)
        self.norm = nn.LayerNorm(shape.c_z)
        self.contact_proj = nn.Linear(shape.c_z, 1)

    def forward(self, alignments: Int[Tensor, "batch sequences residues"]) -> Float[Tensor, "batch residues residues"]:
        """The logits of contacts, symmetric."""
        positions = torch.arange(LENGTH, device=alignments.device)
        z = self.offsets(positions[:, None] - positions + LENGTH - 1).expand(len(alignments), -1, -1, -1)
        z = self.evoformer(self.kinds(alignments), z).z
        return self.contact_proj(self.norm(z + z.transpose(1, 2))).squeeze(-1)

    @torch.no_grad()
    def scores(self, alignment: NDArray[np.int64]) -> NDArray[np.float64]:
        """The logits (residues, residues) for one alignment (sequences, residues)."""
        return self(torch.from_numpy(alignment)[None])[0].double().cpu().numpy()


def train_contacts(
    families: Families,
    steps: int = 300,
    batch: int = 16,
    rate: float = 3e-3,
    seed: int = 1,
    shape: EvoformerShape = SHAPE,
) -> ContactNetwork:
    """Train on random batches of `families` with Adam; the network is returned in evaluation mode.

    The learning rate rises to `rate` and falls to 0 (torch's `OneCycleLR`).
    """
    candidates = torch.from_numpy(CANDIDATES)
    alignments, contacts = torch.from_numpy(families.alignments), torch.from_numpy(families.contacts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ContactNetwork(shape)
        optimizer = torch.optim.Adam(network.parameters(), rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
        for _ in range(steps):
            chosen = torch.randperm(len(alignments))[:batch]
            logits = network(alignments[chosen])[:, candidates]
            loss = F.binary_cross_entropy_with_logits(logits, contacts[chosen][:, candidates].float())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return network.eval()


def precision(scores: Scores, families: Families) -> float:
    """The share of contacts among the n pairs with the highest scores in a family with n contacts; the mean of all."""
    pairs = np.triu(CANDIDATES)
    shares: list[float] = []
    for alignment, contacts in zip(*families, strict=True):
        best = np.argsort(-scores(alignment)[pairs], kind="stable")
        count = contacts[pairs].sum()
        shares.append(contacts[pairs][best[:count]].mean())
    return float(np.mean(shares))


def compare(methods: Mapping[str, Scores], depths: tuple[int, ...], count: int = 100) -> dict[int, dict[str, float]]:
    """The precision of each method for alignments of each depth, on `count` families that are always the same."""
    tests = {depth: sample_families(count, depth, np.random.default_rng(0)) for depth in depths}
    return {
        depth: {name: precision(method, families) for name, method in methods.items()}
        for depth, families in tests.items()
    }


def main() -> None:
    """Train the Evoformer and the linear model, and print the precision of all methods."""
    families = sample_families(2000, 16, np.random.default_rng(1))
    print("Training on 2,000 families of 16 sequences; about a minute on one CPU core.", file=sys.stderr)
    methods: dict[str, Scores] = {
        "mutual information": mutual_information,
        "linear model": fit_pair_frequencies(families),
        "Evoformer": train_contacts(families).scores,
    }
    print("\t".join(["sequences", *methods]))
    for depth, found in compare(methods, (4, 8, 16, 32, 64)).items():
        print("\t".join([str(depth), *(f"{value:.1%}" for value in found.values())]))


if __name__ == "__main__":
    main()
