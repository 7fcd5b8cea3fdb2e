"""The section `queues`: the accountant, alone (`pinfold queues serve`) or in the agent. What it means is `agent.queue_config`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from agent.config_schema_values import Section, SocketMode, check_address, check_certificates


class QueuesWebhookSection(Section):
    """The resize webhook, https. port 0: none. certificate, key: PEM files, read again when they change.

    clientCA: only API servers with a certificate of this CA are answered; "": any.
    """

    address: str = "0.0.0.0"
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    certificate: str = ""
    key: str = ""
    clientCA: str = ""


class QueuesAPISection(Section):
    """Page, metrics and query API. port 0: none. With certificate and key https; beyond loopback they and clientCA are needed.

    Clients with a certificate of clientCA may also send node reports.
    """

    address: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 9558
    certificate: str = ""
    key: str = ""
    clientCA: str = ""


class QueuesGRPCSection(Section):
    """The same questions over gRPC (pinfold.queues.v1): on a unix socket, "" for none, and on an address, port 0 for none. With
    certificate and key TLS; beyond loopback they and clientCA are needed.
    """

    socket: str = ""
    socketMode: SocketMode = "0660"
    socketGroup: str = ""
    address: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    certificate: str = ""
    key: str = ""
    clientCA: str = ""

    @model_validator(mode="after")
    def _beyond_loopback(self) -> QueuesGRPCSection:
        check_certificates(self.certificate, self.key, self.clientCA)
        if self.port:
            check_address(self.address, self.clientCA)
        return self


class QueuesLeaseSection(Section):
    """A Lease at the API server that one of several replicas holds, which alone answers. namespace: "" for the pod's own.

    durationSeconds: for how long the others leave it alone after its last change. renewDeadlineSeconds: for how long its holder
    answers after its last renewal. retrySeconds: between two looks. As client-go's leader election has them.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")] = "pinfold-queues"
    namespace: Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")] = ""
    durationSeconds: Annotated[int, Field(ge=1, le=3600)] = 15
    renewDeadlineSeconds: Annotated[float, Field(gt=0)] = 10.0
    retrySeconds: Annotated[float, Field(gt=0)] = 2.0

    @model_validator(mode="after")
    def _order(self) -> QueuesLeaseSection:
        if not self.retrySeconds < self.renewDeadlineSeconds < self.durationSeconds:
            raise ValueError(
                "retrySeconds < renewDeadlineSeconds < durationSeconds must hold, or two replicas could answer"
            )
        return self


class QueuesSection(Section):
    """Queue accounting, of `pinfold queues serve` or, with enabled, inside the agent for its own node (docs/queues.md).

    objects: files and directories of KAI objects. apiserver: objects of the API server too, reached as sources.apiserver says,
    else as a pod's environment does; apiserverPods: also its pods, for nodes without an agent.
    total: what there is to divide, such as cpu=64,memory=512Gi; "": what the nodes have. stateDirectory: "" keeps nothing.
    socket: takes reports and questions of local programs; "": none. failOpen: what cannot be judged is admitted.
    ledger: reserve admitted growth until a report shows it. lease: of several replicas one answers; None: there is one.
    """

    enabled: bool = False
    objects: list[str] = []
    objectsPeriodSeconds: Annotated[float, Field(gt=0, le=3600)] = 2.0
    apiserver: bool = False
    apiserverPods: bool = True
    total: str = ""
    stateDirectory: str = ""
    socket: str = ""
    socketMode: SocketMode = "0660"
    socketGroup: str = ""
    schedulerName: str = "kai-scheduler"
    queueLabel: str = "kai.scheduler/queue"
    profile: Literal["0.18", "main"] = "0.18"
    kValue: float = 1.0
    relcaimerSaturationMultiplier: float = 1.0
    queuePriorityInQuotaReclaim: bool = False
    forbidTakeBack: bool = False
    validateQuota: bool = True
    blockUpsizeOnBoundedQueues: bool = False
    podLevelRequests: bool = True
    failOpen: bool = True
    ledger: bool = False
    ledgerSeconds: Annotated[float, Field(gt=0, le=86400)] = 600.0
    silentSeconds: Annotated[float, Field(gt=0, le=86400)] = 120.0
    settleSeconds: Annotated[float, Field(ge=0, le=3600)] = 30.0
    patienceSeconds: Annotated[float, Field(ge=0, le=3600)] = 60.0
    webhook: QueuesWebhookSection = QueuesWebhookSection()
    api: QueuesAPISection = QueuesAPISection()
    grpc: QueuesGRPCSection = QueuesGRPCSection()
    lease: QueuesLeaseSection | None = None

    @model_validator(mode="after")
    def _files(self) -> QueuesSection:
        for name, part in (("webhook", self.webhook), ("api", self.api)):
            if bool(part.certificate) != bool(part.key):
                raise ValueError(f"{name}: certificate and key belong together")
        if self.webhook.port and not self.webhook.certificate:
            raise ValueError("webhook: an API server calls webhooks over https only: give certificate and key")
        if self.ledger and not self.stateDirectory:
            raise ValueError("ledger: reservations must survive a restart: give stateDirectory")
        if self.lease is not None and not self.ledger:
            raise ValueError(
                "lease: without ledger all replicas give the same answers: leave lease away, or set ledger"
            )
        if self.lease is not None and self.enabled:
            raise ValueError("lease: an agent accounts for its own node alone: leave lease away, or enabled")
        return self
