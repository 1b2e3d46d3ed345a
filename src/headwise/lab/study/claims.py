"""The table of claims, in the order of the report."""

from headwise.lab.study import (
    distance,
    gradients,
    heads,
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
    translation,
    warmup,
)
from headwise.lab.study.claim import Claim

CLAIMS: dict[str, Claim] = {
    module.CLAIM.name: module.CLAIM
    for module in (
        operations,
        sequential,
        layer_cost,
        inference,
        receptive_field,
        gradients,
        distance,
        translation,
        interpretability,
        order,
        scaled_dot_product,
        scaled_training,
        heads,
        warmup,
        scaling_laws,
    )
}
