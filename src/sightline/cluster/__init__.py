"""Work that Ray spreads over the processes of one machine or of many: lines, trials of settings, a server's replicas.

Ray starts and watches processes; what is computed in them is the same code that runs without it. An extra:
`pip install 'sightline[ray]'`. Not here: training of one model by several devices.
"""
