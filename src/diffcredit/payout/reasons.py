"""What changed a contributor's amount beside the two rules, in sentences for the contributor."""

from decimal import Decimal

from diffcredit.payout.balances import Settled
from diffcredit.payout.basis import Basis
from diffcredit.payout.earnings import Earnings


def reasons(basis: Basis, i: int, earned: Earnings, opening: Decimal, settled: Settled) -> str:
    """Return the sentences for contributor ``i``; empty where the two rules alone made the amount."""
    policy, amount = basis.policy, earned.amounts[i] * basis.policy.rounding
    cap, floor, minimum = (_whole(each, policy.rounding) for each in (policy.cap, policy.floor, policy.minimum))
    said = []
    if basis.cut[i]:
        said.append(
            "Nothing is earned: these images surely make the model worse than the reference, and the policy gives "
            "nothing for them then."
        )
    elif amount == policy.cap and earned.fixed[i] + earned.merit[i] > earned.amounts[i]:
        said.append(f"The cap of {cap} limits the amount.")
    elif amount == policy.floor and earned.fixed[i] + earned.merit[i] < earned.amounts[i]:
        said.append(f"The floor of {floor} raises the amount.")
    elif earned.fixed[i] + earned.merit[i] > earned.amounts[i]:
        said.append("Reduced in proportion, because the floor raises smaller amounts.")
    elif earned.fixed[i] + earned.merit[i] < earned.amounts[i]:
        said.append("Raised in proportion, by what the cap takes from larger amounts.")
    if settled.carried and opening + amount < policy.minimum:
        said.append(f"Carried forward: {opening + amount} is below the minimum payment of {minimum}.")
    elif settled.carried:
        said.append(f"Carried forward: {settled.carried}, less than the smallest amount that is paid.")
    return " ".join(said)


def _whole(amount: Decimal | None, rounding: Decimal) -> Decimal:
    """Return a limit with all the decimals of a coin; 0 where there is none."""
    return (amount or 0) + 0 * rounding
