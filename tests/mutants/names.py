"""A plugin that writes the full name of each test into the report of `--junitxml`."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties.append(("nodeid", item.nodeid))
