"""Token shards: files of tokens for pre-training, memory-mapped and cut into rows."""
