"""One module per command, with `add_options(parser)` and `run(options)`; `sightline.cli` imports the requested one.

`RULES`, if a module has them, list options that have no effect beside others; `NEEDS` lists modules of `sightline.cli`
that only some of its command lines need.
"""
