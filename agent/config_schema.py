"""The configuration file's keys and types (design section 4). Resource-manager keys have KubeletConfiguration's names.

Sections of the accountant and of what is served have modules of their own beside. Loading, origins and line numbers are
`agent.config`; what the values mean on a machine is `agent.node_config`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from agent.config_schema_queues import QueuesSection
from agent.config_schema_serving import ControlSection, HTTPSection, NodeServiceSection, PodResourcesSection
from agent.config_schema_values import PathText, QuantityText, Section, quantities
from agent.errors import AgentError
from agent.model.cpuset import CPUSet


class MemoryReservation(Section):
    """One entry of reservedMemory: what a NUMA node keeps for the system."""

    numaNode: Annotated[int, Field(ge=0, lt=1024)]
    limits: dict[str, QuantityText]

    _check = field_validator("limits")(quantities)


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
        quantities({"memoryTolerance": text})
        return text


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
    queues: QueuesSection = QueuesSection()

    @field_validator("cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope")
    @classmethod
    def _empty_means_the_default(cls, text: str, info: ValidationInfo) -> str:
        """As in the kubelet (apis/config/v1beta1, SetDefaults_KubeletConfiguration)."""
        return text or cls.model_fields[info.field_name or ""].default

    @model_validator(mode="after")
    def _evictable(self) -> Config:
        if self.enforcement.eviction is not None and not self.sources.of_kubelet:
            raise ValueError(
                "enforcement.eviction: only a kubelet's pods can be evicted: configure sources.apiserver, pods or kubelet"
            )
        return self

    _check_reserved = field_validator("systemReserved", "kubeReserved")(quantities)

    @field_validator("reservedSystemCPUs")
    @classmethod
    def _cpu_list(cls, text: str) -> str:
        try:
            CPUSet.parse(text)
        except AgentError as error:
            raise ValueError(str(error)) from error
        return text
