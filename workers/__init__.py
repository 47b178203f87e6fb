"""What runs on a Ray worker: tasks, model, optimiser, random streams, engines, trainable."""
