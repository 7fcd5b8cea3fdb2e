"""What the section `queues` means for the rules: which of them hold, and what there is to divide."""

from __future__ import annotations

from agent.config import ConfigError
from agent.config_schema_queues import QueuesSection
from agent.model.quantity import QuantityError
from agent.model.queue import ResourceQuantities
from agent.queues.accountant import AccountantOptions
from agent.queues.ledger import LedgerOptions
from agent.queues.options import Profile, QueueOptions
from agent.queues.quantities import parse_total
from agent.queues.resize_admission import ResizeOptions


def accountant_options(section: QueuesSection) -> AccountantOptions:
    """What the rules need of the configuration."""
    return AccountantOptions(
        QueueOptions(
            section.kValue,
            section.relcaimerSaturationMultiplier,
            section.queuePriorityInQuotaReclaim,
            Profile.parse(section.profile),
            section.forbidTakeBack,
        ),
        ResizeOptions(
            section.schedulerName,
            section.validateQuota,
            section.blockUpsizeOnBoundedQueues,
            section.podLevelRequests,
        ),
        LedgerOptions(section.ledgerSeconds) if section.ledger else None,
        section.queueLabel,
        section.silentSeconds,
        section.settleSeconds,
        section.patienceSeconds,
    )


def total_of(section: QueuesSection) -> ResourceQuantities | None:
    """What there is to divide; None: what the nodes have. Raises ConfigError."""
    try:
        return parse_total(section.total) if section.total else None
    except (ValueError, QuantityError) as error:
        raise ConfigError(f"queues.total: {error}") from error
