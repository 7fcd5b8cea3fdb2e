"""Takes KAI's objects out of files and an API server to the accountant, and says how that goes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from agent.errors import AgentError
from agent.formats.queue_objects import QueueObjects, decode_objects
from agent.kube.cluster_objects import ClusterObjects, joined
from agent.kube.object_files import ObjectFiles
from agent.log import say
from agent.serve.accountant import AccountantService
from agent.serve.health import Check, HealthBoard

_log = logging.getLogger("pinfold")


class QueueIntake:
    """files: and directories of objects. cluster: objects of an API server besides, which is started and stopped elsewhere."""

    def __init__(
        self, files: Sequence[Path], cluster: ClusterObjects | None, service: AccountantService, board: HealthBoard
    ) -> None:
        self._files = ObjectFiles(files)
        self._cluster = cluster
        self._service = service
        self._board = board
        # None: there are some, and they could not be read yet
        self._from_files = None if self._files.changed() else QueueObjects()
        self._said = ""
        self._refused: frozenset[str] = frozenset()  # as logged
        board.set("objects", Check(False, "not read yet"))
        if cluster is not None:
            board.watch("apiserver", lambda: _reachable(cluster))

    def look(self) -> None:
        """Take what is new in files and cluster. Nothing before the files were read once: their queues would be missing."""
        changed = self._read_files()
        if (objects := self._from_files) is None:
            return
        if self._cluster is not None:
            changed = changed or self._cluster.changed()
            if (of_cluster := self._cluster.read() if changed else None) is None:
                return
            objects = joined([objects, of_cluster])
        if not changed:
            return
        self._take(objects)
        problems = "; ".join([*filter(None, [self._said]), *map(str, objects.problems[:5])])
        self._board.set("objects", Check(True, problems))
        level = logging.INFO if self._cluster is None else logging.DEBUG
        say(_log, level, "queue objects read", queues=len(objects.queues), pod_groups=len(objects.pod_groups))
        refused = frozenset(map(str, objects.problems))
        for problem in sorted(refused - self._refused):  # objects are read at every change of any of them
            say(_log, logging.WARNING, "queue object refused", problem=problem)
        self._refused = refused

    def _read_files(self) -> bool:
        """Whether files were read that have changed. Broken ones leave what was read before in force, and are named."""
        if not self._files.changed():
            return False
        try:
            self._from_files = decode_objects(self._files.read())
        except AgentError as error:
            read_before = self._from_files is not None
            said = f"{error}; what was read before stays in force" if read_before else str(error)
            self._board.set("objects", Check(read_before, said))
            if said != self._said:
                say(_log, logging.ERROR, "queue objects not read", error=error, hint=error.hint)
            self._said = said
            return False
        self._said = ""
        return True

    def _take(self, objects: QueueObjects) -> None:
        pods = None if self._cluster is None else self._cluster.pods()
        try:
            self._service.take_objects(objects, pods)
        except BaseException:
            if self._cluster is not None and pods is not None:
                self._cluster.put_back(pods)
            raise


def _reachable(cluster: ClusterObjects) -> Check:
    """A server that cannot be reached now is noteworthy: what was known stays."""
    return Check(True, "; ".join(f"{kind}: {problem}" for kind, problem in cluster.problems().items()))
