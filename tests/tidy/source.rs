//! A Rust file, split for the rules of this test: code without literals and comments, comments
//! without code.
//!
//! Invariants
//! * each line keeps its number; columns change, because literals are emptied;
//! * a rule about code can name the forbidden text in a string without matching itself.

/// One `.rs` file.
pub struct Source {
    pub path: String,
    pub raw: Vec<String>,
    /// The code of each line: comments removed, string and character literals emptied.
    pub code: Vec<String>,
    /// The comments of each line, markers included.
    pub comments: Vec<String>,
    /// The string and character literals of each line.
    pub literals: Vec<String>,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        let Splitter { code, comments, literals, .. } = split(text);
        let lines = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
        let raw = lines(text);
        let [code, comments, literals] = [code, comments, literals].map(|text| lines(&text));
        let counts = [code.len(), comments.len(), literals.len()];
        assert_eq!(counts, [raw.len(); 3], "{path}: lines lost");
        Source { path: path.to_owned(), raw, code, comments, literals }
    }

    /// Returns the modules from the crate root to this file: `src/lsm/read.rs` is `lsm`, `read`.
    pub fn modules(&self) -> Vec<&str> {
        let Some(path) = self.path.strip_prefix("src/") else { return Vec::new() };
        let path = path.strip_suffix(".rs").unwrap_or(path);
        let mut modules: Vec<&str> = path.split('/').collect();
        if modules.last() == Some(&"mod") {
            modules.pop();
        }
        modules
    }

    pub fn is_engine(&self) -> bool {
        self.path.starts_with("src/")
    }

    /// Whether the file contains only tests.
    pub fn is_test(&self) -> bool {
        let is_tests = |ending| self.path.ends_with(ending);
        !self.is_engine()
            || is_tests("/tests.rs")
            || is_tests("_tests.rs")
            || self.path.contains("/tests/")
    }

    /// Returns a flag for each line: true in an item that is compiled for tests only, such as a
    /// `#[cfg(test)]` module.
    pub fn test_lines(&self) -> Vec<bool> {
        let mut marked = vec![self.is_test(); self.code.len()];
        let mut line = 0;
        while line < self.code.len() {
            let code = self.code[line].trim();
            let is_test = code.contains("test")
                && !code.contains("not(test")
                && !code.starts_with("#[cfg(any(");
            if code.starts_with("#[cfg(") && is_test {
                let end = block_end(&self.code, line);
                marked[line..=end].fill(true);
                line = end;
            }
            line += 1;
        }
        marked
    }
}

/// Returns the line on which the first block that opens at or after `line` closes; `line` itself if
/// a statement ends before any block opens.
pub fn block_end(code: &[String], line: usize) -> usize {
    let mut depth = 0usize;
    for (number, text) in code.iter().enumerate().skip(line) {
        for c in text.chars() {
            match c {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return number;
                    }
                }
                ';' if depth == 0 => return number,
                _ => {}
            }
        }
    }
    code.len() - 1
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the offsets at which `word` occurs as a whole word in `text`.
pub fn word_offsets<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word)
    })
}

struct Splitter<'a> {
    rest: &'a str,
    code: String,
    comments: String,
    literals: String,
}

fn split(text: &str) -> Splitter<'_> {
    let [code, comments, literals] = std::array::from_fn(|_| String::new());
    let mut splitter = Splitter { rest: text, code, comments, literals };
    while splitter.step() {}
    splitter
}

impl Splitter<'_> {
    fn step(&mut self) -> bool {
        let after_word = self.code.ends_with(is_word);
        if self.rest.starts_with("//") {
            let len = self.rest.find('\n').unwrap_or(self.rest.len());
            self.comment(len);
        } else if self.rest.starts_with("/*") {
            self.comment(block_comment_len(self.rest));
        } else if let Some(len) = raw_string_len(self.rest).filter(|_| !after_word) {
            self.literal(len);
        } else if self.rest.starts_with('"') {
            self.literal(quoted_len(self.rest, '"'));
        } else if let Some(len) = char_literal_len(self.rest) {
            self.literal(len);
        } else if let Some(c) = self.rest.chars().next() {
            self.code.push(c);
            if c == '\n' {
                self.comments.push(c);
                self.literals.push(c);
            }
            self.rest = &self.rest[c.len_utf8()..];
        } else {
            return false;
        }
        true
    }

    fn comment(&mut self, len: usize) {
        let (comment, rest) = self.rest.split_at(len);
        self.comments.push_str(comment);
        let newlines: String = comment.chars().filter(|&c| c == '\n').collect();
        self.code.push_str(&newlines);
        self.literals.push_str(&newlines);
        self.rest = rest;
    }

    fn literal(&mut self, len: usize) {
        let (literal, rest) = self.rest.split_at(len);
        let newlines: String = literal.chars().filter(|&c| c == '\n').collect();
        self.code.push('"');
        self.code.push_str(&newlines);
        self.code.push('"');
        self.comments.push_str(&newlines);
        self.literals.push_str(literal);
        self.rest = rest;
    }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn raw_string_len(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let after = &text[prefix.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end =
        body.find(&close).map_or(text.len(), |end| prefix.len() + hashes + 1 + end + close.len());
    Some(end)
}

fn quoted_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal at the start of `text`. `'a'` is a literal; the
/// lifetime `'a` is not.
fn char_literal_len(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let mut chars = body.chars();
    let first = chars.next()?;
    (first == '\\' || chars.next() == Some('\'')).then(|| quoted_len(text, '\''))
}

#[track_caller]
fn check(text: &str, code: &str, comments: &str) {
    let found = split(text);
    assert_eq!([found.code, found.comments], [code, comments]);
}

#[test]
fn comments_and_literals_leave_the_code() {
    check("a // b\nc", "a \nc", "// b\n");
    check("a /* b /* c */ \n */ d", "a \n d", "/* b /* c */ \n */");
    check(r#"x("a\"//", y)"#, r#"x("", y)"#, "");
    check("r#\"a\"b\n\"#;", "\"\n\";", "\n");
    check("fn f<'a>(c: &'a str) { '{' }", "fn f<'a>(c: &'a str) { \"\" }", "");
    check(r"'\'' '\u{1}'", "\"\" \"\"", "");
    check("br\"\\\" bar\"x\"", "\"\" bar\"\"", "");
}

#[test]
fn test_modules_are_recognized() {
    let text =
        "fn a() {}\n#[cfg(all(test, not(loom)))]\nmod tests {\n x\n}\n#[cfg(test)]\nmod t;\nb";
    let marked = Source::new("src/a.rs", text).test_lines();
    assert_eq!(marked, [false, true, true, true, true, true, true, false]);
    let marked = Source::new("src/a.rs", "#[cfg(any(test, x))]\nmod t;").test_lines();
    assert_eq!(marked, [false, false]);
    assert_eq!(Source::new("src/a/mod.rs", "").modules(), ["a"]);
    assert_eq!(Source::new("src/a/b.rs", "").modules(), ["a", "b"]);
}

#[test]
fn only_whole_words_are_found() {
    assert_eq!(word_offsets("fn a, often, fn", "fn").collect::<Vec<_>>(), [0, 13]);
}
