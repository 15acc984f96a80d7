"""Pieces of which models are made: arithmetic and weights. The state is a room's, not theirs."""
