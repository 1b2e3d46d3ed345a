"""The example of the Evoformer: what is generated, the baselines, and that the network learns."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from headwise.lab.demo import contacts as module
from headwise.lab.demo.contacts import (
    KINDS,
    LENGTH,
    SHAPE,
    ContactNetwork,
    Families,
    compare,
    contacts_of,
    fit_pair_frequencies,
    mutual_information,
    precision,
    sample_chain,
    sample_families,
    train_contacts,
)


def families(count: int, depth: int, seed: int = 3) -> Families:
    return sample_families(count, depth, np.random.default_rng(seed))


def test_chains_visit_neighbouring_cells_once_and_contacts_are_neighbours_elsewhere() -> None:
    cells = sample_chain(np.random.default_rng(1))
    steps = np.abs(np.diff(cells, axis=0)).sum(1)
    assert len({tuple(cell) for cell in cells.tolist()}) == LENGTH and (steps == 1).all()
    contacts = contacts_of(cells)
    assert contacts.any() and (contacts == contacts.T).all()
    for i, j in np.argwhere(contacts):
        assert abs(i - j) > 1 and np.abs(cells[i] - cells[j]).sum() == 1


def test_residues_in_contact_attract_each_other_in_most_sequences() -> None:
    found = families(20, 5)
    assert found.alignments.shape == (20, 5, LENGTH) and set(np.unique(found.alignments)) == set(range(KINDS))
    attract = np.stack([(one[:, :, None] == one[:, None] ^ 1).mean(0) for one in found.alignments])
    assert attract[found.contacts].mean() > 0.4 > 0.2 > attract[~found.contacts].mean()


def test_sequences_of_a_family_have_one_ancestor() -> None:
    """They agree more often than those of different families."""
    one, other = families(2, 16).alignments
    assert (one[:8] == one[8:]).mean() > 2 * (one == other).mean()


def test_mutual_information_of_two_columns_is_that_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns 0 and 1 are equal, 2 is independent, all with two equally frequent kinds: log 2 nats, then 0."""
    monkeypatch.setattr(module, "LENGTH", 3)
    found = mutual_information(np.array([[0, 4, 0], [0, 4, 1], [1, 5, 0], [1, 5, 1]]))
    mean = np.log(2) / 2  # of columns 0 and 1
    correction = mean**2 / (2 * mean / 3)
    assert found[0, 1] == pytest.approx(np.log(2) - correction)
    assert found[0, 2] == pytest.approx(0.0)


def test_precision_counts_contacts_among_the_best_pairs() -> None:
    found = families(3, 4)
    truth = iter(found.contacts.astype(float))
    assert precision(lambda alignment: next(truth), found) == 1.0
    truth = iter(-found.contacts.astype(float))
    assert precision(lambda alignment: next(truth), found) == 0.0


def test_the_linear_model_learns_which_kinds_attract_each_other() -> None:
    held = families(30, 16, seed=4)
    assert precision(fit_pair_frequencies(families(60, 16)), held) > precision(mutual_information, held) + 0.2


def test_the_network_knows_no_order_of_sequences_and_gives_symmetric_scores() -> None:
    torch.manual_seed(0)
    network = ContactNetwork(replace(SHAPE, n_blocks=1)).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    alignment = families(1, 4).alignments[0]
    scores = network.scores(alignment)
    assert np.ptp(scores) > 0.01
    np.testing.assert_allclose(scores, scores.T, atol=1e-5)
    np.testing.assert_allclose(network.scores(alignment[[0, 3, 1, 2]]), scores, atol=1e-5)


@pytest.mark.thorough
def test_the_evoformer_learns_contacts() -> None:
    """Of families that it has not seen; from eight sequences it finds more than twice as many as mutual information."""
    trained = train_contacts(families(500, 8), steps=100, batch=8, rate=5e-3, shape=replace(SHAPE, n_blocks=1))
    found = compare({"evoformer": trained.scores, "information": mutual_information}, (8,), count=30)[8]
    assert found["evoformer"] > 0.45 and found["evoformer"] > 2 * found["information"]


def test_the_command_prints_the_precision_of_each_method(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = replace(SHAPE, n_blocks=1, c_m=4, c_z=4, c_head=2)
    monkeypatch.setattr(module, "sample_families", lambda count, depth, random: sample_families(4, depth, random))
    monkeypatch.setattr(module, "train_contacts", partial(train_contacts, steps=2, batch=2, shape=shape))
    module.main()
    header, *rows = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert header == ["sequences", "mutual information", "linear model", "Evoformer"]
    assert [row[0] for row in rows] == ["4", "8", "16", "32", "64"]
    assert all(0 <= float(value.rstrip("%")) <= 100 for row in rows for value in row[1:])


def test_training_is_reproducible_and_leaves_the_generator_alone() -> None:
    state = torch.get_rng_state()
    tiny = replace(SHAPE, n_blocks=1, c_m=8, c_z=8, c_head=4)
    one, other = (train_contacts(families(4, 2), steps=5, batch=2, shape=tiny) for _ in range(2))
    alignment = families(1, 2).alignments[0]
    assert not one.training and one.scores(alignment).tolist() == other.scores(alignment).tolist()
    assert torch.equal(torch.get_rng_state(), state)
