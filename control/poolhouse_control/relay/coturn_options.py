"""What coturn 4.6.1 understands, and what a file may not say.

coturn logs a line it does not know and goes on without it; a typo in a deny rule is an open relay.
So every line is checked here, before coturn sees it.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FORBIDDEN", "problems_in"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLAGS: Final = _words(
    """
    check-origin-consistency daemon dh1066 dh566 fingerprint keep-address-family log-binding
    lt-cred-mech mobility new-log-timestamp no-auth-pings no-cli no-dtls no-dynamic-ip-list
    no-dynamic-realms no-multicast-peers no-rfc5780 no-software-attribute no-stdout-log no-stun
    no-stun-backward-compatibility no-tcp no-tcp-relay no-tls no-tlsv1 no-tlsv1_1 no-tlsv1_2 no-udp
    no-udp-relay response-origin-only-with-rfc5780 secure-stun simple-log stun-only syslog
    udp-self-balance use-auth-secret verbose
    """
)
_NUMBERS: Final = _words(
    """
    alt-listening-port alt-tls-listening-port bps-capacity channel-lifetime cli-max-output-sessions
    listening-port max-allocate-lifetime max-allocate-timeout max-bps max-port min-port ne
    permission-lifetime relay-threads stale-nonce tcp-proxy-port tls-listening-port total-quota
    user-quota
    """
)
_RANGES: Final = frozenset({"allowed-peer-ip", "denied-peer-ip"})
_TEXTS: Final = _words(
    """
    acme-redirect alternate-server aux-server cert cipher-list cli-ip dh-file ec-curve-name
    external-ip listening-device listening-ip log-file mysql-userdb new-log-timestamp-format pidfile
    pkey pkey-pwd proc-group proc-user psql-userdb realm redis-statsdb redis-userdb relay-device
    relay-ip rest-api-separator secret-key-file server-name static-auth-secret syslog-facility
    tls-alternate-server userdb
    """
)
FORBIDDEN: Final = {
    "allow-loopback-peers": "opens this machine's own services to every client",
    "cli-password": "switches a console on",
    "cli-port": "is of a console that is off",
    "no-auth": "opens the relay to everybody",
    "oauth": "has holes in this version",
    "server-relay": "drops the check of who may send",
    "user": "names a user for ever, and is ignored beside shared secrets",
    "web-admin": "switches a console on",
    "web-admin-ip": "is of a console that is off",
    "web-admin-listen-on-workers": "switches a console on",
    "web-admin-port": "is of a console that is off",
}
_MANY: Final = _RANGES | {
    "alternate-server",
    "aux-server",
    "external-ip",
    "listening-ip",
    "relay-ip",
    "static-auth-secret",
    "tls-alternate-server",
}
_OWN_SERVICES: Final = tuple(
    ipaddress.ip_network(each)
    for each in ("0.0.0.0/8", "127.0.0.0/8", "169.254.169.254", "::/96", "::ffff:0:0/96")
)
_KNOWN: Final = _FLAGS | _NUMBERS | _RANGES | _TEXTS


def problems_in(text: str) -> list[str]:
    """List in sentences what coturn would ignore, misread or must not be told. Empty: all well."""
    return list(_problems(text))


def _problems(text: str) -> Iterator[str]:
    seen: set[str] = set()
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = line.strip().partition("=")
        problem = _problem(name.strip(), bool(equals), value.strip())
        if problem is not None:
            yield problem
        elif name in seen and name not in _MANY:
            yield f"{name} stands twice."
        seen.add(name)
    if "denied-peer-ip" not in seen:
        yield "No denied-peer-ip: the relay would reach everything its machine reaches."


def _problem(name: str, has_value: bool, value: str) -> str | None:
    if name in FORBIDDEN:
        return f"{name} is not allowed: it {FORBIDDEN[name]}."
    if name not in _KNOWN:
        near = difflib.get_close_matches(name, _KNOWN, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"{name!r} is not an option of coturn, which would ignore it.{hint}"
    if name in _FLAGS:
        return f"{name} takes no value." if has_value else None
    if not value:
        return f"{name} needs a value."
    if name in _NUMBERS and not re.fullmatch(r"\d{1,18}", value):
        return f"{name} must be a whole number, not {value!r}: coturn would read 0."
    if name in _RANGES and _range(value) is None:
        return f"{name} must be an address or FIRST-LAST, not {value!r}."

    if name == "denied-peer-ip" and value.partition("-")[0] == "::":
        return f"denied-peer-ip={value} would refuse every IPv4 peer: begin with ::1."
    if name == "allowed-peer-ip" and _opens_this_machine(value):
        return f"allowed-peer-ip={value} is not allowed: it opens this machine's own services."
    return None


def _range(value: str) -> tuple[int, int, int] | None:
    """IP version and bounds."""
    first, dash, last = value.partition("-")
    try:
        low = ipaddress.ip_address(first)
        high = ipaddress.ip_address(last) if dash else low
    except ValueError:
        return None
    ordered = low.version == high.version and int(low) <= int(high)
    return (low.version, int(low), int(high)) if ordered else None


def _opens_this_machine(value: str) -> bool:
    """An allowed address beats every deny rule."""
    allowed = _range(value)
    if allowed is None:
        return False
    version, low, high = allowed
    return any(
        version == own.version and low <= int(own[-1]) and int(own[0]) <= high
        for own in _OWN_SERVICES
    )
