"""Which operations a load consists of."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Mix"]

_PARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Weights of the kinds of operation. Raises ``ValueError`` for weights that make no sense."""

    deposit: float = 1
    """The weight of deposits."""
    withdraw: float = 1
    """The weight of withdrawals."""
    transfer: float = 0
    """The weight of transfers."""

    def __post_init__(self) -> None:
        if not all(math.isfinite(weight) and weight >= 0 for weight in self.weights) or not any(self.weights):
            raise ValueError(f"--mix must be weights of at least 0, not all of them 0, not {self}")

    def __str__(self) -> str:
        return ":".join(f"{weight:g}" for weight in self.weights)

    @property
    def weights(self) -> tuple[float, float, float]:
        """The weights in the order of `parse`."""
        return self.deposit, self.withdraw, self.transfer

    @classmethod
    def parse(cls, text: str) -> Mix:
        """Return the mix written as ``deposit:withdraw:transfer``. Raises ``ValueError`` for anything else."""
        try:
            weights = [float(part) for part in text.split(":")]
        except ValueError:
            weights = []
        if len(weights) != _PARTS:
            raise ValueError(f"--mix must be three weights, deposit:withdraw:transfer, such as 2:1:1, not {text!r}")
        return cls(deposit=weights[0], withdraw=weights[1], transfer=weights[2])

    @classmethod
    def default(cls, *, accounts: int) -> Mix:
        """Return equal weights, of transfers too where there are two accounts for them."""
        return cls(transfer=1 if accounts > 1 else 0)
