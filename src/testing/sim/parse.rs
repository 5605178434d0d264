//! Prints the steps of programs as text, and parses the text. A table, the invocation of the macro
//! `forms`, defines the text of every kind of step.
//!
//! Invariant: [`steps`] of a step's text returns the step.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::fs::{Fault, FaultKind, OpKind};
use crate::lsm::GateMode;
use crate::options::{Durability, IoMode};

use super::expr::Expr;
use super::query::{Query, Want};
use super::step::{Condition, Config, Lane, Scan, Step, Verb, Write};
use super::value::Val;
use super::words::{entity_text, word};

/// Defines the text of all steps. Each row has the command, the variant of [`Step`], and the fields
/// in the order of the text. Each field names the method of [`Text`] that prints or reads the
/// field.
macro_rules! forms {
    ($($name:literal $variant:ident $shape:tt
        $($field:ident: $method:ident($($arg:expr),*)),*;)*
    ) => {
        impl Step {
            /// Returns a step for the command `name`, with default values in its fields.
            fn blank(name: &str) -> Option<Step> {
                match name {
                    $($name => {
                        $(let $field = Default::default();)*
                        Some(Step::$variant $shape)
                    })*
                    _ => None,
                }
            }

            /// Prints or reads the fields, and returns the command.
            fn visit(&mut self, text: &mut Text<'_>) -> Result<&'static str, String> {
                match self {
                    $(Step::$variant $shape => {
                        $(text.$method($field $(, $arg)*)?;)*
                        Ok($name)
                    })*
                }
            }
        }
    };
}

forms! {
    "open" Open(config) config: config();
    "create-table" CreateTable(name) name: word("a name");
    "drop-table" DropTable(name) name: word("a name");
    "drop-range" DropRange { table, scan, also }
        table: word("a table"), scan: scan(), also: key("also");
    "expire" Expire { table, keep } table: word("a table"), keep: word("a count");
    "gate" Gate { table, scan, mode } table: word("a table"), scan: scan(), mode: mode();
    "lift" Lift { table, scan } table: word("a table"), scan: scan();
    "move" Move { snapshot, table, scan }
        snapshot: word("a name"), table: word("a table"), scan: scan();
    "archive" Archive { table, seed } table: word("a table"), seed: value("seed", None);
    "tables" Tables {};
    // A write is printed with its verb as the command. `insert` is only the default verb.
    "insert" Write { table, write, durability }
        table: word("a table"), write: write(), durability: named("durability", &DURABILITIES);
    "group" Group { table, writes, durability }
        table: word("a table"), durability: named("durability", &DURABILITIES),
        writes: lines(group_write);
    "submit" Submit { ticket, table, writes, durability }
        ticket: word("a ticket"), table: word("a table"),
        durability: named("durability", &DURABILITIES), writes: lines(group_write);
    "await" Await(ticket) ticket: word("a ticket");
    "poll" Poll(ticket) ticket: word("a ticket");
    "forget" Forget(ticket) ticket: word("a ticket");
    "get" Get { table, key, select, at }
        table: word("a table"), select: list("select"), at: option("at"), key: line_key();
    "scan" Scan { table, scan } table: word("a table"), scan: scan();
    "query" Query { table, query } table: word("a table"), query: query();
    "pages" Pages { name, table, query }
        name: word("a name"), table: word("a table"), query: query();
    "resume" Resume(name) name: word("a name");
    "iterate" Iterate { name, table, scan }
        name: word("a name"), table: word("a table"), scan: scan();
    "next" Next { name, count } name: word("a name"), count: word("a count");
    "snapshot" Snapshot(name) name: word("a name");
    "release" Release(name) name: word("a name");
    "flush" Flush {};
    "compact" Compact {};
    "sync" Sync {};
    "background" Background(steps, lane) steps: word("a count"), lane: named("lane", &LANES);
    "begin-flush" BeginFlush {};
    "end-flush" EndFlush {};
    "begin-compaction" BeginCompaction {};
    "end-compaction" EndCompaction {};
    "checkpoint" Checkpoint {};
    "backup" Backup {};
    "displace" Displace(seed) seed: value("seed", None);
    "beside" Beside {};
    "settle" Settle {};
    "verify" Verify {};
    "reopen" Reopen {};
    "kill" Kill(ops) ops: option("in");
    "crash" Crash { seed, ops } seed: value("seed", None), ops: option("in");
    "fault" Fault(fault) fault: fault();
    "faults-off" FaultsOff {};
    "quota" Quota(bytes) bytes: quota();
    "mend" Mend {};
    "rot" Rot(seed) seed: value("seed", None);
    "heal" Heal {};
    "damage" Damage(seed) seed: value("seed", None);
    "clock" Clock(millis) millis: word("milliseconds");
}

const DURABILITIES: [(Durability, &str); 3] =
    [(Durability::Sync, "sync"), (Durability::Os, "os"), (Durability::Buffered, "buffered")];
const IO_MODES: [(IoMode, &str); 2] = [(IoMode::Mmap, "mmap"), (IoMode::Pread, "pread")];
const MODES: [(GateMode, &str); 2] =
    [(GateMode::ReadOnly, "read-only"), (GateMode::Offline, "offline")];
const LANES: [(Lane, &str); 3] =
    [(Lane::Log, "log"), (Lane::Flush, "flush"), (Lane::Compact, "compact")];
const OPS: [(OpKind, &str); 12] = [
    (OpKind::Create, "create"),
    (OpKind::OpenWrite, "open-write"),
    (OpKind::OpenRead, "open-read"),
    (OpKind::Rename, "rename"),
    (OpKind::Remove, "remove"),
    (OpKind::Link, "link"),
    (OpKind::SyncDir, "sync-dir"),
    (OpKind::Write, "write"),
    (OpKind::Sync, "sync"),
    (OpKind::Allocate, "allocate"),
    (OpKind::Read, "read"),
    (OpKind::Map, "map"),
];
const WANTS: [(Want, &str); 3] =
    [(Want::Count, "count"), (Want::CountByPartition, "counts"), (Want::Explain, "explain")];

/// Returns the word for an item of one of the tables above.
fn name_in<T: PartialEq>(names: &[(T, &'static str)], item: &T) -> &'static str {
    names.iter().find(|(other, _)| other == item).map_or("other", |(_, name)| name)
}

fn find_in<T: Clone>(names: &[(T, &str)], name: &str) -> Option<T> {
    names.iter().find(|(_, other)| *other == name).map(|(item, _)| item.clone())
}

/// Returns the verb of this name; `put` is short for `upsert`.
fn verb_of(name: &str) -> Option<Verb> {
    let name = if name == "put" { "upsert" } else { name };
    Verb::ALL.into_iter().find(|verb| verb.name() == name)
}

/// Returns the word for a durability in the text of steps.
pub(crate) fn durability_name(durability: Durability) -> &'static str {
    name_in(&DURABILITIES, &durability)
}

/// A parsed command line: words and `name=value` options; quotes are kept in values.
#[derive(Clone)]
pub struct Command {
    /// The first word of the line.
    pub name: String,
    /// The other words in order, unquoted.
    pub words: Vec<String>,
    options: Vec<(String, String)>,
}

impl Command {
    /// Parses a line.
    ///
    /// # Errors
    /// The line has an unclosed quote.
    pub fn parse(line: &str) -> Result<Command, String> {
        let mut command = Command { name: String::new(), words: Vec::new(), options: Vec::new() };
        for (number, token) in tokens(line)?.into_iter().enumerate() {
            match token.split_once('=') {
                _ if number == 0 => command.name = token,
                Some((name, value)) if !name.contains('\'') => {
                    command.options.push((name.to_owned(), value.to_owned()));
                }
                _ => command.words.push(unquote(&token)?),
            }
        }
        Ok(command)
    }

    /// Removes and returns the option `name`, unquoted.
    ///
    /// # Errors
    /// The value has an unclosed quote.
    pub fn take(&mut self, name: &str) -> Result<Option<String>, String> {
        let at = self.options.iter().position(|(option, _)| option == name);
        at.map(|at| unquote(&self.options.remove(at).1)).transpose()
    }

    /// Returns the first word after the command.
    ///
    /// # Errors
    /// There is no word; `what` describes the missing one.
    pub fn word(&self, what: &str) -> Result<String, String> {
        self.words.first().cloned().ok_or_else(|| format!("`{}` wants {what}", self.name))
    }

    /// Checks that every option was taken.
    ///
    /// # Errors
    /// An option was not taken: the command has no option of that name.
    pub fn finish(self) -> Result<(), String> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!("`{}` has no option `{name}`", self.name)),
        }
    }
}

/// The text of a step that is being printed or read.
#[derive(Default)]
struct Text<'t> {
    /// The words and options printed so far, each after a space.
    line: String,
    /// The input lines printed so far, each after a line break.
    input: String,
    /// The command and the input to read; `None` prints the step.
    source: Option<(&'t mut Command, &'t [&'t str])>,
}

impl Text<'_> {
    /// Prints or reads an option. A printed value is returned unchanged.
    fn raw(&mut self, name: &str, value: Option<String>) -> Result<Option<String>, String> {
        if let Some((command, _)) = &mut self.source {
            return command.take(name);
        }
        self.line.extend(value.iter().map(|value| format!(" {name}={value}")));
        Ok(value)
    }

    /// Prints or reads a word; `what` describes it in errors.
    fn word<T: Display + FromStr>(&mut self, value: &mut T, what: &str) -> Result<(), String> {
        match &mut self.source {
            None => self.line += &format!(" {value}"),
            Some((command, _)) => {
                let text = command.word(what)?;
                *value = text.parse().map_err(|_| format!("`{text}` is no number"))?;
                command.words.remove(0);
            }
        }
        Ok(())
    }

    fn option<T: Display + FromStr>(
        &mut self,
        value: &mut Option<T>,
        name: &str,
    ) -> Result<(), String> {
        let text = self.raw(name, value.as_ref().map(T::to_string))?;
        let parse = |text: String| text.parse().map_err(|_| format!("{name}={text} is no number"));
        *value = text.map(parse).transpose()?;
        Ok(())
    }

    /// Prints the option unless its value equals `usual`. When reading, leaves the value unchanged
    /// if the option is missing.
    fn value<T: Display + FromStr + Copy + PartialEq>(
        &mut self,
        value: &mut T,
        name: &str,
        usual: Option<T>,
    ) -> Result<(), String> {
        let mut some = Some(*value).filter(|_| usual != Some(*value));
        self.option(&mut some, name)?;
        *value = some.unwrap_or(*value);
        Ok(())
    }

    fn named<T: Clone + PartialEq>(
        &mut self,
        value: &mut Option<T>,
        name: &str,
        names: &[(T, &'static str)],
    ) -> Result<(), String> {
        let text = self.raw(name, value.as_ref().map(|value| name_in(names, value).to_owned()))?;
        let find = |text: String| find_in(names, &text).ok_or_else(|| format!("{name}={text}"));
        *value = text.map(find).transpose()?;
        Ok(())
    }

    /// Prints or reads an option with an entity key as its value. The key may need quotes.
    fn key(&mut self, value: &mut Option<String>, name: &str) -> Result<(), String> {
        *value = self.raw(name, value.as_deref().map(word))?;
        Ok(())
    }

    fn list(&mut self, value: &mut Option<Vec<String>>, name: &str) -> Result<(), String> {
        let text = self.raw(name, value.as_ref().map(|names| names.join(",")))?;
        *value = text.map(|text| text.split(',').map(str::to_owned).collect());
        Ok(())
    }

    /// Prints or reads an input line with keys and properties.
    fn entity(
        &mut self,
        (pk, rk): (&mut String, &mut String),
        properties: &mut Vec<(String, Val)>,
    ) -> Result<(), String> {
        match &self.source {
            None => self.input += &format!("\n{}", entity_text((pk, rk), pairs(properties))),
            Some((_, input)) => {
                let line = input.first().copied().unwrap_or_default();
                (*pk, *rk, *properties) = entity(&tokens(line)?)?;
            }
        }
        Ok(())
    }

    /// Prints or reads one input line for each item.
    fn lines<T: Display>(
        &mut self,
        items: &mut Vec<T>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<(), String> {
        match &self.source {
            None => self.input.extend(items.iter().map(|item| format!("\n{item}"))),
            Some((_, input)) => {
                *items = input.iter().map(|line| read(line)).collect::<Result<_, _>>()?;
            }
        }
        Ok(())
    }

    fn line_key(&mut self, key: &mut (String, String)) -> Result<(), String> {
        self.entity((&mut key.0, &mut key.1), &mut Vec::new())
    }

    fn write(&mut self, write: &mut Write) -> Result<(), String> {
        self.value(&mut write.condition, "if", Some(Condition::Any))?;
        self.entity((&mut write.pk, &mut write.rk), &mut write.properties)
    }

    fn scan(&mut self, scan: &mut Scan) -> Result<(), String> {
        self.key(&mut scan.pk, "pk")?;
        self.key(&mut scan.from, "from")?;
        self.key(&mut scan.to, "to")?;
        self.list(&mut scan.select, "select")?;
        self.option(&mut scan.top, "top")?;
        self.option(&mut scan.page, "page")?;
        self.option(&mut scan.at, "at")
    }

    fn mode(&mut self, mode: &mut GateMode) -> Result<(), String> {
        let mut some = Some(*mode);
        self.named(&mut some, "mode", &MODES)?;
        *mode = some.ok_or("`gate` wants a mode")?;
        Ok(())
    }

    fn query(&mut self, query: &mut Query) -> Result<(), String> {
        let (mut want, mut of) = match &query.want {
            Want::Rows => (None, None),
            Want::Aggregate(name) => (None, Some(name.clone())),
            want => (Some(want.clone()), None),
        };
        self.named(&mut want, "want", &WANTS)?;
        self.option(&mut of, "of")?;
        query.want = match (want, of) {
            (None, None) => Want::Rows,
            (None, Some(name)) => Want::Aggregate(name),
            (Some(want), None) => want,
            (want, of) => return Err(format!("want={want:?} of={of:?}")),
        };
        self.list(&mut query.select, "select")?;
        self.option(&mut query.top, "top")?;
        self.option(&mut query.page, "page")?;
        self.value(&mut query.reverse, "reverse", Some(false))?;
        self.option(&mut query.busy, "busy")?;
        self.option(&mut query.at, "at")?;
        let mut filter: Vec<Expr> = query.filter.take().into_iter().collect();
        self.lines(&mut filter, Expr::parse)?;
        query.filter = filter.into_iter().next();
        Ok(())
    }

    fn fault(&mut self, fault: &mut Fault) -> Result<(), String> {
        let mut word = fault.kind.word().to_owned();
        self.word(&mut word, "a kind")?;
        let kind = FaultKind::ALL.into_iter().find(|kind| kind.word() == word);
        fault.kind = kind.ok_or_else(|| format!("`{word}` is no kind of fault"))?;
        self.named(&mut fault.op, "op", &OPS)?;
        self.option(&mut fault.path, "path")?;
        self.value(&mut fault.after, "nth", Some(0))?;
        self.value(&mut fault.sticky, "sticky", Some(false))
    }

    fn quota(&mut self, bytes: &mut Option<u64>) -> Result<(), String> {
        let mut limit = bytes.map_or("none".to_owned(), |bytes| bytes.to_string());
        self.word(&mut limit, "bytes or none")?;
        *bytes = limit.parse().ok();
        Ok(())
    }

    fn config(&mut self, config: &mut Config) -> Result<(), String> {
        let (mut durability, mut io_mode) = (Some(config.durability), Some(config.io_mode));
        self.named(&mut durability, "durability", &DURABILITIES)?;
        self.named(&mut io_mode, "io", &IO_MODES)?;
        config.durability = durability.unwrap_or(config.durability);
        config.io_mode = io_mode.unwrap_or(config.io_mode);
        self.value(&mut config.memtable_bytes, "memtable", None)?;
        self.value(&mut config.block_bytes, "block", None)?;
        self.value(&mut config.run_file_bytes, "run-file", None)?;
        self.value(&mut config.cache_bytes, "cache", None)?;
        self.value(&mut config.log_buffer_bytes, "buffer", None)?;
        self.value(&mut config.manifest_roll_bytes, "roll", None)?;
        self.value(&mut config.compress, "compress", None)?;
        let targets = config.targets.map(|(one, all)| format!("{one}/{all}"));
        let pair = |text: String| {
            let (one, all) = text.split_once('/').ok_or_else(|| format!("targets={text}"))?;
            Ok::<_, String>((number(one)?, number(all)?))
        };
        config.targets = self.raw("targets", targets)?.map(pair).transpose()?;
        self.option(&mut config.cap, "cap")?;
        self.value(&mut config.ring, "ring", Some(false))?;
        self.value(&mut config.seed, "seed", None)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::default();
        let command = self.clone().visit(&mut text).map_err(|_| fmt::Error)?;
        let command = match self {
            Step::Write { write, .. } => write.verb.name(),
            _ => command,
        };
        write!(f, "{command}{}{}", text.line, text.input)
    }
}

/// Returns the steps of a command and its input; `None` if the command is not a step.
///
/// # Errors
/// The command lacks a part, or has a part that is superfluous or cannot be parsed.
pub fn steps(line: &str, input: &[&str]) -> Result<Option<Vec<Step>>, String> {
    let command = Command::parse(line)?;
    let verb = verb_of(&command.name);
    let name = if verb.is_some() { "insert" } else { &command.name };
    let Some(mut blank) = Step::blank(name) else { return Ok(None) };
    if let Step::Write { write, .. } = &mut blank {
        write.verb = verb.unwrap_or_default();
    }
    let inputs: Vec<&[&str]> = match blank {
        // Each input line is a separate write or read.
        Step::Write { .. } | Step::Get { .. } if !input.is_empty() => input.chunks(1).collect(),
        _ => vec![input],
    };
    let read = |input| {
        let (mut step, mut command) = (blank.clone(), command.clone());
        step.visit(&mut Text { source: Some((&mut command, input)), ..Text::default() })?;
        command.finish()?;
        Ok(step)
    };
    inputs.into_iter().map(read).collect::<Result<_, _>>().map(Some)
}

/// Parses a write of a group, such as `delete if=current pk rk`.
fn group_write(line: &str) -> Result<Write, String> {
    let mut tokens = tokens(line)?.into_iter().peekable();
    let verb = tokens.next().and_then(|name| verb_of(&name));
    let verb = verb.ok_or_else(|| format!("`{line}` opens with no verb"))?;
    let condition = tokens.next_if(|token| token.starts_with("if="));
    let condition = condition.map_or(Ok(Condition::Any), |text| text["if=".len()..].parse())?;
    let (pk, rk, properties) = entity(&tokens.collect::<Vec<_>>())?;
    Ok(Write { verb, pk, rk, properties, condition })
}

impl Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb.name())?;
        if self.condition != Condition::Any {
            write!(f, " if={}", self.condition)?;
        }
        write!(f, " {}", entity_text((&self.pk, &self.rk), pairs(&self.properties)))
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Any => f.write_str("*"),
            Condition::Current => f.write_str("current"),
            Condition::Stale => f.write_str("stale"),
            Condition::Commit(number) => write!(f, "#{number}"),
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        match text {
            "*" => Ok(Condition::Any),
            "current" => Ok(Condition::Current),
            "stale" => Ok(Condition::Stale),
            _ => number(text.strip_prefix('#').unwrap_or(text)).map(Condition::Commit),
        }
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn pairs(properties: &[(String, Val)]) -> impl Iterator<Item = (&String, &Val)> {
    properties.iter().map(|(name, value)| (name, value))
}

/// An entity in text, `pk rk Name=value …`.
type Entity = (String, String, Vec<(String, Val)>);

fn entity(tokens: &[String]) -> Result<Entity, String> {
    let [pk, rk, properties @ ..] = tokens else {
        return Err(format!("`{}` wants a PartitionKey and a RowKey", tokens.join(" ")));
    };
    let property = |token: &String| {
        let (name, value) = token.split_once('=').ok_or_else(|| format!("`{token}` wants `=`"))?;
        Ok((name.to_owned(), Val::parse(value)?))
    };
    let properties = properties.iter().map(property).collect::<Result<_, String>>()?;
    Ok((unquote(pk)?, unquote(rk)?, properties))
}

/// Splits at spaces outside quotes, and keeps the quotes.
fn tokens(line: &str) -> Result<Vec<String>, String> {
    let (mut tokens, mut token) = (Vec::new(), String::new());
    let mut quoted = false;
    for c in line.chars() {
        quoted ^= c == '\'';
        match c {
            ' ' if !quoted => tokens.push(std::mem::take(&mut token)),
            c => token.push(c),
        }
    }
    tokens.push(token);
    tokens.retain(|token| !token.is_empty());
    if quoted { Err(format!("a quote is open in `{line}`")) } else { Ok(tokens) }
}

fn unquote(token: &str) -> Result<String, String> {
    match token.strip_prefix('\'') {
        None => Ok(token.to_owned()),
        Some(rest) => {
            let inner = rest.strip_suffix('\'').ok_or_else(|| format!("{token} wants a quote"))?;
            Ok(inner.replace("''", "'"))
        }
    }
}

#[test]
fn steps_print_and_parse_back() {
    for text in [
        "open durability=os io=pread memtable=65536 block=512 run-file=65536 cache=0 buffer=4096 roll=512 compress=true targets=5/20 cap=4096 ring=true seed=7",
        "create-table parts",
        "upsert-merge parts durability=buffered\nbolts '' Price=0.12 Note='it''s = so'",
        "delete parts if=#3\n'a b' m4",
        "replace parts if=stale\nbolts m4",
        "group parts durability=os\ninsert bolts m4 Price=1\ndelete if=current bolts m5",
        "get parts select=A,B at=s\nbolts m4",
        "scan parts pk='' from=a to=b select=A top=3 page=2 at=s",
        "query parts",
        "query parts want=explain\nPrice lt 0.5",
        "query parts of=Price reverse=true at=s\n(Note eq 'it''s ( so' or not (A eq 5L))",
        "query parts want=counts\nA ne NaN",
        "pages p1 parts select=A,B top=3 page=2 busy=5\nPartitionKey ge ''",
        "resume p1",
        "background 3",
        "background 2 lane=compact",
        "submit t1 parts durability=os\ninsert bolts m4 Price=1\ndelete if=current bolts m5",
        "gate parts pk=bolts from=a mode=offline",
        "lift parts",
        "move s1 parts pk=bolts",
        "await t1",
        "poll t1",
        "forget t1",
        "iterate i1 parts pk=bolts select=A top=4",
        "next i1 3",
        "begin-flush",
        "end-compaction",
        "settle",
        "checkpoint",
        "backup",
        "archive parts seed=5",
        "displace seed=5",
        "kill in=4",
        "crash seed=9 in=12",
        "fault eio op=sync path=.wal nth=3 sticky=true",
        "quota 4096",
        "quota none",
        "mend",
        "rot seed=5",
        "damage seed=6",
        "crash seed=9",
        "clock -50",
        "verify",
    ] {
        let mut lines = text.lines();
        let (line, input) = (lines.next().unwrap(), lines.collect::<Vec<_>>());
        let steps = steps(line, &input).unwrap().unwrap();
        let printed: Vec<String> = steps.iter().map(|step| step.to_string()).collect();
        assert_eq!(printed, [text]);
    }
    assert_eq!(steps("files", &[]), Ok(None));
    assert!(steps("scan parts colour=red", &[]).is_err());
}
