"""Tables that tests make are shown at the end of the run."""

from __future__ import annotations

from typing import Any

import pytest

pytest.register_assert_rewrite("conformance", "counting", "three_ways", "toy_memory")

_TABLES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def tables(request: pytest.FixtureRequest) -> list[str]:
    """Lines to be shown, whatever comes of the tests."""
    return request.config.stash.setdefault(_TABLES, [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where tests run in several processes, each hands its lines over."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tables"] = session.config.stash.get(_TABLES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes what a process handed over."""
    made = getattr(node, "workeroutput", {}).get("tables", [])
    node.config.stash.setdefault(_TABLES, []).extend(made)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    lines = config.stash.get(_TABLES, [])
    if lines:
        terminalreporter.section("tables")
    for line in lines:
        terminalreporter.write_line(line)
