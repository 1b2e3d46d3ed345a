"""Settings of architectures, training and search, and the tasks a network can be trained for."""
