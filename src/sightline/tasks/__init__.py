"""What a network is trained for, each task in one module: translation, denoising, classification, forecasting and
language modelling.

A task turns a request into a `Job` (`job`): its material, the network, what is minimised and how it is judged. The
pipeline hands that to the one trainer. `denoising`, `classification` and `forecasting` also hold what `sightline.load`
returns for their models; a translator is `sightline.api.TrainedTranslator`, a language model
`sightline.generation.models.TextModel`.
"""
