"""Training for every task: one module per task, and `table`, which lists them.

A task turns a `TrainRequest` into a `Job` (`job`): data, network, objective and validation. `run` gives the job to the
trainer, `train` is the Python interface, and `ranks` trains with several processes.
"""
