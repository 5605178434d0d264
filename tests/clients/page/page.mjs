// Tests the page at `/` in a real browser: node page.mjs ROWSTONE CHROMIUM
//
// The test controls the browser through a pipe with the DevTools protocol, which needs no other
// package. Nothing sleeps: conditions are evaluated after each change of the document. A condition
// that is never met ends with the time limit of `run`.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

const [rowstone, chromium] = process.argv.slice(2).map(path => resolve(path));
const place = mkdtempSync(join(tmpdir(), "rowstone-page-"));
const children = [];

function start(program, args, options) {
  const child = spawn(program, args, options);
  children.push(child);
  return child;
}

/** Starts a server of the database. Returns it with its origin once it is listening. */
async function serve(...options) {
  const args = ["serve", join(place, "db"), "--listen", "127.0.0.1:0", "--log", "off", ...options];
  const server = start(rowstone, args, { stdio: ["ignore", "ignore", "pipe"] });
  for await (const line of createInterface({ input: server.stderr })) {
    const found = /^listening on (http:\S+)\/$/.exec(line);
    if (found) return { server, origin: found[1] };
  }
  throw new Error("the server did not start");
}

async function stop({ server }) {
  const ended = new Promise(done => server.once("exit", done));
  server.kill("SIGTERM");
  assert.equal(await ended, 0, "the server exits with status 0");
}

class Browser {
  #next = 1;
  #waiting = new Map();
  #unread = "";
  #session;
  problems = [];
  requested = [];

  constructor() {
    const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
      "--no-first-run", "--disable-background-networking", `--user-data-dir=${join(place, "browser")}`];
    const child = this.child = start(chromium, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.out = child.stdio[3];
    child.stdio[4].setEncoding("utf8").on("data", text => this.#read(text));
  }

  #read(text) {
    const messages = (this.#unread + text).split("\0");
    this.#unread = messages.pop();
    for (const message of messages.map(text => JSON.parse(text))) {
      if (message.id) {
        const { done, failed } = this.#waiting.get(message.id);
        this.#waiting.delete(message.id);
        if (message.error) failed(new Error(message.error.message)); else done(message.result);
      } else if (message.method === "Runtime.exceptionThrown") {
        this.problems.push(message.params.exceptionDetails.exception?.description ?? "an exception");
      } else if (message.method === "Log.entryAdded") {
        const { level, source, text, url } = message.params.entry;
        // Responses with an error status are logged as well, but the page displays them.
        if (level === "error" && source !== "network") this.problems.push(`${text} ${url ?? ""}`);
      } else if (message.method === "Network.requestWillBeSent") {
        this.requested.push(message.params.request.url);
      }
    }
  }

  call(method, params = {}) {
    const id = this.#next++;
    // Calls to the browser itself have no session.
    const sessionId = method.startsWith("Browser.") ? undefined : this.#session;
    this.out.write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    return new Promise((done, failed) => this.#waiting.set(id, { done, failed }));
  }

  async open(url) {
    if (!this.#session) {
      const { targetId } = await this.call("Target.createTarget", { url: "about:blank" });
      this.#session = (await this.call("Target.attachToTarget", { targetId, flatten: true })).sessionId;
      for (const domain of ["Runtime", "Page", "Log", "Network"]) await this.call(`${domain}.enable`);
    }
    await this.call("Page.navigate", { url });
    await this.until(`document.readyState === "complete" && location.href.startsWith(${JSON.stringify(url)})`);
  }

  async run(expression) {
    const options = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await this.call("Runtime.evaluate", options);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Waits until `condition` holds in the page. */
  async until(condition) {
    this.awaited = condition;
    for (;;) {
      try {
        if (await this.run(`!!(${condition})`)) return;
        await this.run("new Promise(done => { const seen = () => { watch.disconnect(); done(); };"
          + "const watch = new MutationObserver(seen); watch.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });"
          + "setTimeout(seen, 200); })");
      } catch (error) {
        // Such an error means that the document is being replaced.
        if (!/context|navigated|Inspected/.test(error.message)) throw error;
      }
    }
  }

  text(id) { return this.run(`document.getElementById("${id}").textContent`); }
  isHidden(id) { return this.run(`document.getElementById("${id}").getClientRects().length === 0`); }
  click(id) { return this.run(`document.getElementById("${id}").click()`); }
  fill(id, text) { return this.run(`document.getElementById("${id}").value = ${JSON.stringify(text)}`); }
  rows() { return this.run(`[...document.querySelectorAll("#grid tbody tr")].map(row => [...row.cells].map(cell => cell.textContent))`); }
  names() { return this.run(`[...document.querySelectorAll("#grid th")].map(cell => cell.textContent)`); }

  async connect(origin) {
    await this.open(`${origin}/`);
    await this.click("connect");
    await this.until(`document.getElementById("status").textContent.startsWith("Connected")`);
  }

  async table(name) {
    await this.run(`for (const id of ["count", "range"]) document.getElementById(id).textContent = ""`);
    await this.run(`[...document.querySelectorAll("#tables button")].find(button => button.textContent === "${name}").click()`);
    await this.until(`document.getElementById("title").textContent === "${name}"`
      + ` && ["count", "range"].every(id => document.getElementById(id).textContent !== "")`);
  }

  async query(filter) {
    await this.fill("filter", filter);
    await this.run(`document.getElementById("count").textContent = "asked"`);
    await this.click("run");
  }

  answered() { return this.until(`document.getElementById("count").textContent !== "asked"`); }
}

const browser = new Browser();
const TYPES = {
  "Big@odata.type": "Edm.Int64", "Big": "9007199254740993", "Whole@odata.type": "Edm.Double", "Whole": 5.0, "Part": 1.5,
  "Small": 42, "Flag": true, "When@odata.type": "Edm.DateTime", "When": "2024-01-31T00:00:00Z",
  "Id@odata.type": "Edm.Guid", "Id": "0f8fad5b-d9cb-469f-a165-70867728950e", "Bytes@odata.type": "Edm.Binary", "Bytes": "AQID",
  "Html": "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>",
};

const tests = {
  async "with --allow-edit tables and entities can be created"(origin) {
    await browser.connect(origin);
    assert.match(await browser.text("status"), /^Connected to devstoreaccount1\.$/);
    assert.equal(await browser.isHidden("create"), false);
    await browser.fill("new-table", "people");
    await browser.run(`document.querySelector("#create button").click()`);
    await browser.until(`[...document.querySelectorAll("#tables button")].some(button => button.textContent === "people")`);
    await browser.table("people");
    await browser.fill("entity", JSON.stringify({ PartitionKey: "types", RowKey: "it's 100% + é & =", ...TYPES }).replace('"Whole":5', '"Whole":5.0'));
    await browser.click("upsert");
    await browser.until(`document.querySelectorAll("#grid tbody tr").length === 1`);
    await browser.fill("entity", "{");
    await browser.click("upsert");
    await browser.until(`document.getElementById("edit-error").textContent !== ""`);
    await browser.run(`(async () => { for (let i = 0; i < 250; i += 1)
      await send("POST", "/people", {}, JSON.stringify({ PartitionKey: "page", RowKey: String(i).padStart(3, "0"), N: i })); })()`);
  },

  async "without it the page is read-only"(origin) {
    await browser.connect(origin);
    assert.match(await browser.text("status"), /read-only/);
    assert.equal(await browser.isHidden("create"), true);
    await browser.table("people");
    assert.equal(await browser.isHidden("edit"), true);
  },

  async "entities are shown in a grid with their types"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    await browser.query("PartitionKey eq 'types'");
    await browser.answered();
    const [row, ...more] = await browser.rows();
    assert.equal(more.length, 0);
    const shown = Object.fromEntries((await browser.names()).map((name, i) => [name, row[i]]));
    assert.equal(shown.PartitionKey, "types");
    assert.equal(shown.RowKey, "it's 100% + é & =");
    assert.match(shown.Timestamp, /^\d{4}-.*Z$/);
    assert.equal(shown.Big, "9007199254740993 Int64");
    assert.equal(shown.Whole, "5.0 Double");
    assert.equal(shown.Part, "1.5 Double");
    assert.equal(shown.Small, "42 Int32");
    assert.equal(shown.Flag, "true Boolean");
    assert.equal(shown.When, "2024-01-31T00:00:00Z DateTime");
    assert.equal(shown.Id, "0f8fad5b-d9cb-469f-a165-70867728950e Guid");
    assert.equal(shown.Bytes, "AQID Binary");
    assert.equal(shown.Html, `${TYPES.Html} String`);
    assert.equal(await browser.run("document.title"), "rowstone");
    assert.equal(await browser.text("count"), "1 entity");
  },

  async "pages follow each other"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    const seen = [];
    for (const count of ["100 entities, and more", "100 entities, and more", "51 entities"]) {
      await browser.until(`document.getElementById("count").textContent === "${count}"`);
      seen.push(...(await browser.rows()).map(row => row[1]));
      const isLast = !count.includes("more");
      assert.equal(await browser.run(`document.getElementById("next").disabled`), isLast);
      if (!isLast) {
        await browser.run(`document.getElementById("count").textContent = "asked"`);
        await browser.click("next");
        await browser.answered();
      }
    }
    assert.equal(new Set(seen).size, 251);
    await browser.run(`document.getElementById("count").textContent = "asked"`);
    await browser.click("first");
    await browser.answered();
    assert.equal((await browser.rows())[0][1], "000");
    assert.equal(await browser.run(`document.getElementById("first").disabled`), true);
  },

  async "filter errors are marked at their column"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    const wrong = "N ge 1 and N lt lt 3";
    await browser.query(wrong);
    await browser.until(`!document.getElementById("filter-error").hidden`);
    const [line, mark, message] = (await browser.text("filter-error")).split("\n");
    assert.equal(line, wrong);
    assert.equal(mark.indexOf("^"), wrong.indexOf("lt lt") + 3, mark);
    assert.match(message, /Syntax error at position/);
    await browser.query("startswith(Name,'A')");
    await browser.until(`document.getElementById("filter-error").textContent.includes("not implemented")`);
    await browser.query("N ge 99999999999");
    await browser.until(`document.getElementById("filter-error").textContent.includes("Edm.Int32")`);
    assert.equal((await browser.text("filter-error")).split("\n")[1].indexOf("^"), 5);
    await browser.query("N ge 249");
    await browser.answered();
    assert.equal(await browser.isHidden("filter-error"), true);
    assert.equal((await browser.rows()).length, 1);
  },

  async "queries are explained"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    assert.match(await browser.text("explanation"), /full table scan/i);
    await browser.query("PartitionKey eq 'page' and RowKey eq '007'");
    await browser.answered();
    await browser.until(`/point/i.test(document.getElementById("explanation").textContent)`);
  },

  async "the map shows the ranges"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    assert.match(await browser.text("range"), /^1 range$/);
    const bars = await browser.run(`[...document.querySelectorAll("#map > div")].map(bar => [bar.title, bar.getBoundingClientRect().width])`);
    assert.equal(bars.length, 1);
    assert.equal(bars[0][0], "start … end");
    assert.ok(bars[0][1] > 100);
    await browser.run(`document.querySelector("#map > div").dispatchEvent(new Event("mouseenter"))`);
    assert.match(await browser.text("range"), /bytes, about .* entities in .* reads and .* writes a second/);
  },

  async "statistics are live"(origin) {
    await browser.connect(origin);
    const commits = () => browser.run(`Number([...document.querySelectorAll("#stats div")].find(line => line.firstChild.textContent === "commits").lastChild.textContent.replace(/\\D/g, ""))`);
    const before = await commits();
    await browser.run(`send("PUT", "/people(PartitionKey='x',RowKey='x')", {}, "{}")`);
    await browser.until(`Number([...document.querySelectorAll("#stats div")].find(line => line.firstChild.textContent === "commits").lastChild.textContent.replace(/\\D/g, "")) > ${before}`);
    await browser.run(`send("DELETE", "/people(PartitionKey='x',RowKey='x')", {}, null, { "If-Match": "*" })`);
  },

  async "a wrong key shows nothing, and no key is kept"(origin) {
    await browser.open(`${origin}/?x`.slice(0, -2));
    await browser.fill("key", "d3Jvbmc=");
    await browser.click("connect");
    await browser.until(`document.getElementById("status").className === "bad"`);
    assert.match(await browser.text("status"), /authenticate/);
    assert.equal(await browser.isHidden("engine"), true);
    assert.equal(await browser.run(`document.querySelectorAll("#tables button").length`), 0);
    await browser.fill("key", "not base64");
    await browser.click("connect");
    await browser.until(`document.getElementById("status").textContent.includes("Base64")`);
    assert.deepEqual(await browser.run(`[localStorage.length, sessionStorage.length, document.cookie, location.search]`), [0, 0, "", ""]);
  },

  async "no other page may show it in a frame"(origin) {
    const other = createServer((_, answer) => answer.end(`<iframe src="${origin}/"></iframe>`));
    await new Promise(done => other.listen(0, "127.0.0.1", done));
    await browser.open(`http://127.0.0.1:${other.address().port}/`);
    await browser.until(`document.querySelector("iframe")`);
    const { frameTree } = await browser.call("Page.getFrameTree");
    const framed = frameTree.childFrames?.[0]?.frame;
    assert.ok(!framed || framed.unreachableUrl || framed.url.startsWith("chrome-error:") || framed.url === "about:blank" || framed.url === "", JSON.stringify(framed));
    other.close();
    browser.problems = browser.problems.filter(problem => !/frame/.test(problem));
  },
};

// The script `run` sends SIGTERM at its time limit.
process.once("SIGTERM", () => {
  console.log(`this condition never held: ${browser.awaited}`);
  children.forEach(child => child.kill("SIGKILL"));
  rmSync(place, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  process.exit(1);
});

let failed = 0;
try {
  let running = await serve("--allow-edit");
  for (const [name, test] of Object.entries(tests)) {
    try {
      browser.problems = [];
      browser.requested = [];
      await test(running.origin);
      assert.deepEqual(browser.problems, []);
      const foreign = browser.requested.filter(url => !/^http:\/\/127\.0\.0\.1:|^about:|^data:/.test(url));
      assert.deepEqual(foreign, [], "nothing is requested from another origin");
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}\n${error.stack}`);
    }
    // The first test creates the data for the others. It is flushed before they run.
    if (name === Object.keys(tests)[0]) {
      await stop(running);
      execFileSync(rowstone, ["exec", join(place, "db")], { input: '{"op":"flush"}\n' });
      running = await serve();
    }
  }
  await stop(running);
} finally {
  // The browser writes to its profile until it exits, so wait before the profile is removed.
  const closed = new Promise(done => browser.child.once("exit", done));
  await browser.call("Browser.close");
  await closed;
  for (const child of children.filter(child => child.exitCode === null && child.signalCode === null)) {
    const ended = new Promise(done => child.once("exit", done));
    child.kill("SIGKILL");
    await ended;
  }
  rmSync(place, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}
console.log(`tests/clients/page: ${Object.keys(tests).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
