"""What families of models need beyond the paper: other positions, norms, inputs and heads; `core.build` chooses."""
