"""The command line: the one place that prints, and that builds the parts for each other.

Imports are made late: ``poolhouse --help`` starts without torch, ``poolhouse control`` without
torch, numpy and WebRTC.
"""
