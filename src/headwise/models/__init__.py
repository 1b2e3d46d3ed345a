"""The kinds of models that `headwise.load` returns.

`load` chooses the class (`kinds`); each kind has a folder with what it needs without PyTorch. Methods that need PyTorch
get their other side from `Model.torch`.
"""
