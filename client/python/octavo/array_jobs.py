"""Jobs on arrays of this process, whose buffers and volumes on the server end with them."""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import Callable, List, Optional, Sequence

import numpy as np

from octavo import errors
from octavo.client import Client
from octavo.names import short
from octavo.objects import Job
from octavo.v1 import tomography_pb2 as t

_BUFFER_TTL_S = 600.0
_CANCEL_S = 5.0  # that an exception waits for the end of its job


class ArrayJobs:
    """Runs tomography and projection jobs on arrays of this process.

    Everything on the server ends with this object, or soon after this process if it is killed: jobs
    and their volumes belong to a session, and buffers live only while they are renewed.

    client  the connection to use; None: a new one, which close() closes
    """

    def __init__(self, title: str, client: Optional[Client] = None):
        if client is not None and not isinstance(client, Client):
            raise ValueError(f"client is {short(client)}; expected an octavo.Client, or None: a new one")
        self._own = client is None
        self.client = Client() if client is None else client
        self._label = {"octavo_call": uuid.uuid4().hex}  # of its buffers, also of one whose name an interrupt kept from us
        self._buffers: List[str] = []
        self._volumes: List[str] = []
        try:
            self._session = self.client.session(title)
        except BaseException:
            self._close_client()
            raise

    def run(self, make: Callable[[List[str]], t.TomographyJob], arrays: Sequence[np.ndarray], *, device: str = "",
            progress: Optional[Callable] = None) -> Job:
        """The finished job; its volume stays until read() or discard(). Raises the job's error.

        make      makes the job of the names of the buffers that hold `arrays`; they end with the job
        progress  called with each octavo.v1.Job
        """
        try:
            for array in arrays:
                self._put(array)
            job = self.client.submit_job(make(list(self._buffers)), device=device, session=self._session, orphan="discard")
            job = self._watch(job, progress)
        except BaseException:
            self._find_buffers()
            raise
        finally:
            self._let_go()
        if job.state != "DONE":
            self.client.wait_job(job.name)  # raises the job's error
        self._volumes += job.volume_names
        return job

    def read(self, volume: str) -> np.ndarray:
        """The voxels of a volume, which is discarded then."""
        try:
            return self.client.read(volume)
        finally:
            with contextlib.suppress(errors.OctavoError):  # the end of the session does it
                self.discard(volume)

    def discard(self, volume: str) -> None:
        if volume in self._volumes:
            self._volumes.remove(volume)
            self.client.discard(volume)

    def close(self) -> None:
        """Frees what is left. A clean-up that fails never hides the result: the server ends what belongs to the session."""
        try:
            try:
                for volume in list(self._volumes):
                    with contextlib.suppress(errors.OctavoError):
                        self.discard(volume)
            finally:  # also when the user interrupts a second time
                self._session.__exit__()
        finally:
            self._close_client()

    def __enter__(self) -> "ArrayJobs":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _close_client(self) -> None:
        if self._own:
            self.client.close()

    def _put(self, array: np.ndarray) -> None:
        # Its name is known before the upload, so that one that breaks off leaves nothing.
        buffer = self.client.buffers.create(array.shape, array.dtype.newbyteorder("<"), uninitialized=True, ttl=_BUFFER_TTL_S, labels=self._label)
        self._buffers.append(buffer.name)
        self.client.buffers.write(buffer.name, array)

    def _watch(self, job: Job, progress: Optional[Callable]) -> Job:
        """The job at its end. An exception, also one of `progress`, cancels it."""
        name, renewed = job.name, time.monotonic()
        try:
            for job in self.client.watch_job(name):
                errors.tell(name, job.warnings)
                if time.monotonic() - renewed > _BUFFER_TTL_S / 10:
                    renewed = time.monotonic()
                    for buffer in self._buffers:
                        self.client.buffers.update(buffer, ttl=_BUFFER_TTL_S)
                if progress:
                    progress(job)
        except BaseException:
            self._break_off(name)
            raise
        return job

    def _break_off(self, name: str) -> None:
        """Cancels a job. It may be done before it hears of it: its volume ends with this object, too."""
        with contextlib.suppress(errors.OctavoError):
            self.client.cancel_job(name)
        with contextlib.suppress(errors.OctavoError):
            self._volumes += self.client.wait_job(name, check=False, timeout=_CANCEL_S).volume_names

    def _find_buffers(self) -> None:
        """An interrupt may come after the server has made a buffer and before its name is here."""
        with contextlib.suppress(errors.OctavoError):
            key, value = next(iter(self._label.items()))
            self._buffers = [buffer.name for buffer in self.client.buffers.list(filter=f'labels.{key} = "{value}"')]

    def _let_go(self) -> None:
        """Ignores buffers that are gone already."""
        while self._buffers:
            with contextlib.suppress(errors.OctavoError):
                self.client.buffers.destroy(self._buffers.pop())
