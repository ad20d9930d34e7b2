"""What changed a contributor's amount beside the two rules, in sentences for the contributor."""

from decimal import Decimal

from diffcredit.payout.balances import Settled
from diffcredit.payout.basis import Basis
from diffcredit.payout.earnings import Earnings


def reasons(basis: Basis, i: int, earned: Earnings, opening: Decimal, settled: Settled) -> str:
    """Return the sentences for contributor ``i``; empty where the two rules alone made the amount."""
    policy, amount = basis.policy, earned.amounts[i] * basis.policy.rounding
    said = []
    if basis.cut[i]:
        said.append(
            "Nothing is paid: these images surely make the model worse than the reference, and the policy cuts off "
            "all payment then."
        )
    elif amount == policy.cap and earned.fixed[i] + earned.merit[i] > earned.amounts[i]:
        said.append(f"The cap of {policy.cap} limits the amount.")
    elif amount == policy.floor and earned.fixed[i] + earned.merit[i] < earned.amounts[i]:
        said.append(f"The floor of {policy.floor} raises the amount.")
    elif earned.fixed[i] + earned.merit[i] > earned.amounts[i]:
        said.append("Reduced in proportion, because the floor raises smaller amounts.")
    elif earned.fixed[i] + earned.merit[i] < earned.amounts[i]:
        said.append("Raised in proportion, by what the cap takes from larger amounts.")
    if settled.carried and opening + amount < policy.minimum:
        said.append(f"Carried forward: {opening + amount} is below the minimum payment of {policy.minimum}.")
    elif settled.carried:
        said.append(f"Carried forward: {settled.carried}, less than the smallest amount that is paid.")
    return " ".join(said)
