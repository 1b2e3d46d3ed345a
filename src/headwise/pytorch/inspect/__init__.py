"""Recording what a network computes, changing it, and attribution."""
