"""The models that `load` returns: one class for each kind of network, with the methods that suit it."""
