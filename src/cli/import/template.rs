//! Templates of keys: `{carrier}-{origin}` names columns whose raw text is put in; `{{` and `}}` are braces.

/// A parsed template, its columns by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Column(usize),
}

impl Template {
    /// Parses `template`, finding columns by `column`.
    ///
    /// # Errors
    /// A sentence about what is wrong, the unknown column named.
    pub(super) fn parse(
        template: &str,
        column: impl Fn(&str) -> Option<usize>,
    ) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, braced) = rest.split_at(at);
            text.push_str(before);
            if let Some(after) = braced.strip_prefix("{{").or_else(|| braced.strip_prefix("}}")) {
                text.push_str(braced.get(..1).unwrap_or_default());
                rest = after;
                continue;
            }
            let Some((name, after)) = braced.strip_prefix('{').and_then(|b| b.split_once('}'))
            else {
                return Err(format!("'{template}' has a lone brace; double it if it is meant"));
            };
            let number = column(name).ok_or_else(|| format!("there is no column '{name}'"))?;
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(Part::Column(number));
            rest = after;
        }
        text.push_str(rest);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Template(parts))
    }

    /// The template of one column alone.
    pub(super) fn column(number: usize) -> Template {
        Template(vec![Part::Column(number)])
    }

    /// Appends the key to `out`.
    #[inline]
    pub(super) fn expand<'f>(&self, out: &mut Vec<u8>, field: impl Fn(usize) -> &'f [u8]) {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Column(number) => out.extend_from_slice(field(*number)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [&str; 3] = ["carrier", "origin", "a b"];

    fn parse(template: &str) -> Result<Template, String> {
        Template::parse(template, |name| COLUMNS.iter().position(|column| *column == name))
    }

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let mut out = Vec::new();
        let fields: [&[u8]; 3] = [b"UA", b"EWR", b"NA"];
        parse(template).unwrap().expand(&mut out, |i| fields[i]);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn columns_and_text() {
        check("{carrier}-{origin}", "UA-EWR");
        check("{carrier}{carrier}{a b}", "UAUANA");
        check("all", "all");
        check("", "");
        check("{{{carrier}}} }}", "{UA} }");
        assert_eq!(parse("{origin}"), Ok(Template::column(1)));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("{tail}").unwrap_err(), "there is no column 'tail'");
        assert_eq!(parse("{}").unwrap_err(), "there is no column ''");
        for template in ["{carrier", "carrier}", "{{carrier}", "a}b"] {
            assert!(parse(template).unwrap_err().contains("lone brace"), "{template}");
        }
    }
}
