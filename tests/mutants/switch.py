"""Which mutation is active, and which test reaches which: `mutant_switch` in a tree with mutants.

HEADWISE_MUTANT is the number of the active one. With HEADWISE_MUTANTS_REACHED, a file, each test that reaches a
mutation is written to it, also by the processes that the test starts.
"""

import os

_seen: set[tuple[int, str]] = set()


def mutant(number: int) -> bool:
    """Whether this mutation is active."""
    active = os.environ.get("HEADWISE_MUTANT")
    if active is not None:
        return active == str(number)
    if reached := os.environ.get("HEADWISE_MUTANTS_REACHED"):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        if test and (number, test) not in _seen:
            _seen.add((number, test))
            with open(reached, "a", encoding="utf-8") as file:
                file.write(f"{number}\t{test}\n")
    return False
