#!/usr/bin/env python3
"""Times `rowstone serve` and the emulator azurite: the same requests by one client (wrk), over loopback.

  benches/serve/run.py ROWSTONE DIR [--azurite AZURITE-TABLE] [--partitions N] [--seconds S] [--durability os|sync]

DIR must be on a real disk, and missing or empty. Without --azurite only rowstone is timed. Each
partition has 1,000 entities. Prints a table: requests per second, median and 99th percentile of their
latency, and processor time of the server per request. With --durability sync it also prints the commits
of rowstone per sync of its log. Needs wrk; azurite also needs node (npm install azurite@3.35.0, which
installs node_modules/.bin/azurite-table).
"""

import argparse
import http.client
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

# Reads are measured first, because background work that inserts cause would slow them.
KINDS = {"get": "point get", "page": "page of 1,000 entities", "insert": "insert", "batch": "group of 100 inserts"}
METRICS = "http://127.0.0.1:10404/metrics"
COUNTERS = ("commits", "log_syncs")
HERE = os.path.dirname(os.path.abspath(__file__))


def cpu_seconds(pid):
    """Returns the processor time of a process and its children, in seconds."""
    total = 0
    pids = [pid]
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    for one in pids + [int(child) for child in children]:
        with open(f"/proc/{one}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def counter(name):
    """Returns the counter `name` of rowstone's database."""
    with urllib.request.urlopen(METRICS) as answer:
        return int(re.search(rf"^rowstone_{name}_total\{{.*\}} (\d+)$", answer.read().decode(), re.M).group(1))


class Server:
    def __init__(self, name, command, port):
        self.name, self.port = name, port
        log = open(os.path.join(options.dir, f"{name}.log"), "w")
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(200):
            try:
                self.ask("GET", "/devstoreaccount1/Tables?" + token)
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"{name} did not start: see {log.name}")

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {"x-ms-version": "2019-02-02", "Accept": "application/json;odata=nometadata", **(headers or {})}
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def load(self, partitions):
        """Inserts the entities through the service, so that both servers have equal data."""
        status, text = self.ask("POST", "/devstoreaccount1/Tables?" + token, b'{"TableName":"bench"}', {"Content-Type": "application/json"})
        assert status == 201, text
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for partition in range(partitions):
            for start in range(0, 1000, 100):
                lines = ["--batch_b", "Content-Type: multipart/mixed; boundary=changeset_c", ""]
                for row in range(start, start + 100):
                    lines += ["--changeset_c", "Content-Type: application/http", "Content-Transfer-Encoding: binary", "",
                              f"POST http://127.0.0.1:{self.port}/devstoreaccount1/bench HTTP/1.1", "Content-Type: application/json",
                              "Accept: application/json;odata=nometadata", "DataServiceVersion: 3.0", "Prefer: return-no-content", "",
                              f'{{"PartitionKey":"p{partition:05}","RowKey":"r{row:05}","Device":"sensor-{row}","At@odata.type":"Edm.DateTime",'
                              '"At":"2026-01-31T10:20:30.5Z","Temperature":21.5,"Humidity":48,"Online":true,'
                              '"Note":"steady, no alarms since the last service"}']
                lines += ["--changeset_c--", "--batch_b--", ""]
                headers = {"Content-Type": "multipart/mixed; boundary=batch_b", "x-ms-version": "2019-02-02", "DataServiceVersion": "3.0"}
                connection.request("POST", "/devstoreaccount1/$batch?" + token, "\r\n".join(lines).encode(), headers)
                answer = connection.getresponse()
                text = answer.read()
                assert answer.status == 202 and b"HTTP/1.1 204" in text, (answer.status, text[:500])
            print(f"\r{self.name}: {partition + 1} of {partitions} partitions loaded", end="", file=sys.stderr)
        print(file=sys.stderr)

    def time(self, kind, seconds):
        environment = {**os.environ, "KIND": kind, "TOKEN": token, "PARTITIONS": str(options.partitions),
                       "RUN": f"{kind}{int(time.time())}"}
        shares = self.name == "rowstone" and options.durability == "sync" and kind in ("insert", "batch")
        counted = [counter(name) for name in COUNTERS] if shares else []
        before = cpu_seconds(self.process.pid)
        command = ["wrk", "-t", "1", "-c", str(options.connections), "-d", f"{seconds}s", "--timeout", "30s",
                   "-s", os.path.join(HERE, "requests.lua"), f"http://127.0.0.1:{self.port}"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        cpu = cpu_seconds(self.process.pid) - before
        result = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", run.stdout)
        if run.stderr or not result:
            sys.exit(f"{self.name} {kind}: {run.stdout}{run.stderr}")
        requests, micros, median, p99, errors = (int(number) for number in result.groups())
        assert errors == 0, run.stdout
        if shares:
            commits, syncs = (counter(name) - before for name, before in zip(COUNTERS, counted))
            print(f"{kind}: {commits / syncs:.1f} commits a sync at {options.connections} connections")
        return requests / micros * 1e6, median, p99, cpu / requests * 1e6

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def show(micros):
    return f"{micros / 1000:.2f} ms" if micros >= 1000 else f"{micros:.0f} µs"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("rowstone")
parser.add_argument("dir")
parser.add_argument("--azurite")
parser.add_argument("--partitions", type=int, default=100)
parser.add_argument("--seconds", type=int, default=5)
parser.add_argument("--connections", type=int, default=16)
parser.add_argument("--durability", default="os")
options = parser.parse_args()
os.makedirs(options.dir, exist_ok=True)
if os.listdir(options.dir):
    sys.exit(f"{options.dir} is not empty")
sas = [options.rowstone, "sas", "--account-wide", "--permissions", "rwdlacu", "--expiry", "2099-01-01"]
token = subprocess.run(sas, capture_output=True, text=True, check=True).stdout.strip()

commands = {"rowstone": ([options.rowstone, "serve", os.path.join(options.dir, "rowstone"), "--listen", "127.0.0.1:10402",
                          "--metrics", "127.0.0.1:10404", "--durability", options.durability, "--log", "problems"], 10402)}
if options.azurite:
    commands["azurite"] = ([options.azurite, "--silent", "--disableTelemetry", "--skipApiVersionCheck",
                            "--location", os.path.join(options.dir, "azurite"), "--tablePort", "10403"], 10403)
results = {}
for name, (command, port) in commands.items():
    server = Server(name, command, port)
    try:
        server.load(options.partitions)
        results[name] = {kind: server.time(kind, options.seconds) for kind in KINDS}
    finally:
        server.stop()

print(f"{options.connections} connections, {options.partitions * 1000:,} entities, {options.seconds} s each, durability {options.durability}\n")
print("| request | server | a second | p50 | p99 | processor time each |\n| --- | --- | --- | --- | --- | --- |")
for kind, title in KINDS.items():
    for name in commands:
        rate, median, p99, cpu = results[name][kind]
        times = ""
        if name != "azurite" and options.azurite:
            peer = results["azurite"][kind]
            times = f" ({rate / peer[0]:.1f} times, processor time {cpu / peer[3] * 100:.1f} %)"
        print(f"| {title} | {name} | {rate:,.0f}{times} | {show(median)} | {show(p99)} | {show(cpu)} |")
