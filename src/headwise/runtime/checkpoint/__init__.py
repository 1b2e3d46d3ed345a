"""Model folders, read and written: those that `headwise train` makes, and those in the Hugging Face layout.

`read.read_folder` reads any. `layout` tells the kinds apart, `hub` finds a folder by name; `trained` is for models
trained here, `imported`, `published`, `write`, `tuned` and `xlnet` for the Hugging Face layout; `sidecar_files` may be
in any. See `network` for networks and `families` for the names of a family.
"""
