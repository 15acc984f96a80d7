"""How a device is: its Prometheus series, its health, the port that tells both.

Nothing here knows rooms, links or engines: ``cli`` hands in what it sees, as plain values.
"""
