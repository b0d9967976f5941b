"""What others published, made again: each result an experiment, held to the published figure."""
