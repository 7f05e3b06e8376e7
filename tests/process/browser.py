"""Headless Chromium by its remote debugging, with the standard library alone: enough of WebSocket for one page."""
import base64
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

from launched import LIMIT_S


def chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page; `problems` gathers what the console and the network complain of."""

    def __init__(self, width=1280, height=900, dark=False):
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
             f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        text = ""
        while not (found := re.search(r"ws://127\.0\.0\.1:(\d+)/", text)):
            line = self.process.stderr.readline()
            assert line, text
            text += line
        pages = []
        while not pages:  # it listens before it has one
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/json") as answer:
                pages = [page for page in json.load(answer) if page["type"] == "page"]
        host, path = re.match(r"ws://([^/]+)(/.*)", pages[0]["webSocketDebuggerUrl"]).groups()
        self.line = socket.create_connection(("127.0.0.1", int(host.rsplit(":", 1)[1])), timeout=LIMIT_S)
        self.line.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                           f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        while not self.line.recv(1) == b"\n" or not self.line.recv(2) == b"\r\n":
            pass
        self.number, self.problems = 0, []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.say(f"{domain}.enable")
        self.say("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.say("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def _bytes(self, count):
        data = b""
        while len(data) < count:
            part = self.line.recv(count - len(data))
            assert part, "the browser has gone"
            data += part
        return data

    def _message(self):
        whole, last = b"", False
        while not last:
            first, length = self._bytes(2)
            last = first & 0x80 != 0
            length = struct.unpack(">H", self._bytes(2))[0] if length == 126 else struct.unpack(">Q", self._bytes(8))[0] if length == 127 else length
            whole += self._bytes(length)
        return json.loads(whole)

    def say(self, method, **words):
        self.number += 1
        text = json.dumps({"id": self.number, "method": method, "params": words}).encode()
        mask = os.urandom(4)
        head = bytes([0x81]) + (bytes([0x80 | len(text)]) if len(text) < 126 else bytes([0xfe]) + struct.pack(">H", len(text))
                                if len(text) < 65536 else bytes([0xff]) + struct.pack(">Q", len(text)))
        self.line.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(text)))
        while True:
            got = self._message()
            self._listen(got)
            if got.get("id") == self.number:
                assert "error" not in got, got
                return got["result"]

    def _listen(self, got):
        words = got.get("params", {})
        if got.get("method") == "Runtime.exceptionThrown":
            self.problems.append(words["exceptionDetails"].get("exception", {}).get("description") or words["exceptionDetails"]["text"])
        elif got.get("method") == "Runtime.consoleAPICalled" and words["type"] in ("error", "warning", "assert"):
            self.problems.append(str([one.get("value", one.get("description")) for one in words["args"]]))
        elif got.get("method") == "Log.entryAdded" and words["entry"]["level"] in ("error", "warning"):
            self.problems.append(f'{words["entry"]["text"]} {words["entry"].get("url", "")}')
        elif got.get("method") == "Network.requestWillBeSent":
            url = words["request"]["url"]
            if not re.match(r"http://127\.0\.0\.1:|data:|about:", url):
                self.problems.append(f"asks for {url}")

    def open(self, url):
        self.say("Page.navigate", url=url)

    def run(self, text):
        got = self.say("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def wait_for(self, text, limit=LIMIT_S):
        until = time.monotonic() + limit
        while not self.run(text):
            assert time.monotonic() < until, (text, self.problems, self.run("document.body.innerText"))
            time.sleep(0.05)

    def key(self, name):
        text = {"text": name} if len(name) == 1 else {}
        self.say("Input.dispatchKeyEvent", type="keyDown", key=name, **text)
        self.say("Input.dispatchKeyEvent", type="keyUp", key=name)

    def picture(self, path, whole=True):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.say("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]))

    def close(self):
        self.line.close()
        self.process.terminate()
        self.process.wait()
        self.process.stderr.close()
        try:
            self.folder.cleanup()
        except OSError:
            pass
