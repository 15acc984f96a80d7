"""Where a relay may not send (relay credentials; coturn, 4 and 8).

A relay sends to any address its client names, from inside the operator's network.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DENIED_RANGES"]

DENIED_RANGES: Final = (
    ("this network", "0.0.0.0-0.255.255.255"),
    ("private", "10.0.0.0-10.255.255.255"),
    ("carrier-grade NAT", "100.64.0.0-100.127.255.255"),
    ("loopback", "127.0.0.0-127.255.255.255"),
    ("link-local, cloud metadata", "169.254.0.0-169.254.255.255"),
    ("private", "172.16.0.0-172.31.255.255"),
    ("protocol assignments", "192.0.0.0-192.0.0.255"),
    ("documentation", "192.0.2.0-192.0.2.255"),
    ("6to4 relays", "192.88.99.0-192.88.99.255"),
    ("private", "192.168.0.0-192.168.255.255"),
    ("benchmarks", "198.18.0.0-198.19.255.255"),
    ("documentation", "198.51.100.0-198.51.100.255"),
    ("documentation", "203.0.113.0-203.0.113.255"),
    ("reserved, broadcast", "240.0.0.0-255.255.255.255"),
    # Not from "::": coturn 4.6.1 takes that for no bound and refuses every IPv4 peer (measured).
    # It refuses "::" itself by its own rule.
    ("loopback, IPv4 in the oldest form", "::1-::ffff:ffff"),
    # Some versions check an IPv4 address that is written as IPv6 against none of the lines above.
    ("IPv4 written as IPv6", "::ffff:0.0.0.0-::ffff:255.255.255.255"),
    ("NAT64", "64:ff9b::-64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
    ("discard", "100::-100::ffff:ffff:ffff:ffff"),
    ("Teredo, protocol assignments", "2001::-2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("documentation", "2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("documentation", "3fff::-3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("6to4", "2002::-2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("unique local", "fc00::-fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("link-local, site-local", "fe80::-feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
)
"""What a range is, and coturn's way of writing it."""
