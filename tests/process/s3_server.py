"""A server that speaks S3 (rclone serve s3), and a proxy before it that counts requests and spoils some of them."""
import http.client
import http.server
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time

KEYS = {"AWS_ACCESS_KEY_ID": "AKIATRIREMETEST", "AWS_SECRET_ACCESS_KEY": "a secret that no log may have"}


def rclone():
    """Its path; None: none here that serves S3."""
    python = pathlib.Path(os.environ.get("TRIREME_PYPI", "/tmp/trireme-venv/bin/python"))
    for path in (python.parent / "rclone", shutil.which("rclone")):
        if path and pathlib.Path(path).is_file() and subprocess.run([path, "serve", "s3", "--help"], capture_output=True).returncode == 0:
            return str(path)
    return None


class Server:
    """Serves buckets that are folders of `folder`."""

    def __init__(self, program, *words):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trireme-s3-"))
        (self.folder / "bucket").mkdir()
        self.process = subprocess.Popen([program, "serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", ",".join(KEYS.values()),
                                         "--config", "/dev/null", "--vfs-cache-mode", "off", *words, str(self.folder)],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "http://127.0.0.1:" in line:
                self.url = line[line.index("http://"):].split("]")[0].rstrip("/\n")
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def end(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Proxy:
    """Hands requests on. fault(number, method, path) of each, counted from 1: None; a status; "reset": the connection is closed before
    the request is handed on; "lost": behind it, before the answer; "slow": the answer comes late; bytes: the answer in full."""

    def __init__(self, upstream, fault=lambda number, method, path: None):
        self.fault, self.requests, self.lock = fault, [], threading.Lock()
        self.host, _, port = upstream.split("//")[1].partition(":")
        self.port = int(port)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def close_hard(self):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True

            def answer(self, status, headers, body):
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                if not (self.command == "HEAD" and not body):
                    self.send_header("Content-Length", str(len(body)))
                else:
                    self.send_header("Content-Length", dict((n.lower(), v) for n, v in headers).get("content-length", "0"))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def unsigned(self):
                """The x-amz headers that the signature leaves out."""
                signed = self.headers.get("Authorization", "").partition("SignedHeaders=")[2].partition(",")[0].split(";")
                return [n for n in self.headers if n.lower().startswith("x-amz-") and n.lower() not in signed]

            def handle_one(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                if len(body) < length:  # killed while it sent: nothing of it is handed on
                    return self.close_hard()
                with outer.lock:
                    outer.requests.append((self.command, self.path))
                    number = len(outer.requests)
                fault = outer.fault(number, self.command, self.path)
                if fault is None and self.unsigned():
                    fault = 403  # as AWS: rclone does not look
                if fault == "reset":
                    return self.close_hard()
                if isinstance(fault, bytes):
                    self.wfile.write(fault)
                    self.close_connection = True
                    return None
                if isinstance(fault, int):
                    return self.answer(fault, [], b"")
                up = http.client.HTTPConnection(outer.host, outer.port)
                up.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    up.putheader(name, value)
                up.endheaders(body)
                got = up.getresponse()
                headers, content = got.getheaders(), got.read()
                up.close()
                if fault == "slow":
                    time.sleep(0.2)
                if fault == "lost":
                    return self.close_hard()
                with outer.lock:
                    outer.answered(number, self.command, self.path, got.status)
                return self.answer(got.status, headers, content)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = False  # end() waits for them
            request_queue_size = 64

            def handle_error(self, *_):  # clients are killed here
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def answered(self, number, method, path, status):
        """Hears of each answer before it is sent."""

    def end(self):
        """To be called when its clients are gone: what they sent is handed on before it returns."""
        self.server.shutdown()
        self.server.server_close()
