//! Texts that name the place of a connection string.

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
    #[cfg(feature = "cli")]
    pub(crate) fn is_valid(self) -> bool {
        let (Self::Variable(name) | Self::File(name)) = self;
        !name.is_empty() && !name.starts_with("//") && !name.contains([';', '?', '&', '='])
    }
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
}
