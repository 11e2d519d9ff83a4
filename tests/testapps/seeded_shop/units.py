"""What the two apps are known to do: the answer that a search for races is compared with. The project has no copy."""

from typing import NamedTuple

_KINDS = {
    "POST {shop}/coupons/redeem/": "check-then-act",
    "POST {shop}/checkout/": "read-modify-write",
    "POST {shop}/wishes/": "check-then-insert",
    "POST {shop}/bookings/": "check-then-insert",
    "GET {shop}/articles/<slug:slug>/": "read-modify-write",
    "POST {shop}/expenses/<int:pk>/decide/": "check-then-act",
    "POST {shop}/messages/": "check-then-insert",
    "DELETE {shop}/on-call/": "write-skew",
    "seeded_shop.{shop}.services.merge_baskets": "check-then-act",
    "seeded_shop.{shop}.services.renew": "check-then-insert",
    "seeded_shop.{shop}.services.transfer": "lock-order",
    "seeded_shop.{shop}.services.withdraw": "late-lock",
}


class SeededUnit(NamedTuple):
    """A request, by its method and route, or a function, by its module and name."""

    name: str
    racing: bool
    """Whether it has the race."""
    kind: str
    """How it races, or would without its remedy; where several kinds fit, the one that costs most."""


UNITS = tuple(
    SeededUnit(name.format(shop=shop), shop == "racing", kind)
    for shop in ("racing", "correct")
    for name, kind in _KINDS.items()
)
"""Each unit of both apps."""
