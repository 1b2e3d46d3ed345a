"""What a network is trained for: a row each in `table`, a module each beside it.

A task turns a request into a `Job` (`job`): its material, the network, what is minimised and how it is judged. The
pipeline hands that to the one trainer. A module also holds what `sightline.load` returns where that is not a folder of
a family; a translator is `sightline.models.translator.TrainedTranslator`.
"""
