"""A file or folder of this host that the server may read, handed over by descriptor: for imports of what lies below none of its roots."""

from __future__ import annotations

import os
import socket
from typing import Optional

from octavo import wire

messages = wire.messages


class Deposit:
    """While it is open, an import that names its ticket reads the file. OSError; wire.Refused."""

    def __init__(self, socket_path: str, ticket: str, path: str, timeout: Optional[float]):
        self.ticket = ticket
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._connection = wire.connect(socket_path, messages.PURPOSE_FILE, timeout)
            try:
                packet = messages.ClientMessage(request=1, present=messages.Present(ticket=ticket))
                socket.send_fds(self._connection, [packet.SerializeToString()], [descriptor])
                answer, others = wire.receive(self._connection)
                wire.close(others)
                if answer is None:
                    raise ConnectionResetError("the server ended the connection")
                if answer.HasField("refused"):
                    raise wire.refusal(answer.refused)
                if not answer.HasField("deposited"):
                    raise wire.unknown(answer)
            except BaseException:
                self._connection.close()
                raise
        finally:
            os.close(descriptor)

    def __enter__(self) -> "Deposit":
        return self

    def __exit__(self, *_) -> None:
        self._connection.close()
