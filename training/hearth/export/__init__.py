"""A run's result in the formats of other programs: one model folder, GGUF, a folder for Ollama."""
