// Tests the page at `/` in a real browser: node page.mjs ROWSTONE CHROMIUM
//
// The test controls the browser through a pipe with the DevTools protocol, which needs no other
// package. Nothing sleeps: conditions are evaluated after each change of the document. A condition
// that is never met ends with the time limit of `run`.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
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
      } else if (message.method === "Browser.downloadProgress") {
        if (message.params.state === "completed") this.downloaded();
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
  rows() { return this.run(`[...document.querySelectorAll("#grid .entity")].map(row => [...row.querySelectorAll("td:not(.actions)")].map(cell => cell.textContent))`); }
  names() { return this.run(`[...document.querySelectorAll("#grid th")].map(cell => cell.textContent)`); }

  /** The cells of one column. */
  async column(name) {
    const index = (await this.names()).indexOf(name);
    return (await this.rows()).map(row => row[index]);
  }

  /** Runs `work`, which makes the page ask for entities, and waits for them. */
  async asking(work) {
    await this.run(`document.getElementById("count").textContent = "asked"`);
    await work();
    await this.answered();
  }

  /** Clicks the button with this text or label, inside `scope`. */
  press(scope, text) {
    return this.run(`[...document.querySelectorAll(${JSON.stringify(`${scope} button`)})]`
      + `.find(button => [button.textContent, button.ariaLabel].includes(${JSON.stringify(text)})).click()`);
  }

  /** Enters a property in the open form. A name without a line gets a new one. */
  async enter(name, type, text) {
    await this.run(`(() => {
      const form = document.querySelector(".entity-form"), name = ${JSON.stringify(name)};
      const line = () => [...form.querySelectorAll(".field")].find(line => line.querySelector("b")?.textContent === name);
      let field = line();
      if (!field) {
        [...form.querySelectorAll("button")].find(button => button.textContent === "Add a property").click();
        field = [...form.querySelectorAll(".field")].at(-1);
        field.querySelector("input").value = name;
      }
      const types = field.querySelector("select");
      if (types.value !== ${JSON.stringify(type)}) {
        types.value = ${JSON.stringify(type)};
        types.dispatchEvent(new Event("change"));
      }
      field.querySelector(".value").value = ${JSON.stringify(text)};
    })()`);
  }

  /** Presses a key of the keyboard, at the element with the focus. */
  async key(key, text) {
    const code = { Tab: 9, Enter: 13, Escape: 27 }[key];
    await this.call("Input.dispatchKeyEvent", { type: "keyDown", key, code: key, windowsVirtualKeyCode: code, text });
    await this.call("Input.dispatchKeyEvent", { type: "keyUp", key, code: key, windowsVirtualKeyCode: code });
  }

  /** Presses Tab until the element with this text or label has the focus. */
  async tabTo(label) {
    for (let i = 0; i < 100; i += 1) {
      await this.key("Tab");
      const [text, named] = await this.run(`[document.activeElement.textContent, document.activeElement.ariaLabel]`);
      if (text === label || named === label) return;
    }
    assert.fail(`Tab does not lead to ${label}`);
  }

  submit(selector) { return this.run(`document.querySelector(${JSON.stringify(selector)}).requestSubmit()`); }

  /** Clicks a button that downloads a file, and returns the file's text. */
  async download(id, name) {
    await this.call("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: place, eventsEnabled: true });
    const downloaded = new Promise(done => { this.downloaded = done; });
    await this.click(id);
    await downloaded;
    return readFileSync(join(place, name), "utf8");
  }

  async connect(origin) {
    await this.open(`${origin}/`);
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
  Big: ["Int64", "9007199254740993"], Whole: ["Double", "5.0"], Part: ["Double", "1.5"], Small: ["Int32", "42"],
  Flag: ["Boolean", "true"], When: ["DateTime", "2024-01-31"], Id: ["Guid", "0f8fad5b-d9cb-469f-a165-70867728950e"],
  Bytes: ["Binary", "AQID"], Lines: ["String", "one\ntwo"],
  Html: ["String", "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"],
};

/** Replaces the entity p / r of the table `edits`, by another way than the page's forms. */
const edits = properties => browser.run(`send("POST", "/Tables", {}, JSON.stringify({ TableName: "edits" })).catch(() => {})
  .then(() => send("PUT", "/edits(PartitionKey='p',RowKey='r')", {},
    entityJson(new Map(Object.entries(${JSON.stringify(properties)})))))
  .then(() => listTables())`);
/** The text of a property of p / r in the table `edits`. */
const stored = name => browser.run(`send("GET", "/edits(PartitionKey='p',RowKey='r')")
  .then(answer => readEntity(withDoubles(answer.text)).properties.get("${name}").text)`);

/** These tests run first, on a server with --allow-edit. */
const editing = {
  async "with --allow-edit tables and entities can be created"(origin) {
    await browser.connect(origin);
    assert.match(await browser.text("status"), /^Connected to devstoreaccount1\.$/);
    assert.equal(await browser.isHidden("create"), false);
    await browser.fill("new-table", "people");
    await browser.run(`document.querySelector("#create button").click()`);
    await browser.until(`[...document.querySelectorAll("#tables button")].some(button => button.textContent === "people")`);
    await browser.table("people");
    await browser.click("add");
    await browser.enter("PartitionKey", "String", "types");
    await browser.enter("RowKey", "String", "it's 100% + é & =");
    for (const [name, [type, text]] of Object.entries(TYPES)) await browser.enter(name, type, text);
    await browser.asking(() => browser.submit(".entity-form"));
    assert.equal((await browser.rows()).length, 1);
    assert.equal(await browser.text("new-entity"), "");
    await browser.run(`(async () => { for (let i = 0; i < 250; i += 1)
      await send("POST", "/people", {}, JSON.stringify({ PartitionKey: "page", RowKey: String(i).padStart(3, "0"), N: i })); })()`);
  },

  async "entities are edited in place, with all their types"(origin) {
    await browser.connect(origin);
    await edits({ Price: { type: "Double", text: "5.0" }, Lines: { type: "String", text: "one\r\ntwo" }, Old: { type: "Int32", text: "1" } });
    await browser.table("edits");
    await browser.press("#grid", "Edit p / r");
    assert.equal(await browser.run(`document.activeElement.ariaLabel`), "Value of Lines");
    await browser.enter("Price", "Double", "many");
    await browser.submit(".entity-form");
    await browser.until(`document.querySelector(".entity-form [role=alert]").textContent !== ""`);
    assert.match(await browser.run(`document.querySelector(".entity-form [role=alert]").textContent`), /^Price: A Double is/);
    assert.equal(await browser.run(`document.activeElement.ariaLabel`), "Value of Price");
    await browser.enter("Price", "Double", "7");
    await browser.enter("Count", "Int64", "9007199254740993");
    await browser.press(".entity-form", "Remove Old");
    await browser.asking(() => browser.submit(".entity-form"));
    assert.deepEqual(await browser.column("Price"), ["7.0 Double"]);
    assert.deepEqual(await browser.column("Count"), ["9007199254740993 Int64"]);
    assert.deepEqual(await browser.column("Lines"), ["one\r\ntwo String"]);
    assert.deepEqual(await browser.column("Old"), [""]);
  },

  async "an edit of an entity that changed meanwhile shows the conflict"(origin) {
    await browser.connect(origin);
    await edits({ Price: { type: "Double", text: "1.5" } });
    await browser.table("edits");
    await browser.press("#grid", "Edit p / r");
    await edits({ Price: { type: "Double", text: "2.5" } });
    await browser.enter("Price", "Double", "3.5");
    await browser.submit(".entity-form");
    await browser.until(`document.querySelector(".conflict table")`);
    assert.deepEqual(await browser.run(`[...document.querySelectorAll(".conflict tbody td")].map(cell => cell.textContent)`),
      ["Price", "1.5 Double", "3.5 Double", "2.5 Double"]);
    assert.equal(await stored("Price"), "2.5");
    await browser.asking(() => browser.press(".conflict", "Write mine over it"));
    assert.equal(await stored("Price"), "3.5");
    await browser.press("#grid", "Edit p / r");
    await browser.run(`send("DELETE", "/edits(PartitionKey='p',RowKey='r')", {}, null, { "If-Match": "*" })`);
    await browser.submit(".entity-form");
    await browser.until(`document.querySelector(".conflict")?.textContent.includes("deleted this entity")`);
    await browser.asking(() => browser.press(".conflict", "Insert mine again"));
    assert.equal(await stored("Price"), "3.5");
  },

  async "a delete is confirmed, and shows conflicts"(origin) {
    await browser.connect(origin);
    await edits({ Price: { type: "Double", text: "1.5" } });
    await browser.table("edits");
    await edits({ Price: { type: "Double", text: "2.5" } });
    await browser.press("#grid", "Delete p / r");
    await browser.press(".delete-form", "Delete");
    await browser.until(`document.querySelector(".conflict table")`);
    assert.equal(await stored("Price"), "2.5");
    await browser.asking(() => browser.press(".conflict", "Show what is stored"));
    assert.deepEqual(await browser.column("Price"), ["2.5 Double"]);
    await browser.press("#grid", "Delete p / r");
    await browser.asking(() => browser.press(".delete-form", "Delete"));
    assert.deepEqual(await browser.rows(), []);
    await browser.until(`document.getElementById("status").textContent === "Deleted p / r."`);
  },

  async "an entity that exists is not overwritten by an insert"(origin) {
    await browser.connect(origin);
    await edits({ Price: { type: "Double", text: "1.5" } });
    await browser.table("edits");
    await browser.click("add");
    await browser.enter("PartitionKey", "String", "p");
    await browser.enter("RowKey", "String", "r");
    await browser.submit(".entity-form");
    await browser.until(`document.querySelector(".entity-form [role=alert]").textContent.includes("already exists")`);
    await browser.run(`document.querySelector(".entity-form").dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }))`);
    assert.equal(await browser.text("new-entity"), "");
    assert.equal(await browser.run(`document.activeElement.id`), "add");
    assert.equal(await stored("Price"), "1.5");
  },

  async "names that no property can have are refused in the form"(origin) {
    await browser.connect(origin);
    await edits({ Price: { type: "Double", text: "1.5" } });
    await browser.table("edits");
    for (const [name, problem] of [["bad name", /^bad name: .* letters, digits and _/], ["1st", /^1st: /], ["x".repeat(256), /at most 255/]]) {
      await browser.press("#grid", "Edit p / r");
      await browser.enter(name, "String", "x");
      browser.requested = [];
      await browser.submit(".entity-form");
      await browser.until(`document.querySelector(".entity-form [role=alert]").textContent !== ""`);
      assert.match(await browser.run(`document.querySelector(".entity-form [role=alert]").textContent`), problem);
      assert.equal(await browser.run(`document.activeElement.ariaInvalid`), "true");
      assert.equal(browser.requested.some(url => url.includes("/edits(")), false);
    }
    await browser.press(".entity-form", "Cancel");
    await browser.press("#grid", "Edit p / r");
    await browser.enter("Größe_2", "String", "x");
    await browser.asking(() => browser.submit(".entity-form"));
    assert.equal(await stored("Größe_2"), "x");
  },

  async "the keyboard alone opens a table, sorts and edits"(origin) {
    await browser.connect(origin);
    await edits({ Price: { type: "Double", text: "1.5" } });
    await browser.tabTo("edits");
    await browser.key("Enter", "\r");
    await browser.until(`document.getElementById("title").textContent === "edits" && document.querySelector("#grid .entity")`);
    await browser.tabTo("RowKey");
    await browser.key("Enter", "\r");
    assert.equal(await browser.run(`document.querySelector("#grid th[aria-sort]").textContent`), "RowKey");
    await browser.tabTo("Edit p / r");
    await browser.key("Enter", "\r");
    await browser.until(`document.activeElement.ariaLabel === "Value of Price"`);
    await browser.key("Escape");
    assert.equal(await browser.run(`document.querySelector(".entity-form")`), null);
    assert.equal(await browser.run(`document.activeElement.ariaLabel`), "Edit p / r");
    await browser.key("Enter", "\r");
    await browser.run(`document.activeElement.value = "2.5"`);
    await browser.asking(() => browser.key("Enter", "\r"));
    assert.equal(await stored("Price"), "2.5");
    await browser.until(`document.activeElement.ariaLabel === "Edit p / r"`);
  },

  async "errors of a new table are shown at its form"(origin) {
    await browser.connect(origin);
    await browser.fill("new-table", "no spaces");
    await browser.submit("#create");
    await browser.until(`!document.getElementById("create-error").hidden`);
    assert.equal(await browser.run(`document.getElementById("status").className`), "soft");
  },
};

/** These tests run on a server without --allow-edit, with the data of the first of `editing`. */
const tests = {
  async "without it the page is read-only"(origin) {
    await browser.connect(origin);
    assert.match(await browser.text("status"), /read-only/);
    assert.equal(await browser.isHidden("create"), true);
    await browser.table("people");
    assert.equal(await browser.isHidden("edit"), true);
    assert.equal(await browser.run(`document.querySelectorAll("#grid .actions").length`), 0);
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
    assert.equal(shown.Lines, "one\ntwo String");
    assert.equal(shown.Html, `${TYPES.Html[1]} String`);
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
    for (const start of ["100", "000"]) {
      await browser.asking(() => browser.click("previous"));
      assert.equal((await browser.rows())[0][1], start);
    }
    assert.equal(await browser.text("page"), "Page 1");
    assert.equal(await browser.run(`document.getElementById("previous").disabled`), true);
    await browser.asking(() => browser.click("next"));
    await browser.asking(() => browser.click("first"));
    assert.equal((await browser.rows())[0][1], "000");
    assert.equal(await browser.run(`document.getElementById("first").disabled`), true);
    await browser.asking(() => browser.run(`{ const size = document.getElementById("page-size");
      size.value = "25"; size.dispatchEvent(new Event("change")); }`));
    assert.equal(await browser.text("count"), "25 entities, and more");
  },

  async "a bad filter leaves the page and its filter as they were"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    await browser.query("N ge 50 and N lt 240");
    await browser.answered();
    const before = await browser.rows();
    assert.equal(before[0][1], "050");
    await browser.fill("filter", "N ge");
    await browser.click("run");
    await browser.until(`!document.getElementById("filter-error").hidden`);
    assert.deepEqual(await browser.rows(), before);
    assert.equal(await browser.text("count"), "100 entities, and more");
    assert.equal(await browser.run(`document.getElementById("filter").ariaInvalid`), "true");
    await browser.asking(() => browser.click("next"));
    assert.deepEqual((await browser.rows()).map(row => row[1]).slice(0, 1), ["150"]);
    assert.equal(await browser.text("count"), "90 entities");
  },

  async "a page is sorted by a column"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    await browser.query("N ge 95 and N lt 105 or PartitionKey eq 'types'");
    await browser.answered();
    const sorted = async () => (await browser.column("N")).map(text => text.split(" ")[0]);
    const inOrder = Array.from({ length: 10 }, (_, i) => String(95 + i));
    await browser.press("#grid", "N");
    assert.deepEqual(await sorted(), [...inOrder, ""]);
    assert.equal(await browser.run(`document.querySelector("#grid th[aria-sort]").ariaSort`), "ascending");
    assert.equal(await browser.run(`document.activeElement.textContent`), "N");
    await browser.press("#grid", "N");
    assert.deepEqual(await sorted(), ["", ...inOrder.toReversed()]);
    await browser.press("#grid", "N");
    assert.equal(await browser.run(`document.querySelector("#grid th[aria-sort]")`), null);
    assert.deepEqual(await sorted(), [...inOrder, ""]);
    const ordered = await browser.run(`[["Double", "NaN"], ["Double", "-1.5"], ["Int32", "9"], ["Double", "9.5"],
      ["Int64", "9007199254740993"], ["DateTime", "2024-01-31T00:00:00Z"], ["DateTime", "2024-01-31T00:00:00.5Z"]]
      .map(([type, text]) => sortKey({ type, text })).every((key, i, keys) => i === 0 || compareKeys(keys[i - 1], key) < 0)`);
    assert.equal(ordered, true);
  },

  async "columns are chosen and ordered, and exported as shown"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    await browser.query("PartitionKey eq 'types' or N ge 248");
    await browser.answered();
    for (const name of ["Timestamp", "Html", "Id", "When", "Bytes", "Part", "Flag", "Small"]) {
      await browser.run(`document.querySelector('#columns [data-name="${name}"] input').click()`);
    }
    await browser.run(`document.getElementById("columns-box").open = true`);
    await browser.press("#columns", "Move N left");
    assert.equal(await browser.run(`document.activeElement.ariaLabel`), "Move N left");
    while ((await browser.names()).indexOf("N") > 0) await browser.press("#columns", "Move N left");
    const names = ["N", "PartitionKey", "RowKey"];
    assert.deepEqual((await browser.names()).slice(0, 3), names);
    assert.deepEqual((await browser.names()).slice(3).sort(), ["Big", "Lines", "Whole"]);
    await browser.press("#grid", "N");
    await browser.press("#grid", "N");
    const rest = (await browser.names()).slice(3);
    const csv = await browser.download("export-csv", "people.csv");
    const types = { Big: "9007199254740993,Edm.Int64", Lines: '"one\ntwo",Edm.String', Whole: "5.0,Edm.Double" };
    assert.equal(csv, `N,N@type,PartitionKey,RowKey,${rest.map(name => `${name},${name}@type`).join(",")}\r\n`
      + `,,types,it's 100% + é & =,${rest.map(name => types[name]).join(",")}\r\n`
      + "249,Edm.Int32,page,249,,,,,,\r\n248,Edm.Int32,page,248,,,,,,\r\n");
    const json = await browser.download("export-json", "people.json");
    assert.match(json, /"Whole@odata.type":"Edm.Double","Whole":5.0/);
    const [first, second] = JSON.parse(json);
    assert.equal(first.Big, "9007199254740993");
    assert.deepEqual(second, { N: 249, PartitionKey: "page", RowKey: "249" });
    await browser.query("N eq 7");
    await browser.answered();
    assert.deepEqual((await browser.names()).slice(0, 3), names);
  },

  async "a filter is built from its parts"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    const add = async (name, operator, type, value) => {
      await browser.fill("builder-name", name);
      await browser.run(`document.getElementById("builder-name").dispatchEvent(new Event("change"))`);
      if (type) await browser.fill("builder-type", type);
      await browser.fill("builder-operator", operator);
      await browser.fill("builder-value", value);
      await browser.submit("#builder");
      return browser.run(`document.getElementById("filter").value`);
    };
    assert.equal(await add("RowKey", "prefix", "", "24"), "RowKey ge '24' and RowKey lt '25'");
    assert.equal(await add("N", "ne", "", "245"), "RowKey ge '24' and RowKey lt '25' and N ne 245");
    await browser.asking(() => browser.click("run"));
    assert.equal((await browser.rows()).length, 9);
    await browser.fill("builder-join", "or");
    await add("Big", "eq", "Int64", "9007199254740993");
    await browser.fill("builder-join", "and");
    assert.equal(await add("RowKey", "eq", "String", "it's 100% + é & ="),
      "(RowKey ge '24' and RowKey lt '25' and N ne 245 or Big eq 9007199254740993L) and RowKey eq 'it''s 100% + é & ='");
    await browser.asking(() => browser.click("run"));
    assert.equal((await browser.rows()).length, 1);
    for (const [name, type, value] of [["Whole", "Double", "5"], ["When", "DateTime", "2024-01-31"], ["Flag", "Boolean", "true"],
      ["Id", "Guid", "0f8fad5b-d9cb-469f-a165-70867728950e"], ["Bytes", "Binary", "AQID"]]) {
      await browser.fill("filter", "");
      await add(name, "eq", type, value);
      await browser.asking(() => browser.click("run"));
      assert.deepEqual(await browser.column("PartitionKey"), ["types"], name);
    }
    await add("N", "eq", "Int32", "1.5");
    assert.match(await browser.text("builder-error"), /whole number/);
    await browser.fill("filter", "N eq 1");
    for (const [name, problem] of [["bad name", /letters, digits and _/], ["a-b", /letters/], ["and", /has a meaning/], ["", /Name a property/]]) {
      assert.equal(await add(name, "eq", "String", "x"), "N eq 1");
      assert.match(await browser.text("builder-error"), problem, name);
    }
  },

  async "filter errors are marked at their column"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    const wrong = "N ge 1 and N lt lt 3";
    await browser.query(wrong);
    await browser.until(`!document.getElementById("filter-error").hidden`);
    const [line, mark, message] = (await browser.text("filter-error")).split("\n");
    assert.equal(line, wrong);
    assert.equal(mark, " ".repeat(wrong.indexOf("lt lt") + 3) + "^");
    assert.equal(message, "Syntax error at character 17.");
    assert.equal(wrong.slice(16), "lt 3");
    const [from, to] = await browser.run(`[document.getElementById("filter").selectionStart, document.getElementById("filter").selectionEnd]`);
    assert.deepEqual([from, to], [16, wrong.length]);
    await browser.query("N eq '😀' or or");
    await browser.until(`document.getElementById("filter-error").textContent.includes("character 13.")`);
    assert.equal(await browser.run(`document.getElementById("filter").selectionStart`), 13);
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
    await browser.until(`/full table scan/i.test(document.getElementById("explanation").textContent)`);
    await browser.query("PartitionKey eq 'page' and RowKey eq '007'");
    await browser.answered();
    await browser.until(`/point/i.test(document.getElementById("explanation").textContent)`);
    const plan = Object.fromEntries(await browser.run(`[...document.querySelectorAll("#explanation tr")].map(row => [row.cells[0].textContent, row.cells[1].textContent])`));
    assert.match(plan.Plan, /^Point/i);
    assert.equal(plan.Rows, "1 looked at, 1 returned");
    assert.equal(plan["Checked in each row"], "nothing");
    await browser.until(`document.getElementById("slow").textContent.includes("RowKey eq '007'")`);
  },

  async "the plan is that of the shown query, or none"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    await browser.until(`/full table scan/i.test(document.getElementById("explanation").textContent)`);
    await browser.run(`{ const real = send; send = (method, path, ...rest) => path.includes("/explain/")
      ? new Promise((done, failed) => { Object.assign(globalThis, { explain: () => done(real(method, path, ...rest)),
        fail: () => failed(new Error("no plan")) }); })
      : real(method, path, ...rest); }`);
    await browser.asking(() => browser.query("PartitionKey eq 'page' and RowKey eq '007'"));
    await browser.until(`globalThis.fail`);
    assert.equal(await browser.text("explanation"), "");
    await browser.run(`fail()`);
    await browser.until(`document.getElementById("explanation-error").textContent === "no plan"`);
    assert.equal(await browser.text("explanation"), "");
    await browser.run(`explain = null`);
    await browser.asking(() => browser.query("PartitionKey eq 'page'"));
    await browser.until(`explain`);
    await browser.run(`late = explain, explain = null`);
    await browser.asking(() => browser.query("PartitionKey eq 'page' and RowKey eq '008'"));
    await browser.until(`explain`);
    await browser.run(`explain()`);
    await browser.until(`/point/i.test(document.getElementById("explanation").textContent)`);
    await browser.run(`late(), new Promise(done => setTimeout(done))`);
    assert.match(await browser.text("explanation"), /point/i);
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
    assert.match(await browser.text("range"), /bytes, .*251 entities in 1 file, .* reads and .* writes a second/);
    const describe = isExact => browser.run(`describeRange({ isExact: ${isExact}, bytes: 1, entities: 2, files: 1, reads: 0, writes: 0, pattern: "spread" })`);
    assert.match(await describe(true), / 1 bytes, 2 entities in 1 file/);
    assert.match(await describe(false), / 1 bytes, about 2 entities in 1 file/);
  },

  async "the heat of the ranges is kept for a day"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    await browser.run(`{
      heatHistory.delete("people");
      const range = (low, high, reads) => ({ low, high, reads, writes: 0, bytes: 1, entities: 1, files: 1, pattern: "read" });
      const end = Date.now();
      for (let ago = 2 * 86400; ago >= 0; ago -= 10) {
        // The range splits an hour ago. Before that, it is hot for an hour.
        const ranges = ago > 3600 ? [range(undefined, undefined, ago < 7200 ? 40 : 0)]
          : [range(undefined, "m", 2), range("m", undefined, 0)];
        remember("people", ranges, end - ago * 1000);
      }
      document.getElementById("span").value = "86400";
      showMap();
      document.getElementById("span").dispatchEvent(new Event("change"));
    }`);
    const kept = await browser.run(`heatHistory.get("people").samples.length`);
    assert.ok(kept > 1440 && kept < 1520, kept);
    assert.match(await browser.text("moment"), /^Heat of 2 ranges over the last day\. .* 40\.0 operations a second\.$/);
    const opacity = (x, y) => browser.run(`document.getElementById("heat").getContext("2d").getImageData(${`${x}, ${y}`}, 1, 1).data[3]`);
    // A slot is 12 minutes long, so the hour before the split has the slots 109 to 113.
    for (const y of [0, 1]) {
      assert.equal(await opacity(111, y), 255);
      assert.ok(await opacity(50, y) < 40);
    }
    assert.ok(await opacity(119, 0) > await opacity(119, 1));
    const cells = await browser.run(`[...document.querySelectorAll("#ranges tbody tr")].map(row => [row.cells[0].textContent, row.cells[7].textContent])`);
    assert.deepEqual(cells, [["start", "40.0"], ["m", "40.0"]]);
  },

  async "the heat that the server has is shown after a reload"(origin) {
    for (let i = 0; i < 2; i += 1) {
      await browser.connect(origin);
      await browser.run(`{ const real = send; send = async (method, path, ...rest) => path !== "/$rowstone/heat/people"
        ? real(method, path, ...rest) : { json: [{ ago: 7200, lows: ["", "m"], heats: [8000, 4000] }, { ago: 7140, heats: [3, 5] },
          { ago: 60, lows: [""], heats: [2] }] }; }`);
      await browser.table("people");
      await browser.run(`{ const span = document.getElementById("span"); span.value = "86400"; span.dispatchEvent(new Event("change")); }`);
      assert.match(await browser.text("moment"), /^Heat of 1 range over the last day\. The hottest, from the start, had 8000\.0 operations a second\.$/);
      const { json } = await browser.run(`send("GET", "/$rowstone/heat/people").then(({ json }) => ({ json }))`);
      assert.equal(json.length, 3);
    }
    await browser.connect(origin);
    assert.deepEqual(await browser.run(`send("GET", "/$rowstone/heat/people").then(({ json }) => Array.isArray(json))`), true);
  },

  async "the ten counters that matter are first, all are grouped"(origin) {
    await browser.connect(origin);
    const [main, values, titles, all, meanings, given] = await browser.run(`(async () => {
      const texts = selector => [...document.querySelectorAll(selector)].map(each => each.textContent);
      return [texts("#main-counters dt"), texts("#main-counters dd"), texts("#groups h3"), texts("#groups dt"), texts("#groups dd.soft"),
        Object.keys((await send("GET", "/$rowstone/stats")).json.counters)];
    })()`);
    assert.deepEqual(main, ["Trouble", "Damaged files", "Delayed writes", "Slow queries", "Whole-table scans", "Commits",
      "Entries in files", "Table files", "Memory", "Write amplification"]);
    assert.equal(values[0], "no");
    // Without a limit the engine does not count all files, and 0 bytes would be wrong.
    assert.match(values[main.indexOf("Table files")], /^[1-9].* KiB$/);
    assert.ok(titles.length >= 5);
    const shown = given.filter(name => !name.startsWith("disk_"));
    assert.equal(all.length, shown.length);
    assert.equal(new Set(all).size, shown.length);
    assert.ok(meanings.length === shown.length && meanings.every(meaning => /^[^`]+\.$/s.test(meaning)), meanings);
    assert.deepEqual(await browser.run(`(() => {
      const counters = { disk_limit_bytes: 5 << 20, disk_bytes: 1 << 20, file_bytes: 5, trouble: 1 };
      layOutCounters(counters, { disk_limit_bytes: "", disk_bytes: "", file_bytes: "", trouble: "" });
      return [...document.querySelectorAll("#main-counters dt")].map(each => each.textContent);
    })()`), ["Trouble", "All files"]);
  },

  async "every control has a name for screen readers"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    await browser.run(`for (const each of document.querySelectorAll("details")) each.open = true`);
    await browser.run(`state.allowEdit = true, showGrid(), addEntity(), editEntity(state.entities[0])`);
    await browser.press("#grid .entity-form", "Add a property");
    const { nodes } = await browser.call("Accessibility.getFullAXTree");
    const controls = nodes.filter(node => !node.ignored
      && ["button", "textbox", "combobox", "checkbox", "image", "region"].includes(node.role?.value));
    assert.ok(controls.length > 50);
    assert.deepEqual(controls.filter(node => !node.name?.value).map(node => JSON.stringify(node)), []);
    // Each scrollable part can have the focus, so that the arrow keys scroll it.
    assert.equal(await browser.run(`[...document.querySelectorAll(".scroll")].every(each => each.tabIndex === 0)`), true);
  },

  async "the page is usable at the width of a phone, dark and light"(origin) {
    const size = { width: 390, height: 844, deviceScaleFactor: 2, mobile: true };
    await browser.call("Emulation.setDeviceMetricsOverride", size);
    await browser.connect(origin);
    await browser.table("people");
    await browser.run(`for (const each of document.querySelectorAll("details")) each.open = true`);
    await browser.run(`state.allowEdit = true, showGrid(), addEntity(), editEntity(state.entities[0])`);
    await browser.press("#grid .entity-form", "Add a property");
    assert.equal(await browser.run(`document.documentElement.scrollWidth`), 390);
    assert.equal(await browser.run(`[...document.querySelectorAll(".entity-form .value, .entity-form button")]
      .every(each => each.getBoundingClientRect().right <= 390)`), true);
    for (const value of ["dark", "light"]) {
      await browser.call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
      const contrasts = await browser.run(`(() => {
        const bytes = color => { const pen = new OffscreenCanvas(1, 1).getContext("2d");
          pen.fillStyle = color; pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3); };
        const light = color => bytes(color).map(byte => byte / 255)
          .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
          .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
        const back = light(getComputedStyle(document.querySelector("#grid thead th")).backgroundColor);
        return ["#title", "#count", "#page-error"].map(id => light(getComputedStyle(document.querySelector(id)).color))
          .map(front => (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05));
      })()`);
      assert.ok(contrasts.every(contrast => contrast >= 4.5), `${value}: ${contrasts}`);
    }
    await browser.call("Emulation.setEmulatedMedia", { features: [] });
    await browser.call("Emulation.clearDeviceMetricsOverride");
  },

  async "statistics are live"(origin) {
    await browser.connect(origin);
    const commits = () => browser.run(`Number([...document.querySelectorAll("#stats div")].find(line => line.firstChild.textContent === "Commits").lastChild.textContent.replace(/\\D/g, ""))`);
    const before = await commits();
    await browser.run(`send("PUT", "/people(PartitionKey='x',RowKey='x')", {}, "{}")`);
    await browser.until(`Number([...document.querySelectorAll("#stats div")].find(line => line.firstChild.textContent === "Commits").lastChild.textContent.replace(/\\D/g, "")) > ${before}`);
    await browser.run(`send("DELETE", "/people(PartitionKey='x',RowKey='x')", {}, null, { "If-Match": "*" })`);
  },

  async "a wrong key shows nothing, and no key is kept"(origin) {
    await browser.connect(origin);
    await browser.table("people");
    await browser.fill("key", "d3Jvbmc=");
    await browser.click("connect");
    await browser.until(`document.getElementById("status").className === "bad"`);
    assert.match(await browser.text("status"), /authenticate/);
    assert.deepEqual([await browser.isHidden("engine"), await browser.isHidden("table")], [true, true]);
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
  for (const [name, test] of [...Object.entries(editing), ...Object.entries(tests)]) {
    if (name === Object.keys(tests)[0]) {
      await stop(running);
      execFileSync(rowstone, ["exec", join(place, "db")], { input: '{"op":"flush"}\n' });
      running = await serve("--slow-query", "0");
    }
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
console.log(`tests/clients/page: ${Object.keys({ ...editing, ...tests }).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
