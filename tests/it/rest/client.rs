//! A client that sends arbitrary bytes and reads the responses.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// An account and one of its keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub account: String,
    pub key: String,
}

/// A connection, with the bytes that were received but not parsed yet.
pub struct Client<S = TcpStream> {
    pub stream: S,
    key: Key,
    unread: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Key {
    pub fn development() -> Self {
        let key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
        Key::new("devstoreaccount1", key)
    }

    pub fn new(account: &str, key: &str) -> Self {
        Key { account: account.to_owned(), key: key.to_owned() }
    }

    /// Returns the head of a signed request. `target` must not contain the account, and `headers`
    /// must not contain the length of the body.
    pub fn head(&self, method: &str, target: &str, headers: &str) -> String {
        let Key { account, key } = self;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let comp = query.split('&').find(|pair| pair.starts_with("comp="));
        let comp = comp.map(|comp| format!("?{comp}")).unwrap_or_default();
        let date = httpdate::fmt_http_date(SystemTime::now());
        let text = format!("{date}\n/{account}/{account}{path}{comp}");
        let mut mac = Hmac::<Sha256>::new_from_slice(&BASE64.decode(key).unwrap()).unwrap();
        mac.update(text.as_bytes());
        let signature = BASE64.encode(mac.finalize().into_bytes());
        format!(
            "{method} /{account}{target} HTTP/1.1\r\nHost: localhost\r\nx-ms-date: {date}\r\n\
             Authorization: SharedKeyLite {account}:{signature}\r\n{headers}"
        )
    }

    /// Returns a complete signed request.
    pub fn request(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let mut request = self.head(method, target, headers);
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "MERGE" | "PATCH") {
            write!(request, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        request.push_str("\r\n");
        [request.as_bytes(), body].concat()
    }
}

impl Client {
    #[track_caller]
    pub fn connect(at: SocketAddr, key: Key) -> Self {
        Client::over(connect(at).unwrap(), key)
    }

    /// Closes the sending half, so that the server sees the end of the input.
    pub fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Sends one byte at a time until the connection is closed, and reads available input before
    /// each byte. Calls `meanwhile` for every tenth byte. Returns the received bytes.
    #[track_caller]
    pub fn drip(&mut self, byte: u8, mut meanwhile: impl FnMut()) -> Vec<u8> {
        // A read with a timeout is the pause between two bytes.
        let pause = std::time::Duration::from_millis(20);
        self.stream.set_read_timeout(Some(pause)).unwrap();
        let mut sent = 0_u64;
        loop {
            if sent.is_multiple_of(10) {
                meanwhile();
            }
            sent += 1;
            if self.stream.write_all(&[byte]).is_err() {
                return std::mem::take(&mut self.unread);
            }
            match self.fill() {
                Ok(0) => return std::mem::take(&mut self.unread),
                Ok(_) => {}
                Err(error) if is_pause(&error) => {}
                Err(_) => return std::mem::take(&mut self.unread),
            }
        }
    }
}

pub fn connect(at: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S, key: Key) -> Self {
        Client { stream, key, unread: Vec::new() }
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends bytes that the server may refuse to read.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends a signed request and returns the response.
    #[track_caller]
    pub fn ask(&mut self, method: &str, target: &str, body: &str) -> Answer {
        self.ask_with(method, target, "", body.as_bytes())
    }

    /// As `ask`, with more headers, each with its line end.
    #[track_caller]
    pub fn ask_with(&mut self, method: &str, target: &str, headers: &str, body: &[u8]) -> Answer {
        self.send(self.key.request(method, target, headers, body));
        self.answer_to(method)
    }

    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.answer_to("GET")
    }

    /// Reads the next response; a response to `HEAD` has no body, whatever its head contains.
    #[track_caller]
    pub fn answer_to(&mut self, method: &str) -> Answer {
        self.try_answer_to(method).unwrap_or_else(|error| panic!("no answer: {error}"))
    }

    pub fn try_answer_to(&mut self, method: &str) -> io::Result<Answer> {
        let head = self.take_through(b"\r\n\r\n")?;
        let head = String::from_utf8(head).unwrap();
        let status: u16 = head.strip_prefix("HTTP/1.").unwrap()[2..5].parse().unwrap();
        let mut answer = Answer { status, head, body: Vec::new() };
        if method == "HEAD" || status < 200 || status == 204 {
            return Ok(answer);
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let line = String::from_utf8(self.take_through(b"\r\n")?).unwrap();
                let len = usize::from_str_radix(line.trim(), 16).unwrap();
                let chunk = self.take(len + 2)?;
                if len == 0 {
                    return Ok(answer);
                }
                answer.body.extend_from_slice(&chunk[..len]);
            }
        }
        answer.body = match answer.header("content-length").map(|text| text.parse().unwrap()) {
            Some(len) => self.take(len)?,
            None => self.rest(),
        };
        Ok(answer)
    }

    /// Reads all bytes that arrive until the connection is closed or reset.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        loop {
            match self.fill() {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        std::mem::take(&mut self.unread)
    }

    /// Checks that the server closes the connection and sends nothing more.
    #[track_caller]
    pub fn is_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }

    /// Checks that the server responds with an error or not at all, and closes the connection.
    #[track_caller]
    pub fn is_refused(&mut self, what: &str) {
        let rest = self.rest();
        let text = String::from_utf8_lossy(&rest);
        let is_error =
            ["HTTP/1.1 4", "HTTP/1.0 4", "HTTP/1.1 5"].iter().any(|s| text.starts_with(s));
        assert!(rest.is_empty() || is_error, "{what}: {text}");
        assert!(
            !text.contains(" 500 Internal") || text.contains("OperationTimedOut"),
            "{what}: {text}"
        );
    }

    fn take_through(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            let found = self.unread.windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                return self.take(at + end.len());
            }
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < len {
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let rest = self.unread.split_off(len);
        Ok(std::mem::replace(&mut self.unread, rest))
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 16 << 10];
        let read = self.stream.read(&mut piece)?;
        self.unread.extend_from_slice(&piece[..read]);
        Ok(read)
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{}{}", self.head, String::from_utf8_lossy(&self.body));
        self
    }

    /// Checks for an error with this code in header and body.
    #[track_caller]
    pub fn is_error(&self, status: u16, code: &str) -> &Self {
        self.is(status);
        assert_eq!(self.header("x-ms-error-code"), Some(code), "{}", self.text());
        assert!(self.text().contains(code), "{}", self.text());
        self
    }
}
