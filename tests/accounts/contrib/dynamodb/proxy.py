"""A server between a client and DynamoDB that carries requests out and loses answers."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Proxy(ThreadingHTTPServer):
    """Passes requests on; drops the connection in place of the next ``lost`` answers to an operation."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.operation = ""
        self.lost = 0
        self.carried_out = 0
        """How many requests of that operation reached DynamoDB."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with closing(http.client.HTTPConnection(self.server.upstream)) as upstream:
            upstream.request("POST", self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            content = answer.read()
        if self.headers["X-Amz-Target"].endswith("." + self.server.operation):
            self.server.carried_out += 1
            if self.server.lost:
                self.server.lost -= 1
                self.close_connection = True
                return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@contextmanager
def proxy_to(upstream: str) -> Iterator[Proxy]:
    with Proxy(upstream) as proxy:
        serving = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            serving.join()
