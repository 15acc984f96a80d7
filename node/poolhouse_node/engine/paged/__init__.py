"""The state of rooms in pages: one pool for all of a model part's rooms on one device.

``ledger`` counts who holds which block, ``pages`` and ``recurrent`` are the tensors, ``pool`` is
both with a share for each room, ``sequence`` is one room's live state and its saved ones, and
``passes`` is what layers see of it.
"""
