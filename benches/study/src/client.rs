//! A client process: threads that call a server, each on its own connection with keep-alive.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};

use crate::Outcome;
use crate::clients::{Latencies, Tally, Watch, run_clients};
use crate::ground::{Source, Spread, TABLE, Worker};

/// The work of one client process.
#[derive(Parser, Debug)]
pub(crate) struct Job {
    #[arg(long)]
    address: SocketAddr,
    /// A shared access signature.
    #[arg(long)]
    token: String,
    #[arg(long)]
    job: u32,
    /// The number of the first thread among those of all processes.
    #[arg(long)]
    first: u32,
    #[arg(long)]
    threads: u32,
    /// The number of entities in a batch; without it, GETs.
    #[arg(long)]
    batch: Option<u32>,
    /// Each thread has its own partition.
    #[arg(long)]
    many: bool,
    #[arg(long)]
    millis: u64,
    #[arg(long)]
    inserts_max: u64,
    #[arg(long)]
    rows: u64,
    #[arg(long)]
    seed: u64,
}

/// A connection to a server, for one call at a time.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
    token: String,
}

const ACCOUNT: &str = "devstoreaccount1";
const JSON: &str = "application/json";
/// The number of entities in a batch that loads entities for GETs.
const LOAD_BATCH: u64 = 100;

impl Job {
    /// Loads entities, warms up, prints a line, and measures when it has read one.
    pub(crate) fn run(&self, input: &mut dyn BufRead, output: &mut dyn Write) -> Outcome {
        let source = Source::new(self.seed);
        let spread = if self.many { Spread::Many } else { Spread::One };
        let worker = |job: u32, number: u32| source.worker(job, self.first + number, spread);
        if self.batch.is_none() {
            run_clients(self.threads, |number| {
                let mut connection = Connection::open(self.address, &self.token)?;
                let worker = worker(self.job, number);
                for index in (0..self.rows).step_by(LOAD_BATCH as usize) {
                    let count = LOAD_BATCH.min(self.rows - index);
                    connection.insert(&source, &worker, index, count)?;
                }
                Ok(Tally::default())
            })?;
        }
        let measure = |share: u32| {
            // A warm-up has its own JobID, which no other measurement has.
            let job = if share > 1 && self.batch.is_some() { 50_000 + self.job } else { self.job };
            run_clients(self.threads, |number| self.work(&source, &worker(job, number), share))
        };
        measure(5)?;
        writeln!(output, "ready")?;
        output.flush()?;
        input.read_line(&mut String::new())?;
        writeln!(output, "{}", line(&measure(1)?))?;
        Ok(())
    }

    /// Calls the server for the time of a measurement, divided by `share`.
    fn work(&self, source: &Source, worker: &Worker, share: u32) -> Outcome<Tally> {
        let mut connection = Connection::open(self.address, &self.token)?;
        let mut watch = Watch::start(Duration::from_millis(self.millis) / share);
        let mut index = 0;
        let Some(batch) = self.batch.map(u64::from) else {
            while !watch.is_over() {
                connection.get(source, worker, index)?;
                watch.lap(1);
                index = (index + 1) % self.rows;
            }
            return Ok(watch.end());
        };
        let most = self.inserts_max / u64::from(share * self.threads);
        while !watch.is_over() && index < most.max(batch) {
            connection.insert(source, worker, index, batch)?;
            watch.lap(batch);
            index += batch;
        }
        Ok(watch.end())
    }
}

impl Connection {
    pub(crate) fn open(address: SocketAddr, token: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), address, token: token.to_owned() })
    }

    pub(crate) fn create_table(&mut self, name: &str) -> Outcome {
        let body = json!({ "TableName": name }).to_string();
        self.expect(&[204], "POST", "Tables", JSON, &body).map(drop)
    }

    /// Deletes a table, which may be missing.
    pub(crate) fn delete_table(&mut self, name: &str) -> Outcome {
        self.expect(&[204, 404], "DELETE", &format!("Tables('{name}')"), JSON, "").map(drop)
    }

    /// Inserts `count` entities from `index`: one alone, or several as one batch.
    fn insert(&mut self, source: &Source, worker: &Worker, index: u64, count: u64) -> Outcome {
        let entity = |index: u64| {
            json!({
                "PartitionKey": worker.partition,
                "RowKey": worker.row_key(index),
                "Payload": source.payload(index),
            })
        };
        if count == 1 {
            let body = entity(index).to_string();
            return self.expect(&[204], "POST", TABLE, JSON, &body).map(drop);
        }
        let mut body =
            "--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n".to_owned();
        for index in index..index + count {
            body.push_str(&format!(
                "--changeset_c\r\nContent-Type: application/http\r\n\
                 Content-Transfer-Encoding: binary\r\n\r\n\
                 POST http://{}/{ACCOUNT}/{TABLE} HTTP/1.1\r\nContent-Type: {JSON}\r\n\
                 Accept: {JSON};odata=nometadata\r\nPrefer: return-no-content\r\n\
                 DataServiceVersion: 3.0\r\n\r\n{}\r\n",
                self.address,
                entity(index)
            ));
        }
        body.push_str("--changeset_c--\r\n--batch_b--\r\n");
        let kind = "multipart/mixed; boundary=batch_b";
        let answer = self.expect(&[202], "POST", "$batch", kind, &body)?;
        if answer.matches("HTTP/1.1 204").count() as u64 != count {
            return Err(format!("a batch failed: {answer}").into());
        }
        Ok(())
    }

    fn get(&mut self, source: &Source, worker: &Worker, index: u64) -> Outcome {
        let (partition, row) = (&worker.partition, worker.row_key(index));
        let path = format!("{TABLE}(PartitionKey='{partition}',RowKey='{row}')");
        let found: Value = serde_json::from_str(&self.expect(&[200], "GET", &path, JSON, "")?)?;
        if found["Payload"] != source.payload(index) {
            return Err(format!("wrong data: {partition}/{row} differs").into());
        }
        Ok(())
    }

    /// Sends a request and returns the body of the answer, whose status must be one of `statuses`.
    fn expect(
        &mut self,
        statuses: &[u32],
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
    ) -> Outcome<String> {
        let request = format!(
            "{method} /{ACCOUNT}/{path}?{} HTTP/1.1\r\nHost: {}\r\nx-ms-version: 2019-02-02\r\n\
             Accept: {JSON};odata=nometadata\r\nPrefer: return-no-content\r\n\
             DataServiceVersion: 3.0\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (status, body) = read_answer(&mut self.stream)?;
        if statuses.contains(&status) {
            return Ok(body);
        }
        Err(format!("{method} {path}: status {status}: {body}").into())
    }
}

/// Reads an answer, and returns its status and body.
fn read_answer(stream: &mut impl BufRead) -> Outcome<(u32, String)> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| format!("no status in the answer {line:?}"))?;
    let (mut length, mut is_chunked) = (0, false);
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
        is_chunked |= name.eq_ignore_ascii_case("transfer-encoding");
    }
    let mut body = Vec::new();
    loop {
        if is_chunked {
            line.clear();
            stream.read_line(&mut line)?;
            length = usize::from_str_radix(line.trim(), 16)?;
        }
        let start = body.len();
        body.resize(start + length, 0);
        stream.read_exact(&mut body[start..])?;
        if is_chunked {
            // The end of the chunk, or of the body.
            stream.read_line(&mut String::new())?;
        }
        if !is_chunked || length == 0 {
            return Ok((status, String::from_utf8(body)?));
        }
    }
}

/// Returns the result of a client process as a line of JSON. Times are in nanoseconds.
fn line(tally: &Tally) -> Value {
    json!({
        "operations": tally.operations,
        "elapsed": tally.elapsed.as_nanos() as u64,
        "latencies": tally.latencies.counts().collect::<Vec<_>>(),
    })
}

/// Returns the result in a line of a client process.
pub(crate) fn parse_line(line: &str) -> Outcome<Tally> {
    let failed = || format!("a client's result is unreadable: {line:?}");
    let value: Value = serde_json::from_str(line).map_err(|_| failed())?;
    let mut latencies = Latencies::default();
    for pair in value["latencies"].as_array().ok_or_else(failed)? {
        let (time, count) = pair[0].as_u64().zip(pair[1].as_u64()).ok_or_else(failed)?;
        latencies.note_many(time, count);
    }
    let operations = value["operations"].as_u64().ok_or_else(failed)?;
    let elapsed = Duration::from_nanos(value["elapsed"].as_u64().ok_or_else(failed)?);
    Ok(Tally { operations, latencies, elapsed })
}

/// Runs as a client process. The first argument is the name of the program.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> Outcome {
    let job = Job::try_parse_from(arguments)?;
    job.run(&mut io::stdin().lock(), &mut io::stdout())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_client_has_its_counts_and_latencies() {
        let mut tally = Tally { operations: 300, ..Tally::default() };
        tally.elapsed = Duration::from_millis(7);
        let times = [1, 2, 2, 3].map(Duration::from_millis);
        times.into_iter().for_each(|time| tally.latencies.note(time));
        let parsed = parse_line(&line(&tally).to_string()).unwrap();
        assert_eq!((parsed.operations, parsed.elapsed), (300, tally.elapsed));
        assert_eq!(parsed.latencies.count(), 4);
        for percent in [25.0, 75.0, 100.0] {
            let of = |tally: &Tally| tally.latencies.percentile(percent);
            assert_eq!(of(&parsed), of(&tally));
        }
        for broken in ["", "{}", "ready", r#"{"operations":1,"elapsed":1,"latencies":[[1]]}"#] {
            let error = parse_line(broken).unwrap_err().to_string();
            assert!(error.contains("unreadable"), "{broken}: {error}");
        }
    }

    #[test]
    fn an_answer_ends_with_its_body() {
        let mut stream: &[u8] =
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbodyHTTP/1.1 204 No Content\r\n\r\n\
              HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n\
              2\r\nbo\r\n0a\r\ndy and end\r\n0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(read_answer(&mut stream).unwrap(), (200, "body".to_owned()));
        assert_eq!(read_answer(&mut stream).unwrap(), (204, String::new()));
        assert_eq!(read_answer(&mut stream).unwrap(), (202, "body and end".to_owned()));
        assert_eq!(read_answer(&mut stream).unwrap(), (204, String::new()));
        assert!(read_answer(&mut stream).is_err());
    }
}
