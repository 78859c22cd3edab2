"""Clients that push to IngestService by hand, and a connection that can be cut."""

import queue
import socket
import threading

import grpc

from harness import octavo
from octavo.v1 import ingest_pb2_grpc


class RawStream:
    """A stream of a method of IngestService that begins with `hello`; `requests` takes the other
    messages."""

    def __init__(self, address, method, hello):
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.requests = queue.Queue()
        self.requests.put(hello)
        self.call = getattr(ingest_pb2_grpc.IngestServiceStub(self.channel), method)(iter(self.requests.get, None))

    def until(self, wanted):
        """Reads answers until one meets the condition."""
        for answer in self.call:
            if wanted(answer):
                return answer
        raise AssertionError("the stream ended")

    def error(self):
        """Reads to the end, which must be an error, and returns it."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError as error:
            return octavo.errors.from_rpc_error(error)
        raise AssertionError("the stream ended without an error")

    def close(self):
        self.requests.put(None)
        self.call.cancel()
        self.channel.close()


class CuttingProxy:
    """Forwards TCP to the daemon; `cut` breaks all existing connections."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.pairs = []
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.target)
            with self.lock:
                self.pairs.append((near, far))
                for a, b in ((near, far), (far, near)):
                    self.threads.append(threading.Thread(target=self.pump, args=(a, b)))
                    self.threads[-1].start()

    @staticmethod
    def pump(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def sockets(self):
        with self.lock:
            return [s for pair in self.pairs for s in pair]

    def cut(self):
        for s in self.sockets():
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
        for thread in self.threads:
            thread.join()
        for s in self.sockets():
            s.close()
