//! Reads and writes small XML documents: settings, policies, errors. Reading builds a tree of
//! bounded size.
//!
//! Invariants
//! * reading bounds the depth and the number of elements; it expands only numeric references and
//!   the five predefined entities;
//! * any text that is written reads back, except for characters that XML cannot hold, which become
//!   U+FFFD.
//!
//! Not here: the meaning of the elements (`settings`, `fault`).

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

/// The start of every document.
pub(crate) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";

/// The maximum number of elements in a document. Valid requests have some hundreds at most.
const ELEMENTS_MAX: usize = 4096;
const DEPTH_MAX: usize = 16;

/// An element without its attributes, which are not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    /// The name without its namespace prefix.
    pub(crate) name: String,
    /// The text directly in the element, without surrounding white space.
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

/// The error for a document that is not well-formed or is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Element {
    /// Returns the first child of that name.
    pub(crate) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }
}

/// Reads the root element of a document; `None` if the document is empty.
pub(crate) fn read(text: &str) -> Result<Option<Element>, Malformed> {
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let mut tree = Tree::default();
    loop {
        match reader.read_event().map_err(|_| Malformed)? {
            Event::Start(start) => tree.open(start.local_name().as_ref())?,
            Event::End(_) => tree.close()?,
            Event::Text(text) => tree.text(&text.xml10_content())?,
            Event::CData(text) => tree.text(&text.xml10_content())?,
            Event::GeneralRef(reference) => tree.text(&resolve(&reference)?)?,
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            // The reader reports an empty element as `Start` and `End`, never as `Empty`.
            Event::DocType(_) | Event::Empty(_) => return Err(Malformed),
            Event::Eof => return tree.end(),
        }
    }
}

/// Appends `<name>text</name>`, the text escaped.
pub(crate) fn put(out: &mut Vec<u8>, name: &str, text: &str) {
    open(out, name);
    put_text(out, text);
    close(out, name);
}

/// Appends `<name>`.
pub(crate) fn open(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(format!("<{name}>").as_bytes());
}

/// Appends `</name>`.
pub(crate) fn close(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(format!("</{name}>").as_bytes());
}

/// Appends `text`, escaped.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut utf8 = [0; 4];
    for c in text.chars() {
        let written = match c {
            '<' => "&lt;",
            '>' => "&gt;",
            '&' => "&amp;",
            '"' => "&quot;",
            '\'' => "&apos;",
            // A carriage return is escaped, because an XML parser would convert it to a line feed.
            '\r' => "&#13;",
            '\t' | '\n' => c.encode_utf8(&mut utf8),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => "\u{fffd}",
            _ => c.encode_utf8(&mut utf8),
        };
        out.extend_from_slice(written.as_bytes());
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, Malformed> {
    if let Some(c) = reference.resolve_char_ref().map_err(|_| Malformed)? {
        return Ok(c.to_string());
    }
    resolve_predefined_entity(reference).map(str::to_owned).ok_or(Malformed)
}

/// The tree of a document while it is read.
#[derive(Default)]
struct Tree {
    /// The elements that are not closed yet, from the root to the innermost one.
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
}

impl Tree {
    fn open(&mut self, name: &str) -> Result<(), Malformed> {
        self.elements += 1;
        let second_root = self.open.is_empty() && self.root.is_some();
        if second_root || self.open.len() >= DEPTH_MAX || self.elements > ELEMENTS_MAX {
            return Err(Malformed);
        }
        self.open.push(Element { name: name.to_owned(), ..Element::default() });
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Malformed> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(Malformed),
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Malformed> {
        let mut element = self.open.pop().ok_or(Malformed)?;
        let text = element.text.trim_matches([' ', '\t', '\r', '\n']);
        if text.len() < element.text.len() {
            element.text = text.to_owned();
        }
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn end(self) -> Result<Option<Element>, Malformed> {
        if self.open.is_empty() { Ok(self.root) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tree in a short form: `a(b[text],c)`.
    fn shown(element: &Element) -> String {
        let text = match element.text.as_str() {
            "" => String::new(),
            text => format!("[{text}]"),
        };
        let children: Vec<_> = element.children.iter().map(shown).collect();
        match children.is_empty() {
            true => format!("{}{text}", element.name),
            false => format!("{}{text}({})", element.name, children.join(",")),
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(shown(&read(text).unwrap().unwrap()), expected, "{text}");
    }

    #[test]
    fn trees() {
        check("<a/>", "a");
        check("<a />", "a");
        check(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<a><b> x </b><c/></a>\n",
            "a(b[x],c)",
        );
        check("<m:a xmlns:m='u' k=\"v\"><m:b>1</m:b></m:a>", "a(b[1])");
        check(
            "<a>&lt;&amp;&#65;&#x42;&quot;&apos;&gt;<![CDATA[<x>&]]><!-- c -->d</a>",
            "a[<&AB\"'><x>&d]",
        );
        check("<a>x<b/>y</a>", "a[xy](b)");
        let tree = read("<a><b>1</b><b>2</b></a>").unwrap().unwrap();
        assert_eq!(tree.child("b").unwrap().text, "1");
        assert_eq!(tree.child("c"), None);
    }

    #[test]
    fn empty_documents_have_no_root() {
        for text in ["", " \r\n", "<?xml version=\"1.0\"?>", "<!-- c -->"] {
            assert_eq!(read(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn malformed_xml_is_refused() {
        for text in [
            "x",
            "<",
            "<a",
            "<a>",
            "</a>",
            "<a></b>",
            "<a><b></a></b>",
            "<a/><b/>",
            "<a/>x",
            "<a>&nope;</a>",
            "<a>&#0;</a>",
            "<a>&#xffffffff;</a>",
            "<a>&</a>",
            "<a><![CDATA[x</a>",
            "<a><!-- x</a>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
        ] {
            assert_eq!(read(text), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn size_is_bounded() {
        let deep = |n: usize| "<a>".repeat(n) + &"</a>".repeat(n);
        assert!(read(&deep(DEPTH_MAX)).is_ok());
        assert_eq!(read(&deep(DEPTH_MAX + 1)), Err(Malformed));
        assert_eq!(read(&"<a>".repeat(1_000_000)), Err(Malformed));
        let wide = |n: usize| format!("<a>{}</a>", "<b/>".repeat(n));
        assert!(read(&wide(ELEMENTS_MAX - 1)).is_ok());
        assert_eq!(read(&wide(ELEMENTS_MAX)), Err(Malformed));
    }

    #[test]
    fn every_cut_is_refused() {
        let text = "<a><b>x&amp;</b><c k='v'/><![CDATA[y]]></a>";
        for end in 1..text.len() {
            assert_eq!(read(&text[..end]), Err(Malformed), "{}", &text[..end]);
        }
    }

    #[test]
    fn texts_read_back() {
        for text in ["", "a<b>&\"'c", "line\nand\ttab", "a\r\nb", "é😀\u{7f}\u{85}"] {
            let mut out = Vec::new();
            put(&mut out, "a", text);
            let written = String::from_utf8(out).unwrap();
            assert_eq!(read(&written).unwrap().unwrap().text, text, "{written}");
        }
        let mut out = Vec::new();
        put(&mut out, "a", "x\u{0}\u{1f}\u{ffff}");
        assert_eq!(String::from_utf8(out).unwrap(), "<a>x\u{fffd}\u{fffd}\u{fffd}</a>");
    }
}
