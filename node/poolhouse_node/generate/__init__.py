"""The host's loop: prompt to tokens, over its own layers and the chain."""
