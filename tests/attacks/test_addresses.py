"""Every address case: the addresses that a `network` allows, and the texts that are not a network."""

from gateway.policy import parse_network
from tests.attacks.corpus import family


def test_each_address_is_judged_as_its_case_says() -> None:
    """An address is judged by its value, not by its spelling."""
    wrong = []
    for case in family("address"):
        try:
            network = parse_network(case["network"])
        except ValueError:
            outcome = "refused"
        else:
            outcome = "allowed" if "address" not in case or network.allows(case["address"]) else "denied"
        if outcome != case["expect"]:
            wrong.append(f"{case['id']} ({case['why']}): {outcome}, not {case['expect']}")
    assert not wrong, "\n".join(wrong)
