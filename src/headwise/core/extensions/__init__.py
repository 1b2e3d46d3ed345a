"""Other positions, norms, inputs and heads, which families of models need beyond the paper; `core.build` chooses."""
