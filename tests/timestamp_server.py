"""A timestamp authority of openssl's, with a certificate authority of its own, behind HTTP on the loopback."""

import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

OPENSSL = shutil.which("openssl")
SETTINGS = """
[tsa]
serial = ./serial
crypto_device = builtin
signer_cert = ./tsa.pem
signer_key = ./tsa.key
certs = ./ca.pem
default_policy = 1.2.3.4.1
digests = sha256, sha512
ess_cert_id_alg = sha256
signer_digest = sha256
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
subjectKeyIdentifier = hash
[stamps]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[req]
distinguished_name = name
[name]
"""


class TimestampServer:
    """Answers requests with the files in ``folder``; ``root`` is its root certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "ca.pem"
        folder.mkdir()
        (folder / "settings").write_text(SETTINGS)
        (folder / "serial").write_text("01\n")
        new = ("-newkey", "rsa:2048", "-nodes", "-config", "settings")
        self._run(
            "req", "-x509", *new, "-extensions", "authority", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Root"
        )
        self._run("req", *new, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/O=Stamps Ltd/CN=Stamps 1")
        signing = (
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-extfile",
            "settings",
            "-extensions",
            "stamps",
        )
        self._run("x509", "-req", "-in", "tsa.csr", *signing, "-out", "tsa.pem")

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([str(OPENSSL), *arguments], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def answer(self, request: bytes) -> bytes:
        (self.folder / "request").write_bytes(request)
        self._run("ts", "-reply", "-config", "settings", "-section", "tsa", "-queryfile", "request", "-out", "response")
        return (self.folder / "response").read_bytes()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve on the loopback until the context ends; yield the URL."""
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.headers["Content-Type"] == "application/timestamp-query"
                content = answer(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Type", "application/timestamp-reply")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def stamped(url: str, request: Path) -> Path:
    """Send a request, as curl would, and return the file with the response."""
    headers = {"Content-Type": "application/timestamp-query"}
    response = request.with_suffix(".tsr")
    with urllib.request.urlopen(urllib.request.Request(url, request.read_bytes(), headers)) as answer:
        response.write_bytes(answer.read())
    return response
