"""One module per command, with `add_options(parser)` and `run(options)`; `headwise.cli` imports the requested one.

The docstring of a module is the example at the end of its help. `RULES`, if it has them, list options that have no
effect beside others; `NEEDS` lists modules of `headwise.cli` that only some of its command lines need. A command with
more than 12 options has `COMMON`, the names of at most ten values: `--help` shows their options, most used first.
"""
