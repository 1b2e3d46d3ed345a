"""Training for every task: one module per task, and `table`, which lists them.

A task turns a request into a `Job` (`job`): its data, the network, the objective and the validation. `run` gives the
job to the one trainer; `train` is the function for programs, `ranks` trains with several processes.
"""
