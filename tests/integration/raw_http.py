"""HTTP as bytes, for requests that no client library would send."""

import json
import socket


def connect(server):
    connection = socket.create_connection(server.address, timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Response:
    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status_line = lines[0]
        self.status = int(lines[0].split(" ")[1])
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            assert name.lower() not in self.headers, f"{name} twice in {lines}"
            self.headers[name.lower()] = value.strip()

    def error(self):
        """The error of our one form."""
        assert self.headers["content-type"] == "application/json", self.headers
        error = json.loads(self.body.decode("utf-8", errors="strict"))["error"]
        assert error["code"] and error["message"] and error["type"], error
        assert error["request_id"] == self.headers["x-request-id"]
        return error


def read_all(connection):
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    return data


def exchange(server, request):
    """One request on a connection of its own, which the server must close (or be asked to, by the request)."""
    with connect(server) as connection:
        connection.sendall(request)
        return Response(read_all(connection))


def post(path, body, content_type="application/json", extra=""):
    kind = f"Content-Type: {content_type}\r\n" if content_type else ""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{kind}{extra}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
