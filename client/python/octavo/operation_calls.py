"""OperationService of a client."""

from __future__ import annotations

import functools
from typing import Iterator, List, Optional

from octavo import errors
from octavo.arguments import duration, explained_methods
from octavo.names import Names
from octavo.paging import pages
from octavo.v1 import operation_pb2

STAGES = Names({"waiting": operation_pb2.OPERATION_STAGE_WAITING, "preparing": operation_pb2.OPERATION_STAGE_PREPARING,
                "copying": operation_pb2.OPERATION_STAGE_COPYING, "writing": operation_pb2.OPERATION_STAGE_WRITING,
                "computing": operation_pb2.OPERATION_STAGE_COMPUTING, "syncing": operation_pb2.OPERATION_STAGE_SYNCING},
               of=operation_pb2.OperationStage)


@explained_methods
class OperationCalls:
    """The methods of octavo.Client about long work: what start_commit, start_spill, start_restore and start_derive begin, and jobs
    (Job.operation). An operation runs to its end, whatever becomes of this program, unless it is cancelled."""

    def operation(self, name: str) -> operation_pb2.Operation:
        """How far it is, or how it ended: Operation.done, .state, .progress, .commit, .volumes, .error (octavo.errors.of_operation)."""
        errors.check_kind("name", name, "operations")
        return self._call(self._operations.GetOperation, operation_pb2.GetOperationRequest(name=name)).operation

    def operations(self, *, filter: str = "", order_by: str = "") -> List[operation_pb2.Operation]:
        """Those that run, and those that ended within the last hour (that match the filter: "kind = COMMIT AND done = false"), newest
        first."""
        return pages(functools.partial(self._call, self._operations.ListOperations),
                     operation_pb2.ListOperationsRequest(filter=filter, order_by=order_by), "operations")

    def wait_operation(self, name: str, wait: Optional[float] = None, check: bool = True) -> operation_pb2.Operation:
        """Waits until an operation has ended, at most `wait` seconds; Operation.done says whether it has. check: raises OctavoError if it
        has failed or was cancelled."""
        errors.check_kind("name", name, "operations")
        request = operation_pb2.WaitOperationRequest(name=name, wait=None if wait is None else duration("wait", wait))
        with errors.raising(self.address):
            ended = self._operations.WaitOperation(request).operation  # as long as it takes
        return _checked(ended) if check else ended

    def watch_operation(self, name: str) -> Iterator[operation_pb2.Operation]:
        """Yields the operation at once, at every change, and twice a second, until it has ended."""
        errors.check_kind("name", name, "operations")
        with errors.raising(self.address):
            call = self._operations.WatchOperation(operation_pb2.WatchOperationRequest(name=name))
            try:
                for answer in call:
                    yield answer.operation
            finally:
                call.cancel()  # the watching

    def cancel_operation(self, name: str) -> operation_pb2.Operation:
        """Asks an operation to end: a volume that it works on stays as it was. wait_operation waits until it has ended."""
        errors.check_kind("name", name, "operations")
        return self._call(self._operations.CancelOperation, operation_pb2.CancelOperationRequest(name=name)).operation


def _checked(operation: operation_pb2.Operation) -> operation_pb2.Operation:
    """The operation, unless it has failed or was cancelled: that raises its error."""
    error = errors.of_operation(operation)
    if error is not None:
        raise error
    return operation
