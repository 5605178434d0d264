//! The import graph: which file of `src` uses an item that another file defines.
//!
//! Edges are `use` declarations and paths (`super::x::f()`, `crate::a::b::T`, `self::`) in code
//! that is not a test. A path resolves to the file that defines the item. Re-exports on the way,
//! such as `pub(crate) use x::T` in a `mod.rs`, are followed.
//!
//! Invariants
//! * a path that ends at a module is no edge; the paths that start with the imported module are;
//! * a re-export in the parent file of a folder is no edge, unless the file uses the name itself.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, is_word};

const ITEMS: [&str; 8] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
/// Maximum length of a chain of imports from a name to its definition. A longer chain is assumed to
/// be a loop.
const HOPS_MAX: usize = 16;

/// A use of an item that another file defines: its place, and the path as written.
#[derive(Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: String,
    pub line: usize,
    pub to: String,
    pub path: String,
}

/// One segment of code: a word, `::`, or any other character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// One name that a `use` declaration imports.
#[derive(Debug)]
struct Import {
    line: usize,
    /// The module with the declaration.
    module: Vec<String>,
    path: Vec<String>,
    /// `*` for a glob, `_` for a trait without a name.
    name: String,
    is_public: bool,
}

/// One path outside `use` declarations.
struct Inline {
    line: usize,
    module: Vec<String>,
    path: Vec<String>,
}

/// The names of one module, which is a file or an inline module in a file.
#[derive(Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    children: BTreeSet<String>,
    /// Imported names with their paths.
    imports: Vec<(String, Vec<String>)>,
}

#[derive(Default)]
struct File {
    imports: Vec<Import>,
    inlines: Vec<Inline>,
    /// Words outside `use` declarations.
    words: BTreeSet<String>,
    /// Types with an inherent `impl`: line, module, path.
    impls: Vec<Inline>,
    test_modules: Vec<Vec<String>>,
}

/// All modules of `src`, by path from the crate root.
#[derive(Default)]
pub struct Graph {
    modules: BTreeMap<Vec<String>, Module>,
    files: BTreeMap<String, File>,
}

enum Target<'a> {
    Item(&'a str),
    Module(Vec<String>),
}

impl Graph {
    pub fn new(sources: &[Source]) -> Graph {
        let mut graph = Graph::default();
        for source in sources.iter().filter(|source| source.is_engine() && !source.is_test()) {
            let mut module: Vec<String> = source.modules().into_iter().map(str::to_owned).collect();
            if module == ["lib"] {
                module.clear();
            }
            Parser::new(source, module).run(&mut graph);
        }
        graph.remove_tests();
        graph
    }

    /// Removes files that are modules of tests only, such as `#[cfg(loom)] mod models;`.
    fn remove_tests(&mut self) {
        let tests: Vec<_> = self.files.values().flat_map(|f| f.test_modules.clone()).collect();
        let removed = |path: &[String]| tests.iter().any(|test| path.starts_with(test));
        let gone: Vec<_> = self.modules.iter().filter(|(path, _)| removed(path)).collect();
        let gone: BTreeSet<_> = gone.into_iter().map(|(_, module)| module.file.clone()).collect();
        self.modules.retain(|path, _| !removed(path));
        self.files.retain(|file, _| !gone.contains(file));
    }

    /// Returns all edges between two files, one per pair.
    pub fn edges(&self) -> Vec<Edge> {
        let mut found: BTreeMap<(&str, &str), (usize, String)> = BTreeMap::new();
        for (from, file) in &self.files {
            let mut add = |line: usize, path: &[String], to: Option<&str>| {
                if let Some((to, _)) = to.and_then(|to| self.files.get_key_value(to))
                    && to != from
                {
                    found.entry((from, to)).or_insert((line, path.join("::")));
                }
            };
            let is_parent = self.is_parent(from);
            for import in &file.imports {
                let is_used = !import.is_public || file.words.contains(&import.name);
                let is_glob = import.name == "*";
                let definition = self.file_of(&import.module, &import.path);
                if is_glob && definition.is_none() && (!import.is_public || !is_parent) {
                    for (name, to) in self.globbed(import) {
                        if file.words.contains(name) {
                            add(import.line, &import.path, Some(to));
                        }
                    }
                } else if is_used || !is_parent {
                    add(import.line, &import.path, definition);
                }
            }
            for inline in &file.inlines {
                add(inline.line, &inline.path, self.file_of(&inline.module, &inline.path));
            }
        }
        let edge = |((from, to), (line, path)): ((&str, &str), _)| Edge {
            from: from.to_owned(),
            line,
            to: to.to_owned(),
            path,
        };
        found.into_iter().map(edge).collect()
    }

    /// Returns each inherent `impl` of a type `name`: file, line, and the file that defines the
    /// type.
    pub fn impls(&self, name: &str) -> Vec<(&str, usize, &str)> {
        let mut found = Vec::new();
        for (file, parsed) in &self.files {
            for place in parsed.impls.iter().filter(|place| place.path.last().unwrap() == name) {
                if let Some(definition) = self.file_of(&place.module, &place.path) {
                    found.push((&**file, place.line, definition));
                }
            }
        }
        found
    }

    fn is_parent(&self, file: &str) -> bool {
        let folder = file.trim_end_matches("mod.rs").trim_end_matches("lib.rs");
        let folder =
            folder.strip_suffix(".rs").map_or(folder.to_owned(), |stem| format!("{stem}/"));
        self.modules.values().any(|m| m.file != file && m.file.starts_with(&folder))
    }

    fn file_of(&self, module: &[String], path: &[String]) -> Option<&str> {
        match self.resolve(module, path, false, HOPS_MAX)? {
            Target::Item(file) => Some(file),
            Target::Module(_) => None,
        }
    }

    /// Returns the names that a glob import brings in, each with the file that defines it.
    fn globbed(&self, import: &Import) -> Vec<(&str, &str)> {
        match self.resolve(&import.module, &import.path, true, HOPS_MAX) {
            Some(Target::Module(path)) => {
                let Some(module) = self.modules.get(&path) else { return Vec::new() };
                let own = module.items.iter().map(|item| (&**item, &*module.file));
                let names = module.imports.iter().map(|(name, _)| &**name);
                let others = names.filter_map(|name| {
                    Some((name, self.file_of(&path, &["self".to_owned(), name.to_owned()])?))
                });
                own.chain(others).collect()
            }
            Some(Target::Item(_)) | None => Vec::new(),
        }
    }

    /// Returns the item or module that `path` refers to in `module`; `None` for other crates.
    fn resolve(
        &self,
        module: &[String],
        path: &[String],
        wants_module: bool,
        hops: usize,
    ) -> Option<Target<'_>> {
        let hops = hops.checked_sub(1)?;
        let mut at = module.to_vec();
        for (index, segment) in path.iter().enumerate() {
            match segment.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()?),
                _ => {
                    let is_last = index + 1 == path.len();
                    match self.member(&at, segment, !is_last || wants_module, hops)? {
                        Target::Item(file) => return Some(Target::Item(file)),
                        Target::Module(path) => at = path,
                    }
                }
            }
        }
        Some(Target::Module(at))
    }

    fn member(
        &self,
        at: &[String],
        name: &str,
        prefers_module: bool,
        hops: usize,
    ) -> Option<Target<'_>> {
        let module = self.modules.get(at)?;
        let child = module.children.contains(name).then(|| {
            let path = at.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
            Target::Module(path)
        });
        if child.is_some() && prefers_module {
            return child;
        }
        if module.items.contains(name) {
            return Some(Target::Item(&module.file));
        }
        let named = module.imports.iter().filter(|(import, _)| import == name);
        let mut found = named.filter_map(|(_, path)| self.resolve(at, path, prefers_module, hops));
        if let Some(target) = found.next() {
            return Some(target);
        }
        let globs = module.imports.iter().filter(|(import, _)| import == "*");
        let mut found = globs.filter_map(|(_, path)| match self.resolve(at, path, true, hops)? {
            Target::Module(path) if path != at => {
                self.member(&path, name, prefers_module, hops.checked_sub(1)?)
            }
            _ => None,
        });
        found.next().or(child)
    }
}

/// Reads the declarations and paths of one file.
struct Parser<'a> {
    path: String,
    tokens: Vec<Token<'a>>,
    /// The tokens of lines that are compiled for tests only. They are read only for `mod name;`.
    test_tokens: Vec<Token<'a>>,
    module: Vec<String>,
    /// For each open brace, whether it opened a module.
    open: Vec<bool>,
    file: File,
}

impl<'a> Parser<'a> {
    fn new(source: &'a Source, module: Vec<String>) -> Self {
        let (mut tokens, mut test_tokens) = (Vec::new(), Vec::new());
        for (number, is_test) in source.test_lines().into_iter().enumerate() {
            let into = if is_test { &mut test_tokens } else { &mut tokens };
            tokenize(&source.code[number], number + 1, into);
        }
        let path = source.path.clone();
        Self { path, tokens, test_tokens, module, open: Vec::new(), file: File::default() }
    }

    fn run(mut self, graph: &mut Graph) {
        self.declare(graph);
        for window in self.test_tokens.windows(3) {
            if window[0].text == "mod" && window[2].text == ";" {
                self.file.test_modules.push(self.child(window[1].text));
            }
        }
        let mut at = 0;
        while at < self.tokens.len() {
            at = self.step(graph, at);
        }
        for import in &self.file.imports {
            let module = graph.modules.get_mut(&import.module).expect("declared above");
            module.imports.push((import.name.clone(), import.path.clone()));
        }
        graph.files.insert(self.path, self.file);
    }

    /// Records the module that the parser is in.
    fn declare(&self, graph: &mut Graph) {
        let module = graph.modules.entry(self.module.clone()).or_default();
        module.file.clone_from(&self.path);
    }

    fn child(&self, name: &str) -> Vec<String> {
        self.module.iter().cloned().chain([name.to_owned()]).collect()
    }

    fn text(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    /// Reads the construct at `at`; returns the position after it.
    fn step(&mut self, graph: &mut Graph, at: usize) -> usize {
        let Token { text, line } = self.tokens[at];
        let (next, after) = (self.text(at + 1), self.text(at + 2));
        match text {
            "use" if next != "<" => return self.read_use(at),
            "mod" if after == "{" || after == ";" => {
                let parent = graph.modules.get_mut(&self.module).expect("declared");
                parent.children.insert(next.to_owned());
                if after == "{" {
                    self.open.push(true);
                    self.module.push(next.to_owned());
                    self.declare(graph);
                }
                return at + 3;
            }
            "macro_rules" => self.declare_item(graph, after),
            "impl" if self.is_module_level() => self.read_impl(at),
            "{" => self.open.push(false),
            "}" if self.open.pop() == Some(true) => drop(self.module.pop()),
            _ if ITEMS.contains(&text) && self.is_module_level() => {
                let name = if next == "mut" { after } else { next };
                self.declare_item(graph, name);
            }
            _ => {}
        }
        if !text.starts_with(is_word) {
            return at + 1;
        }
        self.file.words.insert(text.to_owned());
        let end = self.path_end(at);
        if end > at + 1 && (at == 0 || self.text(at - 1) != "::") {
            let path = self.path(at, end);
            self.file.inlines.push(Inline { line, module: self.module.clone(), path });
        }
        at + 1
    }

    fn declare_item(&self, graph: &mut Graph, name: &str) {
        if name.starts_with(is_word) && !ITEMS.contains(&name) {
            let module = graph.modules.get_mut(&self.module).expect("declared");
            module.items.insert(name.to_owned());
        }
    }

    fn is_module_level(&self) -> bool {
        self.open.iter().all(|is_module| *is_module)
    }

    /// Returns the position after the last segment of the path that starts at `at`.
    fn path_end(&self, at: usize) -> usize {
        let mut end = at + 1;
        while self.text(end) == "::" && self.text(end + 1).starts_with(is_word) {
            end += 2;
        }
        end
    }

    fn path(&self, at: usize, end: usize) -> Vec<String> {
        let words = self.tokens[at..end].iter().filter(|token| token.text != "::");
        words.map(|token| token.text.to_owned()).collect()
    }

    /// Records `impl<…> a::Type<…> {`, but not `impl Trait for Type {`.
    fn read_impl(&mut self, at: usize) {
        let mut start = at + 1;
        if self.text(start) == "<" {
            start = self.after_angles(start);
        }
        if !self.text(start).starts_with(is_word) {
            return;
        }
        let end = self.path_end(start);
        let rest = if self.text(end) == "<" { self.after_angles(end) } else { end };
        if self.text(rest) == "{" || self.text(rest) == "where" {
            let (line, path) = (self.tokens[at].line, self.path(start, end));
            self.file.impls.push(Inline { line, module: self.module.clone(), path });
        }
    }

    /// Returns the position after the `>` that closes the `<` at `at`; the `>` of `->` closes
    /// nothing.
    fn after_angles(&self, mut at: usize) -> usize {
        let mut depth = 0usize;
        loop {
            match self.text(at) {
                "<" => depth += 1,
                ">" if self.text(at - 1) != "-" => depth -= 1,
                "" => return at,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                return at;
            }
        }
    }

    /// Reads the `use` declaration at `at`; returns the position after its `;`.
    fn read_use(&mut self, at: usize) -> usize {
        let is_public = at > 0 && (self.text(at - 1) == "pub" || self.text(at - 1) == ")");
        let mut end = at + 1;
        self.read_tree(&mut end, &mut Vec::new(), is_public);
        while !matches!(self.text(end), ";" | "") {
            end += 1;
        }
        end + 1
    }

    /// Reads one `a::b`, `a as b`, `a::*` or `a::{…}` of a `use` declaration.
    fn read_tree(&mut self, at: &mut usize, prefix: &mut Vec<String>, is_public: bool) {
        let depth = prefix.len();
        let line = self.tokens.get(*at).map_or(0, |token| token.line);
        loop {
            match self.text(*at) {
                "::" => *at += 1,
                "{" => {
                    *at += 1;
                    while !matches!(self.text(*at), "}" | "") {
                        self.read_tree(at, prefix, is_public);
                        if self.text(*at) == "," {
                            *at += 1;
                        }
                    }
                    *at += 1;
                    break;
                }
                "as" => {
                    let name = self.text(*at + 1).to_owned();
                    *at += 2;
                    self.add_import(line, prefix, name, is_public);
                    break;
                }
                "*" => {
                    *at += 1;
                    self.add_import(line, prefix, "*".to_owned(), is_public);
                    break;
                }
                word if word.starts_with(is_word) => {
                    prefix.push(word.to_owned());
                    *at += 1;
                    if !matches!(self.text(*at), "::" | "as") {
                        let name = prefix.iter().rfind(|word| *word != "self").cloned();
                        self.add_import(line, prefix, name.unwrap_or_default(), is_public);
                        break;
                    }
                }
                _ => break,
            }
        }
        prefix.truncate(depth);
    }

    fn add_import(&mut self, line: usize, path: &[String], name: String, is_public: bool) {
        // `a::{self}` names `a`.
        let mut path = path.to_vec();
        if path.len() > 1 {
            path.retain({
                let mut first = true;
                move |word| std::mem::take(&mut first) || word != "self"
            });
        }
        let module = self.module.clone();
        self.file.imports.push(Import { line, module, path, name, is_public });
    }
}

fn tokenize<'a>(code: &'a str, line: usize, tokens: &mut Vec<Token<'a>>) {
    let mut rest = code.trim_start();
    while let Some(c) = rest.chars().next() {
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let len = match word {
            0 if rest.starts_with("::") => 2,
            0 => c.len_utf8(),
            word => word,
        };
        tokens.push(Token { text: &rest[..len], line });
        rest = rest[len..].trim_start();
    }
}
