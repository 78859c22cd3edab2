"""OperationService of a client."""

from __future__ import annotations

import functools
from typing import Iterator, List, Optional

from octavo import errors
from octavo.arguments import Seconds, duration, explained_methods, limit
from octavo.names import Names
from octavo.objects import Operation, OperationName, giving_objects
from octavo.paging import pages
from octavo.v1 import operation_pb2

STAGES = Names({"waiting": operation_pb2.OPERATION_STAGE_WAITING, "preparing": operation_pb2.OPERATION_STAGE_PREPARING,
                "copying": operation_pb2.OPERATION_STAGE_COPYING, "writing": operation_pb2.OPERATION_STAGE_WRITING,
                "computing": operation_pb2.OPERATION_STAGE_COMPUTING, "syncing": operation_pb2.OPERATION_STAGE_SYNCING},
               of=operation_pb2.OperationStage)


@giving_objects
@explained_methods
class OperationCalls:
    """The methods of octavo.Client about long work: what start_commit, start_spill, start_restore and start_derive begin, and jobs
    (Job.operation). An operation runs to its end, whatever becomes of this program, unless it is cancelled."""

    def operation(self, name: OperationName) -> Operation:
        """How far it is, or how it ended: Operation.done, .state, .progress, .commit, .volumes, .error."""
        _check_operation(name)
        return self._call(self._operations.GetOperation, operation_pb2.GetOperationRequest(name=name)).operation

    def operations(self, *, filter: str = "", order_by: str = "") -> List[Operation]:
        """Those that run, those that ended within the last hour, and jobs and commits of earlier processes of the server (that match the
        filter: "kind = COMMIT AND done = false"), newest first."""
        return pages(functools.partial(self._call, self._operations.ListOperations),
                     operation_pb2.ListOperationsRequest(filter=filter, order_by=order_by), "operations")

    def wait_operation(self, name: OperationName, wait: Optional[float] = None, *, timeout: Optional[Seconds] = None, check: bool = True) -> Operation:
        """Waits until an operation has ended. check: raises OctavoError if it has failed or was cancelled.

        wait     at most so many seconds; Operation.done says whether it has ended
        timeout  the same, and OctavoTimeout is raised if it has not
        """
        _check_operation(name)
        most = limit("timeout", timeout)
        most = wait if most is None else most if wait is None else min(most, wait)
        request = operation_pb2.WaitOperationRequest(name=name, wait=None if most is None else duration("wait", most))
        with errors.raising(self.address):
            now = self._operations.WaitOperation(request).operation  # as long as it takes
        if timeout is not None and not now.done:
            raise errors.OctavoTimeout(f"after {most:g} s {Operation(self, now)!r} is not at the end; it goes on: wait again, or cancel it")
        return _checked(now) if check else now

    def watch_operation(self, name: OperationName) -> Iterator[Operation]:
        """Yields the operation at once, at every change, and twice a second, until it has ended."""
        _check_operation(name)
        with errors.raising(self.address):
            call = self._operations.WatchOperation(operation_pb2.WatchOperationRequest(name=name))
            try:
                for answer in call:
                    yield answer.operation
            finally:
                call.cancel()  # the watching

    def cancel_operation(self, name: OperationName) -> Operation:
        """Asks an operation to end: a volume that it works on stays as it was. wait_operation waits until it has ended."""
        _check_operation(name)
        return self._call(self._operations.CancelOperation, operation_pb2.CancelOperationRequest(name=name)).operation


def _check_operation(name: str) -> None:
    """An error for what is no name of an operation; the request_id of a call is none."""
    errors.check_kind("name", name, "operations", bare=f"""if it is the request_id of a call: client.operations(filter='request_id = "{name}"')""")


def _checked(operation: operation_pb2.Operation) -> Operation:
    """The operation, unless it has failed or was cancelled: that raises its error."""
    error = errors.of_operation(operation)
    if error is not None:
        raise error
    return operation
