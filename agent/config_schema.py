"""The configuration file's keys and types (design section 4). Resource-manager keys have KubeletConfiguration's names.

Loading, origins and line numbers are `agent.config`; what the values mean on a machine is `agent.node_config`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from agent.errors import AgentError
from agent.model.cpuset import CPUSet
from agent.model.quantity import Quantity


class Section(BaseModel):
    """A part of the configuration: unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


PathText = Annotated[str, Field(min_length=1)]
QuantityText = Annotated[str, Field(max_length=64)]


def _check_certificates(certificate: str, key: str, client_ca: str) -> None:
    if bool(certificate) != bool(key) or (client_ca and not certificate):
        raise ValueError("certificate and key belong together, and clientCA to both")


def _check_address(address: str, client_ca: str) -> None:
    if address not in ("127.0.0.1", "::1") and not client_ca:
        raise ValueError(f"address {address}: beyond loopback certificate, key and clientCA are needed")


def _quantities(values: dict[str, str]) -> dict[str, str]:
    for name, text in values.items():
        try:
            amount = Quantity.parse(text)
        except AgentError as error:  # pydantic collects ValueErrors only
            raise ValueError(f"{name}: {error}") from error
        if amount.number < 0:
            raise ValueError(f"{name}: {text!r} is negative")
    return values


class MemoryReservation(Section):
    """One entry of reservedMemory: what a NUMA node keeps for the system."""

    numaNode: Annotated[int, Field(ge=0, lt=1024)]
    limits: dict[str, QuantityText]

    _check = field_validator("limits")(_quantities)


class NodeSection(Section):
    """This node. root: the directory with sys/ and proc/, another one to try out a captured machine. name: of its Node object,
    "" for $NODE_NAME, else the host name. kubeletRoot: the kubelet's own directory. minSharedCPUs: what
    exclusive grants must leave shared; default 1 with strict-cpu-reservation, else 0. freeHugepages: what becomes of a pod whose
    NUMA nodes have fewer hugepages free than it is given, because something else took them.
    """

    root: PathText = "/"
    name: str = ""
    kubeletRoot: str = "/var/lib/kubelet"
    minSharedCPUs: Annotated[int, Field(ge=0)] | None = None
    maxPods: Annotated[int, Field(ge=1)] = 110
    freeHugepages: Literal["ignore", "warn", "refuse"] = "warn"


class ManifestsSource(Section):
    """A directory of static-pod manifests. periodSeconds: how often it is looked at."""

    path: PathText = "/etc/pinfold/manifests"
    periodSeconds: Annotated[float, Field(gt=0, le=3600)] = 1.0


class ServerSource(Section):
    """A server that is asked for pods. caFile: who signed its certificate, "" for the system's. tokenFile: a bearer token, read
    anew for every request. insecureSkipTLSVerify: any certificate will do, on loopback only.
    """

    url: str = ""
    caFile: str = ""
    tokenFile: str = ""
    clientCertificateFile: str = ""
    clientKeyFile: str = ""
    insecureSkipTLSVerify: bool = False
    timeoutSeconds: Annotated[float, Field(gt=0, le=300)] = 10.0


class KubeletSourceSection(ServerSource):
    """This node's kubelet, which admits the pods: pinfold is second. periodSeconds: how often it is asked."""

    url: str = "https://127.0.0.1:10250"
    periodSeconds: Annotated[float, Field(ge=0.5, le=3600)] = 5.0


class APIServerSourceSection(ServerSource):
    """The API server; a kubelet admits the pods: pinfold is second. kubeconfig: a file that says all of it. Without that and
    without url it is the one that a pod's environment names, with the files of its service account.
    """

    kubeconfig: str = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> APIServerSourceSection:
        if self.kubeconfig and (self.url or self.caFile or self.tokenFile or self.clientCertificateFile):
            raise ValueError("kubeconfig says address and credentials; give it alone")
        return self


class PodsSourceSection(Section):
    """This node's kubelet by its Pods service (KEP-4188), a local socket; it admits the pods: pinfold is second.

    timeoutSeconds: until its whole list must be there.
    """

    socket: PathText = "/var/lib/kubelet/pods-api/pods-api.sock"
    timeoutSeconds: Annotated[float, Field(gt=0, le=300)] = 10.0


class SourcesSection(Section):
    """Where pods come from."""

    manifests: ManifestsSource | None = ManifestsSource()
    kubelet: KubeletSourceSection | None = None
    pods: PodsSourceSection | None = None
    apiserver: APIServerSourceSection | None = None

    @property
    def of_kubelet(self) -> bool:
        """Whether pods come from here that a kubelet runs."""
        return any(each is not None for each in (self.kubelet, self.pods, self.apiserver))


class EvictionSection(Section):
    """Pods beside a kubelet for which there is no room are evicted through the API server of `sources.apiserver`.

    afterSeconds: how long a pod stays unplaced first. intervalSeconds: between two evictions on this node.
    """

    afterSeconds: Annotated[float, Field(gt=0, le=604_800)] = 600.0
    intervalSeconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0


class EnforcementSection(Section):
    """How the kernel is made to obey. cgroupRoot: the mount; parent: the cgroup of pinfold's own containers below it.

    onKubeletPolicy: what to do where this node's kubelet pins too. kubeletCgroupRoot: its `cgroupRoot`. runtimeEndpoint: the
    socket of the container runtime: with backend cri what writes, with cgroup what says whose containers run; "" for none.
    containersOnly: with backend cri leave the cgroups of pods and QoS classes alone; containers then start on every CPU.
    systemd: auto: cgroups that systemd manages are written through its unit properties; none: all are written directly.
    eviction: of pods for which there is no room; None for none.
    """

    backend: Literal["none", "cgroup", "cri"] = "cgroup"
    onKubeletPolicy: Literal["refuse", "observe"] = "refuse"
    kubeletCgroupRoot: str = "/"
    runtimeEndpoint: str = ""
    containersOnly: bool = False
    cgroupRoot: PathText = "/sys/fs/cgroup"
    parent: str = "pinfold"
    systemd: Literal["auto", "none"] = "auto"
    periodSeconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    podQuota: Literal["kubelet", "strict"] = "kubelet"
    eviction: EvictionSection | None = None


class StateSection(Section):
    """Where the state lives. memoryTolerance: by how much the memory of a NUMA node may differ from boot to boot.
    confirmNewCPUs: CPUs that appear wait for `repair --apply`. kubeletFiles: the kubelet's files are kept up to date beside.
    decisionBytes: how much of the last decisions is kept for `gather` and `replay`; 0: nothing.
    """

    directory: PathText = "/var/lib/pinfold"
    memoryTolerance: QuantityText = "64Mi"
    confirmNewCPUs: bool = False
    kubeletFiles: bool = False
    decisionBytes: Annotated[int, Field(ge=0, le=1 << 30)] = 4 << 20

    @field_validator("memoryTolerance")
    @classmethod
    def _amount(cls, text: str) -> str:
        _quantities({"memoryTolerance": text})
        return text


SocketMode = Annotated[str, Field(pattern=r"^0?[0-7]{3}$")]


class ClientGroup(Section):
    """A further PodResources socket for one group of clients, with a rate limit of its own; qps 0: none."""

    socket: PathText
    mode: SocketMode = "0660"
    group: str = ""
    qps: Annotated[float, Field(ge=0)] = 100.0
    burst: Annotated[int, Field(ge=1)] = 10


class UpstreamSection(Section):
    """Another PodResources server, the kubelet's say, whose devices and dynamic resources are passed through. The NUMA nodes of
    a pod's devices are hints for its CPUs and memory. waitSeconds: how long a pod beside a kubelet that asks for devices stays
    unplaced until they are told; 0: it is placed at once.
    """

    socket: PathText = "/var/lib/kubelet/pod-resources/kubelet.sock"
    periodSeconds: Annotated[float, Field(ge=0.05, le=3600)] = 10.0
    timeoutSeconds: Annotated[float, Field(gt=0, le=60)] = 2.0
    waitSeconds: Annotated[float, Field(ge=0, le=300)] = 2.0


class PodResourcesSection(Section):
    """The PodResources socket. qps 0: no rate limit. shape: which release's answers are given; default by kubeletVersion.

    clients: name of the group, a label of the metrics -> its socket. upstream: None for none.
    """

    socket: PathText = "/run/pinfold/pod-resources/kubelet.sock"
    mode: SocketMode = "0660"
    group: str = ""
    qps: Annotated[float, Field(ge=0)] = 100.0
    burst: Annotated[int, Field(ge=1)] = 10
    shape: Literal["1.36", "1.37"] | None = None
    clients: Annotated[
        dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")], ClientGroup], Field(max_length=16)
    ] = {}
    upstream: UpstreamSection | None = None

    @model_validator(mode="after")
    def _sockets(self) -> PodResourcesSection:
        sockets = [self.socket, *(each.socket for each in self.clients.values())]
        twice = {path for path in sockets if sockets.count(path) > 1}
        if twice:
            raise ValueError(f"two groups of clients have one socket: {min(twice)}")
        if "default" in self.clients:
            raise ValueError("clients: the group `default` is the one of podResources.socket itself")
        if self.upstream is not None and self.upstream.socket in sockets:
            raise ValueError(f"upstream: {self.upstream.socket} is pinfold's own socket")
        return self


class NodeServiceSection(Section):
    """The node service's socket (pinfold.node.v1), which only tells. An empty path: none."""

    socket: str = "/run/pinfold/node.sock"
    mode: SocketMode = "0660"
    group: str = ""


class ResizeSection(Section):
    """In-place resize. exclusive: pods that hold CPUs or NUMA memory of their own are resized too, by the rule of KEP-5554; it
    turns the gates InPlacePodVerticalScalingExclusiveCPUs and InPlacePodVerticalScalingExclusiveMemory on.
    """

    exclusive: bool = False


class SpoolSection(Section):
    """A directory of report files. keep: how many may wait for somebody to take them, the newest ones."""

    directory: str
    keep: Annotated[int, Field(ge=1, le=10_000)] = 100


class KubernetesReportsSection(Section):
    """What is put into Kubernetes, at the API server of `sources.apiserver`.

    events: Events about pods that run with less than they asked for or held. force: go on where another exporter writes the same.
    resyncSeconds: how often what is there is read again; 0 for never.
    """

    nodeResourceTopology: bool = True
    placementAnnotations: bool = True
    events: bool = True
    podsFingerprint: bool = False
    force: bool = False
    resyncSeconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0


class AccountantReportsSection(ServerSource):
    """A queue accountant (`pinfold queues serve`) that takes reports. beatSeconds: how often a quiet node says so."""

    beatSeconds: Annotated[float, Field(ge=1, le=3600)] = 20.0


class ReportsSection(Section):
    """Occupancy reports. queueLabel: the pods' label that names their queue. spool, kubernetes, accountant: None for none."""

    queueLabel: str = "kai.scheduler/queue"
    spool: SpoolSection | None = None
    kubernetes: KubernetesReportsSection | None = None
    accountant: AccountantReportsSection | None = None


class HTTPSection(Section):
    """Status page, metrics and health over HTTP. port 0: none. With certificate and key https; beyond loopback they and clientCA
    are needed: clients without a certificate of it get the metrics alone.
    """

    address: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 9557
    kubeletMetrics: bool = True
    certificate: str = ""
    key: str = ""
    clientCA: str = ""

    @model_validator(mode="after")
    def _beyond_loopback(self) -> HTTPSection:
        _check_certificates(self.certificate, self.key, self.clientCA)
        _check_address(self.address, self.clientCA)
        return self


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
        _check_certificates(self.certificate, self.key, self.clientCA)
        if self.port:
            _check_address(self.address, self.clientCA)
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
    total: what there is to divide, such as cpu=64,memory=512Gi; "": what the nodes have. stateDirectory: ""; nothing is kept.
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


class ControlSection(Section):
    """The socket that carries what changes anything; root's alone."""

    socket: PathText = "/run/pinfold/control.sock"


class Config(Section):
    """The whole configuration."""

    kubeletConfig: str | None = None
    kubeletVersion: Literal["1.36", "1.37"] = "1.36"
    cpuManagerPolicy: str = "none"
    cpuManagerPolicyOptions: dict[str, str] = {}
    reservedSystemCPUs: str = ""
    systemReserved: dict[str, QuantityText] = {}
    kubeReserved: dict[str, QuantityText] = {}
    evictionHard: dict[str, str] = {"memory.available": "100Mi"}
    memoryManagerPolicy: str = "None"
    reservedMemory: list[MemoryReservation] = []
    topologyManagerPolicy: str = "none"
    topologyManagerScope: str = "container"
    topologyManagerPolicyOptions: dict[str, str] = {}
    featureGates: dict[str, bool] = {}
    node: NodeSection = NodeSection()
    sources: SourcesSection = SourcesSection()
    enforcement: EnforcementSection = EnforcementSection()
    state: StateSection = StateSection()
    podResources: PodResourcesSection = PodResourcesSection()
    nodeService: NodeServiceSection = NodeServiceSection()
    resize: ResizeSection = ResizeSection()
    reports: ReportsSection = ReportsSection()
    http: HTTPSection = HTTPSection()
    control: ControlSection = ControlSection()

    @field_validator("cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope")
    @classmethod
    def _empty_means_the_default(cls, text: str, info: ValidationInfo) -> str:
        """As in the kubelet (apis/config/v1beta1, SetDefaults_KubeletConfiguration)."""
        return text or cls.model_fields[info.field_name or ""].default

    queues: QueuesSection = QueuesSection()

    @model_validator(mode="after")
    def _evictable(self) -> Config:
        beside = (self.sources.kubelet, self.sources.pods, self.sources.apiserver)
        if self.enforcement.eviction is not None and all(source is None for source in beside):
            raise ValueError(
                "enforcement.eviction: only a kubelet's pods can be evicted: configure sources.apiserver, pods or kubelet"
            )
        return self

    _check_reserved = field_validator("systemReserved", "kubeReserved")(_quantities)

    @field_validator("reservedSystemCPUs")
    @classmethod
    def _cpu_list(cls, text: str) -> str:
        try:
            CPUSet.parse(text)
        except AgentError as error:
            raise ValueError(str(error)) from error
        return text
