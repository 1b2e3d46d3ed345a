"""Model folders, read and written: those that `headwise train` makes, and those in the Hugging Face layout.

`read.read_folder` reads any. `layout` tells the kinds apart, `hub` finds a folder by name; `trained` is for models
trained here, `pretrained_folder` for the Hugging Face layout; `sidecar_files` may be in any. `pytorch.checkpoint` makes
networks in PyTorch of them, and converts; `families` has the names of each family.
"""
