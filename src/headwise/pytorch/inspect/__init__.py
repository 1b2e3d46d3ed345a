"""Recording what a network computes, changing it, and attribution."""

STABLE = ("interventions.intervene", "heads.Head")
