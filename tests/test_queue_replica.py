"""One replica among others: what it says of itself while the Lease comes and goes, and what must be done before it answers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.commands.queues_serve import lease
from agent.config import ConfigError
from agent.config_schema import Config
from agent.kube.http_access import Access
from agent.kube.lease import LeaseCandidate, LeaseName
from agent.queue_replica import Replica
from agent.queues.accountant import AccountantOptions
from agent.queues.election import ElectionOptions
from agent.queues.ledger import LedgerOptions
from agent.serve.accountant import AccountantService
from agent.source_config import own_namespace
from tests.kube.leases import LeaseStore, keeping
from tests.kube.servers import wait_until
from tests.serve.accountants import Clock

LEDGER = AccountantOptions(ledger=LedgerOptions())


class Accounts(AccountantService):
    """Takes over when a test lets it."""

    def __init__(self) -> None:
        super().__init__(LEDGER, Clock())
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def take_over(self) -> bool:
        self.begun.release()
        assert self.go_on.acquire(timeout=30)
        return super().take_over()


def test_every_term_begins_with_taking_over_and_nothing_is_answered_before() -> None:
    store, accounts = LeaseStore(), Accounts()
    store.put("", 1)
    with keeping(store) as part:
        options = ElectionOptions("a", retry_seconds=0.02)
        replica = Replica(accounts, LeaseCandidate(Access(part.url), LeaseName("pinfold", "queues"), options))
        assert replica.standby() == "lease pinfold/queues has not been read yet"
        replica.start()
        for _ in range(2):
            assert accounts.begun.acquire(timeout=30)
            assert "rebuilds the reservation ledger" in replica.standby()
            assert not replica.check().ok
            accounts.go_on.release()
            wait_until(lambda: replica.standby() == "")
            assert replica.check().reason == "lease pinfold/queues is held"
            store.put("b")
            wait_until(lambda: "held by b" in replica.standby())
            store.put("", 1)
        accounts.go_on.release()
        wait_until(lambda: replica.standby() == "")
        replica.stop()
        assert replica.standby() != ""
        assert store.holder() == ""


def test_without_a_lease_there_are_no_others() -> None:
    replica = Replica(Accounts(), None)
    replica.start()
    assert (replica.standby(), replica.check().ok) == ("", True)
    replica.stop()


def config(**lease_values: object) -> Config:
    section = {"ledger": True, "stateDirectory": "/var/lib/pinfold-queues", "lease": lease_values}
    return Config.model_validate({"queues": section, "sources": {"apiserver": {"url": "http://127.0.0.1:1"}}})


def test_every_process_stands_under_a_name_of_its_own() -> None:
    """Two with one name would both hold."""
    first, second = (lease(config(namespace="pinfold")) for _ in range(2))
    assert first is not None
    assert second is not None
    assert str(first.name) == "pinfold/pinfold-queues"
    assert first.identity != second.identity
    assert lease(Config()) is None


def test_the_namespace_is_the_pods_own_or_must_be_given(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("kube-system\n")
    assert own_namespace(tmp_path) == "kube-system"
    with pytest.raises(ConfigError, match="which namespace the Lease is in is not known"):
        own_namespace(tmp_path / "none")
