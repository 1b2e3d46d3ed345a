"""The table of claims, in the order in which they are measured and reported: counts, then the most important ones."""

from headwise.lab.study import (
    ablation,
    distance,
    gradients,
    inference,
    interpretability,
    layer_cost,
    operations,
    order,
    receptive_field,
    scaled_dot_product,
    scaled_training,
    scaling_laws,
    sequential,
    transfer,
    translation,
    variants,
)
from headwise.lab.study.claim import Claim

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        operations.CLAIM,
        receptive_field.CLAIM,
        scaled_dot_product.CLAIM,
        order.CLAIM,
        scaled_training.CLAIM,
        translation.CLAIM,
        variants.CLAIM_HEADS,
        variants.CLAIM_WARMUP,
        interpretability.CLAIM,
        distance.CLAIM,
        ablation.CLAIM,
        transfer.CLAIM,
        gradients.CLAIM,
        variants.CLAIM_REGULARISATION,
        scaling_laws.CLAIM,
        sequential.CLAIM,
        layer_cost.CLAIM,
        inference.CLAIM,
    )
}
