"""The table of claims, in the order of the report."""

from headwise.study import (
    distance,
    gradients,
    inference,
    layer_cost,
    order,
    receptive_field,
    scaled_dot_product,
    scaling_laws,
    sequential,
    translation,
)
from headwise.study.claim import Claim

CLAIMS: dict[str, Claim] = {
    module.CLAIM.name: module.CLAIM
    for module in (
        sequential,
        distance,
        gradients,
        receptive_field,
        translation,
        scaled_dot_product,
        layer_cost,
        order,
        scaling_laws,
        inference,
    )
}
