"""JobService of a client."""

from __future__ import annotations

import functools
import time
from typing import Any, Iterable, Iterator, List, Mapping, Optional

import grpc

from octavo import errors, specs
from octavo.arguments import Seconds, explained, explained_methods, limit
from octavo.devices import with_device_name
from octavo.objects import Job, JobName, Volume, giving_objects
from octavo.paging import pages
from octavo.session import Session, secret_of
from octavo.v1 import job_pb2


def _some_volume(job: Job) -> str:
    return "the volume" if len(job.volume_names) == 1 else "a volume"


@giving_objects
@explained_methods
class JobCalls:
    """The job methods of octavo.Client."""

    @explained(specs.job_spec)
    def submit_job(self, work: specs.Work, *, session: Optional[Session] = None, request_id: str = "", **fields: Any) -> Job:
        """Queues a job: octavo.reprocess(...), octavo.dispersion_autofocus(...), octavo.k_calibration(...),
        octavo.tomography(...), octavo.projection(...), or a whole JobSpec.

        session     the session that the job belongs to, for orphan="discard" when the client is
                    gone (the job is cancelled, its volumes are discarded) ...
        request_id  a retry with the same id, work and fields returns the first Job
        fields      title, labels, priority (-100 ... 100), group; device "devices/<n>" or n, "gpu", "cpu", or, for
                    tomography and projection, "host" (devices/host); orphan, ttl: the fate of its volumes; results="disk" or "host": where each goes as soon as it is complete;
                    commit="scan.zarr" or commit_options(...): the server writes the volume of the result to storage, slices of a
                    reconstruction while the next ones are computed, and is done soon after the job is DONE (Volume.state COMMITTED, Job.commits;
                    wait_commit waits for it). It holds the volume where that fails (Job.warnings). operations() lists the commit
        What might be a mistake is an OctavoWarning.
        """
        job = self._call(self._jobs.SubmitJob, job_pb2.SubmitJobRequest(
            spec=self._job_spec(work, fields), request_id=request_id, session_secret=secret_of(session))).job
        errors.tell(job.name, job.warnings)
        return job

    @explained(specs.job_spec)
    def plan_job(self, work: specs.Work, **fields: Any) -> job_pb2.PlanJobResponse:
        """The needs and the steps of submit_job, without queueing anything."""
        return self._call(self._jobs.PlanJob, job_pb2.PlanJobRequest(spec=self._job_spec(work, fields)))

    def _job_spec(self, work: specs.Work, fields: Mapping[str, Any]) -> job_pb2.JobSpec:
        return specs.job_spec(work, **with_device_name(self, fields))

    def job(self, name: JobName) -> Job:
        errors.check_kind("name", name, "jobs")
        return self._call(self._jobs.GetJob, job_pb2.GetJobRequest(name=name)).job

    def jobs(self, *, filter: str = "", order_by: str = "") -> List[Job]:
        """All jobs that the server knows (that match the filter: "state = QUEUED OR state =
        RUNNING"), newest first, without steps and log."""
        return pages(functools.partial(self._call, self._jobs.ListJobs),
                     job_pb2.ListJobsRequest(filter=filter, order_by=order_by), "jobs")

    def watch_job(self, name: JobName) -> Iterator[Job]:
        """Yields the job at once, at every change, and twice a second, until its
        final state."""
        errors.check_kind("name", name, "jobs")
        yield from self._states_of_job(name, None)

    def _states_of_job(self, name: str, timeout: Optional[float]) -> Iterator[job_pb2.Job]:
        with errors.raising(self.address):
            for answer in self._jobs.WatchJob(job_pb2.WatchJobRequest(name=name), timeout=timeout):
                yield answer.job

    def wait_job(self, name: JobName, *, timeout: Optional[Seconds] = None, check: bool = True) -> Job:
        """Waits for the end of a job, at most `timeout` seconds (OctavoTimeout). check: raises OctavoError unless it is DONE."""
        errors.check_kind("name", name, "jobs")
        most, last = limit("timeout", timeout), None
        with errors.waiting(most, lambda: self.job(name)):
            for last in self._states_of_job(name, most):
                errors.tell(name, last.warnings)
        ended = Job(self, last)
        return ended._checked() if check else ended

    def wait_commit(self, name: JobName, *, timeout: Optional[Seconds] = None) -> Job:
        """Waits for the end of a job with commit=, and until its result is written, at most `timeout` seconds (OctavoTimeout). Raises OctavoError
        unless both come about; ValueError for a job without commit. Of a job of an earlier run of the server, whose request is not kept, it returns
        what was written, and raises OctavoError if that was nothing, or not all."""
        errors.check_kind("name", name, "jobs")
        most = limit("timeout", timeout)
        end = None if most is None else time.monotonic() + most
        job = self.wait_job(name, timeout=timeout)
        if job.earlier_run:
            self._check_earlier_commits(job)
        elif job.spec.commit is None:
            raise ValueError(f"{job.name} has no commit; submit_job(..., commit=...) makes one")
        gone = None  # since when no volume is there that could still be written
        while not job.earlier_run and len(job.commits) + job.commit_failures < len(job.volume_names):
            there = len(job.volumes()) > job.commit_failures
            job = self.job(name)
            gone = None if there else gone or time.monotonic()
            # The job tells of a commit a moment after the volume is gone.
            if gone is not None and time.monotonic() > gone + 2 and len(job.commits) + job.commit_failures < len(job.volume_names):
                raise errors.OctavoError(grpc.StatusCode.FAILED_PRECONDITION, f"another call committed or discarded {_some_volume(job)} of {job.name}")
            if end is not None and time.monotonic() > end:
                raise errors.OctavoTimeout(f"after {most:g} s {job.name} is not written yet; the server goes on: wait again")
            time.sleep(0.05)
        if job.commit_failures:
            raise errors.OctavoError(grpc.StatusCode.ABORTED, next((w for w in job.warnings if "could not be committed" in w), f"{job.name} was not committed"))
        return job

    @staticmethod
    def _check_earlier_commits(job: Job) -> None:
        """The server that would have written the rest is gone: nothing is to be waited for."""
        missing = len(job.volume_names) - len(job.commits) - job.commit_failures
        if missing > 0:
            written = f"{len(job.commits)} of its {len(job.volume_names)} volumes" if job.commits else "none of its volumes"
            raise errors.OctavoError(grpc.StatusCode.FAILED_PRECONDITION,
                                     f"{job.name} is of an earlier run of the server, whose request is not kept, and {written} is known to be written; "
                                     "nothing writes more of it: client.commit(volume, ...) writes a volume that is still there")

    def series_volumes(self, name: JobName, *, timeout: Optional[Seconds] = None) -> Iterator[Volume]:
        """Yields the volumes of octavo.tomography(series=) in their order, each as soon as it is held, while the job goes on, and ends with the
        job. Waits at most `timeout` seconds in all (OctavoTimeout). One that is gone by then is yielded with the state that it is in, and passed
        over with an OctavoWarning if the server does not know it any more. Raises OctavoError if the job ends otherwise than DONE, after the volumes that it left. ValueError for a job without a series."""
        errors.check_kind("name", name, "jobs")
        most, given, last = limit("timeout", timeout), 0, None

        def known(volumes: Iterable[str]) -> Iterator[Volume]:
            for volume in volumes:
                try:
                    found = self.volume(volume)
                except errors.OctavoError as error:
                    if error.code != grpc.StatusCode.NOT_FOUND:
                        raise
                    errors.tell(name, [f"{volume} is passed over: {error}"])
                else:
                    yield found

        with errors.waiting(most, lambda: self.job(name)):
            for last in self._states_of_job(name, most):
                if not last.spec.tomography.HasField("series") and not last.earlier_run:
                    raise ValueError(f"{last.name} makes no series; octavo.tomography(series=(projections, step)) does")
                errors.tell(name, last.warnings)
                held = last.volumes[given:last.tomography.series_volumes]
                given += len(held)
                yield from known(held)
            yield from known(last.volumes[given:])
        Job(self, last)._checked()

    def cancel_job(self, name: JobName) -> Job:
        """Ends a job at any time and frees all its memory."""
        errors.check_kind("name", name, "jobs")
        return self._call(self._jobs.CancelJob, job_pb2.CancelJobRequest(name=name)).job
