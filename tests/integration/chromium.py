"""Drives a headless Chromium by its DevTools protocol, over the two pipes that it reads and writes:
no package beside Debian's chromium, and no port that another program could reach.

  with Chromium() as browser:
      page = browser.open("http://127.0.0.1:8050/")
      page.wait("document.title === 'Live'")
      page.evaluate("1 + 1")
"""

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
         "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio", "--hide-scrollbars",
         "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", "--disable-dev-shm-usage", "--ignore-certificate-errors"]

WEBGL = ["--ignore-gpu-blocklist", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]  # drawn by the processor


def program():
    """Path of Chromium; skips the test where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise unittest.SkipTest("no chromium (Debian package chromium)")
    return found


# The page runs this before a click. It lets the events of the mouse reach one element alone, or the element that captures the pointer from
# it; it stops all others. `guard.end()` removes it and says which element a stopped event was for: "" = the click arrived.
GUARD = """(() => {
    window.guard?.end();
    const selector = %s, kinds = ["pointerdown", "mousedown", "gotpointercapture", "pointerup", "mouseup", "click"];
    let met = "", taker = null, clicked = false;
    const look = (event) => {
        if (event.type === "gotpointercapture") taker = event.target;
        if (document.querySelector(selector)?.contains(event.target) || event.target === taker) {
            clicked ||= event.type === "click";
            return;
        }
        met = event.target.outerHTML?.slice(0, 200) ?? String(event.target);
        event.stopImmediatePropagation();
        event.preventDefault();
    };
    for (const kind of kinds) window.addEventListener(kind, look, true);
    window.guard = {end() { for (const kind of kinds) window.removeEventListener(kind, look, true); return met || (clicked ? "" : "nothing: no click came"); }};
})()"""


class Failure(AssertionError):
    """The page threw, or Chromium refused a command."""


class Chromium:
    def __init__(self, width=1366, height=768, webgl=False):
        self.size = (width, height)
        flags = [flag for flag in FLAGS if flag != "--disable-gpu"] + WEBGL if webgl else FLAGS + ["--disable-3d-apis"]
        self.directory = tempfile.mkdtemp(prefix="octavo-chromium-")
        read, self._out = os.pipe()
        self._in, write = os.pipe()

        def pipes():  # Chromium reads commands from 3 and writes to 4
            a, b = os.dup(read), os.dup(write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.log = open(os.path.join(self.directory, "log"), "wb")
        self.process = subprocess.Popen([program(), *flags, f"--user-data-dir={self.directory}/profile", f"--window-size={width},{height}", "about:blank"], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, preexec_fn=pipes, close_fds=False, start_new_session=True)
        os.close(read)
        os.close(write)
        self._numbers = itertools.count(1)
        self._answers, self._pages, self._news = {}, {}, threading.Condition()
        self._closed = False
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _listen(self):
        rest = b""
        while True:
            try:
                data = os.read(self._in, 1 << 20)
            except OSError:
                data = b""
            if not data:
                break
            *messages, rest = (rest + data).split(b"\0")
            for text in messages:
                message = json.loads(text)
                with self._news:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    else:
                        page = self._pages.get(message.get("sessionId"))
                        if page is not None:
                            page._event(message["method"], message["params"])
                    self._news.notify_all()
        with self._news:
            self._closed = True
            self._news.notify_all()

    def command(self, method, session=None, seconds=60, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data):]
        end = time.monotonic() + seconds
        with self._news:
            while number not in self._answers:
                if self._closed or not self._news.wait(max(0, end - time.monotonic())) and time.monotonic() > end:
                    raise Failure(f"{method}: Chromium {'has ended' if self._closed else 'does not answer'}: {self.text()[-1000:]}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise Failure(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def text(self):
        with open(self.log.name, errors="replace") as log:
            return log.read()

    def open(self, url, fresh=False):
        """A page at an address. `fresh`: with cookies of its own."""
        context = {"browserContextId": self.command("Target.createBrowserContext")["browserContextId"]} if fresh else {}
        target = self.command("Target.createTarget", url="about:blank", newWindow=True, width=self.size[0], height=self.size[1], **context)["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        with self._news:
            self._pages[session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.command(f"{domain}.enable")
        page.command("Page.navigate", url=url)
        return page

    def close(self):
        try:
            self.command("Browser.close", seconds=5)
        except (Failure, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # its own group: Chromium with its children
            self.process.wait()
        os.close(self._out)
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.problems = []   # exceptions and errors on the console
        self.requests = []   # addresses that the page asked for
        self.violations = []

    def command(self, method, **parameters):
        return self.browser.command(method, session=self.session, **parameters)

    def _event(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in parameters["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Log.entryAdded" and "Content Security Policy" in parameters["entry"]["text"]:
            self.violations.append(parameters["entry"]["text"])

    def evaluate(self, expression):
        """The value of an expression in the page; a promise is waited for."""
        result = self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise Failure(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def wait(self, expression, seconds=30, what=None):
        """Waits until an expression is true in the page; returns its value."""
        end = time.monotonic() + seconds
        while True:
            try:
                value = self.evaluate(expression)
                if value or value == {}:  # {}: an element
                    return value
                last = repr(value)
            except Failure as error:  # the page is being loaded
                last = str(error)
            if time.monotonic() > end:
                raise Failure(f"it does not come about: {what or expression} (last: {last}; problems: {self.problems}; page: {self.evaluate('document.body.innerText')[:800]!r})")
            time.sleep(0.05)

    def drawn(self):
        """Waits until the page has done what it does behind its next picture."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))")

    def pixels(self, selector):
        """The pixels of a canvas as a list [rows, columns, 4] of bytes: (rows, columns, bytes)."""
        rows, columns, text = self.evaluate(f"""(() => {{
            const canvas = document.querySelector({json.dumps(selector)});
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            let text = "";
            for (let i = 0; i < data.length; i += 30000) text += String.fromCharCode(...data.subarray(i, i + 30000));
            return [canvas.height, canvas.width, btoa(text)];
        }})()""")
        return rows, columns, base64.b64decode(text)

    def click(self, selector, at=(0.5, 0.5), seconds=30):
        """A real click at a place of an element, in fractions of its box. What arrives may move the page meanwhile: a click that would meet
        another element is kept from it, and made again."""
        end = time.monotonic() + seconds
        while True:
            x, y = self.place(selector, at)
            self.evaluate(GUARD % json.dumps(selector))
            self.mouse("mousePressed", x, y)
            self.mouse("mouseReleased", x, y)
            met = self.evaluate("window.guard?.end() ?? null")  # null: the click has led to another page
            if not met:
                return
            if time.monotonic() > end:
                raise Failure(f"a click on {selector} meets {met}")

    def place(self, selector, at=(0.5, 0.5)):
        """Where a place of an element is in the window, once the element stays where it is."""
        last = None
        for _ in range(100):  # something may always move
            box = self.wait(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; e.scrollIntoView({{block: "nearest"}});
                const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()""", what=f"{selector} is there")
            if box == last:
                break
            last = box
            time.sleep(0.03)
        return box[0] + box[2] * at[0], box[1] + box[3] * at[1]

    def mouse(self, kind, x, y, **more):
        self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, buttons=1 if kind != "mouseReleased" else 0, **more)

    def drag(self, start, end, steps=5):
        self.mouse("mousePressed", *start)
        for i in range(1, steps + 1):
            self.mouse("mouseMoved", *(a + (b - a) * i / steps for a, b in zip(start, end)))
        self.mouse("mouseReleased", *end)

    def key(self, key, modifiers=0):
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Delete": 46, " ": 32}.get(key, ord(key.upper()) if len(key) == 1 else 0)
        self.command("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers, **text)
        self.command("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def choose(self, selector, value):
        """Sets a select, a slider or a text, as a person would: with its events."""
        self.wait(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e || e.tagName === "SELECT" && ![...e.options].some(option => option.value === {json.dumps(str(value))})) return false;
            const set = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), "value").set; set.call(e, {json.dumps(str(value))});
            for (const kind of ["input", "change"]) e.dispatchEvent(new Event(kind, {{bubbles: true}})); return true; }})()""", what=f"{selector} is there and offers {value}")

    def resize(self, width, height, scale=1):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def screenshot(self, path):
        data = self.command("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.browser.command("Target.closeTarget", targetId=self.target)
