//! Tells the texts that name a Table service from paths.

/// A text that names the place of a connection string: `env:NAME` or `file:PATH`. Case and leading
/// space of the prefix do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference<'t> {
    Variable(&'t str),
    File(&'t str),
}

impl<'t> Reference<'t> {
    /// Returns `None` for another text.
    pub(crate) fn read(text: &'t str) -> Option<Self> {
        let (prefix, name) = text.trim_start().split_once(':')?;
        match prefix.to_ascii_lowercase().as_str() {
            "env" => Some(Self::Variable(name)),
            "file" => Some(Self::File(name)),
            _ => None,
        }
    }

    /// Whether the name can be that of a variable or a file: it is not empty, and it is not a URL,
    /// a connection string or a signature.
    #[cfg(feature = "json")]
    pub(crate) fn is_valid(self) -> bool {
        let (Self::Variable(name) | Self::File(name)) = self;
        !name.is_empty() && !name.starts_with("//") && !name.contains([';', '?', '&', '='])
    }
}

/// The names of the parts of a connection string that have an account, a key or an address.
const PARTS: [&str; 12] = [
    "accountkey",
    "accountname",
    "blobendpoint",
    "defaultendpointsprotocol",
    "endpoint",
    "endpointsuffix",
    "password",
    "sharedaccesskey",
    "sharedaccesssignature",
    "sig",
    "tableendpoint",
    "usedevelopmentstorage",
];

/// The ends of the names of hosts of the service.
const HOSTS: [&str; 2] = [".core.windows.net", ".cosmos.azure.com"];

/// Returns what `text` is if it is no path: such a text is far more often a mistake than the name
/// of a directory, and it may have a key. A directory with such a name is written with `./` in
/// front of it.
pub(crate) fn foreign(text: &str) -> Option<&'static str> {
    let text = text.trim();
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    if text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme)) {
        return Some("a URL");
    }
    if Reference::read(text).is_some() {
        return Some("the name of a Table service");
    }
    // A path may stand before the first part.
    let is_part = |part: &str| {
        let name = part.split_once('=').and_then(|(name, _)| name.rsplit(['/', '\\']).next());
        name.is_some_and(|name| PARTS.contains(&&*name.trim().to_ascii_lowercase()))
    };
    if text.split([';', '?', '&']).any(is_part) {
        return Some("a connection string");
    }
    // The key of an account has 64 bytes.
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    if text.len() == 88 && text.strip_suffix("==").is_some_and(|text| text.chars().all(is_base64)) {
        return Some("a key");
    }
    let (authority, path) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    let host = host.to_ascii_lowercase();
    let has_port = port.starts_with(|c: char| c.is_ascii_digit());
    let is_short = authority.ends_with(':') && !path.is_empty() && host.starts_with("http");
    let is_url = has_port || is_short || HOSTS.iter().any(|domain| host.ends_with(domain));
    is_url.then_some("a URL")
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use super::*;

    #[test]
    fn references_have_one_form() {
        use Reference::{File, Variable};
        for (text, expected) in [
            ("env:STORE", Variable("STORE")),
            (" Env:STORE", Variable("STORE")),
            ("file:/etc/a b", File("/etc/a b")),
            ("FILE:c:\\store", File("c:\\store")),
        ] {
            assert_eq!(Reference::read(text), Some(expected), "{text}");
            assert!(expected.is_valid(), "{text}");
        }
        for text in ["env:", "file:///etc/store", "env:a=b", "file:a?sig=b", "file:a;b", "env:a&b"]
        {
            assert!(Reference::read(text).is_some_and(|read| !read.is_valid()), "{text}");
        }
        for text in ["./env:STORE", "env", "environment:a", "db", "c:\\db"] {
            assert!(Reference::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn urls_and_connection_strings_are_no_paths() {
        for url in [
            "https://a.table.core.windows.net/",
            "file:///tmp/db",
            "s3://bucket/db",
            " https://a",
            "x://y",
            "a.table.core.windows.net",
            "A.table.cosmos.azure.com:443/T",
            "localhost:10002/devstoreaccount1",
            "127.0.0.1:10002",
            "http:/localhost/T",
        ] {
            assert_eq!(foreign(url), Some("a URL"), "{url}");
        }
        let keys = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=b==";
        let signed = "a.table.core.windows.net/T?sv=2019-02-02&sig=b%3D";
        let bus = "Endpoint=sb://a.net/;SharedAccessKey=b=";
        let inside = "/tmp/AccountName=a";
        for text in [
            keys,
            "UseDevelopmentStorage=true",
            "accountkey=b==",
            signed,
            "Password=b",
            bus,
            inside,
        ] {
            assert_eq!(foreign(text), Some("a connection string"), "{text}");
        }
        for name in ["env:STORE", "file:/etc/store", " ENV:STORE", "File:store"] {
            assert_eq!(foreign(name), Some("the name of a Table service"), "{name}");
        }
        let key = format!("{}/+9==", "Ab1".repeat(27) + "xy");
        assert_eq!((key.len(), foreign(&key)), (88, Some("a key")));
        for path in [
            "./env:STORE",
            "./db:1",
            "db",
            "/var/lib/shop",
            "../a=b",
            "a;b",
            "c:\\db",
            "./https://x",
            "=;",
        ] {
            assert_eq!(foreign(path), None, "{path}");
        }
    }
}
