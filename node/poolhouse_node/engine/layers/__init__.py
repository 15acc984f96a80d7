"""Pieces of which models are made: functions of tensors, without state."""
